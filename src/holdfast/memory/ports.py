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
from holdfast.domain.state.rows import Debt, DebtRow
from holdfast.domain.state.session_state import Decide, Facts
from holdfast.domain.transcript.transcript import Page


class OwnerGone(HoldfastError):
    """Whoever is to tell memory of this is no longer there: {detail}."""

    code, status = "owner_gone", 409


class AskedTooMuch(ProviderFailure):
    """Memory failed: {detail}."""


class Said(msgspec.Struct, frozen=True):
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
    messages: tuple[Said, ...]


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


Build = Callable[[Owner], Awaitable[Provider]]
"""Makes an owner's provider, or finds the one that is there. Raises OwnerGone."""


class Ledger(Protocol):
    """The store, as telling memory needs it."""

    @property
    def own_process(self) -> ProcessId: ...

    def is_alive(self, process_id: ProcessId) -> bool: ...

    async def change(self, session_id: SessionId, decide: Decide, number: int = 0) -> Facts:
        """Commit what `decide` says and return it. Raises NoSuchSession, StoreFault, what `decide` raises.

        `number`: of the conversation that the store has it for, also if it was deleted.
        """

    async def debts(self, session_id: SessionId, buried: bool = False) -> Sequence[DebtRow]: ...

    async def owing(self, session_id: SessionId) -> Sequence[Debt]: ...

    async def open_debts(self, limit: int) -> Sequence[Debt]: ...

    async def shown_debts(self, limit: int) -> tuple[Sequence[Debt], Sequence[Debt]]:
        """Return the open ones, the oldest first, and those that cannot be forgotten, the newest first."""

    async def due_debts(
        self, quiet_since: Instant, now: Instant, limit: int, resting: Sequence[str] = ()
    ) -> Sequence[Debt]: ...

    async def debt_totals(self) -> tuple[int, Instant]: ...

    async def told(self, session_id: SessionId, turns: Ranges, number: int) -> Sequence[Page]: ...

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None: ...

    async def item(self, kind: str, item_id: str) -> bytes | None: ...


Asking = Callable[[str, str], Awaitable[str]]
"""A model's whole answer to instructions and a text. Raises AskedTooMuch where that does not fit its window,
and HoldfastError."""
Embedding = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Where texts lie in meaning, in their order. Raises ProviderFailure."""
