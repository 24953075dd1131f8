"""The agent asks something in a chat: a button answers it or a message, once, whatever dies meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from holdfast.channels import button_action
from holdfast.channels.chat_actions import ANSWER_REQUIRED
from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import Chat
from holdfast.domain.clock import SystemClock
from holdfast.domain.decisions import questions
from holdfast.domain.decisions.questions import Reply
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTION_CHARS_MAX
from holdfast.models.ports import CallDelta, StepEnd
from holdfast.store.sqlite import sweeper
from holdfast.tools.ask_user import AskUserTool
from tests.support.crashing_proxy import CHANNEL_STEPS, ENGINE_STEPS, STORE_STEPS, CrashingProxy, CrashPoint
from tests.support.fake_channel import (
    ADA,
    ChannelHarness,
    FakeChatApp,
    FakeChatChannel,
    channel_harness,
    make_gateway,
)
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    StepAction,
    running_app,
    text_step,
    tool_call_step,
)
from tests.support.telegram_api import TOKEN, telegram_server
from tests.support.telegram_fixture import CALM

NEVER = 10**9
COLOURS = ("Red", "Green", "Blue")
WORDS = "Write your answer, or /deny to leave it."


def question_step(question: str, *choices: str, multiple: bool = False) -> list[StepAction]:
    arguments: dict[str, object] = {"question": question}
    if choices:
        arguments |= {"choices": choices, "multiple": multiple}
    return tool_call_step(questions.ASK_TOOL, msgspec.json.encode(arguments).decode())


async def facts_of(app: AppHarness, session_id: SessionId, kind: type) -> list[object]:
    return [e.fact for e in await app.store.read(session_id, 0, 1_000) if isinstance(e.fact, kind)]


async def start_question(harness: ChannelHarness, *texts: str) -> None:
    """Somebody has said something, and the chat shows what is asked back."""
    harness.chat_app.post_message("go")
    await harness.wait_for_texts(*texts)


async def wait_until_delivered(harness: ChannelHarness) -> None:
    async def is_delivered() -> bool:
        rows = await harness.store.deliveries(Chat(harness.chat_app.name, "dm", "42").route, 10)
        return all(row.state == "sent" for row in rows)

    await harness.engine_app.wait_until(is_delivered)


async def wait_for_last_text(harness: ChannelHarness, *ends: str) -> None:
    """Wait until everything that came is dealt with, and the last messages of the chat end so."""

    async def ends_with_text() -> bool:
        texts = harness.chat_app.texts()[-len(ends) :]
        are_delivered = len(texts) == len(ends) and all(map(str.endswith, texts, ends))
        return (
            are_delivered
            and not harness.chat_app.unread
            and not await harness.store.received(harness.chat_app.name, 1)
        )

    await harness.engine_app.wait_until(
        ends_with_text, f"{ends} in {harness.chat_app.texts()}, {harness.operator_messages}"
    )


async def test_a_button_picks_a_choice_and_the_question_says_which(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which colour?", *COLOURS), text_step("Blue it is.")]
        await start_question(harness, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        assert [button.text for button in harness.chat_app.chats["42"][0].body.buttons] == [*COLOURS]
        assert all(len(button.press) <= 64 for button in harness.chat_app.chats["42"][0].body.buttons)
        harness.chat_app.press_button("Blue")
        await harness.wait_for_texts(
            "Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Answered: Blue*", "Blue it is."
        )
        assert not harness.chat_app.chats["42"][0].body.buttons


@pytest.mark.parametrize("line", ["2", "green", " GREEN "])
async def test_a_choice_can_be_typed(tmp_path: Path, line: str) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which colour?", *COLOURS), text_step("Green it is.")]
        await start_question(harness, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        harness.chat_app.post_message(line)
        await harness.wait_for_texts(
            "Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Answered: Green*", "Green it is."
        )
        assert (await app.store.session(await harness.session_id())).live_turns == 1


async def test_several_are_typed_by_their_numbers(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which?", *COLOURS, multiple=True), text_step("Fine.")]
        harness.chat_app.post_message("go")
        await harness.wait_for_buttons()
        assert "type their numbers" in harness.chat_app.texts()[0]
        harness.chat_app.post_message("3, 1")
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[0].endswith("*Answered: Red, Blue*") and harness.chat_app.texts()[
            1:
        ] == ["Fine."]


async def test_a_plain_message_answers_a_question_without_choices(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Why?"), text_step("I see.")]
        await start_question(harness, f"Why?\n\n{WORDS}")
        harness.chat_app.post_message("Because it\nrains.")
        await harness.wait_for_texts(f"Why?\n\n{WORDS}\n\n*Answered: Because it rains.*", "I see.")
        await harness.wait_until_idle()
        session_id = await harness.session_id()
        [answered] = await facts_of(app, session_id, f.QuestionAnswered)
        assert isinstance(answered, f.QuestionAnswered) and answered.text == "Because it\nrains."
        assert (await app.store.session(session_id)).live_turns == 1


async def test_words_that_are_no_choice_are_a_message_and_leave_the_question(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which colour?", *COLOURS), text_step("Never mind then.")]
        await start_question(harness, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        harness.chat_app.post_message("forget it")
        await harness.wait_for_texts(
            "Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Not answered.*", "Never mind then."
        )
        assert (await app.store.session(await harness.session_id())).live_turns == 2


async def test_approve_says_how_to_answer_and_deny_leaves_it_unanswered(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Why?"), text_step("As you like.")]
        await start_question(harness, f"Why?\n\n{WORDS}")
        harness.chat_app.post_message("/approve")
        await harness.wait_for_texts(f"Why?\n\n{WORDS}", ANSWER_REQUIRED)
        harness.chat_app.post_message("/status")
        await wait_for_last_text(harness, "It asks: Why?")
        harness.chat_app.post_message("/deny not today")
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[0].endswith("*Not answered: not today*")
        assert harness.chat_app.texts()[-1] == "As you like."


async def test_approve_allows_what_waits_behind_a_question(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with (
        running_app(tmp_path, tool, extra_tools=[AskUserTool()], approvals="ask") as app,
        channel_harness(app) as harness,
    ):
        why = CallDelta(0, questions.ASK_TOOL, '{"question": "Why?"}')
        app.model.steps = [[why, CallDelta(1, "lever", "{}"), StepEnd("tool_calls")], text_step("Done.")]
        harness.chat_app.post_message("go")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/approve")
        await wait_for_last_text(harness, "*Allowed.*", "1 more waits for your answer.")
        assert not tool.run_arguments, "it goes on when everything is answered"
        harness.chat_app.post_message("Because.")
        await wait_for_last_text(harness, "Done.")
        assert tool.run_arguments == ["{}"] and harness.chat_app.texts()[0].endswith("*Answered: Because.*")


async def test_a_question_answered_by_another_client_is_closed_here(tmp_path: Path) -> None:
    """A button says so; a message is a message."""
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which colour?", *COLOURS), text_step("Done."), text_step("Again?")]
        await start_question(harness, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        press = harness.chat_app.chats["42"][0].body.buttons[0].press
        session_id = await harness.session_id()
        [question] = (await app.store.session_statuses([session_id]))[session_id].questions
        assert question.call_id is not None
        await app.engine.answer(question.run_id, question.call_id, Reply(choices=("Red",)))
        await harness.wait_until_idle()
        harness.chat_app.post_message("", press=press)
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[-1] == "This was answered already, or is no longer asked."
        harness.chat_app.post_message("2")
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[-1] == "Again?"
        assert (await app.store.session(session_id)).live_turns == 2


async def test_a_question_can_be_answered_however_long_it_has_stood_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "CHAT_RETENTION_MS", -1)
    chat_app = FakeChatApp()
    async with running_app(tmp_path, AskUserTool()) as engine_app:
        engine_app.model.steps = [
            [*text_step("Let me ask.")[:1], *question_step("Which?", *COLOURS)],
            text_step("Done."),
        ]
        async with channel_harness(engine_app, chat_app) as harness:
            chat_app.post_message("go")
            await harness.wait_for_buttons()
            await wait_until_delivered(harness)
            await engine_app.store.sweep()
        shown = chat_app.texts()
        async with channel_harness(engine_app, chat_app) as harness:
            chat_app.press_button("Green")
            await wait_for_last_text(harness, "Done.")
            await harness.wait_until_idle()
            assert (
                len(chat_app.texts()) == len(shown) + 1 and chat_app.texts()[0] == shown[0] == "Let me ask."
            )
            await engine_app.store.sweep()
            assert not await engine_app.store.deliveries(Chat(chat_app.name, "dm", "42").route, 10), (
                "it is over now"
            )


async def test_the_button_of_a_question_in_a_conversation_that_was_left_outlasts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "CHAT_RETENTION_MS", -1)
    async with running_app(tmp_path, AskUserTool()) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which?", *COLOURS), text_step("Done.")]
        harness.chat_app.post_message("go")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/new")
        await wait_for_last_text(harness, "The old one is in /sessions.")
        await wait_until_delivered(harness)
        await app.store.sweep()
        (kept,) = await app.store.deliveries(Chat(harness.chat_app.name, "dm", "42").route, 10)
        assert kept.kind == "question"
        harness.chat_app.press_button("Green")
        await wait_for_last_text(harness, "see /sessions.")
        await harness.wait_until_idle()
        await app.store.sweep()
        assert not await app.store.deliveries(Chat(harness.chat_app.name, "dm", "42").route, 10)


@pytest.mark.parametrize("number", ["0", "4", "-1", "x", "", "²"])
async def test_a_button_that_names_no_choice_answers_nothing(tmp_path: Path, number: str) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Which colour?", *COLOURS)]
        await start_question(harness, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        press = button_action.parse_action(harness.chat_app.chats["42"][0].body.buttons[0].press)
        assert press is not None
        harness.chat_app.post_message("", press=f"pick {press.target} {press.subtarget} {number}".rstrip())
        await wait_for_last_text(harness, "This was answered already, or is no longer asked.")
        assert (await app.store.session(await harness.session_id())).status == "needs_you"


async def test_in_a_group_the_answer_says_whose_it_is(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, channel_harness(app) as harness:
        app.model.steps = [question_step("Why?"), text_step("I see.")]
        harness.chat_app.post_message("go", "9", kind="group")
        await harness.wait_for_texts(f"Why?\n\n{WORDS}", chat="9")
        harness.chat_app.post_message("Because.", "9", kind="group")
        await harness.wait_until_idle()
        route = await app.store.route(Chat("parlour", "group", "9").route)
        assert route is not None
        [answered] = await facts_of(app, route.session_id, f.QuestionAnswered)
        assert isinstance(answered, f.QuestionAnswered) and answered.text == "Ada: Because."


async def test_the_longest_question_fits_with_its_answer(tmp_path: Path) -> None:
    choices = tuple(f"{n:02} " + "x" * (CHOICE_CHARS_MAX - 3) for n in range(CHOICES_MAX))
    async with (
        running_app(tmp_path, extra_tools=[AskUserTool()]) as app,
        channel_harness(app, FakeChatApp(chars_max=4_000)) as harness,
    ):
        app.model.steps = [
            question_step("q" * QUESTION_CHARS_MAX, *choices, multiple=True),
            text_step("Done."),
        ]
        harness.chat_app.post_message("go")
        await harness.wait_for_buttons()
        harness.chat_app.post_message(", ".join(map(str, range(1, CHOICES_MAX + 1))))
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[-1] == "Done." and all(
            len(text) <= 4_000 for text in harness.chat_app.texts()
        )


STORY = (
    ("go", question_step("Why?"), f"Why?\n\n{WORDS}"),
    ("Because.", question_step("And then?"), f"And then?\n\n{WORDS}"),
    ("That is all.", text_step("Done."), "Done."),
)


async def run_scenario(
    engine_app: AppHarness, chat_app: FakeChatApp, crash_points: Sequence[CrashPoint]
) -> list[str]:
    """A question is asked and answered; each time that a gateway dies, another is begun."""
    await Pairing(engine_app.store, SystemClock(), lambda bits: 1).allow(Sender(chat_app.name, ADA, "Ada", 0))
    left = [*crash_points, CrashPoint(NEVER, False)]
    fate, at = left[0], _crashing_harness(engine_app, chat_app, left.pop(0))
    await at.gateway.start()
    for said, step, end in STORY:
        engine_app.model.steps = [list(step)]
        inbound = chat_app.post_message(said)
        while True:
            quiet = asyncio.create_task(wait_for_last_text(at, end))
            over = asyncio.create_task(fate.has_crashed.wait())
            await asyncio.wait({quiet, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if quiet.done() and not fate.has_crashed.is_set():
                quiet.result()
                break
            quiet.cancel()
            await asyncio.gather(quiet, over, return_exceptions=True)
            await _release_and_stop(at, fate)
            chat_app.deliver_update(inbound)  # The app may well tell it again.
            fate = left.pop(0)
            at = _crashing_harness(engine_app, chat_app, fate)
            await at.gateway.start()
    await _release_and_stop(at, fate)
    return fate.steps


def _crashing_harness(
    engine_app: AppHarness, chat_app: FakeChatApp, crash_point: CrashPoint
) -> ChannelHarness:
    operator_messages: list[str] = []
    gateway = make_gateway(
        engine_app, chat_app, operator_messages,
        store=CrashingProxy(engine_app.store, crash_point, STORE_STEPS),
        engine=CrashingProxy(engine_app.engine, crash_point, ENGINE_STEPS),
        channel=CrashingProxy(FakeChatChannel(chat_app), crash_point, CHANNEL_STEPS),
    )  # fmt: skip
    return ChannelHarness(engine_app, chat_app, gateway, operator_messages)


async def _release_and_stop(harness: ChannelHarness, crash_point: CrashPoint) -> None:
    crash_point.release()
    await harness.gateway.stop(0.0)


@pytest.mark.parametrize("is_after", [True, False])
async def test_a_crash_at_each_step_neither_loses_nor_repeats_an_answer(
    tmp_path: Path, is_after: bool
) -> None:
    """Each message is one thing: the turn, the answer to the first question, the answer to the second."""
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as engine_app:
        whole = FakeChatApp("whole", dedupes=True)
        steps = await run_scenario(engine_app, whole, [])
        for at in range(1, len(steps) + 1, 1 if is_after else 3):
            chat_app = FakeChatApp(f"app{at}", dedupes=True)
            await run_scenario(engine_app, chat_app, [CrashPoint(at, is_after)])
            detail = (
                f"death {'after' if is_after else 'before'} step {at}, {steps[at - 1]}: {chat_app.texts()}"
            )
            (route,) = await engine_app.store.routes(chat_app.name)
            accepted = await facts_of(engine_app, route.session_id, f.TurnAccepted)
            assert [message_text(each.parts) for each in accepted] == ["go"], detail  # type: ignore[attr-defined]
            answered = await facts_of(engine_app, route.session_id, f.QuestionAnswered)
            assert [each.text for each in answered] == ["Because.", "That is all."], detail  # type: ignore[attr-defined]
            assert chat_app.texts() == whole.texts(), detail


async def test_at_telegram_its_own_buttons_and_messages_answer(tmp_path: Path) -> None:
    """By its real client library, to a server that speaks its Bot API."""
    ada = 77
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app, telegram_server() as api:
        api.open_chat(ada)
        pairing = Pairing(app.store, SystemClock(), lambda bits: 1)
        await pairing.allow(Sender("telegram", str(ada), "Ada", 0))
        channel = Telegram(TOKEN, app.store, SystemClock(), api_url=api.url, timeouts=CALM)
        gateway = make_gateway(app, FakeChatApp("telegram"), [], channel=channel)
        await gateway.start()
        try:
            app.model.steps = [
                question_step("Which *colour*?", *COLOURS),
                question_step("Why?"),
                text_step("I see."),
            ]
            api.post_message(ada, "go")
            await api.wait_until(lambda: api.shown(ada) and api.shown(ada)[0].buttons)
            (shown,) = api.shown(ada)
            assert [each["text"] for each in shown.buttons] == [*COLOURS]
            api.press_button(ada, shown.id, shown.buttons[2]["callback_data"])
            await api.wait_until(lambda: len(api.texts(ada)) == 2)
            api.post_message(ada, "It rains.")
            await api.wait_until(lambda: api.texts(ada)[-1] == "I see.")
            await api.wait_until(lambda: api.texts(ada)[1].endswith("Answered: It rains."))
            assert api.texts(ada)[0].endswith("Answered: Blue") and not api.shown(ada)[0].buttons
        finally:
            await gateway.stop(5.0)
