"""Find conversations by id or id prefix, list them, and load their transcripts."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated

import msgspec
import typer

from holdfast.cli.errors import AmbiguousId
from holdfast.domain.errors import NoSuchSession, StoreCorrupt
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import Seq, SessionId, is_id
from holdfast.domain.limits import PAGE_SESSIONS_MAX, READ_EVENTS_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.transcript import Transcript, TranscriptFold
from holdfast.store.maintenance import Progress
from holdfast.store.ports import Snapshot, Store

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The conversation's id, or how it begins.")]
_SHOWN_IDS = 3


class FoundSession(msgspec.Struct, frozen=True):
    """A conversation at one moment, when its newest event was `head`.

    `opening` is the start of its first message, if it has no title.
    """

    row: SessionRow
    head: Seq
    opening: str


def find_session(snapshot: Snapshot, text: str) -> FoundSession:
    """Return the conversation with that id, or the only one whose id begins with it.

    Raises NoSuchSession, AmbiguousId.
    """
    if is_id(text):
        return _load_session(snapshot, snapshot.session(SessionId(text)))
    rows = [row for row in iter_all_sessions(snapshot) if row.id.startswith(text)] if text else []
    if not rows:
        raise NoSuchSession(session_id=text)
    if len(rows) > 1:
        some = ", ".join(row.id for row in rows[:_SHOWN_IDS])
        raise AmbiguousId(count=len(rows), text=text, some=some + (" …" if len(rows) > _SHOWN_IDS else ""))
    return _load_session(snapshot, rows[0])


def _load_session(snapshot: Snapshot, row: SessionRow) -> FoundSession:
    return FoundSession(row, snapshot.head(row.id), find_openings(snapshot, (row,)).get(row.id, ""))


def iter_all_sessions(snapshot: Snapshot) -> Iterator[SessionRow]:
    """Yield all conversations, the archived ones last."""
    for archived in (False, True):
        yield from iter_sessions(snapshot, archived)


def iter_sessions(snapshot: Snapshot, archived: bool, limit: int = 0) -> Iterator[SessionRow]:
    """Yield the most recently used first, page by page; at most `limit` unless that is 0."""
    cursor: str | None = None
    count = 0
    while True:
        page_limit = min(limit - count, PAGE_SESSIONS_MAX) if limit else PAGE_SESSIONS_MAX
        page = snapshot.sessions(cursor, page_limit, archived)
        yield from page.sessions
        count += len(page.sessions)
        cursor = page.cursor
        if cursor is None or (limit and count >= limit):
            return


def find_openings(snapshot: Snapshot, rows: Sequence[SessionRow]) -> dict[SessionId, str]:
    """Return the start of the first message of each conversation without a title."""
    statuses = snapshot.session_statuses([row.id for row in rows if not row.title])
    return {session_id: status.opening for session_id, status in statuses.items()}


async def read_slices(store: Store, found: FoundSession, progress: Progress) -> AsyncIterator[list[Event]]:
    """Yield the events up to `found.head` in slices, and no later ones."""
    after = 0
    while after < found.head:
        read = await store.read(found.row.id, after, READ_EVENTS_MAX)
        batch = [event for event in read if event.seq <= found.head]
        if not batch:
            return
        yield batch
        after = batch[-1].seq
        progress(after, found.head)


async def load_transcript(store: Store, found: FoundSession, progress: Progress) -> Transcript:
    """Return the transcript up to `found.head`. Raises StoreCorrupt if an event is unreadable."""
    fold = TranscriptFold()
    async for events in read_slices(store, found, progress):
        for event in events:
            try:
                fold.add(event)
            except msgspec.DecodeError as error:
                detail = f"event {event.seq} ({event.kind}) cannot be read: {error}"
                raise StoreCorrupt(path=f"Conversation {found.row.id}", detail=detail) from None
    return fold.transcript()
