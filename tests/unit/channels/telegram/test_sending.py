"""What goes to Telegram, by its real client library, to a server that speaks its Bot API, well and badly."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.telegram.bot_api import Patience
from holdfast.channels.telegram.channel import ABILITIES, AGAIN, FETCH_BYTES_MAX, Telegram
from holdfast.channels.telegram.pace import GROUP_EDITS_MAX, GROUP_WRITES_MAX, WINDOW_MS
from holdfast.domain.chats import Button, Chat, FileRef, Outgoing
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import TooLarge
from tests.support.telegram_api import TOKEN, on_a_thread, serving
from tests.support.telegram_faults import (
    BROKEN,
    BROKEN_AFTER,
    DROPPED,
    DROPPED_AFTER,
    SILENT_AFTER,
    Fault,
    flood,
)
from tests.support.telegram_fixture import ADA, CALM, GROUP, HERE, THERE, Shelf, Talk, talking

SHORT = Patience(answer_s=1.0)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
LONG_PRESS = '{"inline_keyboard":[[{"text":"a","callback_data":"' + "y" * 65 + '"}]]}'
CHANNELS_PAGE = Path(__file__).parents[4] / "docs" / "channels.md"


async def refused(talk: Talk, *faults: Fault, chat: Chat = HERE) -> ChannelFailure:
    talk.api.misbehave("sendMessage", *faults)
    with pytest.raises(ChannelFailure) as caught:
        await talk.channel.send(chat, Outgoing("Hello"), "k")
    assert TOKEN not in str(caught.value) and TOKEN.split(":")[1] not in repr(caught.value.fields)
    assert caught.value.__cause__ is None
    return caught.value


async def test_an_answer_is_shown_as_it_was_meant_and_edited() -> None:
    async with talking() as talk:
        sent = await talk.channel.send(HERE, Outgoing("Some **bold**"), "k")
        await talk.channel.edit(HERE, sent, Outgoing("Some **bold** words & `code`"))
        await talk.channel.edit(HERE, sent, Outgoing("Some **bold** words & `code`"))  # As it is already.
        (shown,) = talk.api.shown(ADA)
        assert (str(shown.id), shown.text) == (sent, "Some bold words & code")
        assert [each.tag for each in shown.entities] == ["b", "code"]
        assert shown.versions == ["Some bold", "Some bold words & code"]


async def test_buttons_stand_below_and_go_with_an_edit() -> None:
    async with talking() as talk:
        buttons = (Button("Allow once", "allow r c"), Button("Deny", "deny r c"))
        sent = await talk.channel.send(HERE, Outgoing("May I?", buttons), "k")
        assert [each["text"] for each in talk.api.shown(ADA)[0].buttons] == ["Allow once", "Deny"]
        await talk.channel.edit(HERE, sent, Outgoing("May I?\n\nAllowed."))
        assert talk.api.shown(ADA)[0].buttons == []


async def test_what_may_have_been_sent_before_says_so() -> None:
    async with talking() as talk:
        await talk.channel.send(HERE, Outgoing("```\nopen code", is_again=True), "k")
        (shown,) = talk.api.shown(ADA)
        assert shown.text == f"open code\n\n{AGAIN}" and shown.entities[0].text == "open code"


@pytest.mark.parametrize(
    "text",
    [
        "x" * ABILITIES.text_chars_max,
        "🙂" * (ABILITIES.text_chars_max // 2),
        "&<>" * (ABILITIES.text_chars_max // 3),
        "|a|b|\n|-|-|\n|" + "c" * 1_000 + "|d|\n" + "|e|f|\n" * 400,
        "1. a\n" * 700,
    ],
)
async def test_the_longest_text_fits_even_when_it_is_sent_again(text: str) -> None:
    async with talking() as talk:
        await talk.channel.send(HERE, Outgoing(text, is_again=True), "k")
        assert AGAIN in talk.api.texts(ADA)[0]


async def test_text_that_telegram_cannot_read_is_sent_plain() -> None:
    async with talking() as talk:
        words = "Bad Request: can't parse entities: Unsupported start tag"
        talk.api.misbehave("sendMessage", Fault("refused", status=400, words=words))
        sent = await talk.channel.send(HERE, Outgoing("**b** <x>"), "k")
        talk.api.misbehave("editMessageText", Fault("refused", status=400, words=words))
        await talk.channel.edit(HERE, sent, Outgoing("**c** <x>"))
        assert talk.api.shown(ADA)[0].versions == ["**b** <x>", "**c** <x>"]


async def test_files_go_out_as_pictures_or_documents_with_their_words() -> None:
    async with talking() as talk:
        talk.shelf.blobs = {"p": PNG, "t": b"some text"}
        first = await talk.channel.send(HERE, Outgoing("A *picture*", files=("p",)), "k")
        await talk.channel.send(HERE, Outgoing("x" * 2_000, files=("t",)), "l")
        await talk.channel.send(HERE, Outgoing(files=("t", "p")), "m")
        await talk.channel.edit(HERE, first, Outgoing("Another", files=("p",)))
        shown = talk.api.shown(ADA)
        assert [(each.file_kind, len(each.text)) for each in shown] == [
            ("photo", 7), ("", 2_000), ("document", 0), ("document", 0), ("photo", 0)
        ]  # fmt: skip
        assert shown[0].file == PNG and shown[0].versions == ["A picture", "Another"]
        assert shown[2].file == b"some text"


async def test_files_go_out_by_their_names_and_those_without_one_by_what_they_are() -> None:
    async with talking() as talk:
        talk.shelf.blobs = {"p": PNG, "t": b"some text"}
        names = ("Bericht – Ärger.txt", "../../etc/pass\u202ewd")
        await talk.channel.send(HERE, Outgoing("Two", files=("t", "p", "t"), names=names), "k")
        called = [each.file_name for each in talk.api.shown(ADA)]
        assert called == ["Bericht – Ärger.txt", "passwd", "text.txt"]


async def test_a_picture_that_is_none_to_telegram_goes_as_a_document() -> None:
    async with talking() as talk:
        talk.shelf.blobs = {"p": PNG}
        talk.api.misbehave(
            "sendPhoto", Fault("refused", status=400, words="Bad Request: PHOTO_INVALID_DIMENSIONS")
        )
        await talk.channel.send(HERE, Outgoing("Wide", files=("p",)), "k")
        assert [(each.file_kind, each.text) for each in talk.api.shown(ADA)] == [("document", "Wide")]


async def test_a_file_that_fails_after_its_words_leaves_open_what_arrived() -> None:
    async with talking() as talk:
        talk.shelf.blobs = {"t": b"some text"}
        talk.api.misbehave("sendDocument", flood(3))
        with pytest.raises(ChannelFailure) as caught:
            await talk.channel.send(HERE, Outgoing("x" * 2_000, files=("t",)), "k")
        assert caught.value.arrived is None and len(talk.api.shown(ADA)) == 1


async def test_typing_is_shown() -> None:
    async with talking() as talk:
        await talk.channel.show_typing(HERE)
        assert [asked["action"] for method, asked in talk.api.calls if method == "sendChatAction"] == [
            "typing"
        ]


async def test_files_are_fetched_up_to_what_telegram_gives() -> None:
    async with talking() as talk:
        talk.api.offer("documents/a b#1.txt", b"content")
        talk.api.offer("large", bytes(FETCH_BYTES_MAX + 1))
        assert await talk.channel.fetch(FileRef("documents/a b#1.txt")) == b"content"
        for said in (0, FETCH_BYTES_MAX + 1):
            with pytest.raises(TooLarge) as large:
                await talk.channel.fetch(FileRef("large", "film.mp4", size_bytes=said))
            told = " (20.1 MB)" if said else ""
            assert (
                str(large.value) == f"The file “film.mp4” is too large{told}: at most 20 MB can be fetched."
            )
        with pytest.raises(ChannelFailure) as caught:
            await talk.channel.fetch(FileRef("unknown"))
        assert caught.value.final


async def test_a_file_of_this_machine_is_never_taken_for_one_of_telegram(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_bytes(b"of this machine")
    async with talking() as talk:
        talk.api.offer(str(secret), b"of Telegram")
        with pytest.raises(ChannelFailure):
            await talk.channel.fetch(FileRef(str(secret)))


# What goes wrong.


@pytest.mark.parametrize("fault", [SILENT_AFTER, DROPPED_AFTER, DROPPED, BROKEN, BROKEN_AFTER])
async def test_nobody_can_tell_whether_what_was_not_answered_arrived(fault: Fault) -> None:
    async with talking(SHORT if fault is SILENT_AFTER else CALM) as talk:
        failure = await refused(talk, fault)
        assert (failure.arrived, failure.final, failure.retry_after_ms) == (None, False, None)
        assert len(talk.api.shown(ADA)) == fault.is_done


async def test_what_could_not_be_sent_at_all_has_not_arrived() -> None:
    async with talking() as talk:
        pass
    channel = Telegram(TOKEN, Shelf(), FakeClock(), api_url=talk.api.url, patience=CALM)
    with pytest.raises(ChannelFailure) as caught:
        await channel.send(HERE, Outgoing("Hello"), "k")
    assert caught.value.arrived is False and not caught.value.final and TOKEN not in str(caught.value)
    health = await channel.health()
    assert not health.ok and "cannot be reached" in health.detail
    await channel.close()


async def test_patience_that_telegram_asks_for_is_kept_without_asking_it_again() -> None:
    async with talking() as talk:
        failure = await refused(talk, flood(7))
        assert (failure.arrived, failure.retry_after_ms, failure.final) == (False, 7_000, False)
        asked = talk.api.count("sendMessage")
        talk.clock.advance(5_000)
        assert (await refused(talk)).retry_after_ms == 2_000
        assert talk.api.count("sendMessage") == asked
        talk.clock.advance(2_000)
        await talk.channel.send(HERE, Outgoing("Hello"), "k")
        assert talk.api.texts(ADA) == ["Hello"]


async def test_a_group_is_written_to_no_faster_than_it_takes() -> None:
    async with talking() as talk:
        sent = await talk.channel.send(THERE, Outgoing("0"), "k")
        for number in range(1, GROUP_EDITS_MAX):
            talk.clock.advance(1_000)
            await talk.channel.edit(THERE, sent, Outgoing(f"{number}"))
        with pytest.raises(ChannelFailure) as caught:
            await talk.channel.edit(THERE, sent, Outgoing("too often"))
        # The first is a minute old after that, and then there is room for one more.
        assert caught.value.retry_after_ms == WINDOW_MS - (GROUP_EDITS_MAX - 1) * 1_000
        for number in range(GROUP_WRITES_MAX - GROUP_EDITS_MAX):
            await talk.channel.send(THERE, Outgoing(f"answer {number}"), "k")
        assert (await refused(talk, chat=THERE)).retry_after_ms
        await talk.channel.send(HERE, Outgoing("Another chat goes on"), "k")
        talk.clock.advance(caught.value.retry_after_ms or 0)
        await talk.channel.send(THERE, Outgoing("again"), "k")


@pytest.mark.parametrize(
    ("words", "status"),
    [("Forbidden: bot was blocked by the user", 403), ("Bad Request: chat not found", 400)],
)
async def test_a_chat_that_cannot_be_written_to_is_given_up(words: str, status: int) -> None:
    async with talking() as talk:
        talk.api.blocked = {ADA}
        chat = HERE if status == 403 else Chat("telegram", "dm", "4711")
        failure = await refused(talk, chat=chat)
        assert failure.final and failure.arrived is False and words in str(failure)


async def test_an_edit_of_what_is_gone_is_given_up() -> None:
    async with talking() as talk:
        with pytest.raises(ChannelFailure) as caught:
            await talk.channel.edit(HERE, "4711", Outgoing("Hello"))
        assert caught.value.final


async def test_a_group_that_has_become_another_is_written_to_there() -> None:
    async with talking() as talk:
        talk.api.open_chat(-100_500)
        talk.api.moved = {GROUP: -100_500}
        await talk.channel.send(THERE, Outgoing("Hello"), "k")
        assert talk.api.texts(-100_500) == ["Hello"]


async def test_a_wrong_token_is_told_clearly_and_without_it() -> None:
    wrong = "123456:" + "w" * 35
    async with talking(token=wrong) as talk:
        health = await talk.channel.health()
        assert not health.ok and "does not know this bot's token" in health.detail
        with pytest.raises(ChannelFailure) as caught:
            await talk.channel.send(HERE, Outgoing("Hello"), "k")
        assert "w" * 35 not in str(caught.value) + repr(caught.value.__context__)
        # It is the bot that is refused, not the message.
        assert not caught.value.final and caught.value.arrived is False
    for odd in ("", "no token", "1:a/../../b" + "c" * 30):
        with pytest.raises(ChannelFailure):
            Telegram(odd, Shelf(), FakeClock())


async def test_words_of_telegram_never_bring_the_token_back() -> None:
    async with talking() as talk:
        words = f"Bad Request: see https://api.telegram.org/bot{TOKEN}/sendMessage"
        failure = await refused(talk, Fault("refused", status=400, words=words))
        assert "api.telegram.org/bot…/sendMessage" in str(failure)


async def test_a_message_without_words_is_not_sent() -> None:
    async with talking() as talk:
        for text in ("", " \n"):
            with pytest.raises(ChannelFailure) as caught:
                await talk.channel.send(HERE, Outgoing(text, is_again=True), "k")
            assert caught.value.final and "has no words" in str(caught.value)
        assert talk.api.calls == []


# The platform itself, and what is written about it.


def test_the_platform_can_run_beside_a_test_that_blocks() -> None:
    with on_a_thread() as api:
        stages: list[str] = []
        api.on = lambda stage, method, asked: stages.append(f"{stage} {method}")
        api.open_chat(ADA)

        async def send() -> None:
            channel = Telegram(TOKEN, Shelf(), FakeClock(), api_url=api.url, patience=CALM)
            await channel.send(HERE, Outgoing("Hello"), "k")
            await channel.close()

        asyncio.run(send())
        api.wait(lambda: len(stages) == 3)
        assert stages == ["arrived sendMessage", "accepted sendMessage", "answered sendMessage"]
        assert api.texts(ADA) == ["Hello"]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"text": "x" * 4097}, "message is too long"),
        ({"text": "🙂" * 2049}, "message is too long"),
        ({"text": " "}, "message text is empty"),
        ({"text": "<b>x", "parse_mode": "HTML"}, "can't parse entities: Can't find end tag"),
        ({"text": "<p>x</p>", "parse_mode": "HTML"}, 'can\'t parse entities: Unsupported start tag "p"'),
        ({"text": "<b><i>x</b></i>", "parse_mode": "HTML"}, "can't parse entities: Unmatched end tag"),
        ({"text": "x", "reply_markup": LONG_PRESS}, "BUTTON_DATA_INVALID"),
    ],
)  # fmt: skip
async def test_the_platform_refuses_what_telegram_refuses(asked: dict[str, str], words: str) -> None:
    async with serving() as api, aiohttp.ClientSession() as http:
        api.open_chat(ADA)
        url = f"{api.url}/bot{TOKEN}/sendMessage"
        async with http.post(url, data={"chat_id": str(ADA), **asked}) as answer:
            told = await answer.json()
        assert (answer.status, told["error_code"]) == (400, 400) and words in told["description"]
        assert api.shown(ADA) == []


def test_what_is_documented_is_what_telegram_can_do() -> None:
    page = CHANNELS_PAGE.read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| Telegram |"))
    told = [cell.strip() for cell in row.strip("|").split("|")][1:]
    yes = {True: "yes", False: "no"}
    assert told == [
        f"{ABILITIES.text_chars_max:,}",
        yes[ABILITIES.edits],
        yes[ABILITIES.buttons],
        yes[ABILITIES.files],
        yes[ABILITIES.dedupes_updates],
        yes[ABILITIES.dedupes_sends],
        f"{ABILITIES.edit_every_ms:,} ms",
    ]
