"""Markdown that is still being written: how much of it is whole and will not change any more."""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
BLOCK_CHARS_MAX = 20_000
"""A block that gets longer is shown in parts: nobody waits for its end."""


def whole(text: str) -> int:
    """How many characters of `text` are blocks that have ended: up to the last empty line outside of code."""
    end = at = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        at += len(line)
        if not line.endswith("\n"):
            break
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence) and not found[2].strip():
            fence = ""
            end = at
        elif not fence and not line.strip():
            end = at
    if not end and at > BLOCK_CHARS_MAX and not fence:
        end = text.rfind("\n") + 1
    return end
