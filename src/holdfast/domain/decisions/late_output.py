"""Recover output that reaches the journal after its run was marked interrupted.

A process that was suspended past its lease, or that died while its store was stalled, leaves output that
nobody saw. It takes a place before the notice. If the run has continued without it, it is marked late: shown
folded, and hidden from the model.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart, Change, File, ToolCall
from holdfast.domain.events.stream_fold import MessageDelta, StreamFold, parts_digest
from holdfast.domain.ids import CallId, IdGenerator, MessageId, RunId
from holdfast.domain.limits import RECOVERY_PLACES
from holdfast.domain.state.rows import MessageRow, RunRow
from holdfast.domain.state.session_state import SessionStateView


class UnsavedDeltas(msgspec.Struct, frozen=True):
    """The deltas that a process had of one message or call, and the count of saved characters before them."""

    turn: int
    place: int
    saved_chars: int
    deltas: tuple[f.Delta, ...]


def recover_output(
    view: SessionStateView, run_id: RunId, unsaved: Sequence[UnsavedDeltas], ids: IdGenerator
) -> list[f.AnyFact]:
    """Return the facts that add late output at its place; none if the journal has all of it."""
    run = view.run(run_id)
    # A run that a person cancelled stays as it was then.
    if run is None or run.notice_place is None or run.status == "cancelled":
        return []
    facts: list[f.AnyFact] = []
    for output in unsaved:
        row = view.message(output.turn, output.place)
        if row is not None:
            rest = _missing_deltas(output, view.message_events(row))
            facts += _recover_message(view, run, row, rest, ids, len(facts)) if rest else []
    if facts:
        facts.append(f.RecoveryFinished(run.id, run.turn, run.notice_place, recovered=True))
    return facts


def _missing_deltas(output: UnsavedDeltas, stored_events: Sequence[Event]) -> list[f.Delta]:
    """Return the deltas that the journal lacks: the last commit may have succeeded unacknowledged."""
    skip = _streamed_chars(stored_events) - output.saved_chars
    rest: list[f.Delta] = []
    for delta in output.deltas:
        text = delta.text[max(skip, 0) :]
        skip -= len(delta.text)
        if text:
            rest.append(replace(delta, text=text))
    return rest


def _streamed_chars(stored_events: Sequence[Event]) -> int:
    total = 0
    for event in stored_events:
        fact = event.fact
        if isinstance(fact, f.Delta):
            total += len(fact.text)
        elif isinstance(fact, f.MessageSettled | f.ToolSettled):
            total += sum(len(_streamed_text(part)) for part in fact.parts)
    return total


def _streamed_text(part: AnyPart) -> str:
    match part:
        case ToolCall():
            return part.arguments
        case File() | Change():
            return ""
        case _:
            return part.text


def _recover_message(
    view: SessionStateView,
    run: RunRow,
    row: MessageRow,
    rest: list[f.Delta],
    ids: IdGenerator,
    used_places: int,
) -> list[f.AnyFact]:
    message_deltas = [delta for delta in rest if not isinstance(delta, f.ToolOutputAppended)]
    if row.role == "tool":
        # An open call's output grows; the model has already read the result of a settled one.
        return list(rest) if row.body_seq == 0 else []
    if not _has_continued(view, run):
        return _complete_message(view, row, message_deltas)
    fold = StreamFold()
    for delta in message_deltas:
        fold.add(delta)
    place = _free_place(view, run) + used_places
    return [f.MessageSettled(
        run.turn, place, ids.message(), "assistant", fold.parts(), fold.digest(), run.id, "recovered",
        late=True,
    )]  # fmt: skip


def _complete_message(view: SessionStateView, row: MessageRow, rest: list[MessageDelta]) -> list[f.AnyFact]:
    """Return the missing deltas of a message, then its complete body."""
    body = view.message_events(row)[-1].fact
    if not isinstance(body, f.MessageSettled):
        return list(rest)
    fold = StreamFold()
    for delta in [*_as_deltas(body), *rest]:
        fold.add(delta)
    parts = fold.parts()
    return [*rest, replace(body, parts=parts, digest=parts_digest(parts), status="recovered")]


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


def _has_continued(view: SessionStateView, run: RunRow) -> bool:
    assert run.notice_place is not None
    return run.status != "interrupted" or view.message(run.turn, run.notice_place + 1) is not None


def _free_place(view: SessionStateView, run: RunRow) -> int:
    assert run.notice_place is not None
    place = run.notice_place - RECOVERY_PLACES + 1
    while view.message(run.turn, place) is not None:
        place += 1
    return place
