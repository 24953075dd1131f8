"""Collect the file changes of a run from its calls' results, and describe how to restore them."""

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
    """A file to restore: the digests of its content before and after the run; None means no file.

    `path` is relative to the workspace in which the run worked.
    """

    workspace: Path
    path: str
    before: str | None
    after: str | None


def merge_changes(parts: Iterable[AnyPart]) -> list[Change]:
    """Return one change per file, from its first content to its last, in the order of the first.

    A file whose content is the same again is left out. The merged changes have no diff.
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
    """The files that were restored, and those that were refused with the reason."""

    restored: tuple[str, ...]
    refused: tuple[tuple[str, str], ...] = ()
