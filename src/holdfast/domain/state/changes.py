"""Committed changes and loaded conversations, as the caches of conversations need them."""

from collections.abc import Sequence

import msgspec

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.transcript.transcript import TranscriptFold


class CommittedChange(msgspec.Struct, frozen=True):
    """A change that this process committed: its events, and the context version before and after it.

    A change without events has the session's head as `last_seq`, and the seq after it as `first_seq`. The
    versions are None if the caller did not ask for them, as in an import. `incarnation` distinguishes a
    session from a later one with the same id.
    """

    session_id: SessionId
    first_seq: Seq
    last_seq: Seq
    context_before: Seq | None
    context_after: Seq | None
    events: Sequence[Event] = ()
    incarnation: int | None = None


class LoadedContext(msgspec.Struct, frozen=True):
    """The end of a conversation, as the store had it when its journal was at `head`.

    `head` is None if the journal grew during the read. `size_bytes` is the size of what was read.
    `is_complete`: the read reached the beginning.
    """

    fold: TranscriptFold
    head: Seq | None
    size_bytes: int
    is_complete: bool
