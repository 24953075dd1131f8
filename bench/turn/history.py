"""Write a long conversation through the store, to measure the cost of length."""

from collections.abc import Callable
from pathlib import Path

from holdfast.domain.clock import SystemClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import parts_digest
from holdfast.domain.ids import IdGenerator
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore

BATCH_TURNS = 1_000


def plain_answer(turn: int) -> str:
    return f"Number {turn} is as good as any other, and here is why. " * 10


async def write_long_history(
    folder: Path, messages: int, answer_to: Callable[[int], str] = plain_answer
) -> str:
    """Create a session of that many messages in a new store; return its id."""
    ids = IdGenerator(SystemClock())
    session_id = ids.session()
    store = await SqliteStore.open(folder)
    await store.append(Append(session_id, (f.SessionCreated(title="Long"),)))
    for first in range(1, messages // 2 + 1, BATCH_TURNS):
        facts: list[f.AnyFact] = []
        for turn in range(first, min(first + BATCH_TURNS, messages // 2 + 1)):
            question = (Text(f"What about number {turn}? " * 5),)
            answer = (Text(answer_to(turn)),)
            facts.append(f.TurnAccepted(ids.turn(), turn, ids.message(), question))
            facts.append(f.MessageSettled(
                turn, 1, ids.message(), "assistant", answer, parts_digest(answer)
            ))  # fmt: skip
        await store.append(Append(session_id, facts))
    await store.search("number", 1)
    await store.close()
    return session_id
