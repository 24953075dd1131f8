"""Full-text search: a contentless index that follows the journal by its own cursor, in slices.

If the settling transaction indexed too, a hundred messages that settle together would wait for each other. So
the writer indexes between batches, and a search first makes the index catch up.
"""

from collections.abc import Sequence

import apsw
import msgspec

from holdfast.domain.events.codec import decode
from holdfast.domain.events.facts import BODY_KINDS, Body, MessageSettled, TurnAccepted, TurnSteered
from holdfast.domain.events.parts import message_text
from holdfast.domain.events.tool_facts import ToolSettled
from holdfast.domain.ids import Position, SessionId
from holdfast.domain.limits import SEARCH_HITS_MAX
from holdfast.domain.search_text import index_text, match_query, snippet
from holdfast.store.ports import SearchHit
from holdfast.store.sqlite.bodies import decompress
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import execute, fetch_all, fetch_one, fetch_value
from holdfast.store.sqlite.views import clamp_limit, get_number_and_head

SLICE_EVENTS_MAX = 500
SLICE_CHARS = 6_000
SLICE_CHARS_BUSY = 1_500
"""Under load a slice must fit between two batches unnoticed."""
_NEWEST = 1 << 62


def cursor(db: apsw.Connection) -> Position:
    """Return the position up to which everything is indexed."""
    return int(fetch_value(db, "search_cursor"))


def next_slice(
    db: apsw.Connection, chars_max: int = SLICE_CHARS
) -> tuple[Position, Position, list[tuple[Position, str]]]:
    """Return the index's position, the slice's end and its words. Call this before taking any lock."""
    start = end = cursor(db)
    words: list[tuple[Position, str]] = []
    chars = 0
    for position, kind, version, body in fetch_all(db, "unindexed", start, SLICE_EVENTS_MAX):
        end = position
        if kind in BODY_KINDS:
            text = _text(kind, version, decompress(body))
            words.append((position, index_text(text)))
            chars += len(text)
            if chars >= chars_max:
                break
    return start, end, words


def _text(kind: str, version: int, body: bytes) -> str:
    try:
        fact = decode(kind, version, body)
    except msgspec.ValidationError:
        # Doctor reports damaged events; one of them must not hide the rest from search.
        return ""
    return message_text(fact.parts) if isinstance(fact, Body) else ""


def add_slice(tx: Tx, start: Position, end: Position, words: Sequence[tuple[Position, str]]) -> None:
    """Index a slice, unless another process already has."""
    if cursor(tx.db) != start:
        return
    for position, text in words:
        if text:
            execute(tx.db, "index_words", position, text)
    execute(tx.db, "move_search_cursor", end)


def find(db: apsw.Connection, query: str, limit: int, within: SessionId | None = None) -> list[SearchHit]:
    """Return live messages that match, newest first. Raises BadQuery, NoSuchSession.

    With `within`, search one session only.
    """
    match, hits = match_query(query), list[SearchHit]()
    limit = clamp_limit(limit, SEARCH_HITS_MAX)
    own = get_number_and_head(db, within)[0] if within is not None else None
    # Limit the search to the range from the session's first event to its last.
    first, last = fetch_all(db, "session_span", own)[0] if own is not None else (0, _NEWEST - 1)
    before = last + 1
    while len(hits) < limit:
        # The index still has undone, replaced and deleted messages; the check below skips them.
        if own is None:
            found = fetch_all(db, "search", match, before, 2 * limit)
        else:
            found = fetch_all(db, "search_session", match, before, first, own, 2 * limit)
        for session_id, title, no, position, seq, at, kind, version, body in found:
            before = position
            hit = _search_hit(
                db, no, seq, decode(kind, version, decompress(body)), query, SessionId(session_id), title, at
            )
            if hit is not None and len(hits) < limit:
                hits.append(hit)
        if len(found) < 2 * limit:
            break
    return hits


def _search_hit(
    db: apsw.Connection,
    no: int,
    seq: int,
    fact: object,
    query: str,
    session_id: SessionId,
    title: str,
    at: int,
) -> SearchHit | None:
    if not isinstance(fact, TurnAccepted | TurnSteered | MessageSettled | ToolSettled):
        return None
    place = 0 if isinstance(fact, TurnAccepted) else fact.place
    row = fetch_one(db, "is_current", no, fact.turn, place, seq)
    if row is None:
        return None
    text, marks = snippet(message_text(fact.parts), query)
    return SearchHit(session_id, title, fact.turn, place, row[0], row[1], at, text, marks)
