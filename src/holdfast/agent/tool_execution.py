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
from holdfast.domain.agents import Approvals as Approvals
from holdfast.domain.clock import Clock
from holdfast.domain.decisions import questions, runs, tools
from holdfast.domain.decisions.questions import Question
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import QUESTIONS_OPEN_MAX
from holdfast.domain.shell.denylist import Forbidden
from holdfast.domain.shell.rules import Rule, covering
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import View
from holdfast.tools.output import Outpour, shown_parts
from holdfast.tools.ports import Emit, Foreseeing, Tool, ToolResult, ToolRun

Then = Callable[[View, RunRow], list[f.AnyFact]]
"""What else is so once no call is open: decided in the same transaction that finds none."""
Rules = Callable[[], Awaitable[Sequence[Rule]]]
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
    asks: bool
    banned: str
    question: Question | None = None
    flaw: str = ""

    def rule(self, rules: Sequence[Rule], session_id: SessionId | None) -> Rule | None:
        return covering(rules, self.tool.name, self.arguments, session_id) if self.asks else None


class _Known(msgspec.Struct, frozen=True):
    """What was looked up for calls that would be put to a person: what people have allowed, and the one call
    that is next, with why it would fail as things are now."""

    rules: Sequence[Rule]
    next: _Call | None
    flaw: str

    def flaw_of(self, tool: ToolRow, arguments: str) -> str:
        is_it = self.next is not None and (self.next.tool.id, self.next.arguments) == (tool.id, arguments)
        return self.flaw if is_it else ""


class _Next(msgspec.Struct):
    """What was decided: a call is to be carried out now, or a person is waited for.

    `again`: neither, and there is more to decide. `looks_up`: for that it has to be known what people have
    allowed, and whether `doubtful`, if there is one, would fail.
    """

    call: _Call | None = None
    waits: bool = False
    again: bool = False
    looks_up: bool = False
    doubtful: _Call | None = None


class _House(msgspec.Struct):
    """What holds for the calls of every agent at the moment."""

    approvals: Approvals
    forbidden: Forbidden


class Calls:
    """The calls of a run, one after the other.

    What is in `never_run` does not run, whoever allows it. `cautions` are sentences on what is not protected
    on this machine: whoever is asked about an unsafe call reads them.
    """

    def __init__(
        self,
        catalogue: Mapping[str, Tool],
        approvals: Approvals,
        clock: Clock,
        rules: Rules = no_rules,
        never_run: Iterable[str] = (),
        cautions: tuple[str, ...] = (),
    ) -> None:
        self._catalogue = catalogue
        self._house = _House(approvals, Forbidden(never_run))
        self._own: Approvals | None = None
        self._clock = clock
        self._rules = rules
        self._cautions = cautions

    def change(self, approvals: Approvals, never_run: Iterable[str]) -> None:
        """From the next call on."""
        self._house.approvals = approvals
        self._house.forbidden = Forbidden(never_run)

    def of(self, catalogue: Mapping[str, Tool], approvals: Approvals | None) -> "Calls":
        """The same, for an agent that has those tools, and may have a word of its own on approvals.

        What is changed of one is changed of all.
        """
        own = copy(self)
        own._catalogue, own._own = catalogue, approvals
        return own

    async def settle_all(self, recorder: Recorder, then: Then) -> bool:
        """Bring every open call to its end; False if a person has to say something first."""
        known: _Known | None = None
        while True:
            # Before a call is started: one that was and did not run would have to be asked about.
            recorder.pause()
            found = await self._next(recorder, then, known)
            if found.waits:
                return False
            if found.call is not None:
                await self._carry_out(recorder, found.call)
            elif not found.again:
                return True
            known = await self._look_up(recorder, found.doubtful) if found.looks_up else None

    async def _look_up(self, recorder: Recorder, call: _Call | None) -> _Known:
        """Anew for every call: a rule that was revoked meanwhile allows no more."""
        tool = self._catalogue.get(call.tool.name) if call is not None else None
        flaw = ""
        if call is not None and isinstance(tool, Foreseeing):
            flaw = await tool.foreseen(call.arguments, recorder.workspace)
        return _Known(await self._rules(), call, flaw)

    async def _next(self, recorder: Recorder, then: Then, known: _Known | None) -> _Next:
        found = _Next()

        def decide(view: View) -> list[f.AnyFact]:
            run = view.run(recorder.run_id)
            assert run is not None, "it is being carried out, so it exists"
            calls = [self._call(view, tool, known) for tool in view.open_tools(run.id)]
            if known is None and any(call.asks for call in calls):
                found.again = found.looks_up = True
                # Those after it are not looked at: what comes before may yet make what they need.
                first = next((call for call in calls if call.question is None), None)
                found.doubtful = first if first is not None and first.asks else None
                return []
            if calls:
                rules = known.rules if known is not None else ()
                return self._decide(view, run, calls, rules, recorder.workspace, found)
            facts = then(view, run)
            found.waits = any(isinstance(fact, f.RunWaiting) for fact in facts)
            return facts

        await recorder.record(decide)
        return found

    def _call(self, view: View, tool: ToolRow, looked_up: _Known | None) -> _Call:
        # What the tool itself says, here and now: a file that was imported may say anything.
        known = self._catalogue.get(tool.name)
        # But what was begun as unsafe stays so: a tool of another program may come back saying otherwise.
        is_fixed = tool.state == "started" and not tools.repeatable(tool)
        tool = replace(tool, effect=known.effect) if known is not None and not is_fixed else tool
        events = tools.written(view, tool)
        arguments = tools.arguments_of(events)
        may_start = tool.state in ("intended", "resolved")
        banned = self._house.forbidden.in_call(tool.name, arguments) if may_start else ""
        # Repeating a write does no harm; making it may, to what was there before.
        asks = (self._own or self._house.approvals) == "ask" and tool.effect != "pure" and not banned
        asks = asks and (known is None or known.asks)
        asks = asks and tool.state == "intended" and not tool.approval
        flaw = known.flaw(arguments) if asks and known is not None else ""
        flaw = flaw or (looked_up.flaw_of(tool, arguments) if asks and looked_up is not None else "")
        is_question = tool.name == questions.TOOL and known is not None and tool.state == "intended"
        # What cannot be asked is carried out as any call is: its tool says what is wrong with it.
        question = questions.asked_by(arguments) if is_question else None
        edited = tools.edited_arguments(events)
        return _Call(tool, arguments, edited, asks and not flaw, banned, question, flaw)

    def _decide(
        self,
        view: View,
        run: RunRow,
        calls: Sequence[_Call],
        rules: Sequence[Rule],
        workspace: Path,
        found: _Next,
    ) -> list[f.AnyFact]:
        asked = [call for call in calls if call.question is not None][:QUESTIONS_OPEN_MAX]
        others = [call for call in calls if call not in asked]
        # Last of all: whatever needs nobody is done by the time a person is asked.
        facts = self._decide_other(view, run, others, rules, workspace, found) if others else []
        found.waits = found.waits or not others
        if not found.waits:
            return facts
        put = [fact for call in asked for fact in _ask(run, call)]
        return [*put, *(facts or runs.wait(run, "question"))]

    def _decide_other(
        self,
        view: View,
        run: RunRow,
        calls: Sequence[_Call],
        rules: Sequence[Rule],
        workspace: Path,
        found: _Next,
    ) -> list[f.AnyFact]:
        """The same of calls that are no questions."""
        session = view.session()
        session_id = session.id if session is not None else None
        first, tool = calls[0], calls[0].tool
        if tool.state == "started" and not tools.repeatable(tool):
            found.waits = True
            return [*tools.doubt(run, tool), *runs.wait(run, "in_doubt")]
        if first.banned:
            found.again = True
            return tools.forbid(view, run, tool, first.banned)
        if first.flaw:
            found.again = True
            return tools.fail(view, tool, first.flaw)
        rule = first.rule(rules, session_id)
        if (first.asks and rule is None) or tool.state == "in_doubt" or tool.approval == "requested":
            found.waits = True
            asked = [call.tool for call in calls if call.asks and call.rule(rules, session_id) is None]
            questions = [fact for each in asked for fact in self._question(run, each, workspace)]
            return [*questions, *runs.wait(run, "in_doubt" if tool.state == "in_doubt" else "approval")]
        found.call = first
        if rule is not None:
            allowed = tools.allow_by_rule(run, tool, rule.scope, rule.pattern)
            return [*allowed, *tools.start(run, replace(tool, approval="approve"))]
        # Only a call that may be repeated is still `started` here: an unsafe one was put in doubt.
        again = tools.repeat(run, tool) if tool.state == "started" else []
        if tool.effect == "pure":
            return again
        return [*again, f.ToolStarted(run.id, tool.id)] if again else tools.start(run, tool)

    def _question(self, run: RunRow, tool: ToolRow, workspace: Path) -> list[f.AnyFact]:
        known = self._catalogue.get(tool.name)
        if known is not None and known.spec.place:
            return tools.request_approval(run, tool, known.spec.place)
        cautions = self._cautions if tool.effect == "unsafe" else ()
        return tools.request_approval(run, tool, " ".join((f"It works in {workspace}.", *cautions)))

    async def _carry_out(self, recorder: Recorder, call: _Call) -> None:
        # A call that is repeated has streamed before, and somebody may have seen it: that stays, in front.
        tool = call.tool
        started_at = self._clock.now_ms()
        written, lines = await recorder.output_of(tool), OutputFold(started_at)
        before = written.parts()

        def emit(text: str, stream: Literal["stdout", "stderr"]) -> None:
            delta = f.ToolOutputAppended(recorder.run_id, tool.id, text, stream)
            written.add(delta, self._clock.now_ms())
            lines.add(delta, self._clock.now_ms())
            recorder.stream(delta)

        outpour = Outpour(emit, tool.id)
        result = await self._run(tool, self._order(recorder, call, outpour.take))
        whole = outpour.finish()
        if result.outcome == "unknown" and not tools.repeatable(tool):
            return  # Begun and not ended: whoever looks next puts it in doubt, here or after a restart.
        outcome = "failed" if result.outcome == "unknown" else result.outcome
        given = result.parts if result.parts is not None else lines.parts()
        parts = (*before, *await shown_parts(recorder.keep, tool.id, given, whole))
        ms = max(0, self._clock.now_ms() - started_at)

        def settle(view: View) -> list[f.AnyFact]:
            row = view.tool(tool.id)
            assert row is not None, "a call that was started is in the ledger"
            settled = tools.settle(view, row, outcome, written, parts, edited=call.edited)
            return [replace(settled, ms=ms)]

        await recorder.record(settle)
        if result.settled is not None:
            result.settled()

    def _order(self, recorder: Recorder, call: _Call, emit: Emit) -> ToolRun:
        session_id, turn = recorder.session_id, call.tool.turn
        return ToolRun(
            call.tool.id, call.arguments, recorder.workspace, emit, session_id, turn,
            recorder.keep, recorder.output,
        )  # fmt: skip

    async def _run(self, tool: ToolRow, call: ToolRun) -> ToolResult:
        known = self._catalogue.get(tool.name)
        if known is None:
            names = ", ".join(self._catalogue) or "none"
            return ToolResult("failed", (Text(f"There is no tool {tool.name}. There are: {names}."),))
        return await known.run(call)


def _ask(run: RunRow, call: _Call) -> list[f.AnyFact]:
    """Put a question to a person, unless it was before."""
    return questions.ask(run, call.tool, call.question) if call.question and not call.tool.approval else []
