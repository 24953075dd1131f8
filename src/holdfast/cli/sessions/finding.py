"""Finding conversations: by an id or how it begins, all of them, and what their events add up to."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import msgspec
import typer

from holdfast.cli.errors import AmbiguousId
from holdfast.domain.codec import Event
from holdfast.domain.errors import NoSuchSession, StoreCorrupt
from holdfast.domain.ids import SessionId, is_id
from holdfast.domain.limits import PAGE_SESSIONS_MAX, READ_EVENTS_MAX
from holdfast.domain.rows import SessionRow
from holdfast.domain.transcript import Transcript, TranscriptFold
from holdfast.store.ports import Progress, Store

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The conversation's id, or how it begins.")]
_SHOWN_IDS = 3


async def find(store: Store, text: str) -> SessionRow:
    """The conversation of that id, or the only one whose id begins so. Raises NoSuchSession, AmbiguousId."""
    if is_id(text):
        return await store.session(SessionId(text))
    found = [row async for row in every(store) if row.id.startswith(text)] if text else []
    if not found:
        raise NoSuchSession(session_id=text)
    if len(found) > 1:
        some = ", ".join(row.id for row in found[:_SHOWN_IDS])
        raise AmbiguousId(count=len(found), text=text, some=some + (" …" if len(found) > _SHOWN_IDS else ""))
    return found[0]


async def every(store: Store) -> AsyncIterator[SessionRow]:
    """All conversations, the archived ones last."""
    for archived in (False, True):
        async for row in listed(store, archived):
            yield row


async def listed(store: Store, archived: bool, limit: int = 0) -> AsyncIterator[SessionRow]:
    """The most recently used first, page by page; at most `limit` unless that is 0."""
    cursor: str | None = None
    count = 0
    while True:
        wanted = min(limit - count, PAGE_SESSIONS_MAX) if limit else PAGE_SESSIONS_MAX
        page = await store.sessions(cursor, wanted, archived)
        for row in page.sessions:
            yield row
        count += len(page.sessions)
        cursor = page.cursor
        if cursor is None or (limit and count >= limit):
            return


async def openings(store: Store, rows: Sequence[SessionRow]) -> dict[SessionId, str]:
    """How the first message begins in each of those that have no title."""
    untitled, found = [row.id for row in rows if not row.title], dict[SessionId, str]()
    for start in range(0, len(untitled), PAGE_SESSIONS_MAX):
        standings = await store.standings(untitled[start : start + PAGE_SESSIONS_MAX])
        found |= {session_id: standing.opening for session_id, standing in standings.items()}
    return found


async def slices(store: Store, session_id: SessionId, progress: Progress) -> AsyncIterator[list[Event]]:
    """The events up to what is the last one now, a slice at a time."""
    after, head = 0, await store.head(session_id)
    while after < head:
        batch = [e for e in await store.read(session_id, after, READ_EVENTS_MAX) if e.seq <= head]
        if not batch:
            return
        yield batch
        after = batch[-1].seq
        progress(after, head)


async def transcript(store: Store, session_id: SessionId, progress: Progress) -> Transcript:
    """The conversation as it reads now. Raises StoreCorrupt for an event that cannot be read."""
    folding = TranscriptFold()
    async for events in slices(store, session_id, progress):
        for event in events:
            try:
                folding.add(event)
            except msgspec.DecodeError as error:
                detail = f"event {event.seq} ({event.kind}) cannot be read: {error}"
                raise StoreCorrupt(path=f"Conversation {session_id}", detail=detail) from None
    return folding.transcript()
