"""Facts about commits to memory and their outcomes."""

from typing import Literal

from holdfast.domain.clock import Instant
from holdfast.domain.events.base import Actor, Fact, Failure, Ranges
from holdfast.domain.ids import ProcessId


class MemoryCommitStarted(Fact, frozen=True):
    """A commit of `segment` to memory started. From here on its turns and its key are fixed.

    `owner` names the agent that commits it; `digest` is the digest of its content. `attempt` fences every
    earlier try; `process_id` makes this one. `takes_key`: a repeat under that key changes nothing.
    """

    segment: int
    key: str
    turns: Ranges
    owner: str
    digest: str
    attempt: int
    process_id: ProcessId
    takes_key: bool = False


class MemoryCommitted(Fact, frozen=True):
    segment: int
    key: str
    from_turn: int
    through_turn: int
    receipt: str = ""


class MemoryCommitFailed(Fact, frozen=True):
    """A commit failed; the next try is at `retry_at`."""

    segment: int
    key: str
    from_turn: int
    through_turn: int
    failure: Failure
    retry_at: Instant = 0


class MemoryInDoubt(Fact, frozen=True):
    """The process that made the commit is gone, and the provider cannot say whether it succeeded."""

    segment: int
    key: str
    from_turn: int
    through_turn: int


class MemoryResolved(Fact, frozen=True):
    """A decision on a segment: retry it, take it as committed, or drop it."""

    segment: int
    decision: Literal["retry", "done", "drop"]
    by: Actor = "user"


class MemoryForgotten(Fact, frozen=True):
    """The outcome of retracting turns that were undone after their commit.

    `cannot`: the provider is unable to. Once it is done, the turns of the segment that are still live join
    the queue again.
    """

    segment: int
    key: str
    outcome: Literal["done", "failed", "cannot"]
    failure: Failure | None = None
    retry_at: Instant = 0
