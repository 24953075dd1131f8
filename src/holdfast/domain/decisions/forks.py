"""Branch a session: return the facts of a new one that copies the live, settled turns of another."""

import re
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import NoSuchSession, NoSuchTurn
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import ToolCall
from holdfast.domain.events.stream_fold import parts_digest
from holdfast.domain.ids import IdGenerator, MessageId, Seq, SessionId
from holdfast.domain.limits import TITLE_CHARS_MAX
from holdfast.domain.state.session_state import SessionStateView

_BRANCH = re.compile(r" \(branch(?: (\d{1,6}))?\)$")


class _IdMap(msgspec.Struct):
    """The ids of the copies: by the source's message, and by the call that a message makes."""

    messages: dict[MessageId, MessageId]
    callers: dict[str, MessageId]


def fork(
    source: SessionStateView,
    session_id: SessionId,
    head: Seq,
    bodies: Iterable[f.Body],
    ids: IdGenerator,
    through_turn: int | None = None,
) -> list[f.AnyFact]:
    """Return the facts that create the copy. `bodies` are the source's newest, ordered by (turn, place).

    Turns that are not live or still in progress are left out, and so is late output. Turns are renumbered and
    messages get new ids; a copy has no runs and no keys, so nothing runs for it. Raises NoSuchSession, and
    NoSuchTurn if `through_turn` is not live.
    """
    row = source.session()
    if row is None or row.deleted_at is not None:
        raise NoSuchSession(session_id=session_id)
    last = row.last_turn if through_turn is None else through_turn
    named = source.turn(last)
    if through_turn is not None and (named is None or named.status != "live"):
        raise NoSuchTurn(session_id=session_id, turn=through_turn)
    facts: list[f.AnyFact] = [
        f.SessionCreated(branch_title(row.title), row.agent, row.model, row.workspace, remember=row.remember),
        f.SessionForked(session_id, head, last),
    ]
    id_map = _IdMap({}, {})
    number, copying = 0, 0
    for body in bodies:
        if body.turn > last or not _is_copied(source, body.turn):
            continue
        if isinstance(body, f.TurnAccepted):
            number, copying = number + 1, body.turn
        if body.turn == copying:
            copy = _copy(body, number, id_map, ids)
            facts += [copy] if copy is not None else []
    return facts


def branch_title(title: str) -> str:
    """Return a title for a branch: `Plans (branch)`, then `Plans (branch 2)`."""
    if not title:
        return ""
    found = _BRANCH.search(title)
    own, number = (title[: found.start()], int(found[1] or 1) + 1) if found else (title, 1)
    suffix = f" (branch {number})" if number > 1 else " (branch)"
    return own[: TITLE_CHARS_MAX - len(suffix)] + suffix


def _is_copied(source: SessionStateView, turn: int) -> bool:
    row = source.turn(turn)
    if row is None or row.status != "live":
        return False
    run = source.run(row.run_id) if row.run_id is not None else None
    return run is None or run.is_finished


def _copy(body: f.Body, turn: int, id_map: _IdMap, ids: IdGenerator) -> f.AnyFact | None:
    if isinstance(body, f.ToolSettled):
        message_id = id_map.callers.get(body.call_id) or id_map.messages.get(body.message_id)
        if body.late or message_id is None:
            return None
        return replace(body, turn=turn, message_id=message_id, run_id=None)
    if isinstance(body, f.MessageSettled) and body.late:
        return None
    id_map.messages[body.message_id] = message_id = ids.message()
    match body:
        case f.TurnAccepted():
            return f.TurnAccepted(ids.turn(), turn, message_id, body.parts)
        case f.TurnSteered():
            # The copy has no run to steer, so it becomes a plain user message.
            return f.MessageSettled(
                turn, body.place, message_id, "user", body.parts, parts_digest(body.parts)
            )
    id_map.callers |= {part.call_id: message_id for part in body.parts if isinstance(part, ToolCall)}
    continues = id_map.messages.get(body.continues) if body.continues is not None else None
    return replace(body, turn=turn, message_id=message_id, run_id=None, continues=continues)
