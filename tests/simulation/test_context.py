"""Whatever happens in a conversation, the model's context is a valid request made of its live turns.

A state machine drives random histories through the decisions of the domain: turns, steps, deltas, calls in
all states, crashes, recoveries, undos, summaries, events of a newer program. After each step the folds of the
transcript agree with each other and with the rows; the request holds what it must and nothing it must not.
"""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.domain.context import context
from holdfast.domain.context.context import ModelProfile, build_request
from holdfast.domain.decisions import endings, forks, runs, tools, turns
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.parts import AnyPart, File, Reasoning, Text
from holdfast.domain.events.stream_fold import (
    StreamFold,
    message_digest,
    output_digest,
    parts_digest,
    settle_message,
)
from holdfast.domain.ids import CallId, MessageId, ProcessId
from holdfast.domain.state.projections import fold as fold_rows
from holdfast.domain.state.rows import MessageRow, RunRow, ToolRow, TurnRow
from holdfast.domain.transcript import transcript
from holdfast.domain.transcript.usage_totals import usage_totals
from holdfast.domain.usage import Usage
from tests.support.in_memory_session import SESSION, InMemoryJournal

PROFILES = (
    ModelProfile("demo", 1_000_000),
    ModelProfile("demo", 1_000_000, prefill=True),
    ModelProfile("other", 1_000_000),
    ModelProfile("demo", 300, answer_tokens=100),
)
EFFECTS: dict[str, f.Effect] = {"read": "pure", "put": "idempotent", "shell": "unsafe"}
PICK = st.integers(0, 7)
OPEN = ("intended", "started", "in_doubt", "resolved")
ACTS = ("ask", "approve", "deny", "start", "start", "start", "print", "print", "done", "failed", "blob",
        "rerun", "mark_done", "skip")  # fmt: skip
HAPPENS = (
    "accept", "accept", "start", "steer", "take back", "compact", "end", "interrupt", "resume", "resume",
    "wait", "recover", "step", "step", "step", "step", "step", "use tools", "use tools", "use tools",
    "use tools", "use tools", "elsewhere",
)  # fmt: skip
SCRAPS = st.sampled_from(["", " ", "\n", "words ", "会议", '{"a": ', "1}", "{}", "{", "[]", "é"])


def is_within(covers: tuple[tuple[int, int], ...], live: set[int]) -> bool:
    return {turn for first, last in covers for turn in range(first, last + 1)} <= live


class ContextMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.journal = InMemoryJournal()
        self.fold = transcript.TranscriptFold()
        self.marks: dict[str, int] = {}
        self.user_marks: dict[str, int] = {}
        self.late_marks: set[str] = set()

    # What the rules stand on.

    def commit(self, facts: Sequence[f.AnyFact | UnknownFact]) -> list[Event]:
        events = self.journal.append(*facts)
        for event in events:
            self.fold.add(event)
        return events

    def mark(self, turn: int) -> str:
        mark = f"‹{len(self.marks)}›"
        self.marks[mark] = turn
        return mark

    def runs_in(self, *states: str) -> list[RunRow]:
        return [run for run in self.journal.book.open_runs() if run.status in states]

    def streaming(self) -> list[MessageRow]:
        rows = [
            row for run in self.runs_in("running") for row in self.journal.book.streaming_messages(run.turn)
        ]
        return [row for row in rows if row.role == "assistant"]

    def open_tools(self, *states: str) -> list[tuple[RunRow, ToolRow]]:
        return [
            (run, tool)
            for run in self.runs_in("running", "waiting", "interrupted")
            for tool in self.journal.book.open_tools(run.id)
            if tool.state in states
        ]

    def attempt(self, decide: Callable[[], Sequence[f.AnyFact]]) -> bool:
        """Commit the result of `decide`; a refusal must leave no trace, so there is nothing to undo."""
        try:
            facts = decide()
        except HoldfastError:
            return False
        self.commit(facts)
        return True

    @initialize()
    def create(self) -> None:
        self.commit(turns.create_session(self.journal.book, f.SessionCreated("A title")))

    @rule(data=st.data(), what=st.sampled_from(HAPPENS))
    def perform_action(self, data: st.DataObject, what: str) -> None:
        """Do an action of any kind: an example leaves out some rules, and a conversation needs all."""
        pick, yes = data.draw(PICK), data.draw(st.booleans())
        match what:
            case "accept":
                self.accept(blank=pick == 7, written=yes)
            case "steer":
                self.steer(takes=yes)
            case "take back":
                how = data.draw(
                    st.sampled_from(["undo", "undo from", "retry", "restore", "restore", "clear"])
                )
                self.remove_turns(pick, how, yes)
            case "compact":
                self.compact(pick)
            case "start":
                self.start()
            case "end":
                self.end(data.draw(st.sampled_from(["complete", "cancel", "fail", "interrupt"])), yes)
            case "interrupt":
                self.end("interrupt", yes)
            case "resume":
                self.resume()
            case "wait":
                self.wait_or_answer(yes)
            case "recover":
                self.recover(pick, yes, pending=pick > 5)
            case "step":
                scraps = data.draw(st.lists(st.tuples(st.integers(0, 3), SCRAPS, st.booleans()), max_size=5))
                self.step(scraps, pick > 3, yes, data.draw(st.sampled_from(["", "demo", "other"])))
            case "use tools":
                acts = st.lists(st.tuples(PICK, st.sampled_from(ACTS), SCRAPS), min_size=2, max_size=8)
                self.use_tools(data.draw(acts))
            case "elsewhere":
                self.append_other_event(
                    data.draw(st.sampled_from(["newer kind", "newer version", "title"])), pick * 40
                )

    # Turns.

    def accept(self, blank: bool, written: bool) -> None:
        row = self.journal.book.row
        assert row is not None
        parts: tuple[AnyPart, ...] = (Text(" "), File("f" * 8, "a.png", "image/png", 10))
        if not blank:
            mark = self.mark(row.last_turn + 1)
            self.user_marks[mark] = row.last_turn + 1
            parts = (Text(f"please {mark}"),)
        known = self.journal.written if written else None
        self.commit(turns.accept_turn(self.journal.book, SESSION, self.journal.ids, parts, None, known))
        self.start()

    def steer(self, takes: bool) -> None:
        """Send a message to the active run; it reaches its run now or later."""
        row, at_work = self.journal.book.row, self.runs_in("running")
        if row is None or not at_work:
            return
        mark = self.mark(row.last_turn + 1)
        self.user_marks[mark] = row.last_turn + 1
        parts = (Text(f"also {mark}"),)
        self.commit(turns.accept_turn(
            self.journal.book, SESSION, self.journal.ids, parts, None, self.journal.written, True, "steer"
        ))  # fmt: skip
        steered = [run.turn for run in self.runs_in("queued") if run.steers == at_work[0].id] if takes else []
        if takes:
            self.commit(
                turns.take_steering(self.journal.book, self.journal.run(at_work[0].id), self.journal.written)
            )
        for marks in (self.marks, self.user_marks):
            marks.update({name: at_work[0].turn for name, turn in marks.items() if turn in steered})
        assert not any(self.journal.book.message(turn, 0) for turn in steered)

    def remove_turns(self, pick: int, how: str, written: bool) -> None:
        if len(self.journal.book.turns) < 2:
            return
        live = self.journal.book.live_turns(0)
        known = self.journal.written if written else None
        if live and how == "retry":
            self.retry(live[pick % len(live)])
        elif how == "restore":
            self.restore(pick, known)
        elif how == "clear":
            self.commit(turns.clear(self.journal.book, SESSION, known))
            assert not self.journal.book.live_turns(0) and not self.journal.book.open_runs()
        else:
            named = live[pick % len(live)] if live and how == "undo from" else None
            turn_id = named.id if named is not None else None
            if self.attempt(lambda: turns.undo(self.journal.book, SESSION, turn_id, "undo", known)):
                from_turn = (named or live[-1]).turn
                assert all(turn.turn < from_turn for turn in self.journal.book.live_turns(0))
                assert all(run.turn < from_turn for run in self.journal.book.open_runs())

    def restore(self, pick: int, known: endings.ReadMessageEvents | None) -> None:
        book = self.journal.book
        removed = [turn for turn in book.turns.values() if turn.status == "undone"]
        if removed:
            named = removed[pick % len(removed)]
            if self.attempt(lambda: turns.restore(book, SESSION, named.id, known)):
                live = [turn.turn for turn in book.live_turns(0)]
                assert named.turn in live
                assert all(run.turn in live for run in book.open_runs())

    def retry(self, chosen: TurnRow) -> None:
        book = self.journal.book
        assert book.row is not None
        mark = self.mark(book.row.last_turn + 1)
        self.user_marks[mark] = book.row.last_turn + 1
        ids, again = self.journal.ids, (Text(f"again {mark}"),)
        self.commit(turns.replace_turns(book, SESSION, ids, chosen.id, again, "retry"))
        assert book.live_turns(0)[-1].replaces == chosen.id

    def compact(self, pick: int) -> None:
        live = self.journal.book.live_turns(0)
        through = live[pick % len(live)].turn if live else 1
        summary = f"summary «{self.journal.head}»"
        self.attempt(lambda: turns.compact(self.journal.book, SESSION, through, summary))

    # Runs.

    def start(self) -> None:
        waiting = self.runs_in("queued", "accepted")
        if waiting and not self.runs_in("running", "waiting", "interrupted"):
            run = waiting[0]
            if run.status == "queued":
                self.commit(runs.dequeue(run))
            self.commit(runs.start(self.journal.run(run.id)))
            mark = self.mark(run.turn)
            self.commit(runs.prepare(self.journal.run(run.id), "digest", (f"memory {mark}",)))

    def end(self, ending: str, written: bool) -> None:
        if not self.runs_in("running"):
            return
        run = self.runs_in("running")[0]
        book, known = self.journal.book, self.journal.written if written else None
        if ending == "complete":
            self.commit(runs.complete(run))
        elif ending == "cancel":
            self.commit(endings.cancel(book, run, "user", known))
        elif ending == "fail":
            self.commit(endings.fail(book, run, f.Failure("model_error", "it broke"), known))
        else:
            self.commit(endings.interrupt(book, run, self.journal.ids.message(), known))
        assert not book.streaming_messages(run.turn)

    def resume(self) -> None:
        for run in self.runs_in("interrupted")[: 0 if self.runs_in("running", "waiting") else 1]:
            self.commit(runs.resume(run))
            for tool in self.journal.book.open_tools(run.id):
                if tools.recovery_action(tool) == "repeat":
                    self.commit(tools.repeat(run, tool))

    def wait_or_answer(self, waits: bool) -> None:
        for run in self.runs_in("running" if waits else "waiting")[:1]:
            self.commit(runs.wait(run, "approval") if waits else runs.answer(run))

    def recover(self, pick: int, found: bool, pending: bool) -> None:
        """Store late output of an interrupted run: in time, or after the notice."""
        marked = [run for run in self.journal.book.runs.values() if run.notice_place is not None]
        if not marked:
            return
        run = marked[pick % len(marked)]
        if pending:
            self.commit(runs.await_recovery(run, ProcessId("p_1"), self.journal.clock.now_ms(), pick))
            return
        facts: list[f.AnyFact] = []
        if found:
            assert run.notice_place is not None
            mark, late = self.mark(run.turn), run.status != "interrupted"
            if late:
                self.late_marks.add(mark)
            place = run.notice_place - 1 - pick
            parts = (Text(f"found {mark}"),)
            facts.append(f.MessageSettled(
                run.turn, place, self.journal.ids.message(), "assistant", parts, parts_digest(parts),
                run.id, "recovered", late=late,
            ))  # fmt: skip
        self.commit([*facts, *runs.finish_recovery(run, found)])

    # Steps and what they stream.

    def step(self, scraps: list[tuple[int, str, bool]], call: bool, settles: bool, signed_by: str) -> None:
        """Stream a part of a message, and perhaps settle it."""
        if not self.runs_in("running"):
            return
        run = self.runs_in("running")[0]
        if not self.streaming():
            self.begin_step(run)
        row = self.streaming()[0]
        for kind, scrap, marked in scraps:
            self.commit([self.delta(run, row, kind, scrap + (self.mark(row.turn) if marked else ""))])
        if call:
            self.commit([self.delta(run, row, 4, "{}")])
        if settles:
            self.settle(self.journal.run(run.id), row, signed_by)

    def begin_step(self, run: RunRow) -> None:
        before = [row for row in self.journal.book.messages.values() if row.turn == run.turn]
        partial = [row for row in before if row.role == "assistant" and row.status == "interrupted"]
        continues = MessageId(partial[-1].id) if partial else None
        self.commit([runs.begin_step(run, self.journal.ids.message(), "demo", continues)])

    def delta(self, run: RunRow, row: MessageRow, kind: int, text: str) -> f.Delta:
        message_id = MessageId(row.id)
        if kind == 0:
            return f.TextAppended(run.id, message_id, text)
        if kind == 1:
            return f.ReasoningAppended(run.id, message_id, text)
        name = list(EFFECTS)[kind % 3]
        return f.ToolArgumentsAppended(run.id, message_id, CallId(f"c-{row.id}-{kind}"), name, text)

    def settle(self, run: RunRow, row: MessageRow, signed_by: str) -> None:
        opened, *deltas = self.journal.written(row)
        started = opened.fact
        assert isinstance(started, f.ModelStepStarted)
        stream = StreamFold(opened.at)
        for event in deltas:
            delta = event.fact
            assert isinstance(delta, f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended)
            stream.add(delta, event.at)
            if signed_by and isinstance(delta, f.ReasoningAppended):
                stream.sign("signature", signed_by)
        settled = settle_message(started, stream)
        used = f.ModelStepSettled(run.id, started.message_id, "stop", Usage(10, 5, 0, 3))
        self.commit([settled, used, *tools.intend(run, settled, lambda name: EFFECTS[name])])

    # The ledger.

    def use_tools(self, acts: list[tuple[int, str, str]]) -> None:
        """Change open calls; an impossible change is refused."""
        for pick, act, scrap in acts:
            found = self.open_tools(*OPEN)
            if found:
                run, tool = found[pick % len(found)]
                self.attempt(lambda: self.act(run, tool, act, scrap))  # noqa: B023 - called at once

    def act(self, run: RunRow, tool: ToolRow, act: str, scrap: str) -> Sequence[f.AnyFact]:
        book = self.journal.book
        row = book.message(tool.turn, tool.place)
        assert row is not None
        output = endings.streamed_output(self.journal.written(row))
        match act:
            case "ask":
                return tools.request_approval(run, tool)
            case "approve":
                return tools.answer_approval(book, run, tool, "approve")
            case "deny":
                return tools.answer_approval(book, run, tool, "deny", reason="too risky")
            case "start":
                return tools.start(run, tool)
            case "print" if tool.state == "started" and run.status == "running":
                return [f.ToolOutputAppended(run.id, tool.id, scrap + self.mark(tool.turn))]
            case "done" | "failed":
                return [tools.settle(book, tool, "done" if act == "done" else "failed", output)]
            case "blob":
                parts = (File("b" * 8, "out.txt", "text/plain", 9),)
                return [tools.settle(book, tool, "done", output, parts)]
            case "rerun" | "mark_done" | "skip":
                decision: Literal["rerun", "mark_done", "skip"] = "rerun" if act == "rerun" else "skip"
                decision = "mark_done" if act == "mark_done" else decision
                return tools.resolve(book, run, tool, decision, "user", output)
        return []

    # The rest of the world.

    def append_other_event(self, what: str, ms: int) -> None:
        self.journal.clock.advance(ms)
        if what == "newer kind":
            self.commit([UnknownFact("session_sparkled", 1, b'{"glitter":true}')])
        elif what == "newer version":
            self.commit([UnknownFact("turn_accepted", 2, b'{"turn":1,"who":"a newer program"}')])
        else:
            self.commit(turns.rename(self.journal.book, SESSION, f"Title {self.journal.head}", "model"))

    # What must hold.

    @invariant()
    def folds_agree(self) -> None:
        now = self.fold.transcript()
        assert now == transcript.fold(self.journal.events), "adding one by one differs from folding all"
        assert now == transcript.fold(self.journal.prune()), "pruning changed the transcript"
        paged = transcript.TranscriptFold()
        paged.add_messages(reversed(self.journal.pages()), self.journal.open_tools())
        assert paged.transcript().turns == now.turns, "rows and bodies say something else"

    @invariant()
    def page_and_later_events_equal_fold(self) -> None:
        """Check that a page at some cut and the events after it equal the fold."""
        events = self.journal.events
        cut = len(events) * 2 // 3
        earlier = InMemoryJournal()
        earlier.events = events[:cut]
        earlier.book = fold_rows(SESSION, earlier.events)
        reader = transcript.TranscriptFold()
        reader.add_messages(earlier.pages(), earlier.open_tools())
        for event in events[cut:]:
            reader.add(event)
        assert reader.transcript().turns == self.fold.transcript().turns

    @invariant()
    def deltas_match_digests(self) -> None:
        facts = [event.fact for event in self.journal.events]
        deltas = [fact for fact in facts if isinstance(fact, f.Delta)]
        bodies = {fact.call_id if isinstance(fact, f.ToolSettled) else fact.message_id: fact
                  for fact in facts if isinstance(fact, f.MessageSettled | f.ToolSettled)}  # fmt: skip
        for delta in deltas:
            if isinstance(delta, f.ToolOutputAppended) and delta.call_id in bodies:
                assert bodies[delta.call_id].digest == output_digest(deltas, delta.call_id)
            elif not isinstance(delta, f.ToolOutputAppended) and delta.message_id in bodies:
                assert bodies[delta.message_id].digest == message_digest(deltas, delta.message_id)

    @invariant()
    def usage_equals_the_rows(self) -> None:
        tally, book = usage_totals(self.journal.events), self.journal.book
        assert tally.runs == {run.id: run.usage for run in book.runs.values()}
        assert book.row is None or tally.session == book.row.usage

    @invariant()
    def request_is_valid_and_has_live_turns(self) -> None:
        now = self.fold.transcript()
        again = transcript.fold(self.journal.events)
        live = {turn.turn for turn in now.turns if turn.live}
        for profile in PROFILES:
            request = build_request(now, "You are an agent.", profile)
            assert context.find_problems(request) == []
            assert request == build_request(again, "You are an agent.", profile)
            self.check_content(request, live, profile)

    def check_content(self, request: context.Request, live: set[int], profile: ModelProfile) -> None:
        sent = msgspec.json.encode(request).decode()
        sound = [c for c in self.fold.transcript().compactions if is_within(c.covers, live)]
        covers = sound[-1].covers if sound else ()
        for compaction in self.fold.transcript().compactions:
            assert (compaction.summary in sent) == (compaction in sound[-1:])
        for mark, turn in self.marks.items():
            gone = turn not in live or mark in self.late_marks or any(a <= turn <= b for a, b in covers)
            assert not (gone and mark in sent), f"{mark} of turn {turn} must not be shown"
        for mark, turn in self.user_marks.items():
            shown = turn in live and turn not in request.cut_turns
            if shown and not any(a <= turn <= b for a, b in covers):
                assert mark in sent, f"{mark} of turn {turn} is missing"
        if live and not any(a <= max(live) <= b for a, b in covers):
            assert max(live) not in request.cut_turns
        thoughts = [p for m in request.messages for p in m.parts if isinstance(p, Reasoning)]
        assert all(p.signature and p.provider == profile.provider for p in thoughts)

    def teardown(self) -> None:
        """Check that a copy of the conversation reads as its live, finished turns do."""
        book = self.journal.book
        if book.row is None:
            return
        bodies = [m.events[0].fact for m in self.journal.pages() if m.row.body_seq and m.row.role != "notice"]
        assert all(isinstance(body, f.Body) for body in bodies)
        facts = forks.fork(book, SESSION, self.journal.head, bodies, self.journal.ids)  # type: ignore[arg-type]
        child = InMemoryJournal()
        child.append(*facts)
        copied = transcript.fold(child.events)
        assert [turn.turn for turn in copied.turns] == list(range(1, len(copied.turns) + 1))
        assert not child.book.open_runs()
        assert context.find_problems(build_request(copied, "", PROFILES[0])) == []


ContextMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestConversation = ContextMachine.TestCase
