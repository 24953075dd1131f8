"""What a memory provider is, and what telling it needs of the world.

A provider is told of stretches of conversation, each with a key, and is asked what it knows. It may be slow,
wrong or away: nothing that a person waits for depends on it. `memory.conformance` is what `Provider` means.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError
from holdfast.domain.errors import ProviderCannot as ProviderCannot
from holdfast.domain.errors import ProviderFailure as ProviderFailure
from holdfast.domain.events.facts import Ranges, Role
from holdfast.domain.ids import ProcessId, SessionId
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow
from holdfast.domain.state.session_state import Decide, Facts
from holdfast.domain.transcript.transcript import MessageWithEvents


class OwnerGone(HoldfastError):
    """Whoever is to tell memory of this is no longer there: {detail}."""

    code, status = "owner_gone", 409


class ModelInputTooLong(ProviderFailure):
    """Memory failed: {detail}."""


class SegmentMessage(msgspec.Struct, frozen=True):
    """A message as memory is told of it; `name` is a tool's."""

    id: str
    role: Role
    at: Instant
    text: str
    name: str = ""


class Segment(msgspec.Struct, frozen=True):
    """A stretch of conversation that memory is told of. The same key is the same stretch, told again."""

    key: str
    session_id: SessionId
    title: str
    scope: str
    turns: Ranges
    messages: tuple[SegmentMessage, ...]


class Health(msgspec.Struct, frozen=True):
    ok: bool
    detail: str = ""


class Provider(Protocol):
    """Something that remembers. Every method may raise ProviderFailure; ProviderCannot where it has no way.

    A scope is whose memory it is: an agent's name, empty for the agent that every server has.
    """

    @property
    def name(self) -> str: ...

    @property
    def takes_key(self) -> bool:
        """Whether being told the same key again changes nothing."""

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        """What may matter to someone who says `query`, the best first."""

    async def commit(self, segment: Segment) -> str:
        """Remember what matters of a stretch; returns a receipt. All or nothing, and lasting on return."""

    async def retract(self, key: str, receipt: str) -> None:
        """Forget what one stretch brought, if anything; `receipt` is empty if none came back."""

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        """Remember one thing, word for word; the same key again is the same memory."""

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage: ...

    async def edit(self, memory_id: str, text: str) -> Memory:
        """Raises NoSuchMemory, TooLarge too."""

    async def forget(self, memory_id: str) -> None:
        """Raises NoSuchMemory too."""

    async def health(self) -> Health:
        """Never raises."""

    async def close(self) -> None: ...


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent as far as telling memory goes, in a form that it can be made again from after a restart.

    Secrets are named, never held: `key` says where the model's key is to be found.
    """

    provider: str
    agent: str = ""
    model: str = ""
    base_url: str = ""
    key: str = ""
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


BuildProvider = Callable[[Owner], Awaitable[Provider]]
"""Makes an owner's provider, or finds the one that is there. Raises OwnerGone."""


class MemoryQueue(Protocol):
    """The store, as telling memory needs it."""

    @property
    def own_process(self) -> ProcessId: ...

    def is_alive(self, process_id: ProcessId) -> bool: ...

    async def change(self, session_id: SessionId, decide: Decide, number: int = 0) -> Facts:
        """Commit what `decide` says and return it. Raises NoSuchSession, StoreFault, what `decide` raises.

        `number`: of the conversation that the store has it for, also if it was deleted.
        """

    async def entries(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]: ...

    async def pending_for(self, session_id: SessionId) -> Sequence[QueuedCommit]: ...

    async def pending_entries(self, limit: int) -> Sequence[QueuedCommit]: ...

    async def entries_to_show(self, limit: int) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        """Return the open ones, the oldest first, and those that cannot be forgotten, the newest first."""

    async def due_entries(
        self, quiet_since: Instant, now: Instant, limit: int, excluded_owners: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]: ...

    async def pending_totals(self) -> tuple[int, Instant]: ...

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int
    ) -> Sequence[MessageWithEvents]: ...

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None: ...

    async def item(self, kind: str, item_id: str) -> bytes | None: ...


AskModel = Callable[[str, str], Awaitable[str]]
"""A model's whole answer to instructions and a text. Raises ModelInputTooLong where that does not fit its window,
and HoldfastError."""
EmbedTexts = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Where texts lie in meaning, in their order. Raises ProviderFailure."""
