"""Record what a run does, under its lease."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from holdfast.domain.decisions import tools
from holdfast.domain.decisions.endings import streamed_output
from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.facts import Delta
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.events.tool_facts import ToolSettled
from holdfast.domain.files import file_parts, output_name
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.state.changes import LoadedContext
from holdfast.domain.state.rows import ToolRow
from holdfast.domain.state.session_state import Decide, Facts, SessionStateView
from holdfast.domain.transcript.transcript import Transcript, TranscriptFold
from holdfast.engine.instructions import InstructionStore
from holdfast.engine.load_context import load_context
from holdfast.engine.pending_deltas import PendingDeltas
from holdfast.store.ports import Append, Lease, Store


class ServerStopping(Exception):
    """The server is stopping, and the run has reached the end of a step."""


class ConversationContext(Protocol):
    """A hold on one conversation, from which the agent builds the model's context."""

    @property
    def is_changed_elsewhere(self) -> bool:
        """Return whether another process has changed the conversation since it was read."""

    async def fold(self, chars: int, read: Callable[[], Awaitable[LoadedContext]]) -> TranscriptFold:
        """Return the conversation with every change of this process; call `read` if it must be read."""

    def release(self) -> None: ...


class RunRecorder:
    """Append a run's events under its lease."""

    def __init__(
        self,
        store: Store,
        context: ConversationContext,
        session_id: SessionId,
        lease: Lease,
        workspace: Path,
        instructions: InstructionStore,
    ) -> None:
        self._store = store
        self._context = context
        self.session_id = session_id
        self._fence = lease.fence
        self._instructions = instructions
        self._fold: TranscriptFold | None = None
        self._turn = 0
        self.pending_deltas = PendingDeltas()
        self.run_id: RunId = lease.run_id
        self.workspace = workspace
        self._stopping = False
        self.has_written = False
        """True once this process has recorded something of the run; before, another's state stands."""

    def release(self) -> None:
        """Release the run's context. Nothing reads it through this recorder afterwards."""
        self._context.release()

    def stop(self) -> None:
        """Have the run stop after the step under way."""
        self._stopping = True

    async def record(self, decide: Decide) -> Facts:
        decided: list[Facts] = []

        def record_decision(view: SessionStateView) -> Facts:
            decided[:] = [decide(view)]
            self.has_written = self.has_written or bool(decided[0])
            return decided[0]

        await self._store.append(Append(self.session_id, record_decision, fence=self._fence))
        facts = decided[0]
        for fact in facts:
            if not isinstance(fact, UnknownFact):
                self.pending_deltas.on_committed(fact)
        return facts

    def stream(self, delta: Delta) -> bool:
        self.pending_deltas.add(
            delta, self._store.submit(Append(self.session_id, (delta,), fence=self._fence))
        )
        return self._store.has_capacity

    async def wait_for_capacity(self) -> None:
        await self._store.wait_for_capacity()

    def check_stopping(self) -> None:
        if self._stopping:
            raise ServerStopping

    async def transcript(self, chars: int) -> Transcript:
        if self._fold is None:
            self._turn = (await self._store.run(self.run_id))[1].turn
            self._fold = await self._context.fold(
                chars, lambda: load_context(self._store, self.session_id, self.run_id, chars)
            )
        transcript = self._fold.transcript()
        # Queued turns come after this run: it must not see their messages yet.
        return replace(transcript, turns=tuple(turn for turn in transcript.turns if turn.turn <= self._turn))

    async def streamed_output(self, tool: ToolRow) -> OutputFold:
        events: list[Event] = []

        def read(view: SessionStateView) -> Facts:
            row = view.message(tool.turn, tool.place)
            # Replaced, not extended: the store may run a decision more than once before it commits.
            events[:] = view.message_events(row) if row is not None else ()
            return ()

        await self.record(read)
        self.pending_deltas.open(tool.id, tool.turn, tool.place)
        return streamed_output(events)

    async def read_blob(self, blob: str) -> bytes | None:
        try:
            return await self._store.get_blob(blob)
        except NoSuchBlob:
            return None

    async def store_blob(self, content: bytes) -> str:
        return await self._store.put_blob(content)

    async def full_output(self, call_id: CallId) -> bytes | None:
        blobs: list[str] = []

        def read(view: SessionStateView) -> Facts:
            tool = view.tool(call_id)
            fact = (
                written[-1].fact if tool is not None and (written := tools.call_events(view, tool)) else None
            )
            files = file_parts(fact.parts) if isinstance(fact, ToolSettled) else []
            blobs[:] = [file.blob for file in files if file.name == output_name(call_id)]
            return ()

        await self.record(read)
        return await self.read_blob(blobs[-1]) if blobs else None

    async def save_instructions(self, text: str) -> str:
        return await self._instructions.save(text)

    async def find_instructions(self, digest: str) -> str | None:
        return await self._instructions.find(digest)
