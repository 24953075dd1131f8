"""The transcript's fold gives what the vectors say, whole or in pieces, from events or from pages."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.state.projections import fold as fold_rows
from holdfast.domain.transcript.transcript import Transcript, TranscriptFold, fold
from tests.support.in_memory_session import SESSION, InMemoryJournal

VECTORS = sorted((Path(__file__).parents[3] / "vectors" / "transcript").glob("*.json"))
Wire = dict[str, object]


class TranscriptVector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    events: list[Wire]
    transcript: Wire


def read(path: Path) -> tuple[list[Event], Wire]:
    vector = msgspec.json.decode(path.read_bytes(), type=TranscriptVector)
    return [from_wire(event) for event in vector.events], vector.transcript


class EventHead(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str
    version: int = 1


def from_wire(wire: Wire) -> Event:
    head = msgspec.convert(wire, EventHead)
    body = {name: value for name, value in wire.items() if name not in EventHead.__struct_fields__}
    return Event(head.seq, head.at, head.kind, head.version, msgspec.json.encode(body))


def plain(transcript: Transcript) -> object:
    return msgspec.json.decode(msgspec.json.encode(transcript))


def as_read_at(events: Iterable[Event]) -> InMemoryJournal:
    journal = InMemoryJournal()
    journal.events = list(events)
    journal.book = fold_rows(SESSION, journal.events)
    return journal


def test_there_are_vectors() -> None:
    assert len(VECTORS) >= 7


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_folds_to_its_transcript(path: Path) -> None:
    events, expected = read(path)
    assert plain(fold(events)) == expected


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_page_at_any_cut_and_the_rest_give_the_same(path: Path) -> None:
    events, expected = read(path)
    for cut in range(len(events) + 1):
        before = as_read_at(events[:cut])
        reader = TranscriptFold()
        reader.add_messages(reversed(before.pages()), before.open_tools())
        for event in events[cut:]:
            reader.add(event)
        assert plain(reader.transcript()) == expected


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_pruning_at_any_cut_changes_nothing(path: Path) -> None:
    events, expected = read(path)
    for cut in range(len(events) + 1):
        assert plain(fold([*as_read_at(events[:cut]).prune(), *events[cut:]])) == expected


def test_a_delta_for_a_message_that_is_not_there_changes_nothing() -> None:
    journal = InMemoryJournal()
    journal.append(f.SessionCreated(), f.TextAppended(RunId("r"), MessageId("m"), "lost"))
    journal.append(f.ToolOutputAppended(RunId("r"), CallId("c"), "lost"))
    assert fold(journal.events) == Transcript()


def test_a_message_settled_again_reads_as_its_newest_body() -> None:
    journal = InMemoryJournal()
    message = MessageId("m_1")
    journal.append(f.TurnAccepted(TurnId("t"), 1, MessageId("m"), (Text("hello"),)))
    journal.append(f.MessageSettled(1, 1, message, "assistant", (Text("half"),), "", None, "interrupted"))
    journal.append(
        f.MessageSettled(1, 1, message, "assistant", (Text("half and whole"),), "", None, "recovered")
    )
    entry = fold(journal.events).turns[0].entries[1]
    assert (entry.parts, entry.status) == ((Text("half and whole"),), "recovered")
