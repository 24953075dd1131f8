"""Apply a person's decision on a waiting call: allow it, edit it, deny it, or say what happened to it.

These are decisions, as in `tools`.
"""

import msgspec

from holdfast.domain.decisions import questions, tools
from holdfast.domain.errors import TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, Text
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.limits import ARGUMENTS_BYTES_MAX
from holdfast.domain.shell import rules
from holdfast.domain.shell.denylist import Denylist, verdict_error
from holdfast.domain.shell.rules import ApprovalGrant
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import SessionStateView


def apply_decision(
    view: SessionStateView,
    run: RunRow,
    tool: ToolRow,
    decision: f.ToolDecision,
    text: str | None,
    grant: ApprovalGrant,
    denylist: Denylist | None,
) -> list[f.AnyFact]:
    """Return the facts of a decision.

    `text` is the reason of a denial, or the result of a call that did run. Raises ToolRefused, RuleRefused,
    CommandForbidden, TooLarge.
    """
    if decision == "approve":
        return _allow(view, run, tool, grant, denylist)
    if decision == "deny" and questions.is_open(tool):
        return questions.decline(view, run, tool, text or "")
    if decision == "deny":
        return tools.answer_approval(view, run, tool, "deny", "user", text or "")
    events = tools.call_events(view, tool)
    edited = tools.edited_arguments(events)
    if decision == "rerun":
        _check_denylist(tool, tools.call_arguments(events), denylist)
    result: tuple[AnyPart, ...] | None = (Text(text),) if text else None
    return tools.resolve(view, run, tool, decision, "user", OutputFold.from_events(events), result, edited)


def _allow(
    view: SessionStateView, run: RunRow, tool: ToolRow, grant: ApprovalGrant, denylist: Denylist | None
) -> list[f.AnyFact]:
    arguments = tools.call_arguments(tools.call_events(view, tool))
    edited: list[f.AnyFact] = []
    if grant.arguments is not None and not _is_same_json(grant.arguments, arguments):
        edited = tools.edit(view, tool, _check_arguments(tool, grant.arguments))
        arguments = grant.arguments
        # Nobody has been asked about the edited arguments yet.
        _check_denylist(tool, arguments, denylist)
    pattern = ""
    if grant.scope != "once" and tool.approval == "requested":
        pattern = rules.pattern_for(tool.name, arguments, grant.pattern)
    allowed = tools.answer_approval(view, run, tool, "approve", "user", scope=grant.scope, rule=pattern)
    return [*edited, *allowed]


def _check_denylist(tool: ToolRow, arguments: str, denylist: Denylist | None) -> None:
    verdict = denylist.check_call(tool.name, arguments) if denylist is not None else ""
    if verdict:
        raise verdict_error(verdict)


def _check_arguments(tool: ToolRow, arguments: str) -> str:
    size = len(arguments.encode("utf-8", "surrogatepass"))
    if size > ARGUMENTS_BYTES_MAX:
        raise TooLarge(what="The call", size=size, limit=ARGUMENTS_BYTES_MAX)
    if not tools.is_complete(arguments):
        raise ToolRefused(call_id=tool.id, state="not a whole JSON object", verb="be changed to that")
    return arguments


def _is_same_json(one: str, other: str) -> bool:
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
