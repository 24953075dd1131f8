"""A gateway at Telegram, by its real client library, at a platform on loopback: what people see and try."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.telegram.channel import Telegram
from holdfast.channels.worker import ChannelWorkers
from holdfast.domain.chats import Chat
from holdfast.domain.clock import SystemClock
from tests.support.fake_channel import FakeChatApp, make_gateway
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step
from tests.support.telegram_api import TOKEN, ShownMessage, TelegramApi, telegram_server
from tests.support.telegram_faults import Fault
from tests.support.telegram_fixture import ADA, CALM, GROUP, NAME

BOB = 88
ADDRESSED = {"entities": [{"type": "mention", "offset": 0, "length": len(NAME)}]}


@asynccontextmanager
async def bot(
    app: AppHarness, api: TelegramApi | None = None
) -> AsyncIterator[tuple[TelegramApi, ChannelWorkers]]:
    """A bot at work, to which Ada and Bob may speak."""
    async with telegram_server(api) as at:
        for chat in (ADA, BOB, GROUP):
            at.open_chat(chat)
        pairing = Pairing(app.store, SystemClock(), lambda bits: 1)
        for sender in (ADA, BOB):
            await pairing.allow(Sender("telegram", str(sender), "", 0))
        channel = Telegram(TOKEN, app.store, SystemClock(), api_url=at.url, timeouts=CALM)
        gateway = make_gateway(app, FakeChatApp("telegram"), [], channel=channel)
        await gateway.start()
        try:
            yield at, gateway
        finally:
            await gateway.stop(5.0)


async def wait_for_buttons(api: TelegramApi, chat: int) -> ShownMessage:
    """The message with buttons that a chat shows."""

    def message_with_buttons() -> ShownMessage | None:
        return next((each for each in api.shown(chat) if each.buttons), None)

    shown = await api.wait_until(message_with_buttons)
    assert isinstance(shown, ShownMessage)
    return shown


async def test_a_press_that_was_made_up_answers_nothing_of_another_chat(tmp_path: Path) -> None:
    """Whoever may speak in a group, and knows what a button elsewhere carries, cannot press it from there."""
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, bot(app) as (api, _):
        app.model.steps = [tool_call_step("lever"), text_step("Hello, Bob."), text_step("Pulled.")]
        api.post_message(ADA, "pull it")
        question = await wait_for_buttons(api, ADA)
        api.post_message(GROUP, f"{NAME} hello", sender=BOB, **ADDRESSED)
        await api.wait_until(lambda: api.texts(GROUP) == ["Hello, Bob."])
        for chat in (GROUP, BOB):
            for button in question.buttons:
                api.press_button(chat, api.shown(GROUP)[0].id, button["callback_data"], sender=BOB)
            # One that is made up within its own chat is none either: "Always here" was not offered for this.
            await api.wait_until(
                lambda at=chat: sum("no longer asked" in text for text in api.texts(at)) == 3
            )  # type: ignore[misc]
        assert not tool.run_arguments
        api.press_button(ADA, question.id, question.buttons[0]["callback_data"])
        await api.wait_until(lambda: "Pulled." in api.texts(ADA))
        assert tool.run_arguments == ["{}"]


async def test_only_what_was_offered_can_be_pressed(tmp_path: Path) -> None:
    tool = FakeTool("shell", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, bot(app) as (api, _):
        app.model.steps = [
            tool_call_step("shell", '{"command":"' + "x" * 2_000 + '"}'),
            text_step("Then not."),
        ]
        api.post_message(ADA, "go")
        question = await wait_for_buttons(api, ADA)
        (deny,) = question.buttons
        assert deny["text"] == "Deny" and deny["callback_data"].startswith("deny ")
        api.press_button(ADA, question.id, deny["callback_data"].replace("deny", "allow"))
        await api.wait_until(lambda: any("no longer asked" in text for text in api.texts(ADA)))
        assert not tool.run_arguments
        api.press_button(ADA, question.id, deny["callback_data"])
        await api.wait_until(lambda: "Then not." in api.texts(ADA))
        assert not tool.run_arguments


async def test_every_piece_of_a_long_answer_is_shown_while_it_is_written(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        paragraphs = [f"{n}. " + "words that follow one another " * 12 for n in range(30)]
        whole = "\n\n".join(paragraphs)
        second, third = asyncio.Event(), asyncio.Event()
        app.model.steps = [
            [
                *text_step(whole[:3_000])[:1],
                second,
                *text_step(whole[3_000:6_500])[:1],
                third,
                *text_step(whole[6_500:]),
            ]
        ]
        api.post_message(ADA, "at length")
        await api.wait_until(lambda: len(api.texts(ADA)) == 1 and api.texts(ADA)[0].endswith(" …"))
        second.set()
        # The first is whole by now, and the second is being written.
        await api.wait_until(lambda: len(api.texts(ADA)) == 2 and api.texts(ADA)[1].endswith(" …"))
        await api.wait_until(lambda: not api.texts(ADA)[0].endswith(" …"))
        begun = api.texts(ADA)[0]
        third.set()
        await api.wait_until(lambda: "".join(" ".join(api.texts(ADA)).split()) == "".join(whole.split()))
        assert len(api.texts(ADA)) == 3 and api.texts(ADA)[0] == begun
        rows = await app.store.deliveries(Chat("telegram", "dm", str(ADA)).route, 10)
        assert sorted((row.source == rows[0].source, row.piece) for row in rows) == [
            (True, 0), (True, 1), (True, 2)
        ]  # fmt: skip


async def test_removed_turns_are_marked_in_the_chat(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        app.model.steps = [text_step("One."), text_step("Two."), text_step("Three.")]
        for n, (said, answer) in enumerate((("1", "One."), ("2", "Two."), ("3", "Three.")), 1):
            api.post_message(ADA, said)
            await api.wait_until(lambda many=n, last=answer: api.texts(ADA)[many - 1 :] == [last])  # type: ignore[misc]
        api.post_message(ADA, "/undo")
        await api.wait_until(lambda: api.texts(ADA)[2:] == ["Three.\n\nRemoved.", "Removed."])
        api.post_message(ADA, "/undo")
        await api.wait_until(lambda: api.texts(ADA)[1] == "Two.\n\nRemoved.")
        assert api.texts(ADA)[0] == "One." and api.texts(ADA)[2] == "Three.\n\nRemoved."


# Groups and chats that change.


def migrate_group(api: TelegramApi, old: int, new: int) -> None:
    """Telegram has made a larger group of a group: both say so, and the old one is no more."""
    api.open_chat(new)
    api.moved[old] = new
    api.post_message(old, migrate_to_chat_id=new, sender=BOB)
    api.post_message(new, migrate_from_chat_id=old, sender=BOB)


async def test_a_group_that_became_a_larger_one_goes_on_with_its_conversation(tmp_path: Path) -> None:
    larger = -1_000_500
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        app.model.steps = [text_step("One."), text_step("Two."), text_step("Three.")]
        api.post_message(GROUP, f"{NAME} 1", sender=ADA, **ADDRESSED)
        await api.wait_until(lambda: api.texts(GROUP) == ["One."])
        api.post_message(GROUP, f"{NAME} 2", sender=ADA, **ADDRESSED)
        migrate_group(api, GROUP, larger)
        api.post_message(larger, f"{NAME} 3", sender=ADA, **ADDRESSED)
        # What was said in the old one is answered in the new one: it is the only one left.
        await api.wait_until(lambda: {*api.texts(GROUP)[1:], *api.texts(larger)} == {"Two.", "Three."})
        assert (await app.store.totals()).sessions == 1
        assert len(api.texts(GROUP)) + len(api.texts(larger)) == 3
        (at, left) = sorted(await app.store.routes("telegram"), key=lambda route: not route.session_id)
        assert at.chat.chat == str(larger) and left.chat.chat == str(GROUP) and not left.session_id


async def test_a_user_who_blocks_the_bot_is_answered_after_unblocking(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, gateway):
        app.model.steps = [text_step("One."), text_step("Two."), text_step("Three.")]
        api.blocked.add(ADA)
        api.post_message(ADA, "1")
        await api.wait_until(lambda: gateway.states()[0].delivered.get("dropped"))
        api.post_message(BOB, "2")
        await api.wait_until(lambda: api.texts(BOB) == ["Two."])
        assert "blocked by the user" in gateway.states()[0].undelivered
        api.blocked.clear()
        api.post_message(ADA, "3")
        await api.wait_until(lambda: api.texts(ADA) == ["Three."])


async def test_a_topic_that_is_gone_is_answered_in_its_group(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        app.model.steps = [text_step("One.")]
        words = "Bad Request: message thread not found"
        api.add_faults("sendMessage", Fault("refused", status=400, words=words))
        api.post_message(
            GROUP, f"{NAME} 1", sender=ADA, message_thread_id=7, is_topic_message=True, **ADDRESSED
        )  # fmt: skip
        await api.wait_until(lambda: api.texts(GROUP) == ["One."])
        assert api.shown(GROUP)[0].thread == ""


async def test_an_answer_whose_message_was_deleted_while_it_was_written_is_sent_again(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        end = asyncio.Event()
        app.model.steps = [[*text_step("begun ")[:1], end, *text_step("and ended")]]
        api.post_message(ADA, "go")
        await api.wait_until(lambda: api.texts(ADA) == ["begun …"])
        api._chats[ADA].clear()
        end.set()
        await api.wait_until(lambda: api.texts(ADA) == ["begun and ended"])


# What people and programs try.

ODD = (
    "\x00\x01\x02 controls", "\u202e turned round", "a\u0300" * 2_000, "\N{FAMILY}\u200d" * 300, "\ufeff",
    "\u2028\u2029 lines", "<b>not</b> &amp; markup", "`" * 4_000, "*_~|" * 1_000, "[x](javascript:alert(1))",
    "\ud83d half", "x" * 4_096, "//", "/", "/ new", "/new@somebody_else", "/undo 99999999999999999999",
    "/switch -1", "/switch 0", "/switch 99999999999999999999", "/switch \ufdfd", "/switch %' OR 1=1 --",
    "/title", "/title " + "y" * 4_000, "/agent ../../etc", "/deny " + "z" * 4_000, "/approve", "/stop",
    "/retry", "/memory " + "w" * 4_000, "/model x", "/continue", "/sessions 5", "/nonsense\nwith lines",
)  # fmt: skip


async def test_any_input_is_answered_and_blocks_nothing_behind_it(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, gateway):
        app.model.steps = [text_step(f"Answer {n}.") for n in range(100)]
        chats = range(1_000, 1_000 + len(ODD))
        pairing = Pairing(app.store, SystemClock(), lambda bits: 1)
        for chat, text in zip(chats, ODD, strict=True):
            api.open_chat(chat)
            await pairing.allow(Sender("telegram", str(chat), "", 0))
            api.post_message(chat, text)
        await api.wait_until(lambda: all(api.texts(chat) for chat in chats))
        for chat in chats:
            before = len(api.texts(chat))
            api.post_message(chat, "hello")
            await api.wait_until(lambda at=chat, many=before: len(api.texts(at)) > many)  # type: ignore[misc]
        assert gateway.states()[0].serving and not gateway.states()[0].undelivered


async def test_what_the_agent_says_reaches_the_chat_however_odd_it_is(tmp_path: Path) -> None:
    odd = [text for text in ODD if text.strip("\ufeff\u2028\u2029 ")]
    async with running_app(tmp_path) as app, bot(app) as (api, gateway):
        for n, text in enumerate(odd):
            app.model.steps = [text_step(text.encode("utf-8", "replace").decode() + f" {n}.")]
            chat = 2_000 + n
            api.open_chat(chat)
            await Pairing(app.store, SystemClock(), lambda bits: 1).allow(
                Sender("telegram", str(chat), "", 0)
            )
            api.post_message(chat, "say it")
            await api.wait_until(
                lambda at=chat, end=f"{n}.": api.texts(at) and api.texts(at)[-1].endswith(end)
            )  # type: ignore[misc]
        assert not gateway.states()[0].undelivered


async def test_a_flood_in_one_chat_loses_nothing_and_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, bot(app) as (api, _):
        app.model.steps = [text_step("ok") for _ in range(100)]
        for n in range(12):
            api.post_message(BOB, f"flood {n}")
        api.post_message(ADA, "hello")
        await api.wait_until(lambda: api.texts(ADA) == ["ok"])
        await api.wait_until(lambda: len(api.texts(BOB)) == 12)
        (route,) = [each for each in await app.store.routes("telegram") if each.chat.chat == str(BOB)]
        assert (await app.store.session(route.session_id)).live_turns == 12
