"""The agent asks something in a chat: a button answers it or a message, once, whatever dies meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from holdfast.channels import button_action
from holdfast.channels.answering import IN_WORDS
from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import Chat
from holdfast.domain.clock import SystemClock
from holdfast.domain.decisions import questions
from holdfast.domain.decisions.questions import Reply
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import text_of
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTION_CHARS_MAX
from holdfast.models.ports import CallDelta, StepEnd
from holdfast.store.sqlite import sweeper
from holdfast.tools.ask_user import AskUser
from tests.support.crashing_proxy import CHANNEL_STEPS, ENGINE_STEPS, STORE_STEPS, Fate, Mortal
from tests.support.fake_channel import ADA, Desk, Parlour, ParlourChannel, desk, gateway_of
from tests.support.in_process_app import House, Lever, Line, calls, house, says
from tests.support.telegram_api import TOKEN, serving
from tests.support.telegram_fixture import CALM

NEVER = 10**9
COLOURS = ("Red", "Green", "Blue")
WORDS = "Write your answer, or /deny to leave it."


def asks(question: str, *choices: str, multiple: bool = False) -> list[Line]:
    told: dict[str, object] = {"question": question}
    if choices:
        told |= {"choices": choices, "multiple": multiple}
    return calls(questions.TOOL, msgspec.json.encode(told).decode())


async def facts_of(home: House, session_id: SessionId, kind: type) -> list[object]:
    return [e.fact for e in await home.store.read(session_id, 0, 1_000) if isinstance(e.fact, kind)]


async def asked(at: Desk, *texts: str) -> None:
    """Somebody has said something, and the chat shows what is asked back."""
    at.app.say("go")
    await at.shown(*texts)


async def until_sent(at: Desk) -> None:
    async def is_so() -> bool:
        rows = await at.store.deliveries(Chat(at.app.name, "dm", "42").route, 10)
        return all(row.state == "sent" for row in rows)

    await at.home.until(is_so)


async def says_last(at: Desk, *ends: str) -> None:
    """Wait until everything that came is dealt with, and the last messages of the chat end so."""

    async def is_so() -> bool:
        texts = at.app.texts()[-len(ends) :]
        told = len(texts) == len(ends) and all(map(str.endswith, texts, ends))
        return told and not at.app.unread and not await at.store.received(at.app.name, 1)

    await at.home.until(is_so, f"{ends} in {at.app.texts()}, {at.told}")


async def test_a_button_picks_a_choice_and_the_question_says_which(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which colour?", *COLOURS), says("Blue it is.")]
        await asked(at, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        assert [button.text for button in at.app.chats["42"][0].body.buttons] == [*COLOURS]
        assert all(len(button.press) <= 64 for button in at.app.chats["42"][0].body.buttons)
        at.app.press("Blue")
        await at.shown("Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Answered: Blue*", "Blue it is.")
        assert not at.app.chats["42"][0].body.buttons


@pytest.mark.parametrize("line", ["2", "green", " GREEN "])
async def test_a_choice_can_be_typed(tmp_path: Path, line: str) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which colour?", *COLOURS), says("Green it is.")]
        await asked(at, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        at.app.say(line)
        await at.shown("Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Answered: Green*", "Green it is.")
        assert (await home.store.session(await at.session())).live_turns == 1


async def test_several_are_typed_by_their_numbers(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which?", *COLOURS, multiple=True), says("Fine.")]
        at.app.say("go")
        await at.quiet_question()
        assert "type their numbers" in at.app.texts()[0]
        at.app.say("3, 1")
        await at.quiet()
        assert at.app.texts()[0].endswith("*Answered: Red, Blue*") and at.app.texts()[1:] == ["Fine."]


async def test_a_plain_message_answers_a_question_without_choices(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Why?"), says("I see.")]
        await asked(at, f"Why?\n\n{WORDS}")
        at.app.say("Because it\nrains.")
        await at.shown(f"Why?\n\n{WORDS}\n\n*Answered: Because it rains.*", "I see.")
        await at.quiet()
        session_id = await at.session()
        [answered] = await facts_of(home, session_id, f.QuestionAnswered)
        assert isinstance(answered, f.QuestionAnswered) and answered.text == "Because it\nrains."
        assert (await home.store.session(session_id)).live_turns == 1


async def test_words_that_are_no_choice_are_a_message_and_leave_the_question(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which colour?", *COLOURS), says("Never mind then.")]
        await asked(at, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        at.app.say("forget it")
        await at.shown("Which colour?\n\n1. Red\n2. Green\n3. Blue\n\n*Not answered.*", "Never mind then.")
        assert (await home.store.session(await at.session())).live_turns == 2


async def test_approve_says_how_to_answer_and_deny_leaves_it_unanswered(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Why?"), says("As you like.")]
        await asked(at, f"Why?\n\n{WORDS}")
        at.app.say("/approve")
        await at.shown(f"Why?\n\n{WORDS}", IN_WORDS)
        at.app.say("/status")
        await says_last(at, "It asks: Why?")
        at.app.say("/deny not today")
        await at.quiet()
        assert at.app.texts()[0].endswith("*Not answered: not today*")
        assert at.app.texts()[-1] == "As you like."


async def test_approve_allows_what_waits_behind_a_question(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, others=[AskUser()], approvals="ask") as home, desk(home) as at:
        why = CallDelta(0, questions.TOOL, '{"question": "Why?"}')
        home.model.steps = [[why, CallDelta(1, "lever", "{}"), StepEnd("tool_calls")], says("Done.")]
        at.app.say("go")
        await at.quiet_question()
        at.app.say("/approve")
        await says_last(at, "*Allowed.*", "1 more waits for your answer.")
        assert not lever.pulled, "it goes on when everything is answered"
        at.app.say("Because.")
        await says_last(at, "Done.")
        assert lever.pulled == ["{}"] and at.app.texts()[0].endswith("*Answered: Because.*")


async def test_what_was_answered_through_another_door_is_not_answered_here(tmp_path: Path) -> None:
    """A button says so; a message is a message."""
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which colour?", *COLOURS), says("Done."), says("Again?")]
        await asked(at, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        press = at.app.chats["42"][0].body.buttons[0].press
        session_id = await at.session()
        [question] = (await home.store.standings([session_id]))[session_id].questions
        assert question.call_id is not None
        await home.engine.answer(question.run_id, question.call_id, Reply(choices=("Red",)))
        await at.quiet()
        at.app.say("", press=press)
        await at.quiet()
        assert at.app.texts()[-1] == "This was answered already, or is no longer asked."
        at.app.say("2")
        await at.quiet()
        assert at.app.texts()[-1] == "Again?"
        assert (await home.store.session(session_id)).live_turns == 2


async def test_a_question_can_be_answered_however_long_it_has_stood_and_is_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "CHATS_KEPT_MS", -1)
    app = Parlour()
    async with house(tmp_path, AskUser()) as home:
        home.model.steps = [[*says("Let me ask.")[:1], *asks("Which?", *COLOURS)], says("Done.")]
        async with desk(home, app) as at:
            app.say("go")
            await at.quiet_question()
            await until_sent(at)
            await home.store.sweep()
        shown = app.texts()
        async with desk(home, app) as at:
            app.press("Green")
            await says_last(at, "Done.")
            await at.quiet()
            assert len(app.texts()) == len(shown) + 1 and app.texts()[0] == shown[0] == "Let me ask."
            await home.store.sweep()
            assert not await home.store.deliveries(Chat(app.name, "dm", "42").route, 10), "it is over now"


async def test_the_button_of_a_question_in_a_conversation_that_was_left_outlasts_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "CHATS_KEPT_MS", -1)
    async with house(tmp_path, AskUser()) as home, desk(home) as at:
        home.model.steps = [asks("Which?", *COLOURS), says("Done.")]
        at.app.say("go")
        await at.quiet_question()
        at.app.say("/new")
        await says_last(at, "The old one is in /sessions.")
        await until_sent(at)
        await home.store.sweep()
        (kept,) = await home.store.deliveries(Chat(at.app.name, "dm", "42").route, 10)
        assert kept.kind == "question"
        at.app.press("Green")
        await says_last(at, "see /sessions.")
        await at.quiet()
        await home.store.sweep()
        assert not await home.store.deliveries(Chat(at.app.name, "dm", "42").route, 10)


@pytest.mark.parametrize("number", ["0", "4", "-1", "x", "", "²"])
async def test_a_button_that_names_no_choice_answers_nothing(tmp_path: Path, number: str) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Which colour?", *COLOURS)]
        await asked(at, "Which colour?\n\n1. Red\n2. Green\n3. Blue")
        press = button_action.read(at.app.chats["42"][0].body.buttons[0].press)
        assert press is not None
        at.app.say("", press=f"pick {press.what} {press.which} {number}".rstrip())
        await says_last(at, "This was answered already, or is no longer asked.")
        assert (await home.store.session(await at.session())).status == "needs_you"


async def test_in_a_group_the_answer_says_whose_it_is(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as home, desk(home) as at:
        home.model.steps = [asks("Why?"), says("I see.")]
        at.app.say("go", "9", kind="group")
        await at.shown(f"Why?\n\n{WORDS}", chat="9")
        at.app.say("Because.", "9", kind="group")
        await at.quiet()
        route = await home.store.route(Chat("parlour", "group", "9").route)
        assert route is not None
        [answered] = await facts_of(home, route.session_id, f.QuestionAnswered)
        assert isinstance(answered, f.QuestionAnswered) and answered.text == "Ada: Because."


async def test_the_longest_question_fits_with_its_answer(tmp_path: Path) -> None:
    choices = tuple(f"{n:02} " + "x" * (CHOICE_CHARS_MAX - 3) for n in range(CHOICES_MAX))
    async with house(tmp_path, others=[AskUser()]) as home, desk(home, Parlour(chars_max=4_000)) as at:
        home.model.steps = [asks("q" * QUESTION_CHARS_MAX, *choices, multiple=True), says("Done.")]
        at.app.say("go")
        await at.quiet_question()
        at.app.say(", ".join(map(str, range(1, CHOICES_MAX + 1))))
        await at.quiet()
        assert at.app.texts()[-1] == "Done." and all(len(text) <= 4_000 for text in at.app.texts())


STORY = (
    ("go", asks("Why?"), f"Why?\n\n{WORDS}"),
    ("Because.", asks("And then?"), f"And then?\n\n{WORDS}"),
    ("That is all.", says("Done."), "Done."),
)


async def play(home: House, app: Parlour, fates: Sequence[Fate]) -> list[str]:
    """A question is asked and answered; each time that a gateway dies, another is begun."""
    await Pairing(home.store, SystemClock(), lambda bits: 1).allow(Sender(app.name, ADA, "Ada", 0))
    left = [*fates, Fate(NEVER, False)]
    fate, at = left[0], _mortal(home, app, left.pop(0))
    await at.gateway.start()
    for said, step, end in STORY:
        home.model.steps = [list(step)]
        inbound = app.say(said)
        while True:
            quiet = asyncio.create_task(says_last(at, end))
            over = asyncio.create_task(fate.is_over.wait())
            await asyncio.wait({quiet, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if quiet.done() and not fate.is_over.is_set():
                quiet.result()
                break
            quiet.cancel()
            await asyncio.gather(quiet, over, return_exceptions=True)
            await _bury(at, fate)
            app.tell(inbound)  # The app may well tell it again.
            fate = left.pop(0)
            at = _mortal(home, app, fate)
            await at.gateway.start()
    await _bury(at, fate)
    return fate.steps


def _mortal(home: House, app: Parlour, fate: Fate) -> Desk:
    told: list[str] = []
    gateway = gateway_of(
        home, app, told,
        store=Mortal(home.store, fate, STORE_STEPS),
        engine=Mortal(home.engine, fate, ENGINE_STEPS),
        channel=Mortal(ParlourChannel(app), fate, CHANNEL_STEPS),
    )  # fmt: skip
    return Desk(home, app, gateway, told)


async def _bury(at: Desk, fate: Fate) -> None:
    fate.bury()
    await at.gateway.stop(0.0)


@pytest.mark.parametrize("is_after", [True, False])
async def test_death_at_each_step_neither_loses_an_answer_nor_gives_it_twice(
    tmp_path: Path, is_after: bool
) -> None:
    """Each message is one thing: the turn, the answer to the first question, the answer to the second."""
    async with house(tmp_path, others=[AskUser()]) as home:
        whole = Parlour("whole", dedupes=True)
        steps = await play(home, whole, [])
        for at in range(1, len(steps) + 1, 1 if is_after else 3):
            app = Parlour(f"app{at}", dedupes=True)
            await play(home, app, [Fate(at, is_after)])
            told = f"death {'after' if is_after else 'before'} step {at}, {steps[at - 1]}: {app.texts()}"
            (route,) = await home.store.routes(app.name)
            accepted = await facts_of(home, route.session_id, f.TurnAccepted)
            assert [text_of(each.parts) for each in accepted] == ["go"], told  # type: ignore[attr-defined]
            answered = await facts_of(home, route.session_id, f.QuestionAnswered)
            assert [each.text for each in answered] == ["Because.", "That is all."], told  # type: ignore[attr-defined]
            assert app.texts() == whole.texts(), told


async def test_at_telegram_its_own_buttons_and_messages_answer(tmp_path: Path) -> None:
    """By its real client library, to a server that speaks its Bot API."""
    ada = 77
    async with house(tmp_path, others=[AskUser()]) as home, serving() as api:
        api.open_chat(ada)
        pairing = Pairing(home.store, SystemClock(), lambda bits: 1)
        await pairing.allow(Sender("telegram", str(ada), "Ada", 0))
        channel = Telegram(TOKEN, home.store, SystemClock(), api_url=api.url, patience=CALM)
        gateway = gateway_of(home, Parlour("telegram"), [], channel=channel)
        await gateway.start()
        try:
            home.model.steps = [asks("Which *colour*?", *COLOURS), asks("Why?"), says("I see.")]
            api.say(ada, "go")
            await api.until(lambda: api.shown(ada) and api.shown(ada)[0].buttons)
            (shown,) = api.shown(ada)
            assert [each["text"] for each in shown.buttons] == [*COLOURS]
            api.press(ada, shown.id, shown.buttons[2]["callback_data"])
            await api.until(lambda: len(api.texts(ada)) == 2)
            api.say(ada, "It rains.")
            await api.until(lambda: api.texts(ada)[-1] == "I see.")
            await api.until(lambda: api.texts(ada)[1].endswith("Answered: It rains."))
            assert api.texts(ada)[0].endswith("Answered: Blue") and not api.shown(ada)[0].buttons
        finally:
            await gateway.stop(5.0)
