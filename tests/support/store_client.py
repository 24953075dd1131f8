"""Record what a client tried to store and what was acknowledged, to compare with the store after a crash."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.facts import DELTA_KINDS, Delta
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.store.ports import Append, AppendReceipt, Fence
from holdfast.store.sqlite.store import SqliteStore

LEASE_MS = 1 << 40
"""A lease that never expires: only the death of its holder releases a run."""


class AttemptedChange(msgspec.Struct):
    """One transaction as its client sees it: per session, the digests of its events in order."""

    number: int
    digests: dict[SessionId, list[str]]
    """The digest of a delta begins with `~`: it may be pruned once its body is settled."""


class ChangeObserver(Protocol):
    """Observe every change before it can be stored, and every receipt. Called from any thread."""

    def on_attempt(self, change: AttemptedChange, session_id: SessionId) -> None: ...
    def on_stored(self, change: AttemptedChange, receipts: Sequence[AppendReceipt]) -> None: ...
    def on_delete(self, session_id: SessionId) -> None: ...
    def on_claim(self, run_id: RunId) -> None: ...


class NullObserver:
    """Ignore every change."""

    def on_attempt(self, change: AttemptedChange, session_id: SessionId) -> None:
        return

    def on_stored(self, change: AttemptedChange, receipts: Sequence[AppendReceipt]) -> None:
        return

    def on_delete(self, session_id: SessionId) -> None:
        return

    def on_claim(self, run_id: RunId) -> None:
        return


def digest_of(kind: str, version: int, body: bytes) -> str:
    """Return a digest of an event."""
    digest = hashlib.blake2b(b"%s.%d." % (kind.encode(), version), digest_size=8)
    digest.update(body)
    return ("~" if kind in DELTA_KINDS else "") + digest.hexdigest()


def digest_of_event(event: Event) -> str:
    return digest_of(event.kind, event.version, event.body)


class _StreamedChange(msgspec.Struct):
    change: AttemptedChange
    session_id: SessionId
    delta: Delta
    texts: list[str]


class ObservedClient:
    """Append to a store, and notify an observer."""

    def __init__(self, store: SqliteStore, observer: ChangeObserver) -> None:
        self.store = store
        self._observer = observer
        self._number = 0
        self._streams: dict[object, _StreamedChange] = {}

    async def append(self, *appends: Append) -> tuple[AppendReceipt, ...]:
        change = self._change()
        watched = [replace(append, facts=self._observed(change, append)) for append in appends]
        receipts = await self.store.append(*watched)
        if all(receipt.repeated_turn is None for receipt in receipts):
            self._observer.on_stored(change, receipts)
        return receipts

    def stream(self, session_id: SessionId, delta: Delta, fence: Fence | None = None) -> None:
        """Append a delta; merged deltas share a future and so become one change."""
        future = self.store.submit(Append(session_id, (delta,), fence=fence))
        stream = self._streams.get(future)
        if stream is None:
            self._streams[future] = _StreamedChange(self._change(), session_id, delta, [delta.text])
            future.add_done_callback(self._on_streamed)
        else:
            stream.texts.append(delta.text)

    async def delete(self, session_id: SessionId, decide: Callable[[SessionStateView], Facts]) -> None:
        self._observer.on_delete(session_id)
        await self.append(Append(session_id, decide))

    async def claim(self, run_id: RunId) -> Fence:
        lease = await self.store.claim(run_id, LEASE_MS)
        self._observer.on_claim(run_id)
        return lease.fence

    def _on_streamed(self, future: "asyncio.Future[tuple[AppendReceipt, ...]]") -> None:
        stream = self._streams.pop(future)
        # A refused delta (its run was cancelled) stores nothing and promises nothing.
        if future.exception() is None:
            joined = replace(stream.delta, text="".join(stream.texts))
            stream.change.digests[stream.session_id] = [digest_of(*encode(joined))]
            self._observer.on_stored(stream.change, future.result())

    def _change(self) -> AttemptedChange:
        self._number += 1
        return AttemptedChange(self._number, {})

    def _observed(self, change: AttemptedChange, append: Append) -> Callable[[SessionStateView], Facts]:
        def decide(view: SessionStateView) -> Facts:
            facts = append.facts(view) if callable(append.facts) else append.facts
            change.digests[append.session_id] = [digest_of(*encode(fact)) for fact in facts]
            # Inside the transaction: told before any of it can be on disk.
            self._observer.on_attempt(change, append.session_id)
            return facts

        return decide
