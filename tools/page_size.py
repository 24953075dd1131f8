"""Print what a browser fetches before the page can be used, and its compressed size."""

import gzip
import re
from collections.abc import Mapping
from pathlib import Path

FIRST_LOAD_BYTES_MAX = 90_000
_QUOTED = re.compile(r"""(import\(\s*)?["'`](?:\./)?(?:page/)?([\w.-]+\.(?:js|css|svg))["'`]""")


def first_load(built: Path) -> dict[str, bytes]:
    """Return the files of the first load by name: the page and all that it names, except on demand."""
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
