"""What a run does, written down under its lease."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.domain.book import Decide, Facts, View
from holdfast.domain.changes import ReadBack
from holdfast.domain.codec import Event, Unknown
from holdfast.domain.endings import output_of
from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.facts import Delta
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.limits import PAGE_MESSAGES_MAX
from holdfast.domain.rows import ToolRow
from holdfast.domain.streams import OutputFold
from holdfast.domain.transcript import Transcript, TranscriptFold
from holdfast.engine.unsaved import UnsavedOutput
from holdfast.store.ports import Append, Lease, MessagePage, Store

FIRST_PAGE_MESSAGES = 32


class Stopped(Exception):
    """The server is stopping, and the run has come to the end of a step."""


class Context(Protocol):
    """A hold on one conversation, as the model's context is made from."""

    async def fold(self, chars: int, read: Callable[[], Awaitable[ReadBack]]) -> TranscriptFold:
        """The conversation, with all that this process adds to it; `read` reads it back if need be."""

    def release(self) -> None: ...


class RunRecorder:
    """One run's pen. `context_chars` bounds how much of the conversation's end is read back."""

    def __init__(
        self,
        store: Store,
        context: Context,
        session_id: SessionId,
        lease: Lease,
        workspace: Path,
        context_chars: int,
    ) -> None:
        self._store = store
        self._context = context
        self.session_id = session_id
        self._fence = lease.fence
        self._context_chars = context_chars
        self._fold: TranscriptFold | None = None
        self._turn = 0
        self.unsaved = UnsavedOutput()
        self.run_id: RunId = lease.run_id
        self.workspace = workspace
        self._stopping = False

    def release(self) -> None:
        """Nothing more of the run is asked for here."""
        self._context.release()

    def stop(self) -> None:
        """Go no further than the step under way."""
        self._stopping = True

    async def record(self, decide: Decide) -> Facts:
        decided: list[Facts] = []

        def keep(view: View) -> Facts:
            decided[:] = [decide(view)]
            return decided[0]

        await self._store.append(Append(self.session_id, keep, fence=self._fence))
        facts = decided[0]
        for fact in facts:
            if not isinstance(fact, Unknown):
                self.unsaved.note(fact)
        return facts

    def stream(self, delta: Delta) -> bool:
        self.unsaved.add(delta, self._store.submit(Append(self.session_id, (delta,), fence=self._fence)))
        return self._store.has_room

    async def room(self) -> None:
        await self._store.room()

    def pause(self) -> None:
        if self._stopping:
            raise Stopped

    async def transcript(self) -> Transcript:
        if self._fold is None:
            self._turn = (await self._store.run(self.run_id))[1].turn
            self._fold = await self._context.fold(self._context_chars, self._read_back)
        transcript = self._fold.transcript()
        # What waits in the queue is not said yet, as far as this run is concerned.
        return replace(transcript, turns=tuple(each for each in transcript.turns if each.turn <= self._turn))

    async def output_of(self, tool: ToolRow) -> OutputFold:
        events: list[Event] = []

        def look(view: View) -> Facts:
            row = view.message(tool.turn, tool.place)
            events.extend(view.written(row) if row is not None else ())
            return ()

        await self.record(look)
        self.unsaved.open(tool.id, tool.turn, tool.place)
        return output_of(events)

    async def file(self, blob: str) -> bytes | None:
        try:
            return await self._store.get_blob(blob)
        except NoSuchBlob:
            return None

    async def _read_back(self) -> ReadBack:
        """The newest pages, until there is more than any context can hold; small ones first."""
        heads: set[Seq] = set()
        fold, before, chars, limit, first = TranscriptFold(), None, 0, FIRST_PAGE_MESSAGES, 0
        tools = await self._store.tools(self.session_id, self.run_id)
        while True:
            page = await self._store.messages(self.session_id, before, limit)
            fold.add_page(page.messages, tools)
            chars += _size(page)
            heads.add(page.head)
            first = page.messages[0].row.turn if page.messages else first
            before, limit = page.before, min(2 * limit, PAGE_MESSAGES_MAX)
            if before is None or chars > self._context_chars:
                break
        # What those turns were given is no message; without it a later request would begin differently.
        for event in await self._store.prepared(self.session_id, first):
            fold.add(event)
        return ReadBack(fold, heads.pop() if len(heads) == 1 else None, chars, before is None)


def _size(page: MessagePage) -> int:
    return sum(len(event.body) for message in page.messages for event in message.events)
