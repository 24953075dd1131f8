"""What comes from Telegram: kept before Telegram may forget it, in order, and known for who is meant."""

import asyncio
import random
import re
from typing import Any

import msgspec
import pytest
from aiohttp import web

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.telegram.channel import WrongSecret
from holdfast.channels.telegram.updates import shorten_press
from holdfast.domain.chats import Button, DeliveryRow, FileRef, InboundUpdate, OutboundMessage
from holdfast.domain.errors import NoSuchBlob, TooLarge
from holdfast.domain.limits import INBOUND_TRIES_MAX
from holdfast.domain.slash import COMMANDS
from tests.support.telegram_api import BOT_USER, TOKEN
from tests.support.telegram_faults import BROKEN, DROPPED, DROPPED_AFTER, Fault, slow, too_many_requests
from tests.support.telegram_fixture import (
    ADA,
    GROUP,
    HERE,
    NAME,
    THERE,
    TelegramHarness,
    listening_channel,
    listening_harness,
    telegram_harness,
)


async def test_a_message_comes_in_with_who_said_it_and_where() -> None:
    async with listening_harness() as harness:
        number = harness.api.post_message(ADA, "Hello", name="Ada")
        (inbound,) = await harness.wait_for_inbound()
        assert inbound.chat == HERE and inbound.chat.route == "agent:main:telegram:dm:77"
        assert (inbound.update_id, inbound.sender, inbound.sender_name) == (str(number), "77", "Ada")
        assert (inbound.text, inbound.addressed, inbound.files, inbound.press) == ("Hello", True, (), "")
        assert inbound.at > 1_600_000_000_000


async def test_the_commands_are_offered_and_nothing_depends_on_it() -> None:
    async with telegram_harness() as harness:
        harness.api.add_faults("setMyCommands", BROKEN)
        async with listening_channel(harness):
            harness.api.post_message(ADA, "hello")
            assert [each.text for each in await harness.wait_for_inbound()] == ["hello"]
        async with listening_channel(harness):
            await harness.api.wait_until(lambda: len(registered_commands(harness)) == 2)
        commands = msgspec.json.decode(registered_commands(harness)[-1])
        assert {"command": "new", "description": "Begin another conversation."} in commands
        assert [each["command"] for each in commands] == list(COMMANDS)


def registered_commands(harness: TelegramHarness) -> list[str]:
    return [asked["commands"] for method, asked in harness.api.calls if method == "setMyCommands"]


async def test_telegram_forgets_an_update_only_after_it_was_kept() -> None:
    began = asyncio.Event()

    async def never_kept(*inbound: InboundUpdate) -> None:
        began.set()
        await asyncio.Event().wait()

    async with telegram_harness() as harness:
        number = harness.api.post_message(ADA, "Keep me")
        async with listening_channel(harness, never_kept):
            await began.wait()
            assert harness.api.sent_updates == [number]
        # As if the process had died there: it comes again to whoever listens next.
        assert number not in harness.api.confirmed
        async with listening_channel(harness):
            assert [each.text for each in await harness.wait_for_inbound()] == ["Keep me"]
            await harness.api.wait_until(lambda: number in harness.api.confirmed)


async def test_an_update_that_could_not_be_kept_comes_again() -> None:
    async with listening_harness() as harness:
        harness.receive_faults = [NoSuchBlob(digest="the store is ill"), NoSuchBlob(digest="still")]
        for number in range(3):
            harness.api.post_message(ADA, f"{number}")
        assert [each.text for each in await harness.wait_for_inbound(3)] == ["0", "1", "2"]


async def test_an_update_that_never_can_be_kept_is_passed_over_in_the_end() -> None:
    kept: list[str] = []
    tries: list[str] = []

    async def take(*inbound: InboundUpdate) -> None:
        tries.extend(each.text for each in inbound if each.text == "bad")
        if tries and any(each.text == "bad" for each in inbound):
            raise TooLarge(what="It", size=2, limit=1)
        kept.extend(each.text for each in inbound)

    async with telegram_harness() as harness:
        for text in ("before", "bad", "after"):
            harness.api.post_message(ADA, text)
        async with listening_channel(harness, take):
            await harness.api.wait_until(lambda: "after" in kept)
            harness.api.post_message(ADA, "later")
            await harness.api.wait_until(lambda: "later" in kept)
        assert INBOUND_TRIES_MAX <= len(tries) <= 2 * INBOUND_TRIES_MAX
        assert "1 updates could not be read" in (await harness.channel.health()).detail


async def test_a_lone_surrogate_in_a_group_message_is_read() -> None:
    async with listening_harness() as harness:
        harness.api.post_message(GROUP, f"/status{NAME} half \ud83d", sender=5)
        (inbound,) = await harness.wait_for_inbound()
        assert inbound.addressed


async def test_a_batch_of_updates_is_handed_over_together() -> None:
    """Whoever says much at once does not keep those behind them waiting for one transaction each."""
    taken: list[list[str]] = []

    async def take(*inbound: InboundUpdate) -> None:
        taken.append([each.text for each in inbound])

    async with telegram_harness() as harness:
        for number in range(50):
            harness.api.post_message(ADA if number < 49 else GROUP, f"{number}")
        async with listening_channel(harness, take):
            await harness.api.wait_until(lambda: taken)
    assert taken == [[f"{number}" for number in range(50)]]


async def test_repeated_and_unordered_updates_are_sorted_and_keep_their_ids() -> None:
    async with telegram_harness() as harness:
        harness.api.copies, harness.api.shuffle_rng = 2, random.Random(7)
        numbers = [harness.api.post_message(ADA, f"{number}") for number in range(6)]
        async with listening_channel(harness):
            taken = await harness.wait_for_inbound(12)
            assert [int(each.update_id) for each in taken] == [each for each in numbers for _ in range(2)]
            harness.api.repeat_update(numbers[0])
            assert (await harness.wait_for_inbound(13))[-1] == taken[0]
            await harness.api.wait_until(lambda: set(numbers) <= harness.api.confirmed)


@pytest.mark.parametrize("fault", [BROKEN, DROPPED, DROPPED_AFTER, too_many_requests(0), slow(0.1)])
async def test_listening_comes_back_after_a_fault(fault: Fault) -> None:
    async with telegram_harness() as harness:
        harness.api.add_faults("getMe", fault)
        harness.api.add_faults("getUpdates", fault, fault)
        harness.api.post_message(ADA, "Hello")
        async with listening_channel(harness):
            assert (await harness.wait_for_inbound())[0].text == "Hello"
            await harness.api.wait_until(lambda: harness.api.confirmed)
            assert (await harness.channel.health()).ok


async def test_an_update_that_cannot_be_read_does_not_stand_in_the_way() -> None:
    async with listening_harness() as harness:
        harness.api.add_update({"message": {"message_id": "no number", "chat": []}})
        harness.api.add_update({"something_new": {"x": 1}})
        harness.api.post_message(ADA, "After it")
        assert [each.text for each in await harness.wait_for_inbound()] == ["After it"]
        assert "1 updates could not be read" in (await harness.channel.health()).detail


async def test_in_a_group_it_is_known_who_is_meant() -> None:
    async with listening_harness() as harness:
        mention = {"type": "mention", "offset": 3, "length": len(NAME)}
        ours = {"message_id": 1, "date": 1, "chat": {"id": GROUP, "type": "supergroup"}, "from": BOT_USER}
        said: list[tuple[str, dict[str, Any], bool]] = [
            ("Not for anybody", {}, False),
            (f"🙂 {NAME} look", {"entities": [mention]}, True),
            (f"{NAME}: look", {"entities": [{**mention, "offset": 0}]}, True),
            ("@somebody_else", {"entities": [{"type": "mention", "offset": 0, "length": 14}]}, False),
            ("Yes", {"reply_to_message": ours}, True),
            (f"/status{NAME}", {}, True),
            ("/status", {}, False),
        ]
        for text, more, _ in said:
            harness.api.post_message(GROUP, text, sender=5, **more)
        taken = await harness.wait_for_inbound(len(said))
        assert [each.addressed for each in taken] == [is_meant for _, _, is_meant in said]
        assert {each.chat for each in taken} == {THERE} and taken[0].sender == "5"
        assert [taken[2].text, taken[5].text] == ["look", "/status"]


async def test_a_topic_is_a_place_of_its_own_and_a_reply_is_not() -> None:
    async with listening_harness() as harness:
        harness.api.post_message(GROUP, "In a topic", message_thread_id=9, is_topic_message=True)
        harness.api.post_message(GROUP, "A reply", message_thread_id=9)
        topic, reply = await harness.wait_for_inbound(2)
        assert (topic.chat.thread, reply.chat.thread) == ("9", "")
        assert topic.chat.route == f"agent:main:telegram:group:{GROUP}:9"
        await harness.channel.send(topic.chat, OutboundMessage("Back"), "k")
        assert harness.api.shown(GROUP)[-1].thread == "9"


async def test_files_come_with_their_words_and_what_cannot_be_taken_is_named() -> None:
    async with listening_harness() as harness:
        sizes = [{"file_id": f"p{n}", "file_unique_id": "u", "width": n, "height": n} for n in (90, 800, 320)]
        document = {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf", "file_size": 9}
        voice = {"file_id": "v", "duration": 3}
        harness.api.post_message(ADA, photo=sizes, caption="Look")
        harness.api.post_message(ADA, document=document)
        harness.api.post_message(ADA, voice=voice)
        harness.api.post_message(ADA, new_chat_title="Nothing is said")
        harness.api.post_message(ADA, "The end")
        photo, paper, spoken, end = await harness.wait_for_inbound(4)
        assert (photo.text, photo.files) == ("Look", (FileRef("p800", "photo.jpg", "image/jpeg"),))
        assert (paper.text, paper.files) == ("", (FileRef("d", "a.pdf", "application/pdf", 9),))
        assert spoken.text == "(A voice was sent, which cannot be taken here.)" and not spoken.files
        assert end.text == "The end"


async def test_edits_of_people_other_bots_and_broadcasts_are_not_listened_to() -> None:
    async with listening_harness() as harness:
        harness.api.post_message(ADA, "From a bot", sender=BOT_USER["id"])
        message = {"message_id": 1, "date": 1, "chat": {"id": -9, "type": "channel"}, "text": "News"}
        harness.api.add_update({"channel_post": message})
        harness.api.add_update({"edited_message": {**message, "chat": {"id": ADA, "type": "private"}}})
        harness.api.post_message(ADA, "Hello")
        assert [each.text for each in await harness.wait_for_inbound()] == ["Hello"]
        asked = next(asked for method, asked in harness.api.calls if method == "getUpdates")
        assert msgspec.json.decode(asked["allowed_updates"]) == ["message", "callback_query"]


async def test_a_button_press_is_received_and_acknowledged() -> None:
    async with listening_harness() as harness:
        sent = await harness.channel.send(HERE, OutboundMessage("Sure?", (Button("Yes", "allow r c"),)), "k")
        harness.api.press_button(ADA, int(sent), harness.api.shown(ADA)[-1].buttons[0]["callback_data"])
        (inbound,) = await harness.wait_for_inbound()
        assert (inbound.press, inbound.text, inbound.chat) == ("allow r c", "", HERE)
        await harness.api.wait_until(lambda: harness.api.answered_callbacks)


async def test_a_press_that_is_too_long_to_be_carried_is_found_again() -> None:
    press = "allow " + "x" * 100
    async with listening_harness() as harness:
        body = OutboundMessage("Sure?", (Button("Yes", press), Button("No", "deny r c")))
        harness.store.rows = [DeliveryRow(1, "s", 0, "question", body, "sent", 0)]
        sent = await harness.channel.send(HERE, body, "k")
        carried = harness.api.shown(ADA)[-1].buttons[0]["callback_data"]
        assert carried == shorten_press(press) and len(carried) <= 64
        harness.api.press_button(ADA, int(sent), carried)
        harness.api.press_button(ADA, int(sent), shorten_press("y" * 100))
        first, unknown = await harness.wait_for_inbound(2)
        assert first.press == press
        assert unknown.press == shorten_press("y" * 100)


# Being called.


async def test_a_webhook_call_is_answered_after_its_update_is_stored() -> None:
    async with listening_harness(mode="webhook", webhook_url="http://127.0.0.1:9/hook") as harness:
        await harness.api.wait_until(lambda: harness.api.webhook)
        harness.receive_faults = [NoSuchBlob(digest="the store is ill")]

        async def hook(request: web.Request) -> web.Response:
            header = request.headers["X-Telegram-Bot-Api-Secret-Token"]
            try:
                await harness.channel.receive_update(await request.read(), header)
            except NoSuchBlob:
                return web.Response(status=503)
            return web.Response()

        app = web.Application()
        app.router.add_post("/hook", hook)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        harness.api.webhook["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        number = harness.api.post_message(ADA, "Hello")
        try:
            assert [each.text for each in await harness.wait_for_inbound()] == ["Hello"]
            await harness.api.wait_until(lambda: number in harness.api.confirmed)
            assert harness.api.sent_updates == [number, number]
        finally:
            await runner.cleanup()


async def test_a_call_without_the_secret_does_nothing() -> None:
    async with listening_harness(mode="webhook", webhook_url="http://127.0.0.1:9/hook") as harness:
        await harness.api.wait_until(lambda: harness.api.webhook)
        assert re.fullmatch(r"[\w-]{43}", harness.channel.secret) and TOKEN not in harness.channel.secret
        assert harness.api.webhook["secret_token"] == harness.channel.secret
        body = msgspec.json.encode({"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1}}})
        for header in ("", "wrong", harness.channel.secret[:-1], "ü"):
            with pytest.raises(WrongSecret):
                await harness.channel.receive_update(body, header)
        assert harness.received == []
        await harness.channel.receive_update(b"{not json", harness.channel.secret)


async def test_a_call_while_nobody_listens_is_refused_so_that_it_comes_again() -> None:
    async with telegram_harness(mode="webhook") as harness:
        with pytest.raises(ChannelFailure):
            await harness.channel.receive_update(b"{}", harness.channel.secret)
        assert harness.received == []


async def test_switching_to_polling_deletes_the_webhook() -> None:
    async with telegram_harness() as harness:
        harness.api.webhook = {"url": "http://127.0.0.1:9/", "secret_token": ""}
        async with listening_channel(harness):
            harness.api.post_message(ADA, "Hello")
            await harness.wait_for_inbound()
            assert harness.api.webhook == {}
