"""Cache one conversation's context, and keep it consistent with the journal by its baseline.

The entry is read from the store once; after that, it applies every change of this process. A change of
another process shows in the next one of this process: their versions differ, and the entry is stale. A change
that does not move the version (a title, a receipt) leaves a harmless gap in the numbers. One case is not
harmless: another process began a message, and this one ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import DELTA_KINDS
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.state.changes import CommittedChange, LoadedContext
from holdfast.domain.transcript.transcript import TranscriptFold

RebuildReason = Literal["new", "foreign", "evicted", "stale", "configuration"]
"""The reason for reading a conversation again.

It is new to the cache; another process changed it; it was evicted or has grown too large; its state is
unknown; or the model's window holds more than was read.
"""
LoadContext = Callable[[], Awaitable[LoadedContext]]

_READS_MAX = 3
_ENDINGS = frozenset({"run_interrupted", "run_cancelled", "run_failed"})


class CachedContext:
    """One conversation. Belongs to one event loop; only `build` awaits."""

    def __init__(self, session_id: SessionId, reason: RebuildReason) -> None:
        self.session_id = session_id
        self.users = 0
        self.used_at: Instant = 0
        self.size_bytes = 0
        self._baseline = Baseline(session_id, state="building")
        self._live_version: Seq | None = None
        self._head: Seq = 0
        self._fold: TranscriptFold | None = None
        self._rebuild_reason: RebuildReason = reason
        self._chars = 0
        self._built_bytes = 0
        self._is_complete = False
        self._is_reading = False
        self._last_change: tuple[Seq, Seq | None] = 0, None
        """The head after this process's last change, and the context version there."""
        self._incarnation: int | None = None
        self._waiting_changes: list[CommittedChange] = []
        self.build_lock = asyncio.Lock()
        """Held by the run that builds the entry; other runs wait for it."""

    def rebuild_reason(self, chars: int) -> RebuildReason | None:
        """Return why a model that uses `chars` cannot use the entry; None if it can."""
        if self._fold is None or not may_reuse(self._baseline, self.session_id, self._live_version):
            return self._rebuild_reason
        if self._fold.lacks_turns:
            return "stale"
        if chars > self._chars and not self._is_complete:
            return "configuration"
        if self.size_bytes > self._built_bytes + 2 * chars:
            return "evicted"
        return None

    @property
    def is_changed_elsewhere(self) -> bool:
        """Return whether another process has changed the conversation since it was read."""
        return self._baseline.state == "stale" and self._rebuild_reason == "foreign"

    @property
    def fold(self) -> TranscriptFold:
        assert self._fold is not None, f"{self.session_id} has been built"
        return self._fold

    def on_change(self, change: CommittedChange) -> None:
        """Apply a change of this process. During a build, queue it until the build is done."""
        if self._is_reading:
            self._waiting_changes.append(change)
        elif self._fold is not None:
            self._apply(change)
        self._last_change = change.last_seq, change.context_after
        self._incarnation = change.incarnation

    async def build(self, chars: int, read: LoadContext) -> None:
        """Read the conversation; again if it changes meanwhile, up to a limit.

        After the last read it is good for this use alone.
        """
        self.close()
        self._is_reading = True
        try:
            for _ in range(_READS_MAX):
                known, self._waiting_changes, incarnation = dict([self._last_change]), [], self._incarnation
                loaded = await read()
                if loaded.head is not None:
                    break
        finally:
            self._is_reading = False
        self._fold, self._head = loaded.fold, loaded.head or 0
        self.size_bytes = self._built_bytes = loaded.size_bytes
        self._chars, self._is_complete = chars, loaded.is_complete
        self._set_baseline(loaded.head, known, incarnation)

    def close(self) -> None:
        """Release what the entry holds. A run that still has the fold keeps it."""
        self._fold, self.size_bytes = None, 0
        self._baseline = Baseline(self.session_id, state="building")

    def _set_baseline(self, head: Seq | None, known: dict[Seq, Seq | None], incarnation: int | None) -> None:
        """Set the baseline to what was read, then apply the changes since.

        If the version at `head` is not in `known`, the next change supplies it.
        """
        changes, self._waiting_changes = self._waiting_changes, []
        known |= {change.last_seq: change.context_after for change in changes}
        self._live_version = known.get(head) if head is not None else None
        self._baseline = Baseline(self.session_id, self._live_version, incarnation=incarnation)
        if head is None:
            self._mark_stale("stale")
        for change in changes:
            if head is not None and change.last_seq > head:
                self._apply(change)

    def _apply(self, change: CommittedChange) -> None:
        is_next = change.first_seq == self._head + 1
        if change.context_before is None or (self._baseline.version is None and not is_next):
            self._mark_stale("stale")
        self._live_version = change.context_after
        was_ready = self._baseline.state == "ready"
        self._baseline = advance(
            self._baseline, change.session_id, change.context_before, change.context_after, change.incarnation
        )
        if was_ready and self._baseline.state == "stale":
            self._rebuild_reason = "foreign"
        if not is_next and any(event.kind in _ENDINGS for event in change.events):
            self._mark_stale("foreign")
        if any(event.kind == "turns_restored" for event in change.events):
            self._mark_stale("stale")  # The entry may never have read the restored turns.
        self._head = max(self._head, change.last_seq)
        self._fold_events(change)

    def _fold_events(self, change: CommittedChange) -> None:
        fold, added = self.fold, False
        try:
            for event in change.events:
                fold.add(event)
                self.size_bytes += 0 if event.kind in DELTA_KINDS else len(event.body)
            added = True
        finally:
            if not added:
                self._mark_stale("stale")

    def _mark_stale(self, reason: RebuildReason) -> None:
        if self._baseline.state == "ready":
            self._baseline, self._rebuild_reason = replace(self._baseline, state="stale"), reason


class Baseline(msgspec.Struct, frozen=True):
    """The conversation of a cache entry, and the context version that the entry holds.

    Without a conversation, its identity is unknown; without a version, its progress. The incarnation tells it
    from a deleted conversation with the same id, which may have the same version.
    """

    session_id: SessionId | None = None
    version: Seq | None = None
    state: Literal["building", "ready", "stale"] = "ready"
    incarnation: int | None = None


def may_reuse(baseline: Baseline, session_id: SessionId, live: Seq | None) -> bool:
    """Return whether an entry matches the journal, where `session_id` is at the version `live`.

    `live` is None if the version is unknown: nothing then contradicts the entry.
    """
    if baseline.state != "ready":
        # A build reads the current journal, and other runs wait for it.
        return baseline.state == "building"
    if baseline.session_id not in (None, session_id):
        # The version of another conversation says nothing about this one.
        return True
    return baseline.version is None or live is None or baseline.version == live


def advance(
    baseline: Baseline,
    session_id: SessionId,
    before: Seq | None,
    after: Seq | None,
    incarnation: int | None = None,
) -> Baseline:
    """Return the baseline after this process took `session_id` from version `before` to `after`.

    It advances if no other process has changed the context; otherwise the entry is stale until it is rebuilt.
    """
    if baseline.state != "ready" or baseline.session_id not in (None, session_id):
        return baseline
    if None not in (known := baseline.incarnation, incarnation) and known != incarnation:
        return replace(baseline, state="stale")
    if baseline.session_id is None or baseline.version is None:
        return Baseline(session_id, after, incarnation=incarnation)
    if before != baseline.version or after is None:
        return replace(baseline, state="stale")
    return replace(baseline, version=after)
