"""What a change did to a session, and what was read back of one: for whoever keeps conversations ready."""

from collections.abc import Sequence

import msgspec

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.transcript.transcript import TranscriptFold


class CommittedChange(msgspec.Struct, frozen=True):
    """One change of this process, as it was committed: its events, and the context version around it.

    A change without events has the session's head as its `last_seq`, and what follows that as its
    `first_seq`. The versions are None where nobody asked for them, as in an import. `incarnation` differs
    between a session and one that has its id after it was deleted.
    """

    session_id: SessionId
    first_seq: Seq
    last_seq: Seq
    context_before: Seq | None
    context_after: Seq | None
    events: Sequence[Event] = ()
    incarnation: int | None = None


class LoadedContext(msgspec.Struct, frozen=True):
    """The end of a conversation as the store had it, once its journal had come to `head`.

    `head` is None when it went on while it was read. `size_bytes` is how much was read, `is_all` says that
    nothing comes before it.
    """

    fold: TranscriptFold
    head: Seq | None
    size_bytes: int
    is_complete: bool
