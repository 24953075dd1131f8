"""A stretch that is longer than a model's window: it is read in smaller goes, and never owed for ever."""

from pathlib import Path

import msgspec
import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import EXTRACT_KNOWN_MAX, EXTRACT_ROUNDS_MAX
from holdfast.domain.memories import NewNote, Origin
from holdfast.memory.ports import ModelInputTooLong, ProviderFailure, Segment, SegmentMessage
from holdfast.memory.providers.notes import NotesProvider
from holdfast.store.sqlite.store import SqliteStore

BONN = "The user lives in Bonn."


class SmallWindowExtractor:
    """A model that takes so many characters and no more, and notes where a person lives."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.answered = 0

    async def __call__(self, instructions: str, text: str) -> str:
        if len(instructions) + len(text) > self.window:
            raise ModelInputTooLong(detail="it does not fit")
        self.answered += 1
        facts = [{"text": BONN}] if "User: I live in Bonn." in text else []
        return msgspec.json.encode({"facts": facts}).decode()


def long_segment() -> Segment:
    """Much that was answered, and then something worth noting."""
    answers = [SegmentMessage(f"m_{n}", "assistant", n, "I see. " * 2_000) for n in range(30)]
    return Segment(
        "a",
        SessionId("s_1"),
        "",
        "",
        ((1, 9),),
        (*answers, SegmentMessage("m_u", "user", 99, "I live in Bonn.")),
    )


@pytest.mark.parametrize("window", [30_000, 9_000, 5_000])
async def test_a_segment_too_large_for_the_window_is_read_in_smaller_chunks(
    tmp_path: Path, window: int
) -> None:
    clock, model = FakeClock(), SmallWindowExtractor(window)
    store = await SqliteStore.open(tmp_path)
    known = [NewNote(f"Something {n} about Bonn. " + "x" * 1_800) for n in range(EXTRACT_KNOWN_MAX)]
    await store.add_notes("known", "r", Origin("user"), "", known)
    notes = NotesProvider(store, model, IdGenerator(clock), clock)
    assert await notes.commit(long_segment())
    assert BONN in [each.text for each in (await store.notes("", "", None, 100)).memories]
    assert 1 <= model.answered <= 2 * EXTRACT_ROUNDS_MAX
    await notes.close()
    await store.close()


async def test_a_too_small_model_window_fails_with_a_reason(tmp_path: Path) -> None:
    clock = FakeClock()
    store = await SqliteStore.open(tmp_path)
    notes = NotesProvider(store, SmallWindowExtractor(10), IdGenerator(clock), clock)
    with pytest.raises(ProviderFailure, match="it does not fit"):
        await notes.commit(long_segment())
    await notes.close()
    await store.close()
