"""The ledger of tool calls: what may happen to a call, and what recovery may do with one.

Decisions, as in `runs`: facts for the caller to commit, or ToolRefused and nothing has happened.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import RunRefused, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart, Text, ToolCall
from holdfast.domain.events.stream_fold import OutputFold, settle_tool
from holdfast.domain.ids import CallId, MessageId
from holdfast.domain.shell.denylist import verdict_error
from holdfast.domain.state.rows import RunRow, ToolRow, ToolState
from holdfast.domain.state.session_state import SessionStateView

RecoveryAction = Literal["run", "repeat", "ask", "nothing"]

_SETTLES: Mapping[f.ToolOutcome, frozenset[ToolState]] = MappingProxyType({
    "done": frozenset({"started", "in_doubt", "resolved"}),
    "failed": frozenset({"started", "in_doubt", "resolved"}),
    "denied": frozenset({"intended"}),
    "not_run": frozenset({"intended"}),
    "unknown": frozenset({"started", "in_doubt", "resolved"}),
})  # fmt: skip
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_complete(arguments: str) -> bool:
    """Whether the model finished writing a call's arguments: they are one whole JSON object."""
    try:
        _OBJECT.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def is_repeatable(tool: ToolRow) -> bool:
    """Whether running the call a second time does no harm."""
    return tool.effect != "unsafe"


def recovery_action(tool: ToolRow) -> RecoveryAction:
    """What recovery may do with a call whose process is gone.

    `run`: it has certainly not run, or is to run again. `repeat`: it may have, and that does no harm. `ask`:
    it may have, and only a person can say. `nothing`: it has ended.
    """
    if tool.state in ("intended", "resolved"):
        return "run"
    if tool.state == "started":
        return "repeat" if is_repeatable(tool) else "ask"
    return "ask" if tool.state == "in_doubt" else "nothing"


def intend(
    run: RunRow, message: f.MessageSettled, effect_of: Callable[[str], f.Effect]
) -> list[f.ToolIntended]:
    """The calls that `message` makes, at the places after the run's last.

    Commit them in the append that settles the message: a call that is not there was never to be made.
    Calls with incomplete arguments are left out.
    """
    if run.status != "running":
        raise RunRefused(run_id=run.id, status=run.status, verb="call a tool")
    calls = [p for p in message.parts if isinstance(p, ToolCall) and is_complete(p.arguments)]
    first = max(run.place, message.place) + 1
    return [
        f.ToolIntended(
            run.id, run.turn, first + i, message.message_id, CallId(call.call_id), call.name,
            call.arguments, effect_of(call.name),
        )
        for i, call in enumerate(calls)
    ]  # fmt: skip


def start(run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
    """The call is about to run. Must be durable before a tool that is not pure begins."""
    if run.status != "running":
        raise RunRefused(run_id=run.id, status=run.status, verb="start a tool")
    if tool.state not in ("intended", "resolved"):
        raise _refused(tool, "start")
    if tool.approval in ("requested", "deny"):
        raise ToolRefused(call_id=tool.id, state="not approved", verb="start")
    return [f.ToolStarted(run.id, tool.id)]


def request_approval(run: RunRow, tool: ToolRow, reason: str = "") -> list[f.AnyFact]:
    """Ask a person whether the call may run."""
    if tool.state != "intended" or tool.approval:
        raise _refused(tool, "be put to a person")
    return [f.ApprovalRequested(run.id, tool.id, reason)]


def answer_approval(
    view: SessionStateView,
    run: RunRow,
    tool: ToolRow,
    decision: Literal["approve", "deny"],
    by: f.Actor = "user",
    reason: str = "",
    scope: f.ApprovalScope = "once",
    rule: str = "",
) -> list[f.AnyFact]:
    """A person's yes or no. A no settles the call, with the reason as its output.

    `scope` and `rule` say how far a yes reaches. What the call had streamed, if it ran before and was to run
    again, stays part of the transcript.
    """
    if tool.state != "intended" or tool.approval != "requested":
        raise _refused(tool, "be approved or denied")
    resolved = f.ApprovalResolved(run.id, tool.id, decision, by, reason, scope, rule)
    if decision == "approve":
        return [resolved]
    return [resolved, _deny(view, tool, reason)]


def allow_by_rule(run: RunRow, tool: ToolRow, scope: f.ApprovalScope, rule: str) -> list[f.AnyFact]:
    """A rule answers for the person who made it: nobody is asked, and the ledger says why."""
    if tool.state != "intended" or tool.approval:
        raise _refused(tool, "be allowed by a rule")
    return [f.ApprovalResolved(run.id, tool.id, "approve", "policy", scope=scope, rule=rule)]


def forbid(view: SessionStateView, run: RunRow, tool: ToolRow, verdict: str) -> list[f.AnyFact]:
    """The call falls under what is never run: it ends here, whatever was said of it.

    One that is to run again has perhaps run before; it is only not run once more.
    """
    refused = verdict_error(verdict)
    reason, pattern = str(refused), str(refused.fields.get("pattern", ""))
    if tool.state == "intended":
        resolved = f.ApprovalResolved(run.id, tool.id, "deny", "policy", reason, rule=pattern)
        return [resolved, _deny(view, tool, reason)]
    events = call_events(view, tool)
    output = OutputFold.from_events(events)
    parts = (*output.parts(), Text(reason))
    return [settle(view, tool, "unknown", output, parts, edited=edited_arguments(events))]


def fail(view: SessionStateView, tool: ToolRow, why: str) -> list[f.AnyFact]:
    """The call can only fail: nobody is asked about it, and it ends without having begun."""
    if tool.state != "intended" or tool.approval:
        raise _refused(tool, "fail at once")
    # It is not started first: whoever found that after a crash would run it, though nobody has allowed it.
    output = OutputFold.from_events(call_events(view, tool))
    return [settle_tool(tool, calling_message(view, tool), "failed", output, (*output.parts(), Text(why)))]


def edit(view: SessionStateView, tool: ToolRow, arguments: str) -> list[f.AnyFact]:
    """A person changes what the call is to do, before it is allowed: it is intended anew, with these."""
    events = call_events(view, tool)
    intended = events[0].fact if events else None
    # What has printed something may have taken effect: then it is too late to make another call of it.
    is_fresh = isinstance(intended, f.ToolIntended) and OutputFold.from_events(events).is_empty
    if tool.state != "intended" or tool.approval != "requested" or not is_fresh:
        raise _refused(tool, "be changed")
    assert isinstance(intended, f.ToolIntended)
    return [replace(intended, arguments=arguments, edited=True)]


def call_events(view: SessionStateView, tool: ToolRow) -> Sequence[Event]:
    """What the journal holds of a call: its newest intention and what it has streamed since."""
    row = view.message(tool.turn, tool.place)
    return view.message_events(row) if row is not None else ()


def call_arguments(events: Sequence[Event]) -> str:
    """What a call is to run with, whoever wrote it."""
    intended = events[0].fact if events else None
    return intended.arguments if isinstance(intended, f.ToolIntended) else "{}"


def edited_arguments(events: Sequence[Event]) -> str:
    """The same where a person changed it; else nothing."""
    intended = events[0].fact if events else None
    return intended.arguments if isinstance(intended, f.ToolIntended) and intended.edited else ""


def mark_in_doubt(run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
    """The call may or may not have run, and running it again may do harm."""
    if recovery_action(tool) != "ask" or tool.state == "in_doubt":
        raise _refused(tool, "be put in doubt")
    return [f.ToolInDoubt(run.id, tool.id)]


def repeat(run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
    """Recovery runs a call again that does no harm; it must be started anew."""
    if recovery_action(tool) != "repeat":
        raise _refused(tool, "be repeated")
    return [f.ToolResolved(run.id, tool.id, "rerun", "policy")]


def resolve(
    view: SessionStateView,
    run: RunRow,
    tool: ToolRow,
    decision: Literal["rerun", "mark_done", "skip"],
    by: f.Actor = "user",
    output: OutputFold | None = None,
    result: tuple[AnyPart, ...] | None = None,
    edited: str = "",
) -> list[f.AnyFact]:
    """What a person says of a call in doubt: run it again, it ran (with this result), or leave it.

    `output` is what it had streamed; it stays part of the transcript. `edited`: see `settle`.
    """
    if tool.state != "in_doubt":
        raise _refused(tool, f"be resolved by {decision}")
    resolved = f.ToolResolved(run.id, tool.id, decision, by)
    if decision == "rerun":
        return [resolved]
    outcome: f.ToolOutcome = "done" if decision == "mark_done" else "unknown"
    before = output.parts() if output is not None else ()
    parts = (*before, *result) if result is not None else None
    return [resolved, settle(view, tool, outcome, output, parts, edited=edited)]


def settle(
    view: SessionStateView,
    tool: ToolRow,
    outcome: f.ToolOutcome,
    output: OutputFold | None = None,
    parts: tuple[AnyPart, ...] | None = None,
    status: f.Settlement = "settled",
    edited: str = "",
) -> f.ToolSettled:
    """End a call with its outcome and whole output. `edited` is what it ran with where a person changed it.

    Raises ToolRefused when it has ended, or cannot have ended so: a call that never started has done
    nothing, unless it is pure, or has output from before it was to run again.
    """
    ran_unannounced = tool.effect == "pure" and outcome in ("done", "failed")
    ran_before = output is not None and not output.is_empty and outcome == "unknown"
    excused = tool.state == "intended" and (ran_unannounced or ran_before)
    if tool.state not in _SETTLES[outcome] and not excused:
        raise _refused(tool, f"end as {outcome}")
    settled = settle_tool(tool, calling_message(view, tool), outcome, output or OutputFold(), parts, status)
    return replace(settled, arguments=edited) if edited else settled


def calling_message(view: SessionStateView, tool: ToolRow) -> MessageId:
    """The message that made the call: the answer nearest before it, with only calls and steering between."""
    for place in range(tool.place - 1, 0, -1):
        row = view.message(tool.turn, place)
        if row is None:
            break
        if row.role == "assistant":
            return MessageId(row.id)
    return MessageId("")


def needs_user(tool: ToolRow) -> bool:
    """Whether someone has to say something before the call can go on."""
    is_asked = tool.state == "intended" and tool.approval in ("requested", "asked")
    return is_asked or tool.state == "in_doubt"


def _deny(view: SessionStateView, tool: ToolRow, reason: str) -> f.ToolSettled:
    events = call_events(view, tool)
    output = OutputFold.from_events(events)
    parts = (*output.parts(), Text(reason)) if reason else output.parts()
    return settle(view, tool, "denied", output, parts, edited=edited_arguments(events))


def _refused(tool: ToolRow, verb: str) -> ToolRefused:
    return ToolRefused(call_id=tool.id, state=tool.state, verb=verb)
