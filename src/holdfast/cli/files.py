"""Write output files atomically, and never replace a file by accident."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

from holdfast.cli.errors import CannotWrite, FileExists
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.store.plain_files import atomic_write

WriteBytes = Callable[[bytes], object]


def check_target(path: Path, force: bool, data: Path) -> None:
    """Raise FileExists or CannotWrite if `path` must not be written. Call it before any work."""
    path = path.absolute()
    if path.is_dir():
        raise CannotWrite(path=path, why="it is a folder")
    if not path.parent.is_dir():
        raise CannotWrite(path=path, why=f"there is no folder {path.parent}")
    if not path.exists():
        return
    if not path.is_file():
        raise CannotWrite(path=path, why="it is a device, not a file")
    if path.resolve().parent == data.resolve():
        # Even with --force: the store itself is in there.
        raise CannotWrite(path=path, why="it is part of the data folder")
    if not force:
        raise FileExists(path=path)


@contextmanager
def write_atomically(path: Path) -> Iterator[WriteBytes]:
    """Write to a file that appears under its name only when it is complete and on disk.

    Raises CannotWrite, DiskFull; nothing is left behind then.
    """
    path = path.absolute()
    try:
        with atomic_write(path) as part, part.open("wb") as file:
            yield file.write
    except OSError as error:
        raise write_error(error, path) from error


def write_error(error: OSError, path: Path) -> HoldfastError:
    """Return the error to raise if `path` could not be written."""
    if error.errno == ENOSPC:
        return DiskFull(path=path)
    return CannotWrite(path=path, why=error.strerror or str(error))
