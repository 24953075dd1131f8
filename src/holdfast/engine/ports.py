"""Ports of the engine to agents: run a worker, cache contexts, restore workspace files."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.decisions.file_changes import FileRestore, FileRestoreResult
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.transcript import Transcript
from holdfast.engine.recorder import ConversationContext, RunRecorder


class SessionAgent(Protocol):
    """Execute one run from its journal. The engine may call it again for the same run."""

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raise FileNotSupported if the model cannot read one of the files among `parts`."""

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Return whether nothing of an earlier attempt at a call is still running."""

    async def run(self, recorder: RunRecorder) -> Literal["completed", "waiting"]: ...

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """Summarise the older turns if they fill more than `threshold` of the window.

        Return None without a model to ask. `transcript` reads that many characters from the end of the
        conversation. Raises a HoldfastError.
        """


class ConversationContexts(Protocol):
    """A cache of conversations for their next runs. Counts its hits and rebuilds."""

    def on_change(self, change: CommittedChange) -> None:
        """Apply a change of this process. The store passes every change, in order."""

    def acquire(self, session_id: SessionId, *, is_run: bool = True) -> ConversationContext:
        """Acquire a conversation's context. Only a run's use counts as a hit or a rebuild."""

    async def evict_idle(self) -> None:
        """Evict contexts that nothing has used for a while."""

    async def close(self, timeout_s: float) -> None:
        """Release everything within `timeout_s`."""

    @property
    def hits(self) -> int: ...

    @property
    def rebuilds(self) -> Mapping[str, int]:
        """Return the number of rebuilds by reason."""

    @property
    def entry_count(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


ReadBlob = Callable[[str], Awaitable[bytes]]
"""Return the content with that digest. Raises NoSuchBlob, StoreFault."""


class WorkspaceFiles(Protocol):
    """Access to the files in workspaces."""

    async def restore(self, files: Sequence[FileRestore], read: ReadBlob) -> FileRestoreResult:
        """Restore all files or none; only some if another program changes files meanwhile.

        Reads their earlier contents one by one. Never writes outside their workspaces. A file that already
        has its earlier content counts as restored.
        """


class NoWorkspaceFiles:
    """Workspace files of an engine without access to workspaces: restores none."""

    async def restore(self, files: Sequence[FileRestore], read: ReadBlob) -> FileRestoreResult:
        return FileRestoreResult((), tuple((file.path, "there is nobody to put it back") for file in files))


NO_WORKSPACE_FILES = NoWorkspaceFiles()

AgentForSession = Callable[[SessionRow], SessionAgent]
"""Return the worker that answers in a session."""
