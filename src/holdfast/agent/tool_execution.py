"""Execute tool calls by the ledger.

A settled call never runs again. A person decides on an unsafe call that may have run. No call with an effect
begins before the journal says so. A call runs with the arguments in the ledger: a person may have edited
those of the model.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.agent.ports import Recorder
from holdfast.domain.agents import ApprovalMode as ApprovalMode
from holdfast.domain.clock import Clock
from holdfast.domain.decisions import questions, runs, tools
from holdfast.domain.decisions.questions import Question
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import QUESTIONS_OPEN_MAX
from holdfast.domain.shell.denylist import Denylist
from holdfast.domain.shell.rules import Rule, find_rule
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.tools.output import OutputBuffer, stored_parts
from holdfast.tools.ports import Emit, Preflight, Tool, ToolResult, ToolRun

DecideNext = Callable[[SessionStateView, RunRow], list[f.AnyFact]]
"""Decide further facts once no call is open, in the same transaction that finds none."""
LoadRules = Callable[[], Awaitable[Sequence[Rule]]]
"""Return the rules. Called each time before a person would be asked about a call."""


async def no_rules() -> Sequence[Rule]:
    return ()


class _Call(msgspec.Struct, frozen=True):
    """An open call, its arguments, and the arguments that a person has edited.

    `needs_approval`: a person or a rule must allow it. `banned`: the pattern that forbids it. `question`: its
    question, if it only asks a person. `validation_error`: why it can only fail; it is neither asked about
    nor started then.
    """

    tool: ToolRow
    arguments: str
    edited: str
    needs_approval: bool
    denied_by: str
    question: Question | None = None
    validation_error: str = ""

    def rule(self, rules: Sequence[Rule], session_id: SessionId | None) -> Rule | None:
        return find_rule(rules, self.tool.name, self.arguments, session_id) if self.needs_approval else None


class _Lookup(msgspec.Struct, frozen=True):
    """The rules, and why the next call that needs approval would fail now, looked up beforehand."""

    rules: Sequence[Rule]
    next: _Call | None
    validation_error: str

    def validation_error_for(self, tool: ToolRow, arguments: str) -> str:
        is_next = self.next is not None and (self.next.tool.id, self.next.arguments) == (tool.id, arguments)
        return self.validation_error if is_next else ""


class _NextAction(msgspec.Struct):
    """A decision: execute a call now, or wait for a person.

    `decide_again`: neither, and there is more to decide. `needs_lookup`: the next decision needs the rules,
    and a preflight of `call_to_check`, if there is one.
    """

    call: _Call | None = None
    waits_for_person: bool = False
    decide_again: bool = False
    needs_lookup: bool = False
    call_to_check: _Call | None = None


class _SharedPolicy(msgspec.Struct):
    """The policy for the calls of all agents."""

    approvals: ApprovalMode
    denylist: Denylist


class ToolExecutor:
    """Execute a run's calls, one after the other.

    Nobody can allow a call that is on the `never_run` list. `cautions` are sentences about gaps in the
    sandbox; an approval request for an unsafe call shows them.
    """

    def __init__(
        self,
        catalogue: Mapping[str, Tool],
        approvals: ApprovalMode,
        clock: Clock,
        rules: LoadRules = no_rules,
        never_run: Iterable[str] = (),
        cautions: tuple[str, ...] = (),
    ) -> None:
        self._catalogue = catalogue
        self._policy = _SharedPolicy(approvals, Denylist(never_run))
        self._own_approvals: ApprovalMode | None = None
        self._clock = clock
        self._rules = rules
        self._cautions = cautions

    def set_policy(self, approvals: ApprovalMode, never_run: Iterable[str]) -> None:
        """Change the policy from the next call on."""
        self._policy.approvals = approvals
        self._policy.denylist = Denylist(never_run)

    def for_agent(self, catalogue: Mapping[str, Tool], approvals: ApprovalMode | None) -> "ToolExecutor":
        """Return an executor for an agent with those tools and perhaps its own approval mode.

        All of them share one policy.
        """
        own = copy(self)
        own._catalogue, own._own_approvals = catalogue, approvals
        return own

    async def settle_all(self, recorder: Recorder, decide_next: DecideNext) -> bool:
        """Bring every open call to its end; return False if a person has to decide first."""
        lookup: _Lookup | None = None
        while True:
            # Before a call is started: a person would have to decide on one that started but did not run.
            recorder.check_stopping()
            action = await self._next_action(recorder, decide_next, lookup)
            if action.waits_for_person:
                return False
            if action.call is not None:
                await self._execute(recorder, action.call)
            elif not action.decide_again:
                return True
            lookup = await self._look_up(recorder, action.call_to_check) if action.needs_lookup else None

    async def _look_up(self, recorder: Recorder, call: _Call | None) -> _Lookup:
        """Load the rules for every call anew: a rule that was revoked meanwhile allows nothing."""
        tool = self._catalogue.get(call.tool.name) if call is not None else None
        validation_error = ""
        if call is not None and isinstance(tool, Preflight):
            validation_error = await tool.preflight(call.arguments, recorder.workspace)
        return _Lookup(await self._rules(), call, validation_error)

    async def _next_action(
        self, recorder: Recorder, decide_next: DecideNext, lookup: _Lookup | None
    ) -> _NextAction:
        action = _NextAction()

        def decide(view: SessionStateView) -> list[f.AnyFact]:
            run = view.run(recorder.run_id)
            assert run is not None, "it is being carried out, so it exists"
            calls = [self._build_call(view, tool, lookup) for tool in view.open_tools(run.id)]
            if lookup is None and any(call.needs_approval for call in calls):
                action.decide_again = action.needs_lookup = True
                # Only the first: it may yet create what the calls after it need.
                first = next((call for call in calls if call.question is None), None)
                action.call_to_check = first if first is not None and first.needs_approval else None
                return []
            if calls:
                rules = lookup.rules if lookup is not None else ()
                return self._decide(view, run, calls, rules, recorder.workspace, action)
            facts = decide_next(view, run)
            action.waits_for_person = any(isinstance(fact, f.RunWaiting) for fact in facts)
            return facts

        await recorder.record(decide)
        return action

    def _build_call(self, view: SessionStateView, tool: ToolRow, lookup: _Lookup | None) -> _Call:
        # The tool's own effect counts: an imported file may say anything.
        known_tool = self._catalogue.get(tool.name)
        # But a call that started as unsafe stays so: an MCP server may change a tool's effect.
        is_fixed = tool.state == "started" and not tools.is_repeatable(tool)
        tool = replace(tool, effect=known_tool.effect) if known_tool is not None and not is_fixed else tool
        events = tools.call_events(view, tool)
        arguments = tools.call_arguments(events)
        may_start = tool.state in ("intended", "resolved")
        banned = self._policy.denylist.check_call(tool.name, arguments) if may_start else ""
        # Repeating a write is harmless; the first one may overwrite a file, so it needs approval.
        needs_approval = (
            (self._own_approvals or self._policy.approvals) == "ask" and tool.effect != "pure" and not banned
        )
        needs_approval = needs_approval and (known_tool is None or known_tool.needs_approval)
        needs_approval = needs_approval and tool.state == "intended" and not tool.approval
        validation_error = known_tool.validate(arguments) if needs_approval and known_tool is not None else ""
        validation_error = validation_error or (
            lookup.validation_error_for(tool, arguments) if needs_approval and lookup is not None else ""
        )
        is_question = tool.name == questions.ASK_TOOL and known_tool is not None and tool.state == "intended"
        # An invalid question runs like any call: its tool returns what is wrong with it.
        question = questions.parse_question(arguments) if is_question else None
        edited = tools.edited_arguments(events)
        return _Call(
            tool,
            arguments,
            edited,
            needs_approval and not validation_error,
            banned,
            question,
            validation_error,
        )

    def _decide(
        self,
        view: SessionStateView,
        run: RunRow,
        calls: Sequence[_Call],
        rules: Sequence[Rule],
        workspace: Path,
        action: _NextAction,
    ) -> list[f.AnyFact]:
        question_calls = [call for call in calls if call.question is not None][:QUESTIONS_OPEN_MAX]
        others = [call for call in calls if call not in question_calls]
        # Questions come last: calls that need no person have run by the time one is asked.
        facts = self._decide_other(view, run, others, rules, workspace, action) if others else []
        action.waits_for_person = action.waits_for_person or not others
        if not action.waits_for_person:
            return facts
        question_facts = [fact for call in question_calls for fact in _ask_question(run, call)]
        return [*question_facts, *(facts or runs.wait(run, "question"))]

    def _decide_other(
        self,
        view: SessionStateView,
        run: RunRow,
        calls: Sequence[_Call],
        rules: Sequence[Rule],
        workspace: Path,
        action: _NextAction,
    ) -> list[f.AnyFact]:
        """Decide on calls that are no questions."""
        session = view.session()
        session_id = session.id if session is not None else None
        first, tool = calls[0], calls[0].tool
        if tool.state == "started" and not tools.is_repeatable(tool):
            action.waits_for_person = True
            return [*tools.mark_in_doubt(run, tool), *runs.wait(run, "in_doubt")]
        if first.denied_by:
            action.decide_again = True
            return tools.forbid(view, run, tool, first.denied_by)
        if first.validation_error:
            action.decide_again = True
            return tools.fail(view, tool, first.validation_error)
        rule = first.rule(rules, session_id)
        if (
            (first.needs_approval and rule is None)
            or tool.state == "in_doubt"
            or tool.approval == "requested"
        ):
            action.waits_for_person = True
            unapproved = [
                call.tool for call in calls if call.needs_approval and call.rule(rules, session_id) is None
            ]
            approval_requests = [
                fact for row in unapproved for fact in self._request_approval(run, row, workspace)
            ]
            return [
                *approval_requests,
                *runs.wait(run, "in_doubt" if tool.state == "in_doubt" else "approval"),
            ]
        action.call = first
        if rule is not None:
            allowed = tools.allow_by_rule(run, tool, rule.scope, rule.pattern)
            return [*allowed, *tools.start(run, replace(tool, approval="approve"))]
        # Only a repeatable call is still `started` here: an unsafe one is in doubt.
        again = tools.repeat(run, tool) if tool.state == "started" else []
        if tool.effect == "pure":
            return again
        return [*again, f.ToolStarted(run.id, tool.id)] if again else tools.start(run, tool)

    def _request_approval(self, run: RunRow, tool: ToolRow, workspace: Path) -> list[f.AnyFact]:
        known_tool = self._catalogue.get(tool.name)
        if known_tool is not None and known_tool.spec.place:
            return tools.request_approval(run, tool, known_tool.spec.place)
        cautions = self._cautions if tool.effect == "unsafe" else ()
        return tools.request_approval(run, tool, " ".join((f"It works in {workspace}.", *cautions)))

    async def _execute(self, recorder: Recorder, call: _Call) -> None:
        # A repeated call has streamed before, and readers may have seen that: it stays in front.
        tool = call.tool
        started_at = self._clock.now_ms()
        written, output = await recorder.streamed_output(tool), OutputFold(started_at)
        before = written.parts()

        def emit(text: str, stream: Literal["stdout", "stderr"]) -> None:
            delta = f.ToolOutputAppended(recorder.run_id, tool.id, text, stream)
            written.add(delta, self._clock.now_ms())
            output.add(delta, self._clock.now_ms())
            recorder.stream(delta)

        buffer = OutputBuffer(emit, tool.id)
        result = await self._run_tool(tool, self._build_tool_run(recorder, call, buffer.write))
        full_output = buffer.finish()
        if result.outcome == "unknown" and not tools.is_repeatable(tool):
            return  # It is still `started`: the next decision puts it in doubt, here or after a restart.
        outcome = "failed" if result.outcome == "unknown" else result.outcome
        result_parts = result.parts if result.parts is not None else output.parts()
        parts = (*before, *await stored_parts(recorder.store_blob, tool.id, result_parts, full_output))
        ms = max(0, self._clock.now_ms() - started_at)

        def settle(view: SessionStateView) -> list[f.AnyFact]:
            row = view.tool(tool.id)
            assert row is not None, "a call that was started is in the ledger"
            settled = tools.settle(view, row, outcome, written, parts, edited=call.edited)
            return [replace(settled, ms=ms)]

        await recorder.record(settle)
        if result.on_settled is not None:
            result.on_settled()

    def _build_tool_run(self, recorder: Recorder, call: _Call, emit: Emit) -> ToolRun:
        session_id, turn = recorder.session_id, call.tool.turn
        return ToolRun(
            call.tool.id, call.arguments, recorder.workspace, emit, session_id, turn,
            recorder.store_blob, recorder.full_output,
        )  # fmt: skip

    async def _run_tool(self, tool: ToolRow, call: ToolRun) -> ToolResult:
        known_tool = self._catalogue.get(tool.name)
        if known_tool is None:
            names = ", ".join(self._catalogue) or "none"
            return ToolResult("failed", (Text(f"There is no tool {tool.name}. There are: {names}."),))
        return await known_tool.run(call)


def _ask_question(run: RunRow, call: _Call) -> list[f.AnyFact]:
    """Ask a person the question, unless that was done before."""
    return questions.ask(run, call.tool, call.question) if call.question and not call.tool.approval else []
