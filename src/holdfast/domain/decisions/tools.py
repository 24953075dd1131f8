"""Keep the ledger of tool calls: what may happen to a call, and how recovery treats it.

These are decisions, as in `runs`: they return facts for the caller to commit, or raise ToolRefused.
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

_STATES_BY_OUTCOME: Mapping[f.ToolOutcome, frozenset[ToolState]] = MappingProxyType({
    "done": frozenset({"started", "in_doubt", "resolved"}),
    "failed": frozenset({"started", "in_doubt", "resolved"}),
    "denied": frozenset({"intended"}),
    "not_run": frozenset({"intended"}),
    "unknown": frozenset({"started", "in_doubt", "resolved"}),
})  # fmt: skip
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def is_complete(arguments: str) -> bool:
    """Return whether the arguments are one whole JSON object: the model finished writing them."""
    try:
        _OBJECT.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def is_repeatable(tool: ToolRow) -> bool:
    """Return whether a second run of the call is harmless."""
    return tool.effect != "unsafe"


def recovery_action(tool: ToolRow) -> RecoveryAction:
    """Return how recovery treats a call whose process is gone.

    `run`: it has certainly not run, or is to run again. `repeat`: it may have run, and a repeat is harmless.
    `ask`: it may have run, and a person must decide. `nothing`: it has ended.
    """
    if tool.state in ("intended", "resolved"):
        return "run"
    if tool.state == "started":
        return "repeat" if is_repeatable(tool) else "ask"
    return "ask" if tool.state == "in_doubt" else "nothing"


def intend(
    run: RunRow, message: f.MessageSettled, effect_of: Callable[[str], f.Effect]
) -> list[f.ToolIntended]:
    """Return the calls that `message` makes, at the places after the run's last.

    Commit them in the append that settles the message, so that a call is either recorded there or never made.
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
    """Start a call. Commit this before a tool that is not pure begins."""
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
    """Record a person's decision. A denial settles the call, with the reason as its output.

    `scope` and `rule` say what else an approval covers. If the call ran before and was to run again, its
    earlier output stays in the transcript.
    """
    if tool.state != "intended" or tool.approval != "requested":
        raise _refused(tool, "be approved or denied")
    resolved = f.ApprovalResolved(run.id, tool.id, decision, by, reason, scope, rule)
    if decision == "approve":
        return [resolved]
    return [resolved, _deny(view, tool, reason)]


def allow_by_rule(run: RunRow, tool: ToolRow, scope: f.ApprovalScope, rule: str) -> list[f.AnyFact]:
    """Approve a call by a rule: nobody is asked, and the ledger records the rule."""
    if tool.state != "intended" or tool.approval:
        raise _refused(tool, "be allowed by a rule")
    return [f.ApprovalResolved(run.id, tool.id, "approve", "policy", scope=scope, rule=rule)]


def forbid(view: SessionStateView, run: RunRow, tool: ToolRow, verdict: str) -> list[f.AnyFact]:
    """End a call that matches the denylist, whatever a person has decided.

    A call that was to run again may have run before, so its outcome is unknown.
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
    """Fail a call before it starts, without asking anybody."""
    if tool.state != "intended" or tool.approval:
        raise _refused(tool, "fail at once")
    # No ToolStarted first: after a crash, recovery would run a started call that nobody has approved.
    output = OutputFold.from_events(call_events(view, tool))
    return [settle_tool(tool, calling_message(view, tool), "failed", output, (*output.parts(), Text(why)))]


def edit(view: SessionStateView, tool: ToolRow, arguments: str) -> list[f.AnyFact]:
    """Replace the arguments of a call that waits for approval."""
    events = call_events(view, tool)
    intended = events[0].fact if events else None
    # A call with output may have taken effect, so it is too late to change it.
    is_fresh = isinstance(intended, f.ToolIntended) and OutputFold.from_events(events).is_empty
    if tool.state != "intended" or tool.approval != "requested" or not is_fresh:
        raise _refused(tool, "be changed")
    assert isinstance(intended, f.ToolIntended)
    return [replace(intended, arguments=arguments, edited=True)]


def call_events(view: SessionStateView, tool: ToolRow) -> Sequence[Event]:
    """Return a call's newest intention and its output since."""
    row = view.message(tool.turn, tool.place)
    return view.message_events(row) if row is not None else ()


def call_arguments(events: Sequence[Event]) -> str:
    """Return the arguments with which a call runs, from the model or a person."""
    intended = events[0].fact if events else None
    return intended.arguments if isinstance(intended, f.ToolIntended) else "{}"


def edited_arguments(events: Sequence[Event]) -> str:
    """Return the arguments if a person edited them, else an empty string."""
    intended = events[0].fact if events else None
    return intended.arguments if isinstance(intended, f.ToolIntended) and intended.edited else ""


def mark_in_doubt(run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
    """Put a call in doubt: it may have run, and a repeat may do harm."""
    if recovery_action(tool) != "ask" or tool.state == "in_doubt":
        raise _refused(tool, "be put in doubt")
    return [f.ToolInDoubt(run.id, tool.id)]


def repeat(run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
    """Repeat a harmless call during recovery; it must be started again."""
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
    """Resolve a call in doubt by a person's decision: rerun it, mark it done with this result, or skip it.

    `output` is its earlier output, which stays in the transcript. `edited`: see `settle`.
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
    """End a call with its outcome and whole output. `edited` is its arguments if a person changed them.

    Raises ToolRefused if it has ended, or cannot end so: a call that never started has done nothing, unless
    it is pure, or has output from an earlier run.
    """
    ran_unannounced = tool.effect == "pure" and outcome in ("done", "failed")
    ran_before = output is not None and not output.is_empty and outcome == "unknown"
    excused = tool.state == "intended" and (ran_unannounced or ran_before)
    if tool.state not in _STATES_BY_OUTCOME[outcome] and not excused:
        raise _refused(tool, f"end as {outcome}")
    settled = settle_tool(tool, calling_message(view, tool), outcome, output or OutputFold(), parts, status)
    return replace(settled, arguments=edited) if edited else settled


def calling_message(view: SessionStateView, tool: ToolRow) -> MessageId:
    """Return the message that made the call: the nearest answer before it, past other calls and steering."""
    for place in range(tool.place - 1, 0, -1):
        row = view.message(tool.turn, place)
        if row is None:
            break
        if row.role == "assistant":
            return MessageId(row.id)
    return MessageId("")


def needs_user(tool: ToolRow) -> bool:
    """Return whether the call waits for a person."""
    is_asked = tool.state == "intended" and tool.approval in ("requested", "asked")
    return is_asked or tool.state == "in_doubt"


def _deny(view: SessionStateView, tool: ToolRow, reason: str) -> f.ToolSettled:
    events = call_events(view, tool)
    output = OutputFold.from_events(events)
    parts = (*output.parts(), Text(reason)) if reason else output.parts()
    return settle(view, tool, "denied", output, parts, edited=edited_arguments(events))


def _refused(tool: ToolRow, verb: str) -> ToolRefused:
    return ToolRefused(call_id=tool.id, state=tool.state, verb=verb)
