"""Local files for output that a stalled store cannot take yet.

Each run of this process has one bounded file, synced at each write. The process deletes it once the store has
everything; if the process dies first, the process that recovers the run reads it. A reader skips a last line
that was cut off.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from holdfast.domain.decisions.late_output import UnsavedDeltas
from holdfast.domain.events.codec import UnknownFact, decode, encode
from holdfast.domain.events.facts import Delta
from holdfast.domain.ids import ProcessId, RunId
from holdfast.domain.limits import SPOOL_BYTES_MAX
from holdfast.store.plain_files import fsync_path


class _Line(msgspec.Struct, frozen=True):
    turn: int
    place: int
    saved_chars: int
    deltas: tuple[tuple[str, int, msgspec.Raw], ...]


class Spools:
    """The spool files of a folder. This process writes them; a process that recovers a run reads them."""

    def __init__(self, folder: Path, process_id: ProcessId) -> None:
        self._folder = folder / "spool"
        self._process_id = process_id

    def write(self, run_id: RunId, unsaved: Sequence[UnsavedDeltas]) -> None:
        """Replace the run's spool by `unsaved`, durably. What exceeds SPOOL_BYTES_MAX is left out."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._path(run_id)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            size = 0
            for one in unsaved:
                line = _encoded(one)
                size += len(line)
                if size > SPOOL_BYTES_MAX:
                    break
                file.write(line)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        fsync_path(self._folder)

    def delete(self, run_id: RunId) -> None:
        """Delete the run's spool, once the store has everything."""
        self._path(run_id).unlink(missing_ok=True)

    def list_files(self) -> list[tuple[RunId, ProcessId, Path]]:
        """Return every spool file with its run and its process."""
        found = []
        for path in sorted(self._folder.glob("*.spool")) if self._folder.is_dir() else ():
            run_id, _, process_id = path.stem.partition(".")
            found.append((RunId(run_id), ProcessId(process_id), path))
        return found

    def read(self, path: Path) -> list[UnsavedDeltas]:
        """Return the deltas in a spool. Raises OSError."""
        return list(_decoded(path.read_bytes().splitlines()))

    def _path(self, run_id: RunId) -> Path:
        return self._folder / f"{run_id}.{self._process_id}.spool"


def _encoded(one: UnsavedDeltas) -> bytes:
    deltas = []
    for delta in one.deltas:
        kind, version, body = encode(delta)
        deltas.append((kind, version, msgspec.Raw(body)))
    line = _Line(one.turn, one.place, one.saved_chars, tuple(deltas))
    return msgspec.json.encode(line) + b"\n"


def _decoded(lines: Iterable[bytes]) -> Iterable[UnsavedDeltas]:
    for text in lines:
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError:
            return
        facts = [decode(kind, version, bytes(body)) for kind, version, body in line.deltas]
        deltas = tuple(
            fact for fact in facts if not isinstance(fact, UnknownFact) and isinstance(fact, Delta)
        )
        yield UnsavedDeltas(line.turn, line.place, line.saved_chars, deltas)
