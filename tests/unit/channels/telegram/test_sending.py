"""What goes to Telegram, by its real client library, to a server that speaks its Bot API, well and badly."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.telegram.bot_api import TelegramTimeouts
from holdfast.channels.telegram.channel import ABILITIES, FETCH_BYTES_MAX, RESENT_NOTE, Telegram
from holdfast.channels.telegram.write_rate_limiter import GROUP_EDITS_MAX, GROUP_WRITES_MAX, WINDOW_MS
from holdfast.domain.chats import Button, Chat, FileRef, OutboundMessage
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import TooLarge
from tests.support.telegram_api import TOKEN, telegram_server, telegram_server_in_thread
from tests.support.telegram_faults import (
    BROKEN,
    BROKEN_AFTER,
    DROPPED,
    DROPPED_AFTER,
    NO_REPLY_AFTER,
    Fault,
    too_many_requests,
)
from tests.support.telegram_fixture import (
    ADA,
    CALM,
    GROUP,
    HERE,
    THERE,
    FakeStore,
    TelegramHarness,
    telegram_harness,
)

SHORT = TelegramTimeouts(answer_s=1.0)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
LONG_PRESS = '{"inline_keyboard":[[{"text":"a","callback_data":"' + "y" * 65 + '"}]]}'
CHANNELS_PAGE = Path(__file__).parents[4] / "docs" / "channels.md"


async def send_failure(harness: TelegramHarness, *faults: Fault, chat: Chat = HERE) -> ChannelFailure:
    harness.api.add_faults("sendMessage", *faults)
    with pytest.raises(ChannelFailure) as caught:
        await harness.channel.send(chat, OutboundMessage("Hello"), "k")
    assert TOKEN not in str(caught.value) and TOKEN.split(":")[1] not in repr(caught.value.fields)
    assert caught.value.__cause__ is None
    return caught.value


async def test_an_answer_is_shown_as_it_was_meant_and_edited() -> None:
    async with telegram_harness() as harness:
        sent = await harness.channel.send(HERE, OutboundMessage("Some **bold**"), "k")
        await harness.channel.edit(HERE, sent, OutboundMessage("Some **bold** words & `code`"))
        await harness.channel.edit(
            HERE, sent, OutboundMessage("Some **bold** words & `code`")
        )  # As it is already.
        (shown,) = harness.api.shown(ADA)
        assert (str(shown.id), shown.text) == (sent, "Some bold words & code")
        assert [each.tag for each in shown.entities] == ["b", "code"]
        assert shown.versions == ["Some bold", "Some bold words & code"]


async def test_buttons_stand_below_and_go_with_an_edit() -> None:
    async with telegram_harness() as harness:
        buttons = (Button("Allow once", "allow r c"), Button("Deny", "deny r c"))
        sent = await harness.channel.send(HERE, OutboundMessage("May I?", buttons), "k")
        assert [each["text"] for each in harness.api.shown(ADA)[0].buttons] == ["Allow once", "Deny"]
        await harness.channel.edit(HERE, sent, OutboundMessage("May I?\n\nAllowed."))
        assert harness.api.shown(ADA)[0].buttons == []


async def test_what_may_have_been_sent_before_says_so() -> None:
    async with telegram_harness() as harness:
        await harness.channel.send(HERE, OutboundMessage("```\nopen code", is_again=True), "k")
        (shown,) = harness.api.shown(ADA)
        assert shown.text == f"open code\n\n{RESENT_NOTE}" and shown.entities[0].text == "open code"


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
    async with telegram_harness() as harness:
        await harness.channel.send(HERE, OutboundMessage(text, is_again=True), "k")
        assert RESENT_NOTE in harness.api.texts(ADA)[0]


async def test_text_that_telegram_cannot_read_is_sent_plain() -> None:
    async with telegram_harness() as harness:
        words = "Bad Request: can't parse entities: Unsupported start tag"
        harness.api.add_faults("sendMessage", Fault("refused", status=400, words=words))
        sent = await harness.channel.send(HERE, OutboundMessage("**b** <x>"), "k")
        harness.api.add_faults("editMessageText", Fault("refused", status=400, words=words))
        await harness.channel.edit(HERE, sent, OutboundMessage("**c** <x>"))
        assert harness.api.shown(ADA)[0].versions == ["**b** <x>", "**c** <x>"]


async def test_files_go_out_as_pictures_or_documents_with_their_words() -> None:
    async with telegram_harness() as harness:
        harness.store.blobs = {"p": PNG, "t": b"some text"}
        first = await harness.channel.send(HERE, OutboundMessage("A *picture*", files=("p",)), "k")
        await harness.channel.send(HERE, OutboundMessage("x" * 2_000, files=("t",)), "l")
        await harness.channel.send(HERE, OutboundMessage(files=("t", "p")), "m")
        await harness.channel.edit(HERE, first, OutboundMessage("Another", files=("p",)))
        shown = harness.api.shown(ADA)
        assert [(each.file_kind, len(each.text)) for each in shown] == [
            ("photo", 7), ("", 2_000), ("document", 0), ("document", 0), ("photo", 0)
        ]  # fmt: skip
        assert shown[0].file == PNG and shown[0].versions == ["A picture", "Another"]
        assert shown[2].file == b"some text"


async def test_files_go_out_by_their_names_and_those_without_one_by_what_they_are() -> None:
    async with telegram_harness() as harness:
        harness.store.blobs = {"p": PNG, "t": b"some text"}
        names = ("Bericht – Ärger.txt", "../../etc/pass\u202ewd")
        await harness.channel.send(HERE, OutboundMessage("Two", files=("t", "p", "t"), names=names), "k")
        called = [each.file_name for each in harness.api.shown(ADA)]
        assert called == ["Bericht – Ärger.txt", "passwd", "text.txt"]


async def test_a_picture_that_is_none_to_telegram_goes_as_a_document() -> None:
    async with telegram_harness() as harness:
        harness.store.blobs = {"p": PNG}
        harness.api.add_faults(
            "sendPhoto", Fault("refused", status=400, words="Bad Request: PHOTO_INVALID_DIMENSIONS")
        )
        await harness.channel.send(HERE, OutboundMessage("Wide", files=("p",)), "k")
        assert [(each.file_kind, each.text) for each in harness.api.shown(ADA)] == [("document", "Wide")]


async def test_a_file_that_fails_after_its_words_leaves_open_what_arrived() -> None:
    async with telegram_harness() as harness:
        harness.store.blobs = {"t": b"some text"}
        harness.api.add_faults("sendDocument", too_many_requests(3))
        with pytest.raises(ChannelFailure) as caught:
            await harness.channel.send(HERE, OutboundMessage("x" * 2_000, files=("t",)), "k")
        assert caught.value.arrived is None and len(harness.api.shown(ADA)) == 1


async def test_typing_is_shown() -> None:
    async with telegram_harness() as harness:
        await harness.channel.show_typing(HERE)
        assert [asked["action"] for method, asked in harness.api.calls if method == "sendChatAction"] == [
            "typing"
        ]


async def test_files_are_fetched_up_to_what_telegram_gives() -> None:
    async with telegram_harness() as harness:
        harness.api.add_file("documents/a b#1.txt", b"content")
        harness.api.add_file("large", bytes(FETCH_BYTES_MAX + 1))
        assert await harness.channel.fetch(FileRef("documents/a b#1.txt")) == b"content"
        for said in (0, FETCH_BYTES_MAX + 1):
            with pytest.raises(TooLarge) as large:
                await harness.channel.fetch(FileRef("large", "film.mp4", size_bytes=said))
            size_text = " (20.1 MB)" if said else ""
            assert (
                str(large.value)
                == f"The file “film.mp4” is too large{size_text}: at most 20 MB can be fetched."
            )
        with pytest.raises(ChannelFailure) as caught:
            await harness.channel.fetch(FileRef("unknown"))
        assert caught.value.final


async def test_a_file_of_this_machine_is_never_taken_for_one_of_telegram(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_bytes(b"of this machine")
    async with telegram_harness() as harness:
        harness.api.add_file(str(secret), b"of Telegram")
        with pytest.raises(ChannelFailure):
            await harness.channel.fetch(FileRef(str(secret)))


# What goes wrong.


@pytest.mark.parametrize("fault", [NO_REPLY_AFTER, DROPPED_AFTER, DROPPED, BROKEN, BROKEN_AFTER])
async def test_nobody_can_tell_whether_what_was_not_answered_arrived(fault: Fault) -> None:
    async with telegram_harness(SHORT if fault is NO_REPLY_AFTER else CALM) as harness:
        failure = await send_failure(harness, fault)
        assert (failure.arrived, failure.final, failure.retry_after_ms) == (None, False, None)
        assert len(harness.api.shown(ADA)) == fault.is_done


async def test_what_could_not_be_sent_at_all_has_not_arrived() -> None:
    async with telegram_harness() as harness:
        pass
    channel = Telegram(TOKEN, FakeStore(), FakeClock(), api_url=harness.api.url, timeouts=CALM)
    with pytest.raises(ChannelFailure) as caught:
        await channel.send(HERE, OutboundMessage("Hello"), "k")
    assert caught.value.arrived is False and not caught.value.final and TOKEN not in str(caught.value)
    health = await channel.health()
    assert not health.ok and "cannot be reached" in health.detail
    await channel.close()


async def test_telegram_retry_after_is_honoured_without_another_request() -> None:
    async with telegram_harness() as harness:
        failure = await send_failure(harness, too_many_requests(7))
        assert (failure.arrived, failure.retry_after_ms, failure.final) == (False, 7_000, False)
        asked = harness.api.count("sendMessage")
        harness.clock.advance(5_000)
        assert (await send_failure(harness)).retry_after_ms == 2_000
        assert harness.api.count("sendMessage") == asked
        harness.clock.advance(2_000)
        await harness.channel.send(HERE, OutboundMessage("Hello"), "k")
        assert harness.api.texts(ADA) == ["Hello"]


async def test_a_group_is_written_to_no_faster_than_it_takes() -> None:
    async with telegram_harness() as harness:
        sent = await harness.channel.send(THERE, OutboundMessage("0"), "k")
        for number in range(1, GROUP_EDITS_MAX):
            harness.clock.advance(1_000)
            await harness.channel.edit(THERE, sent, OutboundMessage(f"{number}"))
        with pytest.raises(ChannelFailure) as caught:
            await harness.channel.edit(THERE, sent, OutboundMessage("too often"))
        # The first is a minute old after that, and then there is room for one more.
        assert caught.value.retry_after_ms == WINDOW_MS - (GROUP_EDITS_MAX - 1) * 1_000
        for number in range(GROUP_WRITES_MAX - GROUP_EDITS_MAX):
            await harness.channel.send(THERE, OutboundMessage(f"answer {number}"), "k")
        assert (await send_failure(harness, chat=THERE)).retry_after_ms
        await harness.channel.send(HERE, OutboundMessage("Another chat goes on"), "k")
        harness.clock.advance(caught.value.retry_after_ms or 0)
        await harness.channel.send(THERE, OutboundMessage("again"), "k")


@pytest.mark.parametrize(
    ("words", "status"),
    [("Forbidden: bot was blocked by the user", 403), ("Bad Request: chat not found", 400)],
)
async def test_a_chat_that_cannot_be_written_to_is_given_up(words: str, status: int) -> None:
    async with telegram_harness() as harness:
        harness.api.blocked = {ADA}
        chat = HERE if status == 403 else Chat("telegram", "dm", "4711")
        failure = await send_failure(harness, chat=chat)
        assert failure.final and failure.arrived is False and words in str(failure)


async def test_an_edit_of_what_is_gone_is_given_up() -> None:
    async with telegram_harness() as harness:
        with pytest.raises(ChannelFailure) as caught:
            await harness.channel.edit(HERE, "4711", OutboundMessage("Hello"))
        assert caught.value.final


async def test_a_group_that_has_become_another_is_written_to_there() -> None:
    async with telegram_harness() as harness:
        harness.api.open_chat(-100_500)
        harness.api.moved = {GROUP: -100_500}
        await harness.channel.send(THERE, OutboundMessage("Hello"), "k")
        assert harness.api.texts(-100_500) == ["Hello"]


async def test_an_invalid_token_is_reported_without_revealing_it() -> None:
    wrong = "123456:" + "w" * 35
    async with telegram_harness(token=wrong) as harness:
        health = await harness.channel.health()
        assert not health.ok and "does not know this bot's token" in health.detail
        with pytest.raises(ChannelFailure) as caught:
            await harness.channel.send(HERE, OutboundMessage("Hello"), "k")
        assert "w" * 35 not in str(caught.value) + repr(caught.value.__context__)
        # It is the bot that is refused, not the message.
        assert not caught.value.final and caught.value.arrived is False
    for odd in ("", "no token", "1:a/../../b" + "c" * 30):
        with pytest.raises(ChannelFailure):
            Telegram(odd, FakeStore(), FakeClock())


async def test_telegram_error_text_never_contains_the_token() -> None:
    async with telegram_harness() as harness:
        words = f"Bad Request: see https://api.telegram.org/bot{TOKEN}/sendMessage"
        failure = await send_failure(harness, Fault("refused", status=400, words=words))
        assert "api.telegram.org/bot…/sendMessage" in str(failure)


async def test_a_message_without_words_is_not_sent() -> None:
    async with telegram_harness() as harness:
        for text in ("", " \n"):
            with pytest.raises(ChannelFailure) as caught:
                await harness.channel.send(HERE, OutboundMessage(text, is_again=True), "k")
            assert caught.value.final and "has no words" in str(caught.value)
        assert harness.api.calls == []


# The platform itself, and what is written about it.


def test_the_platform_can_run_beside_a_test_that_blocks() -> None:
    with telegram_server_in_thread() as api:
        stages: list[str] = []
        api.on_stage = lambda stage, method, asked: stages.append(f"{stage} {method}")
        api.open_chat(ADA)

        async def send() -> None:
            channel = Telegram(TOKEN, FakeStore(), FakeClock(), api_url=api.url, timeouts=CALM)
            await channel.send(HERE, OutboundMessage("Hello"), "k")
            await channel.close()

        asyncio.run(send())
        api.wait_until_blocking(lambda: len(stages) == 3)
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
    async with telegram_server() as api, aiohttp.ClientSession() as http:
        api.open_chat(ADA)
        url = f"{api.url}/bot{TOKEN}/sendMessage"
        async with http.post(url, data={"chat_id": str(ADA), **asked}) as answer:
            reply = await answer.json()
        assert (answer.status, reply["error_code"]) == (400, 400) and words in reply["description"]
        assert api.shown(ADA) == []


def test_what_is_documented_is_what_telegram_can_do() -> None:
    page = CHANNELS_PAGE.read_text("utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| Telegram |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    yes = {True: "yes", False: "no"}
    assert cells == [
        f"{ABILITIES.text_chars_max:,}",
        yes[ABILITIES.edits],
        yes[ABILITIES.buttons],
        yes[ABILITIES.files],
        yes[ABILITIES.dedupes_updates],
        yes[ABILITIES.dedupes_sends],
        f"{ABILITIES.edit_every_ms:,} ms",
    ]
