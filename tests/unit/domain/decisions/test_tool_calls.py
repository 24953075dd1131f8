"""The ledger of tool calls: nothing unsafe runs twice, and every call ends once."""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import pytest

from holdfast.domain.decisions import endings, runs, tools
from holdfast.domain.errors import RunRefused, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text, ToolCall
from holdfast.domain.events.stream_fold import OutputFold, parts_digest
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.state.rows import ToolRow, ToolState
from holdfast.domain.transcript.transcript import fold
from tests.support.in_memory_session import InMemoryJournal

RUN, MESSAGE, CALL = RunId("r_1"), MessageId("m_2"), CallId("c_1")
PATHS: Mapping[ToolState, Sequence[f.AnyFact]] = MappingProxyType({
    "intended": (),
    "started": (f.ToolStarted(RUN, CALL),),
    "in_doubt": (f.ToolStarted(RUN, CALL), f.ToolInDoubt(RUN, CALL)),
    "resolved": (f.ToolStarted(RUN, CALL), f.ToolInDoubt(RUN, CALL), f.ToolResolved(RUN, CALL, "skip")),
    "settled": (f.ToolSettled(1, 2, MESSAGE, CALL, "shell", "not_run", (), "", RUN),),
})  # fmt: skip


def message_with(*calls: ToolCall) -> f.MessageSettled:
    return f.MessageSettled(1, 1, MESSAGE, "assistant", calls, parts_digest(calls), RUN)


def journal_with_tool(state: ToolState = "intended", effect: f.Effect = "unsafe") -> InMemoryJournal:
    journal = InMemoryJournal()
    journal.append(
        f.SessionCreated(),
        f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN),
        f.RunStarted(RUN),
        f.ModelStepStarted(RUN, 1, 1, MESSAGE, "demo"),
    )
    settled = message_with(ToolCall(CALL, "shell", '{"command": "ls"}'))
    journal.append(settled, *tools.intend(journal.run(RUN), settled, lambda name: effect))
    journal.append(*PATHS[state])
    assert tool_of(journal).state == state
    return journal


def tool_of(journal: InMemoryJournal) -> ToolRow:
    return journal.book.tools[CALL]


def test_only_whole_calls_are_intended_at_the_places_after_the_run_s_last() -> None:
    journal = journal_with_tool("settled")
    run = journal.run(RUN)
    settled = f.MessageSettled(
        1, 3, MessageId("m_3"), "assistant",
        (ToolCall("a", "shell", "{}"), ToolCall("b", "shell", '{"x": '), ToolCall("c", "shell", "[]"),
         ToolCall("d", "read", '{"path": "x"}')), "", RUN,
    )  # fmt: skip
    intended = tools.intend(run, settled, lambda name: "pure" if name == "read" else "unsafe")
    assert [(i.call_id, i.place, i.effect) for i in intended] == [("a", 4, "unsafe"), ("d", 5, "pure")]


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        *((text, True) for text in ("{}", '{"a": 1}', '{"a": {"b": [1, "}"]}} ')),
        *(
            (text, False)
            for text in ("", "{", "null", '{"a": 1', "[1]", '"x"', "{} {}", "{'a': 1}", "\ud800")
        ),
    ],
)
def test_arguments_are_whole_when_they_are_one_json_object(arguments: str, whole: bool) -> None:
    assert tools.is_complete(arguments) == whole


RECOVERIES = {
    ("intended", "pure"): "run", ("intended", "idempotent"): "run", ("intended", "unsafe"): "run",
    ("started", "pure"): "repeat", ("started", "idempotent"): "repeat", ("started", "unsafe"): "ask",
    ("resolved", "pure"): "run", ("resolved", "idempotent"): "run", ("resolved", "unsafe"): "run",
    ("in_doubt", "unsafe"): "ask", ("in_doubt", "pure"): "ask", ("in_doubt", "idempotent"): "ask",
}  # fmt: skip


@pytest.mark.parametrize("state", get_args(ToolState))
@pytest.mark.parametrize("effect", get_args(f.Effect))
def test_recovery_repeats_only_what_does_no_harm(state: ToolState, effect: f.Effect) -> None:
    tool = tool_of(journal_with_tool(state, effect))
    assert tools.recovery_action(tool) == RECOVERIES.get((state, effect), "nothing")


def test_an_interruption_puts_an_unsafe_call_in_doubt_and_leaves_the_others() -> None:
    for effect, state in (("unsafe", "in_doubt"), ("idempotent", "started"), ("pure", "started")):
        journal = journal_with_tool("started", effect)  # type: ignore[arg-type]
        journal.append(*endings.interrupt(journal.book, journal.run(RUN), journal.ids.message()))
        assert tool_of(journal).state == state


def test_a_repeated_call_must_be_started_anew() -> None:
    journal = journal_with_tool("started", "idempotent")
    journal.append(*tools.repeat(journal.run(RUN), tool_of(journal)))
    assert tool_of(journal).state == "resolved"
    journal.append(*tools.start(journal.run(RUN), tool_of(journal)))
    assert tool_of(journal).state == "started"
    with pytest.raises(ToolRefused):
        tools.repeat(journal.run(RUN), tool_of(journal_with_tool("started", "unsafe")))


def test_a_call_starts_only_when_it_may() -> None:
    journal = journal_with_tool()
    run = journal.run(RUN)
    journal.append(*tools.request_approval(run, tool_of(journal), "writes files"))
    with pytest.raises(ToolRefused):
        tools.start(run, tool_of(journal))
    with pytest.raises(ToolRefused):
        tools.request_approval(run, tool_of(journal))
    journal.append(*tools.answer_approval(journal.book, run, tool_of(journal), "approve"))
    assert tools.start(run, tool_of(journal)) == [f.ToolStarted(RUN, CALL)]
    journal.append(*runs.wait(run, "approval"))
    with pytest.raises(RunRefused):
        tools.start(journal.run(RUN), tool_of(journal))


def test_a_denied_call_ends_with_the_reason() -> None:
    journal = journal_with_tool()
    run = journal.run(RUN)
    journal.append(*tools.request_approval(run, tool_of(journal)))
    facts = tools.answer_approval(journal.book, run, tool_of(journal), "deny", reason="not on Friday")
    journal.append(*facts)
    settled = facts[-1]
    assert isinstance(settled, f.ToolSettled)
    assert (settled.outcome, settled.parts, settled.message_id) == (
        "denied",
        (Text("not on Friday"),),
        MESSAGE,
    )
    assert (tool_of(journal).state, tool_of(journal).approval) == ("settled", "deny")


@pytest.mark.parametrize("state", get_args(ToolState))
@pytest.mark.parametrize("outcome", get_args(f.ToolOutcome))
def test_a_call_ends_once_and_only_as_it_can_have_ended(state: ToolState, outcome: f.ToolOutcome) -> None:
    may = {"intended": {"denied", "not_run"}, "settled": set()}.get(state, {"done", "failed", "unknown"})
    journal = journal_with_tool(state)
    if outcome in may:
        journal.append(tools.settle(journal.book, tool_of(journal), outcome))
        assert tool_of(journal).state == "settled"
    else:
        with pytest.raises(ToolRefused):
            tools.settle(journal.book, tool_of(journal), outcome)


def test_a_pure_call_may_end_without_having_been_announced() -> None:
    journal = journal_with_tool("intended", "pure")
    journal.append(tools.settle(journal.book, tool_of(journal), "done", parts=(Text("42"),)))
    assert tool_of(journal).state == "settled"


@pytest.mark.parametrize(
    ("decision", "state", "outcome"),
    [("rerun", "resolved", None), ("mark_done", "settled", "done"), ("skip", "settled", "unknown")],
)
def test_a_person_decides_about_a_call_in_doubt(decision: str, state: ToolState, outcome: str | None) -> None:
    journal = journal_with_tool("in_doubt")
    output = OutputFold()
    output.add(f.ToolOutputAppended(RUN, CALL, "so far"))
    facts = tools.resolve(journal.book, journal.run(RUN), tool_of(journal), decision, "user", output)  # type: ignore[arg-type]
    journal.append(*facts)
    assert tool_of(journal).state == state
    if outcome is not None:
        settled = facts[-1]
        assert isinstance(settled, f.ToolSettled)
        assert (settled.outcome, settled.parts) == (outcome, (Text("so far"),))


@pytest.mark.parametrize("state", [s for s in get_args(ToolState) if s != "in_doubt"])
def test_only_a_call_in_doubt_can_be_resolved(state: ToolState) -> None:
    journal = journal_with_tool(state)
    with pytest.raises(ToolRefused):
        tools.resolve(journal.book, journal.run(RUN), tool_of(journal), "rerun")


@pytest.mark.parametrize(
    ("state", "asked"), [*itertools.product(get_args(ToolState), [False]), ("intended", True)]
)
def test_cancelling_a_run_ends_its_calls(state: ToolState, asked: bool) -> None:
    journal = journal_with_tool(state)
    if asked:
        journal.append(f.ApprovalRequested(RUN, CALL))
    elif state == "started":
        journal.append(f.ToolOutputAppended(RUN, CALL, "half the out"))
    facts = endings.cancel(journal.book, journal.run(RUN), "user", journal.written)
    journal.append(*facts)
    ends = [fact for fact in facts if isinstance(fact, f.ToolSettled)]
    expected = {"intended": "denied" if asked else "not_run", "settled": None}.get(state, "unknown")
    assert [end.outcome for end in ends] == ([expected] if expected else [])
    assert tool_of(journal).state == "settled"
    if state == "started":
        assert (ends[0].parts, ends[0].status) == ((Text("half the out"),), "interrupted")


def test_a_call_finds_the_message_that_made_it_past_steering_and_other_calls() -> None:
    journal = InMemoryJournal()
    journal.append(
        f.SessionCreated(),
        f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN),
        f.RunStarted(RUN),
        f.ModelStepStarted(RUN, 1, 1, MESSAGE, "demo"),
        f.TurnSteered(RUN, 1, 2, MessageId("m_5"), (Text("quickly"),)),
    )
    settled = message_with(ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}"))
    journal.append(settled, *tools.intend(journal.run(RUN), settled, lambda name: "pure"))
    rows = journal.book.open_tools(RUN)
    assert [row.place for row in rows] == [3, 4]
    assert {tools.calling_message(journal.book, row) for row in rows} == {MESSAGE}


def test_a_call_that_was_to_run_again_keeps_what_it_printed_when_its_run_is_cancelled() -> None:
    journal = journal_with_tool("started")
    journal.append(f.ToolOutputAppended(RUN, CALL, "deleted 3 files"), f.ToolInDoubt(RUN, CALL))
    journal.append(*tools.resolve(journal.book, journal.run(RUN), tool_of(journal), "rerun"))
    facts = endings.cancel(journal.book, journal.run(RUN), "user", journal.written)
    [settled] = [fact for fact in facts if isinstance(fact, f.ToolSettled)]
    assert (settled.outcome, settled.parts) == ("unknown", (Text("deleted 3 files"),))


def test_a_call_that_was_to_run_again_and_did_not_is_never_called_not_run() -> None:
    journal = journal_with_tool("in_doubt")
    journal.append(*tools.resolve(journal.book, journal.run(RUN), tool_of(journal), "rerun"))
    facts = endings.cancel(journal.book, journal.run(RUN), "user", journal.written)
    [settled] = [fact for fact in facts if isinstance(fact, f.ToolSettled)]
    assert settled.outcome == "unknown"


def test_ending_a_run_unread_hides_nothing_that_was_printed() -> None:
    journal = journal_with_tool("started")
    journal.append(f.ToolOutputAppended(RUN, CALL, "deleted 3 files"), f.ToolInDoubt(RUN, CALL))
    journal.append(*tools.resolve(journal.book, journal.run(RUN), tool_of(journal), "rerun"))
    journal.append(*endings.cancel(journal.book, journal.run(RUN)))
    entry = fold(journal.events).turns[0].entries[-1]
    assert (entry.status, entry.parts) == ("interrupted", (Text("deleted 3 files"),))
