"""Find the part of streamed Markdown that is complete and will not change any more."""

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
BLOCK_CHARS_MAX = 20_000
"""A longer block is shown in parts before it is complete."""


def complete_length(text: str) -> int:
    """Return the length of the complete blocks: up to the last empty line outside code."""
    end = position = 0
    fence = ""
    for line in text.splitlines(keepends=True):
        position += len(line)
        if not line.endswith("\n"):
            break
        fence_match = _FENCE.match(line)
        if fence_match and not fence:
            fence = fence_match[1]
        elif fence_match and fence_match[1].startswith(fence) and not fence_match[2].strip():
            fence = ""
            end = position
        elif not fence and not line.strip():
            end = position
    if not end and position > BLOCK_CHARS_MAX and not fence:
        end = text.rfind("\n") + 1
    return end
