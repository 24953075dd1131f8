"""End a run other than by completing it, and settle what it leaves open.

These are decisions, as in `runs`. They settle open calls and partial messages in the same list of facts, so
no reader sees an ended run with open work.
"""

from collections.abc import Callable, Sequence

from holdfast.domain.context.tokens import with_estimates
from holdfast.domain.decisions import questions, runs, tools
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.stream_fold import OutputFold, StreamFold, settle_message
from holdfast.domain.ids import MessageId
from holdfast.domain.limits import EVENT_BYTES_MAX
from holdfast.domain.state.rows import MessageRow, RunRow, ToolRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.domain.usage import Usage

ReadMessageEvents = Callable[[MessageRow], Sequence[Event]]
"""Read the events of a message without a body: the event that opened it, then its deltas.

Without a reader, a decision leaves open messages and calls unsettled: their rows become `interrupted`, and
their deltas remain their content.
"""

_NOTHING = Usage()


def cancel(
    view: SessionStateView, run: RunRow, by: f.Actor = "user", read_events: ReadMessageEvents | None = None
) -> list[f.AnyFact]:
    """Stop the run for good."""
    runs.check_allowed(run, "be cancelled")
    return [*_settle_open(view, run, by, read_events), f.RunCancelled(run.id, by)]


def fail(
    view: SessionStateView, run: RunRow, failure: f.Failure, read_events: ReadMessageEvents | None = None
) -> list[f.AnyFact]:
    """End the run with the error that ended it."""
    runs.check_allowed(run, "fail")
    return [*_settle_open(view, run, "server", read_events), f.RunFailed(run.id, failure)]


def interrupt(
    view: SessionStateView,
    run: RunRow,
    notice_id: MessageId,
    read_events: ReadMessageEvents | None = None,
    asks: bool = False,
    orderly: bool = False,
) -> list[f.AnyFact]:
    """Interrupt a run whose process is gone: settle its messages, mark uncertain calls, leave a notice.

    Calls that have certainly not run, or may run again, stay open for the resumption. `asks`: a person
    decides whether to resume. `orderly`: the process was asked to stop.
    """
    notice = runs.mark_interrupted(run, notice_id, asks, orderly)
    facts = _settle_messages(view, run, read_events)
    for tool in view.open_tools(run.id):
        if tool.state == "started" and not tools.is_repeatable(tool):
            facts += tools.mark_in_doubt(run, tool)
    return [*facts, notice]


def interrupt_step(
    started: f.ModelStepStarted, fold: StreamFold, counted: Usage = _NOTHING
) -> list[f.AnyFact]:
    """End a step whose answer broke off: its text so far is its body, and its usage is estimated.

    Counts that the provider did send (`counted`) are used. If nothing was streamed, no usage is recorded.
    """
    settled = settle_message(started, fold, "interrupted")
    if fold.is_empty:
        return [settled]
    usage = with_estimates(counted, started.asked_tokens, settled.parts)
    if usage.cost_micros is None and started.rate is not None:
        usage = started.rate.with_cost(usage)
    return [settled, f.ModelStepSettled(started.run_id, started.message_id, "interrupted", usage)]


def streamed_output(events: Sequence[Event]) -> OutputFold:
    """Return the output in the events of a call's row."""
    return OutputFold.from_events(events)


def _settle_open(
    view: SessionStateView, run: RunRow, by: f.Actor, read_events: ReadMessageEvents | None
) -> list[f.AnyFact]:
    facts = _settle_messages(view, run, read_events)
    for tool in view.open_tools(run.id):
        facts += _settle_tool(view, run, tool, by, read_events)
    return facts


def _settle_tool(
    view: SessionStateView, run: RunRow, tool: ToolRow, by: f.Actor, read_events: ReadMessageEvents | None
) -> list[f.AnyFact]:
    row = view.message(tool.turn, tool.place)
    events = read_events(row) if read_events is not None and row is not None else None
    output = streamed_output(events) if events is not None else None
    if questions.is_open(tool):
        return questions.close(view, run, tool, by, settles=output is not None)
    if tool.state == "intended" and tool.approval == "requested" and output is not None:
        return tools.answer_approval(view, run, tool, "deny", by)
    facts: list[f.AnyFact] = []
    if tool.state == "intended" and tool.approval == "requested":
        facts.append(f.ApprovalResolved(run.id, tool.id, "deny", by))
    if tool.state == "in_doubt":
        facts.append(f.ToolResolved(run.id, tool.id, "skip", by))
    if output is None or events is None:
        return facts
    edited = tools.edited_arguments(events)
    # A call that was to run again has printed before; "not run" would hide that.
    if tool.state == "intended" and output.is_empty:
        return [*facts, tools.settle(view, tool, "not_run", edited=edited)]
    return [*facts, tools.settle(view, tool, "unknown", output, status="interrupted", edited=edited)]


def _settle_messages(
    view: SessionStateView, run: RunRow, read_events: ReadMessageEvents | None
) -> list[f.AnyFact]:
    facts: list[f.AnyFact] = []
    for row in view.streaming_messages(run.turn) if read_events is not None else ():
        if row.role == "assistant" and read_events is not None:
            facts += _settle_message(read_events(row))
    return facts


def _settle_message(events: Sequence[Event]) -> list[f.AnyFact]:
    started = events[0].fact if events else None
    if not isinstance(started, f.ModelStepStarted):
        return []
    fold = StreamFold(events[0].at)
    for event in events[1:]:
        fact = event.fact
        if isinstance(fact, f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended):
            fold.add(fact, event.at)
    facts = interrupt_step(started, fold)
    # Too large for one event: the row says that it was cut off, and the deltas remain its content. Ending a
    # run must always be possible.
    return facts[1:] if sum(len(event.body) for event in events) > EVENT_BYTES_MAX // 2 else facts
