"""Facts of telling memory what was said, and of what became of it."""

from typing import Literal

from holdfast.domain.clock import Instant
from holdfast.domain.events.base import Actor, Fact, Failure, Ranges
from holdfast.domain.ids import ProcessId


class MemoryCommitStarted(Fact, frozen=True):
    """Memory is being told of the stretch `segment`. From here on it is what it is: its turns, its key.

    `owner` names the agent that it is told by, `digest` says what it is told. `attempt` fences every earlier
    try; `process_id` makes this one. `takes_key`: to be told again under that key would change nothing.
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
    """Memory could not be told, and is told again at `retry_at`."""

    segment: int
    key: str
    from_turn: int
    through_turn: int
    failure: Failure
    retry_at: Instant = 0


class MemoryInDoubt(Fact, frozen=True):
    """Whoever told memory of it is gone, and the provider cannot be asked whether it was told."""

    segment: int
    key: str
    from_turn: int
    through_turn: int


class MemoryResolved(Fact, frozen=True):
    """A word on a stretch that memory is owed: tell it again, take it as told, or let it be."""

    segment: int
    decision: Literal["retry", "done", "drop"]
    by: Actor = "user"


class MemoryForgotten(Fact, frozen=True):
    """What became of taking back what memory was told of turns that were undone since.

    `cannot`: the provider has no way to. Turns of the stretch that still stand are owed anew once it is done.
    """

    segment: int
    key: str
    outcome: Literal["done", "failed", "cannot"]
    failure: Failure | None = None
    retry_at: Instant = 0
