"""What the engine needs of an agent: to carry out a run, and to keep contexts and files."""

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


class Worker(Protocol):
    """Carries out one run by what the journal says of it; may be called again for the same run."""

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Be sure that the files among `parts` can be shown to the model. Raises FileNotSupported."""

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Whether nothing of an earlier try at a call is still at work."""

    async def run(self, recorder: RunRecorder) -> Literal["completed", "waiting"]: ...

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """The older part of a conversation in a few words, if it fills more than `above` of the window and
        someone can be asked. `transcript` reads so much of its end. Raises a HoldfastError.
        """


class ConversationContexts(Protocol):
    """Conversations that are held ready for the next run. Counts how often that was of use."""

    def on_change(self, change: CommittedChange) -> None:
        """Told of every change that this process makes, in order."""

    def acquire(self, session_id: SessionId, *, is_run: bool = True) -> ConversationContext:
        """Take hold of one. Only a run's use of it counts."""

    async def evict_idle(self) -> None:
        """Let go of what nobody has used for a while."""

    async def close(self, timeout_s: float) -> None:
        """Give everything back, at most so long after."""

    @property
    def hits(self) -> int: ...

    @property
    def rebuilds(self) -> Mapping[str, int]:
        """How often something was built anew, by why it was."""

    @property
    def entries(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


ReadBlob = Callable[[str], Awaitable[bytes]]
"""The content with that digest. Raises NoSuchBlob, StoreFault."""


class WorkspaceFiles(Protocol):
    """Workspaces, as whoever puts files back needs them."""

    async def restore(self, files: Sequence[FileRestore], read: ReadBlob) -> FileRestoreResult:
        """Put them back as they were before, all or none; some only if others are changed meanwhile.

        What they held is read one by one. Never reaches out of their workspaces. A file that is so already
        counts as put back.
        """


class NoWorkspaceFiles:
    """Where nobody can reach into workspaces."""

    async def restore(self, files: Sequence[FileRestore], read: ReadBlob) -> FileRestoreResult:
        return FileRestoreResult((), tuple((file.path, "there is nobody to put it back") for file in files))


NO_WORKSPACE_FILES = NoWorkspaceFiles()

WorkerFactory = Callable[[SessionRow], Worker]
"""Who answers in a session."""
