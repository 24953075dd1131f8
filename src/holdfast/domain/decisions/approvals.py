"""A person's word on a call that waits for one: allow it, change it, deny it, or say what became of it.

Decisions, as in `tools`.
"""

import msgspec

from holdfast.domain.decisions import questions, tools
from holdfast.domain.errors import TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, Text
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.limits import ARGUMENTS_BYTES_MAX
from holdfast.domain.shell import rules
from holdfast.domain.shell.denylist import Forbidden, refusal
from holdfast.domain.shell.rules import Allowing
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import View


def answer(
    view: View,
    run: RunRow,
    tool: ToolRow,
    decision: f.Decision,
    text: str | None,
    allowing: Allowing,
    forbidden: Forbidden | None,
) -> list[f.AnyFact]:
    """The facts of an answer; `text` is the reason of a denial, or what a call that did run gave.

    Raises ToolRefused, RuleRefused, NeverRun, TooLarge.
    """
    if decision == "approve":
        return _allow(view, run, tool, allowing, forbidden)
    if decision == "deny" and questions.is_open(tool):
        return questions.decline(view, run, tool, text or "")
    if decision == "deny":
        return tools.answer_approval(view, run, tool, "deny", "user", text or "")
    events = tools.written(view, tool)
    edited = tools.edited_arguments(events)
    if decision == "rerun":
        _check(tool, tools.arguments_of(events), forbidden)
    result: tuple[AnyPart, ...] | None = (Text(text),) if text else None
    return tools.resolve(view, run, tool, decision, "user", OutputFold.of(events), result, edited)


def _allow(
    view: View, run: RunRow, tool: ToolRow, allowing: Allowing, forbidden: Forbidden | None
) -> list[f.AnyFact]:
    meant = tools.arguments_of(tools.written(view, tool))
    edited: list[f.AnyFact] = []
    if allowing.arguments is not None and not _same(allowing.arguments, meant):
        edited = tools.edit(view, tool, _whole(tool, allowing.arguments))
        meant = allowing.arguments
        # What no longer stands there was never put to anybody.
        _check(tool, meant, forbidden)
    pattern = ""
    if allowing.scope != "once" and tool.approval == "requested":
        pattern = rules.pattern_for(tool.name, meant, allowing.pattern)
    allowed = tools.answer_approval(view, run, tool, "approve", "user", scope=allowing.scope, rule=pattern)
    return [*edited, *allowed]


def _check(tool: ToolRow, arguments: str, forbidden: Forbidden | None) -> None:
    verdict = forbidden.in_call(tool.name, arguments) if forbidden is not None else ""
    if verdict:
        raise refusal(verdict)


def _whole(tool: ToolRow, arguments: str) -> str:
    size = len(arguments.encode("utf-8", "surrogatepass"))
    if size > ARGUMENTS_BYTES_MAX:
        raise TooLarge(what="The call", size=size, limit=ARGUMENTS_BYTES_MAX)
    if not tools.is_complete(arguments):
        raise ToolRefused(call_id=tool.id, state="not a whole JSON object", verb="be changed to that")
    return arguments


def _same(one: str, other: str) -> bool:
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
