"""Carrying out tool calls by the ledger.

What is settled is never run again, what may have run and is unsafe is put to a person, and nothing that has
an effect begins before the journal says that it does. A call runs with the arguments that the ledger has: a
person may have changed what the model wrote.
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
"""What else is so once no call is open: decided in the same transaction that finds none."""
LoadRules = Callable[[], Awaitable[Sequence[Rule]]]
"""The rules in force; asked for each time that a call would otherwise be put to a person."""


async def no_rules() -> Sequence[Rule]:
    return ()


class _Call(msgspec.Struct, frozen=True):
    """An open call: what it is to run with, and whether a person made that of it.

    `asks`: a person or a rule has to allow it. `banned` is the pattern for which it never runs. `question` is
    what it asks a person, where that is all it does. `flaw` is why it can only fail: nobody is asked, and it
    is not begun either.
    """

    tool: ToolRow
    arguments: str
    edited: str
    needs_approval: bool
    banned: str
    question: Question | None = None
    validation_error: str = ""

    def rule(self, rules: Sequence[Rule], session_id: SessionId | None) -> Rule | None:
        return find_rule(rules, self.tool.name, self.arguments, session_id) if self.needs_approval else None


class _Lookup(msgspec.Struct, frozen=True):
    """What was looked up for calls that would be put to a person: what people have allowed, and the one call
    that is next, with why it would fail as things are now."""

    rules: Sequence[Rule]
    next: _Call | None
    validation_error: str

    def validation_error_for(self, tool: ToolRow, arguments: str) -> str:
        is_it = self.next is not None and (self.next.tool.id, self.next.arguments) == (tool.id, arguments)
        return self.validation_error if is_it else ""


class _NextAction(msgspec.Struct):
    """What was decided: a call is to be carried out now, or a person is waited for.

    `again`: neither, and there is more to decide. `needs_lookup`: for that it has to be known what people have
    allowed, and whether `doubtful`, if there is one, would fail.
    """

    call: _Call | None = None
    waits_for_person: bool = False
    decide_again: bool = False
    needs_lookup: bool = False
    call_to_check: _Call | None = None


class _SharedPolicy(msgspec.Struct):
    """What holds for the calls of every agent at the moment."""

    approvals: ApprovalMode
    forbidden: Denylist


class ToolExecutor:
    """The calls of a run, one after the other.

    What is in `never_run` does not run, whoever allows it. `cautions` are sentences on what is not protected
    on this machine: whoever is asked about an unsafe call reads them.
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
        """From the next call on."""
        self._policy.approvals = approvals
        self._policy.forbidden = Denylist(never_run)

    def for_agent(self, catalogue: Mapping[str, Tool], approvals: ApprovalMode | None) -> "ToolExecutor":
        """The same, for an agent that has those tools, and may have a word of its own on approvals.

        What is changed of one is changed of all.
        """
        own = copy(self)
        own._catalogue, own._own_approvals = catalogue, approvals
        return own

    async def settle_all(self, recorder: Recorder, decide_next: DecideNext) -> bool:
        """Bring every open call to its end; False if a person has to say something first."""
        lookup: _Lookup | None = None
        while True:
            # Before a call is started: one that was and did not run would have to be asked about.
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
        """Anew for every call: a rule that was revoked meanwhile allows no more."""
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
            calls = [self._call(view, tool, lookup) for tool in view.open_tools(run.id)]
            if lookup is None and any(call.needs_approval for call in calls):
                action.decide_again = action.needs_lookup = True
                # Those after it are not looked at: what comes before may yet make what they need.
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

    def _call(self, view: SessionStateView, tool: ToolRow, lookup: _Lookup | None) -> _Call:
        # What the tool itself says, here and now: a file that was imported may say anything.
        known_tool = self._catalogue.get(tool.name)
        # But what was begun as unsafe stays so: a tool of another program may come back saying otherwise.
        is_fixed = tool.state == "started" and not tools.is_repeatable(tool)
        tool = replace(tool, effect=known_tool.effect) if known_tool is not None and not is_fixed else tool
        events = tools.call_events(view, tool)
        arguments = tools.call_arguments(events)
        may_start = tool.state in ("intended", "resolved")
        banned = self._policy.forbidden.check_call(tool.name, arguments) if may_start else ""
        # Repeating a write does no harm; making it may, to what was there before.
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
        # What cannot be asked is carried out as any call is: its tool says what is wrong with it.
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
        # Last of all: whatever needs nobody is done by the time a person is asked.
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
        """The same of calls that are no questions."""
        session = view.session()
        session_id = session.id if session is not None else None
        first, tool = calls[0], calls[0].tool
        if tool.state == "started" and not tools.is_repeatable(tool):
            action.waits_for_person = True
            return [*tools.mark_in_doubt(run, tool), *runs.wait(run, "in_doubt")]
        if first.banned:
            action.decide_again = True
            return tools.forbid(view, run, tool, first.banned)
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
                fact for each in unapproved for fact in self._request_approval(run, each, workspace)
            ]
            return [
                *approval_requests,
                *runs.wait(run, "in_doubt" if tool.state == "in_doubt" else "approval"),
            ]
        action.call = first
        if rule is not None:
            allowed = tools.allow_by_rule(run, tool, rule.scope, rule.pattern)
            return [*allowed, *tools.start(run, replace(tool, approval="approve"))]
        # Only a call that may be repeated is still `started` here: an unsafe one was put in doubt.
        again = tools.repeat(run, tool) if tool.state == "started" else []
        if tool.effect == "pure":
            return again
        return [*again, f.ToolStarted(run.id, tool.id)] if again else tools.start(run, tool)

    def _request_approval(self, run: RunRow, tool: ToolRow, workspace: Path) -> list[f.AnyFact]:
        known = self._catalogue.get(tool.name)
        if known is not None and known.spec.place:
            return tools.request_approval(run, tool, known.spec.place)
        cautions = self._cautions if tool.effect == "unsafe" else ()
        return tools.request_approval(run, tool, " ".join((f"It works in {workspace}.", *cautions)))

    async def _execute(self, recorder: Recorder, call: _Call) -> None:
        # A call that is repeated has streamed before, and somebody may have seen it: that stays, in front.
        tool = call.tool
        started_at = self._clock.now_ms()
        written, output = await recorder.streamed_output(tool), OutputFold(started_at)
        before = written.parts()

        def emit(text: str, stream: Literal["stdout", "stderr"]) -> None:
            delta = f.ToolOutputAppended(recorder.run_id, tool.id, text, stream)
            written.add(delta, self._clock.now_ms())
            output.add(delta, self._clock.now_ms())
            recorder.stream(delta)

        outpour = OutputBuffer(emit, tool.id)
        result = await self._run_tool(tool, self._tool_run(recorder, call, outpour.write))
        whole = outpour.finish()
        if result.outcome == "unknown" and not tools.is_repeatable(tool):
            return  # Begun and not ended: whoever looks next puts it in doubt, here or after a restart.
        outcome = "failed" if result.outcome == "unknown" else result.outcome
        result_parts = result.parts if result.parts is not None else output.parts()
        parts = (*before, *await stored_parts(recorder.store_blob, tool.id, result_parts, whole))
        ms = max(0, self._clock.now_ms() - started_at)

        def settle(view: SessionStateView) -> list[f.AnyFact]:
            row = view.tool(tool.id)
            assert row is not None, "a call that was started is in the ledger"
            settled = tools.settle(view, row, outcome, written, parts, edited=call.edited)
            return [replace(settled, ms=ms)]

        await recorder.record(settle)
        if result.on_settled is not None:
            result.on_settled()

    def _tool_run(self, recorder: Recorder, call: _Call, emit: Emit) -> ToolRun:
        session_id, turn = recorder.session_id, call.tool.turn
        return ToolRun(
            call.tool.id, call.arguments, recorder.workspace, emit, session_id, turn,
            recorder.store_blob, recorder.full_output,
        )  # fmt: skip

    async def _run_tool(self, tool: ToolRow, call: ToolRun) -> ToolResult:
        known = self._catalogue.get(tool.name)
        if known is None:
            names = ", ".join(self._catalogue) or "none"
            return ToolResult("failed", (Text(f"There is no tool {tool.name}. There are: {names}."),))
        return await known.run(call)


def _ask_question(run: RunRow, call: _Call) -> list[f.AnyFact]:
    """Put a question to a person, unless it was before."""
    return questions.ask(run, call.tool, call.question) if call.question and not call.tool.approval else []
