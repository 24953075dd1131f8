"""The agent asks a person: once, for as long as it takes, and the one answer is what the model reads."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.context.context import ToolMessage
from holdfast.domain.decisions import questions
from holdfast.domain.decisions.questions import Reply
from holdfast.domain.errors import AnswerRefused, HoldfastError, TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text, text_of
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.limits import CHOICES_MAX, QUESTION_CHARS_MAX, QUESTIONS_OPEN_MAX, TEXT_BYTES_MAX
from holdfast.models.ports import CallDelta, StepEnd
from holdfast.store.session_status import Question
from holdfast.tools.ask_user import AskUser
from tests.support.in_process_app import House, Lever, Line, house, says

COLOURS = ("Red", "Green", "Blue")
Verb = Callable[[House, SessionId, RunId], Coroutine[Any, Any, object]]


def asks(question: str = "Which one?", *choices: str, multiple: bool = False) -> tuple[str, str]:
    told: dict[str, object] = {"question": question}
    if choices:
        told |= {"choices": choices, "multiple": multiple}
    return questions.TOOL, msgspec.json.encode(told).decode()


def at_once(*calls: tuple[str, str]) -> list[Line]:
    """A step that makes several calls."""
    return [*(CallDelta(n, *call) for n, call in enumerate(calls)), StepEnd("tool_calls")]


async def asked(here: House, *calls: tuple[str, str], then: str = "Done.") -> tuple[SessionId, RunId]:
    """A run that waits with these calls open."""
    session_id = await here.begin()
    here.model.steps = [at_once(*calls), says(then)]
    sent = await here.say(session_id, "Go")
    assert sent.run_id is not None
    await here.until_run(sent.run_id, "waiting")
    await at_rest(here)
    return session_id, sent.run_id


async def at_rest(here: House) -> None:
    async def is_so() -> bool:
        return here.engine.runner.at_work == 0

    await here.until(is_so, "rest")


async def open_questions(here: House, session_id: SessionId) -> list[Question]:
    return list((await here.store.standings([session_id]))[session_id].questions)


async def facts_of(here: House, session_id: SessionId, *kinds: type) -> list[Any]:
    events = await here.store.read(session_id, 0, 1000)
    return [event.fact for event in events if isinstance(event.fact, kinds)]


def told(here: House, request: int = -1) -> list[str]:
    """What the model was told of its calls."""
    found = [each for each in here.model.requests[request].messages if isinstance(each, ToolMessage)]
    return [text_of(each.parts) for each in found]


def call_of(question: Question) -> tuple[RunId, CallId]:
    assert question.call_id is not None
    return question.run_id, question.call_id


async def test_the_answer_is_what_the_model_reads_and_then_it_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()], approvals="ask") as here:
        session_id, run_id = await asked(here, asks("Which colour?", *COLOURS))
        run = await here.run(run_id)
        assert (run.waiting, (await here.store.session(session_id)).status) == ("question", "needs_you")
        [question] = await open_questions(here, session_id)
        assert (question.kind, question.question, question.choices) == ("question", "Which colour?", COLOURS)
        await here.engine.answer(*call_of(question), Reply(choices=("Green",)))
        await here.until_run(run_id, "completed")
        assert told(here) == ["Green"] and await open_questions(here, session_id) == []
        ledger = await facts_of(
            here,
            session_id,
            f.ToolIntended,
            f.ToolStarted,
            f.QuestionAsked,
            f.QuestionAnswered,
            f.ToolSettled,
        )
        names = [type(fact).__name__ for fact in ledger]
        assert names == ["ToolIntended", "QuestionAsked", "QuestionAnswered", "ToolSettled"]
        [resumed] = await facts_of(here, session_id, f.RunResumed)
        assert (resumed.by, resumed.attempt) == ("user", 0), "waiting for a person costs no attempt"


@pytest.mark.parametrize(
    ("call", "reply", "read"),
    [
        (asks("Why?"), Reply(" Because. "), " Because. "),
        (asks("Which?", *COLOURS, multiple=True), Reply(choices=("Blue", "Red")), "Red\nBlue"),
        (asks("Which?", "  deep \n blue ", "Red"), Reply(choices=("deep blue",)), "deep blue"),
    ],
)
async def test_an_answer_in_words_or_by_several_choices(
    tmp_path: Path, call: tuple[str, str], reply: Reply, read: str
) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, call)
        [question] = await open_questions(here, session_id)
        await here.engine.answer(*call_of(question), reply)
        await here.until_run(run_id, "completed")
        assert told(here) == [read]


@pytest.mark.parametrize(
    ("call", "reply", "error"),
    [
        (asks("Why?"), Reply(), AnswerRefused),
        (asks("Why?"), Reply(" \n"), AnswerRefused),
        (asks("Why?"), Reply(choices=("Red",)), AnswerRefused),
        (asks("Why?"), Reply("x" * (TEXT_BYTES_MAX + 1)), TooLarge),
        (asks("Which?", *COLOURS), Reply(), AnswerRefused),
        (asks("Which?", *COLOURS), Reply("Red"), AnswerRefused),
        (asks("Which?", *COLOURS), Reply(choices=("red",)), AnswerRefused),
        (asks("Which?", *COLOURS), Reply(choices=("Red", "Blue")), AnswerRefused),
        (asks("Which?", *COLOURS, multiple=True), Reply(choices=()), AnswerRefused),
        (asks("Which?", *COLOURS, multiple=True), Reply(choices=("Red", "Pink")), AnswerRefused),
    ],
)
async def test_what_does_not_answer_it_leaves_it_open(
    tmp_path: Path, call: tuple[str, str], reply: Reply, error: type[HoldfastError]
) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, call)
        [question] = await open_questions(here, session_id)
        head = await here.store.head(session_id)
        with pytest.raises(error):
            await here.engine.answer(*call_of(question), reply)
        assert await here.store.head(session_id) == head
        assert (await here.run(run_id)).status == "waiting"


async def test_a_second_answer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"))
        [question] = await open_questions(here, session_id)
        await here.engine.answer(*call_of(question), Reply("One."))
        with pytest.raises(ToolRefused):
            await here.engine.answer(*call_of(question), Reply("Two."))
        with pytest.raises(ToolRefused):
            await here.engine.resolve(*call_of(question), "deny")
        await here.until_run(run_id, "completed")
        assert told(here) == ["One."]


async def test_of_two_answers_at_two_servers_one_counts(tmp_path: Path) -> None:
    async with (
        house(tmp_path, others=[AskUser()]) as here,
        house(tmp_path, others=[AskUser()], started=False) as other,
    ):
        other.model.steps = [says("Done.")]
        session_id, run_id = await asked(here, asks("Why?"))
        await other.engine.start()
        [question] = await open_questions(here, session_id)
        outcomes = await asyncio.gather(
            here.engine.answer(*call_of(question), Reply("One.")),
            other.engine.answer(*call_of(question), Reply("Two.")),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes].count(ToolRefused) == 1 and outcomes.count(None) == 1
        await here.until_run(run_id, "completed")
        [answered] = await facts_of(here, session_id, f.QuestionAnswered)
        assert answered.text == ("One.", "Two.")[outcomes.index(None)]


async def test_it_waits_without_a_lease_across_restarts_and_is_asked_once(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"))
    for _ in range(2):
        async with house(tmp_path, others=[AskUser()]) as again:
            await again.engine.recovery.sweep()
            assert (await again.run(run_id)).status == "waiting" and not again.model.requests
    async with house(tmp_path, others=[AskUser()]) as last:
        last.model.steps = [says("Done.")]
        [question] = await open_questions(last, session_id)
        # As if the process had died the moment that the answer was durable.
        await last.engine.verbs.answer(*call_of(question), Reply("Because."))
    async with house(tmp_path, others=[AskUser()]) as after:
        after.model.steps = [says("Done.")]
        await after.until_run(run_id, "completed")
        assert told(after) == ["Because."]
        assert len(await facts_of(after, session_id, f.QuestionAsked)) == 1
        assert not await facts_of(after, session_id, f.RunInterrupted)


async def test_it_is_asked_after_a_crash_that_came_before_it_was(tmp_path: Path) -> None:
    """Intended, and then the process is gone: whoever carries it on asks."""
    slow = Lever("slow", "pure")
    slow.hold = asyncio.Event()
    async with house(tmp_path, slow, others=[AskUser()]) as here:
        session_id = await here.begin()
        here.model.steps = [at_once(asks("Why?"), ("slow", "{}"))]
        sent = await here.say(session_id, "Go")
        await slow.started.wait()
        assert not await facts_of(here, session_id, f.QuestionAsked)
    async with house(tmp_path, Lever("slow", "pure"), others=[AskUser()]) as again:
        await again.until_run(sent.run_id, "waiting")
        [question] = await open_questions(again, session_id)
        assert question.question == "Why?"


async def test_the_other_calls_of_the_step_run_while_nobody_has_answered(tmp_path: Path) -> None:
    looks, acts = Lever("look", "pure"), Lever("act", "unsafe")
    async with house(tmp_path, looks, acts, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, ("look", "{}"), asks("Why?"), ("act", "{}"))
        assert len(looks.pulled) == len(acts.pulled) == 1
        [question] = await open_questions(here, session_id)
        await here.engine.answer(*call_of(question), Reply("Because."))
        await here.until_run(run_id, "completed")
        assert told(here) == ["pulled down", "Because.", "pulled down"]
        assert len(looks.pulled) == len(acts.pulled) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_questions_and_approvals_are_open_together_and_answered_in_any_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    acts = Lever("act", "unsafe")
    async with house(tmp_path, acts, others=[AskUser()], approvals="ask") as here:
        session_id, run_id = await asked(here, asks("One?"), ("act", "{}"), asks("Two?", *COLOURS))
        found = {each.kind + each.question: each for each in await open_questions(here, session_id)}
        assert list(found) == ["questionOne?", "approval", "questionTwo?"]
        one, act, two = found.values()
        answers = [
            lambda: here.engine.answer(*call_of(one), Reply("Yes.")),
            lambda: here.engine.resolve(*call_of(act), "approve"),
            lambda: here.engine.answer(*call_of(two), Reply(choices=("Red",))),
        ]
        for number in order:
            assert (await here.run(run_id)).status == "waiting" and not acts.pulled
            await answers[number]()
        await here.until_run(run_id, "completed")
        assert told(here) == ["Yes.", "pulled down", "Red"] and len(acts.pulled) == 1
        assert len(await facts_of(here, session_id, f.QuestionAsked)) == 2


async def _sends(here: House, session_id: SessionId, run_id: RunId) -> None:
    await here.say(session_id, "Never mind.")


async def _stops(here: House, session_id: SessionId, run_id: RunId) -> None:
    await here.engine.cancel(run_id)


async def _undoes(here: House, session_id: SessionId, run_id: RunId) -> None:
    await here.engine.verbs.undo(session_id, None)


async def _edits(here: House, session_id: SessionId, run_id: RunId) -> None:
    await here.engine.replace(session_id, None, (Text("Another."),))


async def _clears(here: House, session_id: SessionId, run_id: RunId) -> None:
    await here.engine.clear(session_id)


@pytest.mark.parametrize("verb", [_sends, _stops, _undoes, _edits, _clears])
async def test_whoever_moves_on_closes_it_and_ends_its_run(tmp_path: Path, verb: Verb) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"), asks("Which?", *COLOURS), then="Well.")
        found = await open_questions(here, session_id)
        await verb(here, session_id, run_id)
        await here.until_run(run_id, "cancelled")
        assert await open_questions(here, session_id) == []
        assert len(await facts_of(here, session_id, f.QuestionClosed)) == 2
        settled = await facts_of(here, session_id, f.ToolSettled)
        assert [(each.outcome, text_of(each.parts)) for each in settled] == [
            ("not_run", questions.MOVED_ON)
        ] * 2
        with pytest.raises(ToolRefused):
            await here.engine.answer(*call_of(found[0]), Reply("Late."))
        if verb is _sends:
            # The model sees that it was not answered, then what was said instead.
            async def is_read() -> bool:
                return len(here.model.requests) == 2

            await here.until(is_read, "the message")
            assert told(here) == [questions.MOVED_ON] * 2


async def test_an_answer_and_a_message_at_once_leave_one_story(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"))
        [question] = await open_questions(here, session_id)
        said, sent = await asyncio.gather(
            here.engine.answer(*call_of(question), Reply("Because.")),
            here.say(session_id, "Never mind."),
            return_exceptions=True,
        )
        assert not isinstance(sent, BaseException), "what is said is always kept"
        await here.until_run(run_id, "completed", "cancelled")
        await here.until_run(sent.run_id, "completed")
        answered = await facts_of(here, session_id, f.QuestionAnswered)
        closed = await facts_of(here, session_id, f.QuestionClosed)
        assert len(answered) + len(closed) == 1 and bool(closed) == isinstance(said, ToolRefused)


async def test_somebody_may_leave_it_unanswered_and_it_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"))
        [question] = await open_questions(here, session_id)
        await here.engine.resolve(*call_of(question), "deny", "None of your business.")
        await here.until_run(run_id, "completed")
        assert told(here) == [f"{questions.DECLINED} None of your business."]


@pytest.mark.parametrize("decision", ["approve", "rerun", "mark_done", "skip"])
async def test_no_other_word_on_a_call_answers_a_question(tmp_path: Path, decision: f.Decision) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id, run_id = await asked(here, asks("Why?"))
        [question] = await open_questions(here, session_id)
        with pytest.raises(ToolRefused):
            await here.engine.resolve(*call_of(question), decision)
        assert (await here.run(run_id)).status == "waiting"


async def test_an_approval_is_not_answered_with_words(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("act", "unsafe"), approvals="ask") as here:
        session_id, _ = await asked(here, ("act", "{}"))
        [approval] = await open_questions(here, session_id)
        with pytest.raises(ToolRefused):
            await here.engine.answer(*call_of(approval), Reply("Yes."))


async def test_a_turn_that_was_queued_waits_behind_the_question(tmp_path: Path) -> None:
    slow = Lever("slow", "pure")
    slow.hold = asyncio.Event()
    async with house(tmp_path, slow, others=[AskUser()]) as here:
        session_id = await here.begin()
        here.model.steps = [at_once(("slow", "{}"), asks("Why?")), says("First."), says("Second.")]
        first = await here.say(session_id, "Go")
        await slow.started.wait()
        second = await here.say(session_id, "And then?")
        slow.hold.set()
        await here.until_run(first.run_id, "waiting")
        assert (await here.run(second.run_id)).status == "queued"
        [question] = await open_questions(here, session_id)
        await here.engine.answer(*call_of(question), Reply("Because."))
        await here.until_run(second.run_id, "completed")


BAD: tuple[tuple[str, str], ...] = (
    ("{}", "`question` is missing"),
    ('{"question": ""}', "nothing in it"),
    ('{"question": 3}', "must be text"),
    ('{"question": null}', "must be text"),
    ('{"question": ["a"]}', "must be text"),
    ('{"question": "a", "choices": []}', "2 to 20"),
    ('{"question": "a", "choices": ["b"]}', "2 to 20"),
    ('{"question": "a", "choices": "b"}', "choices"),
    ('{"question": "a", "choices": [1, 2]}', "choices"),
    ('{"question": "a", "choices": {"b": "c"}}', "choices"),
    ('{"question": "a", "choices": ["b", " "]}', "empty"),
    ('{"question": "a", "choices": ["b", " B "]}', "the same"),
    ('{"question": "a", "choices": ["b", "' + "c" * 101 + '"]}', "too long"),
    ('{"question": "a", "multiple": true}', "no choices"),
    ('{"question": "a", "multiple": "perhaps", "choices": ["b", "c"]}', "multiple"),
    ('{"question": "a", "why": "b"}', "no argument `why`"),
    ('{"question": "a", "question": "b"}', "question"),
    ('{"question": "' + "a" * (QUESTION_CHARS_MAX + 1) + '"}', "too long"),
    (msgspec.json.encode({"question": "a", "choices": [str(n) for n in range(1000)]}).decode(), "2 to 20"),
)


@pytest.mark.parametrize(("arguments", "why"), BAD, ids=[str(n) for n in range(len(BAD))])
async def test_what_cannot_be_asked_fails_and_the_model_reads_why(
    tmp_path: Path, arguments: str, why: str
) -> None:
    async with house(tmp_path, others=[AskUser()], approvals="ask") as here:
        session_id = await here.begin()
        here.model.steps = [at_once((questions.TOOL, arguments)), says("Done.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        assert not await facts_of(here, session_id, f.QuestionAsked)
        [settled] = await facts_of(here, session_id, f.ToolSettled)
        assert settled.outcome == "failed" and why in text_of(settled.parts)


@pytest.mark.parametrize(
    "arguments", ['{"question": "\\ud800"}', '{"question": ' + "[" * 2000 + "]" * 2000 + "}"]
)
async def test_what_is_not_even_a_call_spoils_nothing(tmp_path: Path, arguments: str) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        session_id = await here.begin()
        here.model.steps = [at_once((questions.TOOL, arguments)), says("Done.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        assert not await facts_of(here, session_id, f.QuestionAsked)


async def test_only_so_many_are_asked_at_once(tmp_path: Path) -> None:
    async with house(tmp_path, others=[AskUser()]) as here:
        many = [asks(f"Question {n}?") for n in range(QUESTIONS_OPEN_MAX + 3)]
        session_id, run_id = await asked(here, *many)
        found = await open_questions(here, session_id)
        assert [each.question for each in found] == [f"Question {n}?" for n in range(QUESTIONS_OPEN_MAX)]
        for question in found:
            await here.engine.answer(*call_of(question), Reply("Yes."))
        await here.until_run(run_id, "completed")
        assert (
            told(here)[QUESTIONS_OPEN_MAX:]
            == [f"At most {QUESTIONS_OPEN_MAX} questions can be asked at once."] * 3
        )


async def test_an_agent_without_the_tool_asks_nothing(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [at_once(asks("Why?")), says("Done.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        assert not await facts_of(here, session_id, f.QuestionAsked)


def test_the_most_that_can_be_asked_is_what_the_model_is_told() -> None:
    assert str(CHOICES_MAX) in AskUser.spec.description
    assert AskUser.spec.parameters["required"] == ["question"]
