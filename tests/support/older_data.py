"""A data folder that an older version wrote, and what its server answered."""

import gzip
import json
from pathlib import Path
from typing import Any

FORMAT_6 = Path(__file__).resolve().parents[1] / "data/format_6"


def write_backup(path: Path) -> None:
    """Write the backup of format 6 to `path`."""
    path.write_bytes(gzip.decompress((FORMAT_6 / "backup.tar.gz").read_bytes()))


def recorded_answers() -> dict[str, Any]:
    """Return what the server of that version answered, by path."""
    answers: dict[str, Any] = json.loads((FORMAT_6 / "conversations.json").read_text("utf-8"))
    return answers
