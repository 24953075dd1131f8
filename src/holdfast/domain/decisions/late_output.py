"""Output that reaches the journal after its run was given up for interrupted.

A process that was stopped past its lease and then went on, or one that died while its store was stalled, had
output that nobody saw and that is not lost. It takes the place before the notice. If the run went on
meanwhile without it, it is kept apart: shown folded away, and out of the model's sight.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart, Change, File, ToolCall
from holdfast.domain.events.stream_fold import MessageDelta, StreamFold, digest_of_parts
from holdfast.domain.ids import CallId, Ids, MessageId, RunId
from holdfast.domain.limits import RECOVERY_PLACES
from holdfast.domain.state.rows import MessageRow, RunRow
from holdfast.domain.state.session_state import View


class Unsaved(msgspec.Struct, frozen=True):
    """What a process had of one message or call, and how much before it was certainly saved."""

    turn: int
    place: int
    saved_chars: int
    deltas: tuple[f.Delta, ...]


def deliver(view: View, run_id: RunId, unsaved: Sequence[Unsaved], ids: Ids) -> list[f.AnyFact]:
    """The facts that bring late output to its place; none if all of it is there already."""
    run = view.run(run_id)
    # What a person stopped stays as it was when they stopped it.
    if run is None or run.notice_place is None or run.status == "cancelled":
        return []
    facts: list[f.AnyFact] = []
    for one in unsaved:
        row = view.message(one.turn, one.place)
        if row is not None:
            rest = _beyond(one, view.written(row))
            facts += _bring(view, run, row, rest, ids, len(facts)) if rest else []
    if facts:
        facts.append(f.RecoveryFinished(run.id, run.turn, run.notice_place, recovered=True))
    return facts


def _beyond(one: Unsaved, written: Sequence[Event]) -> list[f.Delta]:
    """The deltas past what the journal holds: the last commit may have come through unacknowledged."""
    skip = _chars(written) - one.saved_chars
    rest: list[f.Delta] = []
    for delta in one.deltas:
        text = delta.text[max(skip, 0) :]
        skip -= len(delta.text)
        if text:
            rest.append(replace(delta, text=text))
    return rest


def _chars(written: Sequence[Event]) -> int:
    total = 0
    for event in written:
        fact = event.fact
        if isinstance(fact, f.Delta):
            total += len(fact.text)
        elif isinstance(fact, f.MessageSettled | f.ToolSettled):
            total += sum(len(_streamed(part)) for part in fact.parts)
    return total


def _streamed(part: AnyPart) -> str:
    match part:
        case ToolCall():
            return part.arguments
        case File() | Change():
            return ""
        case _:
            return part.text


def _bring(
    view: View, run: RunRow, row: MessageRow, rest: list[f.Delta], ids: Ids, taken: int
) -> list[f.AnyFact]:
    spoken = [delta for delta in rest if not isinstance(delta, f.ToolOutputAppended)]
    if row.role == "tool":
        # An open call's output simply grows; one that was settled without it has been answered for.
        return list(rest) if row.body_seq == 0 else []
    if not _went_on(view, run):
        return _complete(view, row, spoken)
    fold = StreamFold()
    for delta in spoken:
        fold.add(delta)
    place = _free_place(view, run) + taken
    return [f.MessageSettled(
        run.turn, place, ids.message(), "assistant", fold.parts(), fold.digest(), run.id, "recovered",
        late=True,
    )]  # fmt: skip


def _complete(view: View, row: MessageRow, rest: list[MessageDelta]) -> list[f.AnyFact]:
    """The message whole again: the deltas that were missing, then the body that all of them add up to."""
    body = view.written(row)[-1].fact
    if not isinstance(body, f.MessageSettled):
        return list(rest)
    fold = StreamFold()
    for delta in [*_as_deltas(body), *rest]:
        fold.add(delta)
    parts = fold.parts()
    return [*rest, replace(body, parts=parts, digest=digest_of_parts(parts), status="recovered")]


def _as_deltas(body: f.MessageSettled) -> list[MessageDelta]:
    run_id, name = body.run_id or RunId(""), body.message_id
    deltas: list[MessageDelta] = []
    for part in body.parts:
        match part:
            case ToolCall():
                call_id = CallId(part.call_id)
                deltas.append(f.ToolArgumentsAppended(run_id, name, call_id, part.name, part.arguments))
            case File() | Change():
                continue
            case _:
                kind = f.TextAppended if part.__struct_config__.tag == "text" else f.ReasoningAppended
                deltas.append(kind(run_id, MessageId(name), part.text))
    return deltas


def _went_on(view: View, run: RunRow) -> bool:
    assert run.notice_place is not None
    return run.status != "interrupted" or view.message(run.turn, run.notice_place + 1) is not None


def _free_place(view: View, run: RunRow) -> int:
    assert run.notice_place is not None
    place = run.notice_place - RECOVERY_PLACES + 1
    while view.message(run.turn, place) is not None:
        place += 1
    return place
