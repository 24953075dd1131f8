"""The agent asks a person once, for as long as it takes, and the model reads the one answer."""

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
from holdfast.domain.events.parts import Text, message_text
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.limits import CHOICES_MAX, QUESTION_CHARS_MAX, QUESTIONS_OPEN_MAX, TEXT_BYTES_MAX
from holdfast.models.ports import CallDelta, StepEnd
from holdfast.store.session_status import OpenQuestion
from holdfast.tools.ask_user import AskUserTool
from tests.support.in_process_app import AppHarness, FakeTool, StepAction, running_app, text_step

COLOURS = ("Red", "Green", "Blue")
Verb = Callable[[AppHarness, SessionId, RunId], Coroutine[Any, Any, object]]


def question_call(question: str = "Which one?", *choices: str, multiple: bool = False) -> tuple[str, str]:
    arguments: dict[str, object] = {"question": question}
    if choices:
        arguments |= {"choices": choices, "multiple": multiple}
    return questions.ASK_TOOL, msgspec.json.encode(arguments).decode()


def step_with_calls(*calls: tuple[str, str]) -> list[StepAction]:
    """Return a step that makes several calls."""
    return [*(CallDelta(n, *call) for n, call in enumerate(calls)), StepEnd("tool_calls")]


async def start_pending_questions(
    app: AppHarness, *calls: tuple[str, str], then: str = "Done."
) -> tuple[SessionId, RunId]:
    """Return a run that waits with these calls open."""
    session_id = await app.create_session()
    app.model.steps = [step_with_calls(*calls), text_step(then)]
    sent = await app.send(session_id, "Go")
    assert sent.run_id is not None
    await app.wait_for_run(sent.run_id, "waiting")
    await wait_until_idle(app)
    return session_id, sent.run_id


async def wait_until_idle(app: AppHarness) -> None:
    async def is_idle() -> bool:
        return app.engine.runner.running == 0

    await app.wait_until(is_idle, "rest")


async def open_questions(app: AppHarness, session_id: SessionId) -> list[OpenQuestion]:
    return list((await app.store.session_statuses([session_id]))[session_id].questions)


async def facts_of(app: AppHarness, session_id: SessionId, *kinds: type) -> list[Any]:
    events = await app.store.read(session_id, 0, 1000)
    return [event.fact for event in events if isinstance(event.fact, kinds)]


def tool_texts(app: AppHarness, request: int = -1) -> list[str]:
    """Return what the model read of its calls."""
    found = [each for each in app.model.requests[request].messages if isinstance(each, ToolMessage)]
    return [message_text(each.parts) for each in found]


def call_of(question: OpenQuestion) -> tuple[RunId, CallId]:
    assert question.call_id is not None
    return question.run_id, question.call_id


async def test_the_model_reads_the_answer_and_continues(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()], approvals="ask") as app:
        session_id, run_id = await start_pending_questions(app, question_call("Which colour?", *COLOURS))
        run = await app.run(run_id)
        assert (run.waiting, (await app.store.session(session_id)).status) == ("question", "needs_you")
        [question] = await open_questions(app, session_id)
        assert (question.kind, question.question, question.choices) == ("question", "Which colour?", COLOURS)
        await app.engine.answer(*call_of(question), Reply(choices=("Green",)))
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == ["Green"] and await open_questions(app, session_id) == []
        ledger = await facts_of(
            app,
            session_id,
            f.ToolIntended,
            f.ToolStarted,
            f.QuestionAsked,
            f.QuestionAnswered,
            f.ToolSettled,
        )
        names = [type(fact).__name__ for fact in ledger]
        assert names == ["ToolIntended", "QuestionAsked", "QuestionAnswered", "ToolSettled"]
        [resumed] = await facts_of(app, session_id, f.RunResumed)
        assert (resumed.by, resumed.attempt) == ("user", 0), "waiting for a person costs no attempt"


@pytest.mark.parametrize(
    ("call", "reply", "read"),
    [
        (question_call("Why?"), Reply(" Because. "), " Because. "),
        (question_call("Which?", *COLOURS, multiple=True), Reply(choices=("Blue", "Red")), "Red\nBlue"),
        (question_call("Which?", "  deep \n blue ", "Red"), Reply(choices=("deep blue",)), "deep blue"),
    ],
)
async def test_an_answer_by_text_or_several_choices(
    tmp_path: Path, call: tuple[str, str], reply: Reply, read: str
) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, call)
        [question] = await open_questions(app, session_id)
        await app.engine.answer(*call_of(question), reply)
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == [read]


@pytest.mark.parametrize(
    ("call", "reply", "error"),
    [
        (question_call("Why?"), Reply(), AnswerRefused),
        (question_call("Why?"), Reply(" \n"), AnswerRefused),
        (question_call("Why?"), Reply(choices=("Red",)), AnswerRefused),
        (question_call("Why?"), Reply("x" * (TEXT_BYTES_MAX + 1)), TooLarge),
        (question_call("Which?", *COLOURS), Reply(), AnswerRefused),
        (question_call("Which?", *COLOURS), Reply("Red"), AnswerRefused),
        (question_call("Which?", *COLOURS), Reply(choices=("red",)), AnswerRefused),
        (question_call("Which?", *COLOURS), Reply(choices=("Red", "Blue")), AnswerRefused),
        (question_call("Which?", *COLOURS, multiple=True), Reply(choices=()), AnswerRefused),
        (question_call("Which?", *COLOURS, multiple=True), Reply(choices=("Red", "Pink")), AnswerRefused),
    ],
)
async def test_an_invalid_answer_leaves_the_question_open(
    tmp_path: Path, call: tuple[str, str], reply: Reply, error: type[HoldfastError]
) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, call)
        [question] = await open_questions(app, session_id)
        head = await app.store.head(session_id)
        with pytest.raises(error):
            await app.engine.answer(*call_of(question), reply)
        assert await app.store.head(session_id) == head
        assert (await app.run(run_id)).status == "waiting"


async def test_a_second_answer_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
        [question] = await open_questions(app, session_id)
        await app.engine.answer(*call_of(question), Reply("One."))
        with pytest.raises(ToolRefused):
            await app.engine.answer(*call_of(question), Reply("Two."))
        with pytest.raises(ToolRefused):
            await app.engine.resolve(*call_of(question), "deny")
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == ["One."]


async def test_of_two_answers_at_two_servers_one_counts(tmp_path: Path) -> None:
    async with (
        running_app(tmp_path, extra_tools=[AskUserTool()]) as app,
        running_app(tmp_path, extra_tools=[AskUserTool()], started=False) as other,
    ):
        other.model.steps = [text_step("Done.")]
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
        await other.engine.start()
        [question] = await open_questions(app, session_id)
        outcomes = await asyncio.gather(
            app.engine.answer(*call_of(question), Reply("One.")),
            other.engine.answer(*call_of(question), Reply("Two.")),
            return_exceptions=True,
        )
        assert [type(each) for each in outcomes].count(ToolRefused) == 1 and outcomes.count(None) == 1
        await app.wait_for_run(run_id, "completed")
        [answered] = await facts_of(app, session_id, f.QuestionAnswered)
        assert answered.text == ("One.", "Two.")[outcomes.index(None)]


async def test_a_question_waits_without_a_lease_across_restarts_and_is_asked_once(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
    for _ in range(2):
        async with running_app(tmp_path, extra_tools=[AskUserTool()]) as again:
            await again.engine.recovery.sweep()
            assert (await again.run(run_id)).status == "waiting" and not again.model.requests
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as last:
        last.model.steps = [text_step("Done.")]
        [question] = await open_questions(last, session_id)
        # As if the process had died the moment that the answer was durable.
        await last.engine.commands.answer(*call_of(question), Reply("Because."))
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as after:
        after.model.steps = [text_step("Done.")]
        await after.wait_for_run(run_id, "completed")
        assert tool_texts(after) == ["Because."]
        assert len(await facts_of(after, session_id, f.QuestionAsked)) == 1
        assert not await facts_of(after, session_id, f.RunInterrupted)


async def test_a_question_is_asked_after_an_earlier_crash(tmp_path: Path) -> None:
    """The process died after the intent of the call: the one that continues the run asks."""
    slow = FakeTool("slow", "pure")
    slow.hold = asyncio.Event()
    async with running_app(tmp_path, slow, extra_tools=[AskUserTool()]) as app:
        session_id = await app.create_session()
        app.model.steps = [step_with_calls(question_call("Why?"), ("slow", "{}"))]
        sent = await app.send(session_id, "Go")
        await slow.started.wait()
        assert not await facts_of(app, session_id, f.QuestionAsked)
    async with running_app(tmp_path, FakeTool("slow", "pure"), extra_tools=[AskUserTool()]) as again:
        await again.wait_for_run(sent.run_id, "waiting")
        [question] = await open_questions(again, session_id)
        assert question.question == "Why?"


async def test_other_calls_of_the_step_run_before_the_answer(tmp_path: Path) -> None:
    looks, acts = FakeTool("look", "pure"), FakeTool("act", "unsafe")
    async with running_app(tmp_path, looks, acts, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(
            app, ("look", "{}"), question_call("Why?"), ("act", "{}")
        )
        assert len(looks.run_arguments) == len(acts.run_arguments) == 1
        [question] = await open_questions(app, session_id)
        await app.engine.answer(*call_of(question), Reply("Because."))
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == ["pulled down", "Because.", "pulled down"]
        assert len(looks.run_arguments) == len(acts.run_arguments) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
async def test_questions_and_approvals_are_open_together_and_answered_in_any_order(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    acts = FakeTool("act", "unsafe")
    async with running_app(tmp_path, acts, extra_tools=[AskUserTool()], approvals="ask") as app:
        session_id, run_id = await start_pending_questions(
            app, question_call("One?"), ("act", "{}"), question_call("Two?", *COLOURS)
        )
        found = {each.kind + each.question: each for each in await open_questions(app, session_id)}
        assert list(found) == ["questionOne?", "approval", "questionTwo?"]
        one, act, two = found.values()
        answers = [
            lambda: app.engine.answer(*call_of(one), Reply("Yes.")),
            lambda: app.engine.resolve(*call_of(act), "approve"),
            lambda: app.engine.answer(*call_of(two), Reply(choices=("Red",))),
        ]
        for number in order:
            assert (await app.run(run_id)).status == "waiting" and not acts.run_arguments
            await answers[number]()
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == ["Yes.", "pulled down", "Red"] and len(acts.run_arguments) == 1
        assert len(await facts_of(app, session_id, f.QuestionAsked)) == 2


async def _sends(app: AppHarness, session_id: SessionId, run_id: RunId) -> None:
    await app.send(session_id, "Never mind.")


async def _stops(app: AppHarness, session_id: SessionId, run_id: RunId) -> None:
    await app.engine.cancel(run_id)


async def _undoes(app: AppHarness, session_id: SessionId, run_id: RunId) -> None:
    await app.engine.commands.undo(session_id, None)


async def _edits(app: AppHarness, session_id: SessionId, run_id: RunId) -> None:
    await app.engine.replace(session_id, None, (Text("Another."),))


async def _clears(app: AppHarness, session_id: SessionId, run_id: RunId) -> None:
    await app.engine.clear(session_id)


@pytest.mark.parametrize("verb", [_sends, _stops, _undoes, _edits, _clears])
async def test_acting_past_a_question_closes_it_and_ends_its_run(tmp_path: Path, verb: Verb) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(
            app, question_call("Why?"), question_call("Which?", *COLOURS), then="Well."
        )
        found = await open_questions(app, session_id)
        await verb(app, session_id, run_id)
        await app.wait_for_run(run_id, "cancelled")
        assert await open_questions(app, session_id) == []
        assert len(await facts_of(app, session_id, f.QuestionClosed)) == 2
        settled = await facts_of(app, session_id, f.ToolSettled)
        assert [(each.outcome, message_text(each.parts)) for each in settled] == [
            ("not_run", questions.MOVED_ON)
        ] * 2
        with pytest.raises(ToolRefused):
            await app.engine.answer(*call_of(found[0]), Reply("Late."))
        if verb is _sends:
            # The model sees that it was not answered, then what was said instead.
            async def is_read() -> bool:
                return len(app.model.requests) == 2

            await app.wait_until(is_read, "the message")
            assert tool_texts(app) == [questions.MOVED_ON] * 2


async def test_a_concurrent_answer_and_message_leave_a_consistent_history(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
        [question] = await open_questions(app, session_id)
        said, sent = await asyncio.gather(
            app.engine.answer(*call_of(question), Reply("Because.")),
            app.send(session_id, "Never mind."),
            return_exceptions=True,
        )
        assert not isinstance(sent, BaseException), "what is said is always kept"
        await app.wait_for_run(run_id, "completed", "cancelled")
        await app.wait_for_run(sent.run_id, "completed")
        answered = await facts_of(app, session_id, f.QuestionAnswered)
        closed = await facts_of(app, session_id, f.QuestionClosed)
        assert len(answered) + len(closed) == 1 and bool(closed) == isinstance(said, ToolRefused)


async def test_a_dismissed_question_lets_the_run_continue(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
        [question] = await open_questions(app, session_id)
        await app.engine.resolve(*call_of(question), "deny", "None of your business.")
        await app.wait_for_run(run_id, "completed")
        assert tool_texts(app) == [f"{questions.DECLINED} None of your business."]


@pytest.mark.parametrize("decision", ["approve", "rerun", "mark_done", "skip"])
async def test_an_approval_decision_does_not_answer_a_question(
    tmp_path: Path, decision: f.ToolDecision
) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id, run_id = await start_pending_questions(app, question_call("Why?"))
        [question] = await open_questions(app, session_id)
        with pytest.raises(ToolRefused):
            await app.engine.resolve(*call_of(question), decision)
        assert (await app.run(run_id)).status == "waiting"


async def test_a_text_answer_does_not_resolve_an_approval(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("act", "unsafe"), approvals="ask") as app:
        session_id, _ = await start_pending_questions(app, ("act", "{}"))
        [approval] = await open_questions(app, session_id)
        with pytest.raises(ToolRefused):
            await app.engine.answer(*call_of(approval), Reply("Yes."))


async def test_a_turn_that_was_queued_waits_behind_the_question(tmp_path: Path) -> None:
    slow = FakeTool("slow", "pure")
    slow.hold = asyncio.Event()
    async with running_app(tmp_path, slow, extra_tools=[AskUserTool()]) as app:
        session_id = await app.create_session()
        app.model.steps = [
            step_with_calls(("slow", "{}"), question_call("Why?")),
            text_step("First."),
            text_step("Second."),
        ]
        first = await app.send(session_id, "Go")
        await slow.started.wait()
        second = await app.send(session_id, "And then?")
        slow.hold.set()
        await app.wait_for_run(first.run_id, "waiting")
        assert (await app.run(second.run_id)).status == "queued"
        [question] = await open_questions(app, session_id)
        await app.engine.answer(*call_of(question), Reply("Because."))
        await app.wait_for_run(second.run_id, "completed")


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
async def test_an_invalid_question_fails_with_a_reason(tmp_path: Path, arguments: str, why: str) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()], approvals="ask") as app:
        session_id = await app.create_session()
        app.model.steps = [step_with_calls((questions.ASK_TOOL, arguments)), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        assert not await facts_of(app, session_id, f.QuestionAsked)
        [settled] = await facts_of(app, session_id, f.ToolSettled)
        assert settled.outcome == "failed" and why in message_text(settled.parts)


@pytest.mark.parametrize(
    "arguments", ['{"question": "\\ud800"}', '{"question": ' + "[" * 2000 + "]" * 2000 + "}"]
)
async def test_malformed_question_arguments_cause_no_error(tmp_path: Path, arguments: str) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        session_id = await app.create_session()
        app.model.steps = [step_with_calls((questions.ASK_TOOL, arguments)), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        assert not await facts_of(app, session_id, f.QuestionAsked)


async def test_the_number_of_open_questions_is_limited(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=[AskUserTool()]) as app:
        many = [question_call(f"Question {n}?") for n in range(QUESTIONS_OPEN_MAX + 3)]
        session_id, run_id = await start_pending_questions(app, *many)
        found = await open_questions(app, session_id)
        assert [each.question for each in found] == [f"Question {n}?" for n in range(QUESTIONS_OPEN_MAX)]
        for question in found:
            await app.engine.answer(*call_of(question), Reply("Yes."))
        await app.wait_for_run(run_id, "completed")
        assert (
            tool_texts(app)[QUESTIONS_OPEN_MAX:]
            == [f"At most {QUESTIONS_OPEN_MAX} questions can be asked at once."] * 3
        )


async def test_an_agent_without_the_tool_asks_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [step_with_calls(question_call("Why?")), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        assert not await facts_of(app, session_id, f.QuestionAsked)


def test_the_question_limits_match_the_tool_description() -> None:
    assert str(CHOICES_MAX) in AskUserTool.spec.description
    assert AskUserTool.spec.parameters["required"] == ["question"]
