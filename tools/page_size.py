"""What a browser fetches before the page can be used, and how large that is when it is compressed."""

import gzip
import re
from collections.abc import Mapping
from pathlib import Path

FIRST_LOAD_BYTES_MAX = 90_000
_QUOTED = re.compile(r"""(import\(\s*)?["'`](?:\./)?(?:page/)?([\w.-]+\.(?:js|css|svg))["'`]""")


def first_load(built: Path) -> dict[str, bytes]:
    """The files by their names: the page, and what it names, and what that names, unless only on demand."""
    found = {"index.html": (built / "index.html").read_bytes()}
    to_read = ["index.html"]
    while to_read:
        text = found[to_read.pop()].decode()
        for on_demand, name in _QUOTED.findall(text):
            path = built / "page" / name
            if not on_demand and name not in found and path.exists():
                found[name] = path.read_bytes()
                to_read.append(name)
    return found


def compressed_bytes(files: Mapping[str, bytes]) -> int:
    return sum(len(gzip.compress(content, 9)) for content in files.values())
