"""The ports of memory: a provider, the memory queue, and the models that it calls.

Holdfast commits segments of conversation to a provider, each with a key, and recalls memories from it. A
provider may be slow, wrong or unreachable: nothing that a person waits for depends on it.
`memory.conformance` defines what `Provider` means.
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
    """A message of a segment; `name` is a tool's."""

    id: str
    role: Role
    at: Instant
    text: str
    name: str = ""


class Segment(msgspec.Struct, frozen=True):
    """Turns of one conversation to commit. The same key means the same segment, committed again."""

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
    """A memory provider. Every method may raise ProviderFailure, or ProviderCannot if it is not supported.

    A scope separates the memories of agents: it is an agent's name, empty for the main agent.
    """

    @property
    def name(self) -> str: ...

    @property
    def takes_key(self) -> bool:
        """Return whether a second commit with the same key changes nothing."""

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        """Return memories relevant to `query`, the best first."""

    async def commit(self, segment: Segment) -> str:
        """Remember what matters of a segment and return a receipt. All or nothing, and durable on return."""

    async def retract(self, key: str, receipt: str) -> None:
        """Forget what one segment added; `receipt` is empty if Holdfast received none."""

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        """Remember `text` word for word; the same key returns the same memory."""

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage: ...

    async def edit(self, memory_id: str, text: str) -> Memory:
        """Replace the text of a memory. Also raises NoSuchMemory, TooLarge."""

    async def forget(self, memory_id: str) -> None:
        """Forget one memory. Also raises NoSuchMemory."""

    async def health(self) -> Health:
        """Return whether the provider works; never raise."""

    async def close(self) -> None: ...


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent that commits a conversation, as a configuration from which a restart rebuilds its provider.

    It holds no secrets: `key` says where the model's key is.
    """

    provider: str
    agent: str = ""
    model: str = ""
    base_url: str = ""
    key: str = ""
    options: Mapping[str, str] = msgspec.field(default_factory=dict)


BuildProvider = Callable[[Owner], Awaitable[Provider]]
"""Return an owner's provider, building it if needed. Raises OwnerGone."""


class MemoryQueue(Protocol):
    """The part of the store that memory uses."""

    @property
    def own_process(self) -> ProcessId: ...

    def is_alive(self, process_id: ProcessId) -> bool: ...

    async def change(self, session_id: SessionId, decide: Decide, number: int = 0) -> Facts:
        """Commit what `decide` returns and return it. Raises NoSuchSession, StoreFault, what `decide` raises.

        `number` is the store's own number of the conversation, which also identifies a deleted one.
        """

    async def entries(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]: ...

    async def pending_for(self, session_id: SessionId) -> Sequence[QueuedCommit]: ...

    async def pending_entries(self, limit: int) -> Sequence[QueuedCommit]: ...

    async def entries_to_show(self, limit: int) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        """Return pending entries, the oldest first, and those that cannot be retracted, the newest first."""

    async def due_entries(
        self, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]: ...

    async def pending_totals(self) -> tuple[int, Instant]: ...

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int
    ) -> Sequence[MessageWithEvents]: ...

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None: ...

    async def item(self, kind: str, item_id: str) -> bytes | None: ...


AskModel = Callable[[str, str], Awaitable[str]]
"""Return a model's whole answer to instructions and a text. Raises ModelInputTooLong if they exceed the
context window, and HoldfastError."""
EmbedTexts = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Return an embedding of each text, in their order. Raises ProviderFailure."""
