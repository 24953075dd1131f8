"""One cached conversation: what the model is sent of it, kept level with the journal, and its baseline.

It is read back from the store once, and goes along with every change of this process after that. Whatever
another process changes shows in the next change of this one: the versions do not meet, and the entry is
stale. Another's change that does not move the version (a title, a receipt) leaves a gap in the numbers, and
that is all right, with one exception: what another process has begun to write, and this one ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import DELTA_KINDS
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.state.changes import Change, ReadBack
from holdfast.domain.transcript.transcript import TranscriptFold

Why = Literal["new", "foreign", "evicted", "stale", "configuration"]
"""Why a conversation is read back: it was never held; another process changed it; it was let go, or has grown
too large; what happened to it is not known; or the model can be shown more of it than was read."""
Read = Callable[[], Awaitable[ReadBack]]

_READS_MAX = 3
_ENDINGS = frozenset({"run_interrupted", "run_cancelled", "run_failed"})


class Entry:
    """One conversation. Belongs to one event loop; nothing here waits but `build`."""

    def __init__(self, session_id: SessionId, why: Why) -> None:
        self.session_id = session_id
        self.users = 0
        self.used_at: Instant = 0
        self.size_bytes = 0
        self._at = Baseline(session_id, state="building")
        self._live: Seq | None = None
        self._head: Seq = 0
        self._fold: TranscriptFold | None = None
        self._why: Why = why
        self._chars = 0
        self._built_bytes = 0
        self._is_all = False
        self._is_reading = False
        self._last: tuple[Seq, Seq | None] = 0, None
        """Where our last change left the session: its head, and the context version there."""
        self._incarnation: int | None = None
        self._waiting: list[Change] = []
        self.building = asyncio.Lock()
        """Held while it is built, by whoever builds it; others wait for that."""

    def why_not(self, chars: int) -> Why | None:
        """Why it cannot be used for a model that makes use of `chars`; None if it can."""
        if self._fold is None or not may_reuse(self._at, self.session_id, self._live):
            return self._why
        if self._fold.is_short:
            return "stale"
        if chars > self._chars and not self._is_all:
            return "configuration"
        if self.size_bytes > self._built_bytes + 2 * chars:
            return "evicted"
        return None

    @property
    def is_overtaken(self) -> bool:
        """Whether another process has changed it, and it was not read back since."""
        return self._at.state == "stale" and self._why == "foreign"

    @property
    def fold(self) -> TranscriptFold:
        assert self._fold is not None, f"{self.session_id} has been built"
        return self._fold

    def note(self, change: Change) -> None:
        """Go along with a change of this process. What comes while it is being built is added afterwards."""
        if self._is_reading:
            self._waiting.append(change)
        elif self._fold is not None:
            self._take_in(change)
        self._last = change.last_seq, change.context_after
        self._incarnation = change.incarnation

    async def build(self, chars: int, read: Read) -> None:
        """Read it back. One that went on while it was read is read again, and if it does so each time, is
        good for this once."""
        self.close()
        self._is_reading = True
        try:
            for _ in range(_READS_MAX):
                known, self._waiting, incarnation = dict([self._last]), [], self._incarnation
                back = await read()
                if back.head is not None:
                    break
        finally:
            self._is_reading = False
        self._fold, self._head = back.fold, back.head or 0
        self.size_bytes = self._built_bytes = back.size_bytes
        self._chars, self._is_all = chars, back.is_all
        self._begin(back.head, known, incarnation)

    def close(self) -> None:
        """Let go of what it holds. Whoever still works with it has it until the end."""
        self._fold, self.size_bytes = None, 0
        self._at = Baseline(self.session_id, state="building")

    def _begin(self, head: Seq | None, known: dict[Seq, Seq | None], incarnation: int | None) -> None:
        """Where it stands when it has been read; then what has happened since, in order.

        If the version there is not `known`, the next change tells it.
        """
        changes, self._waiting = self._waiting, []
        known |= {change.last_seq: change.context_after for change in changes}
        self._live = known.get(head) if head is not None else None
        self._at = Baseline(self.session_id, self._live, incarnation=incarnation)
        if head is None:
            self._doubt("stale")
        for change in changes:
            if head is not None and change.last_seq > head:
                self._take_in(change)

    def _take_in(self, change: Change) -> None:
        is_next = change.first_seq == self._head + 1
        if change.context_before is None or (self._at.version is None and not is_next):
            self._doubt("stale")
        self._live = change.context_after
        was_ready = self._at.state == "ready"
        self._at = moved(
            self._at, change.session_id, change.context_before, change.context_after, change.incarnation
        )
        if was_ready and self._at.state == "stale":
            self._why = "foreign"
        if not is_next and any(event.kind in _ENDINGS for event in change.events):
            self._doubt("foreign")
        if any(event.kind == "turns_restored" for event in change.events):
            self._doubt("stale")  # What was restored may never have been read.
        self._head = max(self._head, change.last_seq)
        self._add(change)

    def _add(self, change: Change) -> None:
        fold, added = self.fold, False
        try:
            for event in change.events:
                fold.add(event)
                self.size_bytes += 0 if event.kind in DELTA_KINDS else len(event.body)
            added = True
        finally:
            if not added:
                self._doubt("stale")

    def _doubt(self, why: Why) -> None:
        if self._at.state == "ready":
            self._at, self._why = replace(self._at, state="stale"), why


class Baseline(msgspec.Struct, frozen=True):
    """Which conversation a cache's entry is of, and the context version that it holds.

    Without a conversation, it is not known whose it is; without a version, not how far it has come. The
    incarnation tells it from one of the same id that was deleted: that one may have come just as far.
    """

    session_id: SessionId | None = None
    version: Seq | None = None
    state: Literal["building", "ready", "stale"] = "ready"
    incarnation: int | None = None


def may_reuse(baseline: Baseline, session_id: SessionId, live: Seq | None) -> bool:
    """Whether an entry still says what the journal does, where `session_id` has come to `live`.

    `live` is None when that cannot be read: there is nothing then that speaks against it.
    """
    if baseline.state != "ready":
        # One that is being built is made of what there is now; whoever comes waits for it.
        return baseline.state == "building"
    if baseline.session_id not in (None, session_id):
        # How far another conversation has come says nothing of this one.
        return True
    return baseline.version is None or live is None or baseline.version == live


def moved(
    baseline: Baseline,
    session_id: SessionId,
    before: Seq | None,
    after: Seq | None,
    incarnation: int | None = None,
) -> Baseline:
    """The baseline after a change of this process took `session_id` from the version `before` to `after`.

    It goes along if nobody else has changed what the model is shown; otherwise the entry is stale, and stays
    so until it is built anew.
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
