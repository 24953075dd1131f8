"""Install a fake package of memory providers: a folder with modules and metadata."""

from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, package: str, entries: Mapping[str, str], modules: Mapping[str, str]) -> Path:
    """Write `package` to `folder` with its entry points and the text of its modules. Return the folder."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (about / "entry_points.txt").write_text(f"[holdfast.memory]\n{lines}")
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    return folder
