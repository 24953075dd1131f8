"""Actions on a session in a simulation: decisions over any view of a store."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.domain.decisions import endings, runs, tools, turns
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import StreamFold, settle_message
from holdfast.domain.ids import CallId, IdGenerator, MessageId, SessionId
from holdfast.domain.state.rows import MessageRow, RunRow, ToolRow
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.domain.usage import Usage


class ActionContext(msgspec.Struct):
    """The session of an action, and the random values that choose its details."""

    session_id: SessionId
    view: SessionStateView
    ids: IdGenerator
    pick: int
    text: str
    yes: bool

    def run(self, *states: str) -> RunRow | None:
        found = [run for run in self.view.open_runs() if not states or run.status in states]
        return found[self.pick % len(found)] if found else None

    def message(self, run: RunRow) -> MessageRow | None:
        rows = [row for row in self.view.streaming_messages(run.turn) if row.role == "assistant"]
        return rows[self.pick % len(rows)] if rows else None

    def tool(self, run: RunRow, *states: str) -> ToolRow | None:
        rows = [tool for tool in self.view.open_tools(run.id) if tool.state in states]
        return rows[self.pick % len(rows)] if rows else None

    @property
    def read_events(self) -> endings.ReadMessageEvents | None:
        return self.view.message_events if self.yes else None


def accept(scene: ActionContext, if_busy: turns.BusyPolicy = "queue") -> Facts:
    return turns.accept_turn(
        scene.view,
        scene.session_id,
        scene.ids,
        (Text(scene.text),),
        None,
        scene.read_events,
        scene.yes,
        if_busy,
    )


def accept_while_busy(scene: ActionContext) -> Facts:
    """Send a message that steers, interrupts, or is refused where something is in the way."""
    how: Sequence[turns.BusyPolicy] = ("steer", "steer", "interrupt", "reject")
    return accept(scene, how[scene.pick % 4])


def start(scene: ActionContext) -> Facts:
    queued, run = scene.run("queued"), scene.run("accepted")
    if run is not None:
        return [*runs.start(run), *_opened(scene, run)]
    return runs.dequeue(queued) if queued is not None else ()


def _opened(scene: ActionContext, run: RunRow) -> Facts:
    return [f.ContextPrepared(run.id, "digest", ("a memory",))] if scene.yes else []


def step(scene: ActionContext) -> Facts:
    run = scene.run("running")
    return [runs.begin_step(run, scene.ids.message(), "demo")] if run is not None else ()


def stream_text(scene: ActionContext) -> Facts:
    run = scene.run("running")
    row = scene.message(run) if run is not None else None
    if run is None or row is None:
        return ()
    fact_type = f.ReasoningAppended if scene.pick % 3 == 0 else f.TextAppended
    return [fact_type(run.id, MessageId(row.id), scene.text)]


def stream_call(scene: ActionContext) -> Facts:
    run = scene.run("running")
    row = scene.message(run) if run is not None else None
    if run is None or row is None:
        return ()
    call_id = scene.ids.call()
    names = ("read", "put", "shell")
    pieces = ('{"a":', "1}") if scene.yes else ('{"cut',)
    name = names[scene.pick % 3]
    return [f.ToolArgumentsAppended(run.id, MessageId(row.id), call_id, name, piece) for piece in pieces]


EFFECTS: Mapping[str, f.Effect] = MappingProxyType({"read": "pure", "put": "idempotent", "shell": "unsafe"})


def settle(scene: ActionContext) -> Facts:
    run = scene.run("running")
    row = scene.message(run) if run is not None else None
    if run is None or row is None:
        return ()
    opening, *deltas = scene.view.message_events(row)
    started, fold = opening.fact, StreamFold(opening.at)
    assert isinstance(started, f.ModelStepStarted)
    for event in deltas:
        delta = event.fact
        assert isinstance(delta, f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended)
        fold.add(delta, event.at)
    body = settle_message(started, fold)
    used = f.ModelStepSettled(run.id, started.message_id, "stop", Usage(scene.pick, 1, 0, 7))
    return [body, used, *tools.intend(run, body, EFFECTS.__getitem__)]


def settle_wrongly(scene: ActionContext) -> Facts:
    """Settle a body that differs from the streamed one: its deltas must never be pruned."""
    run = scene.run("running")
    row = scene.message(run) if run is not None else None
    if run is None or row is None:
        return ()
    parts = (Text(scene.text + "!"),)
    return [
        f.MessageSettled(row.turn, row.place, MessageId(row.id), "assistant", parts, "not a digest", run.id)
    ]


def use_tool(scene: ActionContext) -> Facts:
    run = scene.run("running")
    tool = scene.tool(run, "intended", "started", "in_doubt") if run is not None else None
    if run is None or tool is None:
        return ()
    if tool.state == "intended":
        if tool.approval == "requested":
            return tools.answer_approval(scene.view, run, tool, "approve" if scene.yes else "deny")
        if tool.approval == "" and scene.pick % 4 == 0:
            return tools.request_approval(run, tool)
        return tools.start(run, tool)
    if tool.state == "in_doubt":
        return tools.resolve(scene.view, run, tool, "rerun" if scene.yes else "skip")
    if scene.yes:
        stream = "stderr" if scene.pick % 2 else "stdout"
        return [f.ToolOutputAppended(run.id, CallId(tool.id), scene.text, stream)]
    row = scene.view.message(tool.turn, tool.place)
    assert row is not None
    output = endings.streamed_output(scene.view.message_events(row))
    return [tools.settle(scene.view, tool, "done", output)]


def end(scene: ActionContext) -> Facts:
    run = scene.run("running")
    if run is None:
        return ()
    match scene.pick % 5:
        case 0 | 1:
            return runs.complete(run)
        case 2:
            return endings.cancel(scene.view, run, "user", scene.read_events)
        case 3:
            return endings.fail(scene.view, run, f.Failure("x", scene.text), scene.read_events)
    return endings.interrupt(scene.view, run, scene.ids.message(), scene.read_events, asks=scene.yes)


def continue_run(scene: ActionContext) -> Facts:
    run = scene.run("interrupted", "waiting") or scene.run("running")
    if run is None:
        return ()
    if run.status == "running":
        reason: f.WaitReason = "question" if scene.yes else "limit"
        return runs.wait(run, reason, "2 steps" if reason == "limit" else "") if scene.pick % 4 == 0 else ()
    return runs.answer(run) if run.status == "waiting" else runs.resume(run)


def recover(scene: ActionContext) -> Facts:
    run = scene.run("interrupted", "running")
    if run is None or run.notice_place is None:
        return ()
    place = run.notice_place - 1 - scene.pick
    found = f.MessageSettled(
        run.turn, place, scene.ids.message(), "assistant", (Text(scene.text),), "", run.id, "recovered",
        late=run.status == "running",
    )  # fmt: skip
    return [found, *runs.finish_recovery(run, recovered=True)]


def steer(scene: ActionContext) -> Facts:
    """Deliver the steering messages of a run."""
    run = scene.run("running")
    return turns.take_steering(scene.view, run, scene.view.message_events) if run is not None else ()


def undo(scene: ActionContext) -> Facts:
    live = scene.view.live_turns(0)
    named = live[scene.pick % len(live)].id if live and scene.pick % 2 else None
    return turns.undo(scene.view, scene.session_id, named, "undo", scene.read_events)


def restore(scene: ActionContext) -> Facts:
    removed = [turn for turn in scene.view.all_turns() if turn.status == "undone"]
    named = removed[scene.pick % len(removed)].id if removed and scene.pick % 3 else None
    return turns.restore(scene.view, scene.session_id, named, scene.read_events)


def edit(scene: ActionContext) -> Facts:
    live = scene.view.live_turns(0)
    if not live:
        return ()
    turn_id = live[scene.pick % len(live)].id
    parts = (Text(scene.text),)
    return turns.replace_turns(
        scene.view, scene.session_id, scene.ids, turn_id, parts, "edit", None, scene.read_events
    )


def clear(scene: ActionContext) -> Facts:
    return turns.clear(scene.view, scene.session_id, scene.read_events)


def compact(scene: ActionContext) -> Facts:
    row = scene.view.session()
    through = (row.last_turn if row is not None else 0) - scene.pick % 2
    return turns.compact(scene.view, scene.session_id, through, scene.text)


def rename(scene: ActionContext) -> Facts:
    if scene.pick % 3 == 0:
        return turns.archive(scene.view, scene.session_id, scene.yes)
    if scene.pick % 3 == 1:
        change = f.SessionConfigured(model=scene.text, resume="ask" if scene.yes else "auto")
        return turns.configure(scene.view, scene.session_id, change)
    return turns.rename(scene.view, scene.session_id, scene.text, "user" if scene.yes else "model")


def append_unknown_event(scene: ActionContext) -> Facts:
    kinds = ("dream_recorded", "text_appended", "message_settled", "session_deleted")
    return [UnknownFact(kinds[scene.pick % 4], 2, b'{"new":true}')]


Action = Callable[[ActionContext], Facts]
ACTION_WEIGHTS: Mapping[Action, int] = MappingProxyType({
    accept: 3, start: 12, step: 8, stream_text: 12, stream_call: 10, settle: 12, settle_wrongly: 1,
    use_tool: 30, end: 2,
    accept_while_busy: 4, continue_run: 6, recover: 2, steer: 6, undo: 1, restore: 2, edit: 1, clear: 1,
    compact: 1,
    rename: 2, append_unknown_event: 2,
})  # fmt: skip
"""Each action with its weight: actions that end things are rare, or few sessions would grow interesting."""
