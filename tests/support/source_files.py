"""The repository's files for style rules: a module's name, its text and its syntax tree."""

import ast
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EXCLUDED_FOLDERS = frozenset(
    {".git", ".venv", ".cache", "__pycache__", ".hypothesis", "dist", "node_modules"}
    | {".pytest_cache", ".mypy_cache", ".ruff_cache"}
)


@dataclass(frozen=True)
class SourceFile:
    """One Python module."""

    module: str
    text: str
    tree: ast.Module

    @property
    def package(self) -> str:
        """The second part of the name: `domain` in `holdfast.domain.ids`."""
        return [*self.module.split("."), ""][1]


def source(module: str, text: str) -> SourceFile:
    return SourceFile(module, text, ast.parse(text))


def read_tree(folder: str, above: str = "") -> list[SourceFile]:
    """Return every module below `folder`, named from `above` on."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        parts = path.relative_to(ROOT / above).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(source(name, path.read_text("utf-8")))
    return found


def package() -> list[SourceFile]:
    """Return the modules of the product."""
    return read_tree("src/holdfast", above="src")


def all_sources() -> list[SourceFile]:
    """Return the modules of the product, its tests, benches and tools."""
    return package() + [each for folder in ("tests", "bench", "tools") for each in read_tree(folder)]


def tracked_files() -> list[Path]:
    """Return the files that a clone has, or would have after the next commit."""
    try:
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.check_output(command, stderr=subprocess.DEVNULL).decode().split("\0")
        paths = [ROOT / name for name in listed if name]
    except (OSError, subprocess.CalledProcessError):  # An unpacked archive has no git.
        paths = [path for path in ROOT.rglob("*") if not EXCLUDED_FOLDERS & set(path.parts)]
    return [path for path in paths if path.is_file()]
