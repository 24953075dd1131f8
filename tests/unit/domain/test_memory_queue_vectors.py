"""The fold of queued commits matches the vectors, which the fold of the page must match too."""

from pathlib import Path

import msgspec
import pytest

from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import QueuedCommitRow
from tests.support.in_memory_session import SESSION
from tests.unit.domain.transcript.test_transcript_fold import Wire, from_wire

VECTORS = sorted((Path(__file__).parents[2] / "vectors" / "memory").glob("*.json"))


class QueueVector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A journal, its expected queued commits, and the state that the page shows for all of it."""

    about: str
    events: list[Wire]
    segments: list[Wire]
    status: str


def plain(row: QueuedCommitRow) -> Wire:
    return {
        "n": row.n,
        "turns": [list(each) for each in row.turns],
        "state": row.state,
        "retraction": row.retraction,
        "retry_at": row.retry_at,
        "detail": row.failure.detail if row.failure is not None else "",
    }


def test_there_are_vectors() -> None:
    assert len(VECTORS) >= 10


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_a_vector_folds_to_its_queued_commits(path: Path) -> None:
    vector = msgspec.json.decode(path.read_bytes(), type=QueueVector)
    book = fold(SESSION, [from_wire(event) for event in vector.events])
    assert [plain(book.queued_commits[n]) for n in sorted(book.queued_commits)] == vector.segments
