"""What a run did to files, told by its calls' results; and what it takes to put them back."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import AnyPart, Change


class NoSuchChange(HoldfastError):
    """This run has not changed {path}, as far as is known."""

    code, status = "no_such_change", 404


class FilesChanged(HoldfastError):
    """Nothing was put back: {paths}."""

    code, status = "files_changed", 409
    remedy = "Look at these files; put back the others, or change these by hand."


class FileRestore(msgspec.Struct, frozen=True):
    """A file to put back: the digests of what a run found, and of what it left. None is no file.

    `path` is from the workspace on, which is where the run worked.
    """

    workspace: Path
    path: str
    before: str | None
    after: str | None


def merge_changes(parts: Iterable[AnyPart]) -> list[Change]:
    """One change for each file, from what it first was to what it last was, in the order of the first.

    A file that came to be what it was before is left out. Diffs are those of single calls: there are none.
    """
    found: dict[tuple[str, str], Change] = {}
    for part in parts:
        if not isinstance(part, Change):
            continue
        key = part.workspace, part.path
        first = found.get(key)
        kept = part.kept and (first is None or first.kept)
        found[key] = replace(
            part,
            before=(part.before if first is None else first.before) if kept else None,
            after=part.after if kept else None,
            diff="",
            kept=kept,
            added=part.added + (first.added if first is not None else 0),
            removed=part.removed + (first.removed if first is not None else 0),
        )
    return [change for change in found.values() if not change.kept or change.before != change.after]


class FileRestoreResult(msgspec.Struct, frozen=True):
    """Which files were put back, and which not and why."""

    restored: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
