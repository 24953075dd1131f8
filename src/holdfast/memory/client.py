"""Recall memories for a turn, register the owner of a conversation, and serve the memory tools.

No turn depends on anything here. After a provider was too slow or failed, no turn waits for it again until a
background probe was answered in time.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from holdfast.domain.clock import INSTANT_MAX, Clock, Instant, is_due
from holdfast.domain.errors import HoldfastError, MemoryOff, StoreFault
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import (
    PROVIDER_REQUEST_S_MAX,
    RECALL_BACKOFF_S,
    RECALLED_BYTES_MAX,
    RECALLED_MAX,
)
from holdfast.domain.memories import Memory, Origin, RecalledMemory
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.state.rows import SessionRow
from holdfast.memory.ports import Owner, Provider
from holdfast.memory.provider_calls import ProviderTimeout, call_with_timeout

RegisterOwner = Callable[[SessionId, Owner], Awaitable[str]]
"""Make an agent the owner of a session's commits from now on; return its digest. Raises StoreFault."""
LoadTitles = Callable[[Sequence[SessionId]], Awaitable[Mapping[SessionId, str]]]
"""Return the titles of those conversations that exist."""
QUERY_CHARS_MAX = 4_000
"""The start of a long message is enough for a query."""
PROBE_QUERY = "hello"
"""The query of the first probe."""


class SessionNotRemembered(HoldfastError):
    """This conversation is kept out of memory."""

    code, status = "not_remembered", 409
    remedy = "Its settings say so; they can be changed."


class MemoryClient:
    """Memory for the engine and the tools.

    `provider` returns the current provider, `owner` the current agent; both return None while memory is off.
    A turn's start waits at most `recall_s`. `recalls` counts outcomes: found, none, slow, failed, resting.
    """

    def __init__(
        self,
        get_provider: Callable[[], Provider | None],
        get_owner: Callable[[], Owner | None],
        register_owner: RegisterOwner,
        get_session: Callable[[SessionId], Awaitable[SessionRow]],
        titles: LoadTitles,
        clock: Clock,
        recall_s: float,
        mask: MaskFunction = no_mask,
    ) -> None:
        self._get_provider = get_provider
        self._get_owner = get_owner
        self._register_owner = register_owner
        self._get_session = get_session
        self._titles = titles
        self._clock = clock
        self._recall_s = recall_s
        self._mask = mask
        self._is_healthy = True
        self._retry_at: Instant = 0
        self._probe_task: asyncio.Task[None] | None = None
        self.recall_counts: Counter[str] = Counter()

    def probe(self) -> None:
        """Check in the background whether the provider answers in time."""
        provider = self._get_provider()
        if provider is not None:
            self._start_probe(provider, PROBE_QUERY, "")

    async def close(self) -> None:
        if self._probe_task is not None:
            self._probe_task.cancel()
            await asyncio.wait({self._probe_task})

    # For the engine.

    async def register_session(self, session_id: SessionId) -> str | None:
        return await self.register_owner(session_id, self._get_owner())

    async def register_owner(self, session_id: SessionId, owner: Owner | None) -> str | None:
        """Register `owner` and return its digest; empty if the store failed, None without an owner."""
        if owner is None:
            return None
        try:
            return await self._register_owner(session_id, owner)
        except StoreFault:
            # The turn stays pending all the same; its owner is resolved at the commit.
            return ""

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        provider, query = self._get_provider(), text.strip()[:QUERY_CHARS_MAX]
        if provider is None or not query:
            return ()
        try:
            session = await self._get_session(session_id)
        except HoldfastError:
            return ()
        return (
            await self._recall_texts(provider, query, session.agent, already_given)
            if session.remember
            else ()
        )

    async def _recall_texts(
        self, provider: Provider, query: str, scope: str, given: Collection[str]
    ) -> tuple[str, ...]:
        if not self._is_healthy:
            if is_due(self._retry_at, self._clock.now_ms(), RECALL_BACKOFF_S * 1000):
                self._start_probe(provider, query, scope)
            self.recall_counts["resting"] += 1
            return ()
        try:
            found = await self._call_recall(provider, query, scope, self._recall_s)
        except HoldfastError as error:
            self._back_off()
            self.recall_counts["slow" if isinstance(error, ProviderTimeout) else "failed"] += 1
            return ()
        texts = tuple(self._select_texts(found, given))
        self.recall_counts["found" if texts else "none"] += 1
        return texts

    def _start_probe(self, provider: Provider, query: str, scope: str) -> None:
        if self._probe_task is None or self._probe_task.done():
            self._probe_task = asyncio.create_task(self._run_probe(provider, query, scope))

    async def _run_probe(self, provider: Provider, query: str, scope: str) -> None:
        try:
            await self._call_recall(provider, query, scope, self._recall_s)
            self._is_healthy = True
        except HoldfastError:
            self._back_off()

    def _back_off(self) -> None:
        self._is_healthy = False
        self._retry_at = self._clock.now_ms() + RECALL_BACKOFF_S * 1000

    async def _call_recall(
        self, provider: Provider, query: str, scope: str, timeout_s: float
    ) -> tuple[Memory, ...]:
        return await call_with_timeout(
            tuple[Memory, ...], lambda: provider.recall(query, scope, RECALLED_MAX), timeout_s, RECALLED_MAX
        )

    def _select_texts(self, found: Sequence[Memory], given: Collection[str]) -> Iterator[str]:
        """Yield each text once while there is room. A text that does not fit is skipped, for shorter ones."""
        seen, room = set(given), RECALLED_BYTES_MAX
        for text in (self._mask(memory.text).strip() for memory in found):
            size = len(text.encode("utf-8", "replace"))
            if text and text not in seen and size <= room:
                seen.add(text)
                room -= size
                yield text

    # For the tools.

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        """Remember one text and return it as stored.

        Raises MemoryOff, SessionNotRemembered, ProviderFailure, ProviderCannot, TooLarge, StoreFault.
        """
        provider, session = await self._require_provider(session_id)
        masked, origin = self._mask(text), Origin("model", session_id, turn, turn)
        memory = await call_with_timeout(
            Memory, lambda: provider.remember(masked, session.agent, origin, key), PROVIDER_REQUEST_S_MAX
        )
        return memory.text

    async def search(self, query: str, session_id: SessionId) -> Sequence[RecalledMemory]:
        """Return memories that match `query`, with their sources.

        Raises MemoryOff, SessionNotRemembered, ProviderFailure, ProviderCannot, StoreFault.
        """
        provider, session = await self._require_provider(session_id)
        found = await self._call_recall(provider, query, session.agent, PROVIDER_REQUEST_S_MAX)
        titles = await self._titles(sorted({each.origin.session_id for each in found} - {""}))
        return [RecalledMemory(self._mask(each.text), _source(each, titles)) for each in found]

    async def _require_provider(self, session_id: SessionId) -> tuple[Provider, SessionRow]:
        provider, session = self._get_provider(), await self._get_session(session_id)
        if provider is None:
            raise MemoryOff()
        if not session.remember:
            raise SessionNotRemembered()
        return provider, session


class AgentMemoryClient:
    """Memory for the conversations of one agent, which owns their commits."""

    def __init__(self, client: MemoryClient, owner: Callable[[], Owner | None]) -> None:
        self._client = client
        self._owner = owner

    async def register_session(self, session_id: SessionId) -> str | None:
        return await self._client.register_owner(session_id, self._owner())

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        return await self._client.recall(session_id, text, already_given)


def _source(memory: Memory, titles: Mapping[SessionId, str]) -> str:
    origin, on = memory.origin, _day(memory.made_at)
    if origin.by == "user":
        return f"written down by the user{on}"
    if not origin.session_id:
        return f"where it comes from is not known{on}"
    title = titles.get(origin.session_id)
    where = f"from the conversation “{title}”" if title else "from an earlier conversation"
    return f"{where}{on}"


def _day(at: Instant) -> str:
    """Return `at` as a date for a source note; empty if it is out of range."""
    if not 0 < at <= INSTANT_MAX:
        return ""
    return f", {datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d}"
