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
from holdfast.channels.telegram.updates import short_press
from holdfast.domain.chats import Button, DeliveryRow, FileRef, Inbound, Outgoing
from holdfast.domain.errors import NoSuchBlob, TooLarge
from holdfast.domain.limits import INBOUND_TRIES_MAX
from holdfast.domain.slash import COMMANDS
from tests.support.telegram_api import TOKEN, US
from tests.support.telegram_faults import BROKEN, DROPPED, DROPPED_AFTER, Fault, flood, slow
from tests.support.telegram_fixture import ADA, GROUP, HERE, NAME, THERE, Talk, listening, taking, talking


async def test_a_message_comes_in_with_who_said_it_and_where() -> None:
    async with listening() as talk:
        number = talk.api.say(ADA, "Hello", name="Ada")
        (inbound,) = await talk.heard()
        assert inbound.chat == HERE and inbound.chat.route == "agent:main:telegram:dm:77"
        assert (inbound.update_id, inbound.sender, inbound.sender_name) == (str(number), "77", "Ada")
        assert (inbound.text, inbound.addressed, inbound.files, inbound.press) == ("Hello", True, (), "")
        assert inbound.at > 1_600_000_000_000


async def test_the_commands_are_offered_and_nothing_depends_on_it() -> None:
    async with talking() as talk:
        talk.api.misbehave("setMyCommands", BROKEN)
        async with taking(talk):
            talk.api.say(ADA, "hello")
            assert [each.text for each in await talk.heard()] == ["hello"]
        async with taking(talk):
            await talk.api.until(lambda: len(offered(talk)) == 2)
        commands = msgspec.json.decode(offered(talk)[-1])
        assert {"command": "new", "description": "Begin another conversation."} in commands
        assert [each["command"] for each in commands] == list(COMMANDS)


def offered(talk: Talk) -> list[str]:
    return [asked["commands"] for method, asked in talk.api.calls if method == "setMyCommands"]


async def test_telegram_forgets_an_update_only_after_it_was_kept() -> None:
    began = asyncio.Event()

    async def never_kept(*inbound: Inbound) -> None:
        began.set()
        await asyncio.Event().wait()

    async with talking() as talk:
        number = talk.api.say(ADA, "Keep me")
        async with taking(talk, never_kept):
            await began.wait()
            assert talk.api.told == [number]
        # As if the process had died there: it comes again to whoever listens next.
        assert number not in talk.api.confirmed
        async with taking(talk):
            assert [each.text for each in await talk.heard()] == ["Keep me"]
            await talk.api.until(lambda: number in talk.api.confirmed)


async def test_an_update_that_could_not_be_kept_comes_again() -> None:
    async with listening() as talk:
        talk.faults = [NoSuchBlob(digest="the store is ill"), NoSuchBlob(digest="still")]
        for number in range(3):
            talk.api.say(ADA, f"{number}")
        assert [each.text for each in await talk.heard(3)] == ["0", "1", "2"]


async def test_an_update_that_never_can_be_kept_is_passed_over_in_the_end() -> None:
    kept: list[str] = []
    tries: list[str] = []

    async def take(*inbound: Inbound) -> None:
        tries.extend(each.text for each in inbound if each.text == "bad")
        if tries and any(each.text == "bad" for each in inbound):
            raise TooLarge(what="It", size=2, limit=1)
        kept.extend(each.text for each in inbound)

    async with talking() as talk:
        for text in ("before", "bad", "after"):
            talk.api.say(ADA, text)
        async with taking(talk, take):
            await talk.api.until(lambda: "after" in kept)
            talk.api.say(ADA, "later")
            await talk.api.until(lambda: "later" in kept)
        assert INBOUND_TRIES_MAX <= len(tries) <= 2 * INBOUND_TRIES_MAX
        assert "1 updates could not be read" in (await talk.channel.health()).detail


async def test_half_a_character_in_a_group_is_read() -> None:
    async with listening() as talk:
        talk.api.say(GROUP, f"/status{NAME} half \ud83d", sender=5)
        (inbound,) = await talk.heard()
        assert inbound.addressed


async def test_what_is_told_together_is_handed_over_together() -> None:
    """Whoever says much at once does not keep those behind them waiting for one transaction each."""
    taken: list[list[str]] = []

    async def take(*inbound: Inbound) -> None:
        taken.append([each.text for each in inbound])

    async with talking() as talk:
        for number in range(50):
            talk.api.say(ADA if number < 49 else GROUP, f"{number}")
        async with taking(talk, take):
            await talk.api.until(lambda: taken)
    assert taken == [[f"{number}" for number in range(50)]]


async def test_updates_told_twice_and_out_of_order_are_taken_in_order_under_the_same_ids() -> None:
    async with talking() as talk:
        talk.api.copies, talk.api.shuffled = 2, random.Random(7)
        numbers = [talk.api.say(ADA, f"{number}") for number in range(6)]
        async with taking(talk):
            taken = await talk.heard(12)
            assert [int(each.update_id) for each in taken] == [each for each in numbers for _ in range(2)]
            talk.api.tell_again(numbers[0])
            assert (await talk.heard(13))[-1] == taken[0]
            await talk.api.until(lambda: set(numbers) <= talk.api.confirmed)


@pytest.mark.parametrize("fault", [BROKEN, DROPPED, DROPPED_AFTER, flood(0), slow(0.1)])
async def test_listening_comes_back_after_a_fault(fault: Fault) -> None:
    async with talking() as talk:
        talk.api.misbehave("getMe", fault)
        talk.api.misbehave("getUpdates", fault, fault)
        talk.api.say(ADA, "Hello")
        async with taking(talk):
            assert (await talk.heard())[0].text == "Hello"
            await talk.api.until(lambda: talk.api.confirmed)
            assert (await talk.channel.health()).ok


async def test_an_update_that_cannot_be_read_does_not_stand_in_the_way() -> None:
    async with listening() as talk:
        talk.api.tell({"message": {"message_id": "no number", "chat": []}})
        talk.api.tell({"something_new": {"x": 1}})
        talk.api.say(ADA, "After it")
        assert [each.text for each in await talk.heard()] == ["After it"]
        assert "1 updates could not be read" in (await talk.channel.health()).detail


async def test_in_a_group_it_is_known_who_is_meant() -> None:
    async with listening() as talk:
        mention = {"type": "mention", "offset": 3, "length": len(NAME)}
        ours = {"message_id": 1, "date": 1, "chat": {"id": GROUP, "type": "supergroup"}, "from": US}
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
            talk.api.say(GROUP, text, sender=5, **more)
        taken = await talk.heard(len(said))
        assert [each.addressed for each in taken] == [is_meant for _, _, is_meant in said]
        assert {each.chat for each in taken} == {THERE} and taken[0].sender == "5"
        assert [taken[2].text, taken[5].text] == ["look", "/status"]


async def test_a_topic_is_a_place_of_its_own_and_a_reply_is_not() -> None:
    async with listening() as talk:
        talk.api.say(GROUP, "In a topic", message_thread_id=9, is_topic_message=True)
        talk.api.say(GROUP, "A reply", message_thread_id=9)
        topic, reply = await talk.heard(2)
        assert (topic.chat.thread, reply.chat.thread) == ("9", "")
        assert topic.chat.route == f"agent:main:telegram:group:{GROUP}:9"
        await talk.channel.send(topic.chat, Outgoing("Back"), "k")
        assert talk.api.shown(GROUP)[-1].thread == "9"


async def test_files_come_with_their_words_and_what_cannot_be_taken_is_named() -> None:
    async with listening() as talk:
        sizes = [{"file_id": f"p{n}", "file_unique_id": "u", "width": n, "height": n} for n in (90, 800, 320)]
        document = {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf", "file_size": 9}
        voice = {"file_id": "v", "duration": 3}
        talk.api.say(ADA, photo=sizes, caption="Look")
        talk.api.say(ADA, document=document)
        talk.api.say(ADA, voice=voice)
        talk.api.say(ADA, new_chat_title="Nothing is said")
        talk.api.say(ADA, "The end")
        photo, paper, spoken, end = await talk.heard(4)
        assert (photo.text, photo.files) == ("Look", (FileRef("p800", "photo.jpg", "image/jpeg"),))
        assert (paper.text, paper.files) == ("", (FileRef("d", "a.pdf", "application/pdf", 9),))
        assert spoken.text == "(A voice was sent, which cannot be taken here.)" and not spoken.files
        assert end.text == "The end"


async def test_edits_of_people_other_bots_and_broadcasts_are_not_listened_to() -> None:
    async with listening() as talk:
        talk.api.say(ADA, "From a bot", sender=US["id"])
        message = {"message_id": 1, "date": 1, "chat": {"id": -9, "type": "channel"}, "text": "News"}
        talk.api.tell({"channel_post": message})
        talk.api.tell({"edited_message": {**message, "chat": {"id": ADA, "type": "private"}}})
        talk.api.say(ADA, "Hello")
        assert [each.text for each in await talk.heard()] == ["Hello"]
        asked = next(asked for method, asked in talk.api.calls if method == "getUpdates")
        assert msgspec.json.decode(asked["allowed_updates"]) == ["message", "callback_query"]


async def test_a_press_comes_in_and_the_button_is_told_so() -> None:
    async with listening() as talk:
        sent = await talk.channel.send(HERE, Outgoing("Sure?", (Button("Yes", "allow r c"),)), "k")
        talk.api.press(ADA, int(sent), talk.api.shown(ADA)[-1].buttons[0]["callback_data"])
        (inbound,) = await talk.heard()
        assert (inbound.press, inbound.text, inbound.chat) == ("allow r c", "", HERE)
        await talk.api.until(lambda: talk.api.answered_presses)


async def test_a_press_that_is_too_long_to_be_carried_is_found_again() -> None:
    press = "allow " + "x" * 100
    async with listening() as talk:
        body = Outgoing("Sure?", (Button("Yes", press), Button("No", "deny r c")))
        talk.shelf.rows = [DeliveryRow(1, "s", 0, "question", body, "sent", 0)]
        sent = await talk.channel.send(HERE, body, "k")
        carried = talk.api.shown(ADA)[-1].buttons[0]["callback_data"]
        assert carried == short_press(press) and len(carried) <= 64
        talk.api.press(ADA, int(sent), carried)
        talk.api.press(ADA, int(sent), short_press("y" * 100))
        first, unknown = await talk.heard(2)
        assert first.press == press
        assert unknown.press == short_press("y" * 100)


# Being called.


async def test_being_called_answers_only_after_the_update_was_kept() -> None:
    async with listening(mode="webhook", webhook_url="http://127.0.0.1:9/hook") as talk:
        await talk.api.until(lambda: talk.api.webhook)
        talk.faults = [NoSuchBlob(digest="the store is ill")]

        async def hook(request: web.Request) -> web.Response:
            header = request.headers["X-Telegram-Bot-Api-Secret-Token"]
            try:
                await talk.channel.arrived(await request.read(), header)
            except NoSuchBlob:
                return web.Response(status=503)
            return web.Response()

        app = web.Application()
        app.router.add_post("/hook", hook)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        talk.api.webhook["url"] = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        number = talk.api.say(ADA, "Hello")
        try:
            assert [each.text for each in await talk.heard()] == ["Hello"]
            await talk.api.until(lambda: number in talk.api.confirmed)
            assert talk.api.told == [number, number]
        finally:
            await runner.cleanup()


async def test_a_call_without_the_secret_does_nothing() -> None:
    async with listening(mode="webhook", webhook_url="http://127.0.0.1:9/hook") as talk:
        await talk.api.until(lambda: talk.api.webhook)
        assert re.fullmatch(r"[\w-]{43}", talk.channel.secret) and TOKEN not in talk.channel.secret
        assert talk.api.webhook["secret_token"] == talk.channel.secret
        body = msgspec.json.encode({"update_id": 1, "message": {"message_id": 1, "chat": {"id": 1}}})
        for header in ("", "wrong", talk.channel.secret[:-1], "ü"):
            with pytest.raises(WrongSecret):
                await talk.channel.arrived(body, header)
        assert talk.taken == []
        await talk.channel.arrived(b"{not json", talk.channel.secret)


async def test_a_call_while_nobody_listens_is_refused_so_that_it_comes_again() -> None:
    async with talking(mode="webhook") as talk:
        with pytest.raises(ChannelFailure):
            await talk.channel.arrived(b"{}", talk.channel.secret)
        assert talk.taken == []


async def test_asking_again_after_being_called_ends_the_calls() -> None:
    async with talking() as talk:
        talk.api.webhook = {"url": "http://127.0.0.1:9/", "secret_token": ""}
        async with taking(talk):
            talk.api.say(ADA, "Hello")
            await talk.heard()
            assert talk.api.webhook == {}
