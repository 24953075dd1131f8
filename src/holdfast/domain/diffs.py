"""Compute the unified diff of two files, bounded in time and size."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from holdfast.domain.limits import DIFF_CHARS_MAX, DIFF_PAIRS_MAX

_CONTEXT_LINES = 3
_OpCode = tuple[str, int, int, int, int]


class Diff(msgspec.Struct, frozen=True):
    """A diff: its text, cut after DIFF_CHARS_MAX, and the numbers of lines added and removed."""

    text: str
    added: int
    removed: int


def unified_diff(path: str, before: bytes | None, after: bytes | None) -> Diff:
    """Return the diff from `before` to `after`; None means no file. Binary content yields an empty diff."""
    if b"\0" in (before or b"") or b"\0" in (after or b""):
        return Diff("", 0, 0)
    old, new = _lines(before), _lines(after)
    codes = _opcodes(old, new)
    added = sum(j2 - j1 for tag, _, _, j1, j2 in codes if tag != "equal")
    removed = sum(i2 - i1 for tag, i1, i2, _, _ in codes if tag != "equal")
    if not added and not removed:
        return Diff("", 0, 0)
    head = [
        "--- /dev/null\n" if before is None else f"--- a/{path}\n",
        "+++ /dev/null\n" if after is None else f"+++ b/{path}\n",
    ]
    return Diff(_truncated([*head, *_hunks(old, new, codes)]), added, removed)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "replace")
    lines = text.split("\n")
    # A last line without a line end differs from the same line with one.
    return [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _opcodes(old: Sequence[str], new: Sequence[str]) -> list[_OpCode]:
    """Return the opcodes. Past DIFF_PAIRS_MAX, all between the common prefix and suffix is replaced."""
    first = _shared_prefix(old, new)
    last = _shared_prefix(old[first:][::-1], new[first:][::-1])
    old_end, new_end = len(old) - last, len(new) - last
    codes: list[_OpCode] = [("equal", 0, first, 0, first)] if first else []
    if (old_end - first) * (new_end - first) <= DIFF_PAIRS_MAX:
        matcher = SequenceMatcher(None, old[first:old_end], new[first:new_end])
        codes += [
            (tag, i1 + first, i2 + first, j1 + first, j2 + first)
            for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        ]
    else:
        codes.append(("replace", first, old_end, first, new_end))
    return [*codes, ("equal", old_end, len(old), new_end, len(new))] if last else codes


def _shared_prefix(old: Sequence[str], new: Sequence[str]) -> int:
    """Return how many lines at the beginning are equal."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


def _hunks(old: Sequence[str], new: Sequence[str], codes: Sequence[_OpCode]) -> Iterator[str]:
    for group in _groups(codes):
        i1, i2, j1, j2 = group[0][1], group[-1][2], group[0][3], group[-1][4]
        yield f"@@ -{_range(i1, i2)} +{_range(j1, j2)} @@\n"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                yield from (_line(" ", line) for line in old[a1:a2])
            else:
                yield from (_line("-", line) for line in old[a1:a2])
                yield from (_line("+", line) for line in new[b1:b2])


def _groups(codes: Sequence[_OpCode]) -> Iterator[list[_OpCode]]:
    """Yield changes with a few equal lines around them; adjacent changes share a group."""
    group: list[_OpCode] = []
    for at, (tag, i1, i2, j1, j2) in enumerate(codes):
        if tag != "equal":
            group.append((tag, i1, i2, j1, j2))
            continue
        count = i2 - i1
        before = min(count, _CONTEXT_LINES) if at + 1 < len(codes) else 0
        after = min(count, _CONTEXT_LINES) if group else 0
        if group and (not before or count > before + after):
            yield [*group, ("equal", i1, i1 + after, j1, j1 + after)]
            group = []
            if before:
                group.append(("equal", i2 - before, i2, j2 - before, j2))
        elif group:
            group.append((tag, i1, i2, j1, j2))
        else:
            group.append(("equal", i2 - before, i2, j2 - before, j2))
    if any(tag != "equal" for tag, *_ in group):
        yield group


def _range(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1 if count else start},{count}" if count != 1 else f"{start + 1}"


def _line(sign: str, line: str) -> str:
    return f"{sign}{line}" if line.endswith("\n") else f"{sign}{line}\n\\ No newline at end of file\n"


def _truncated(lines: Sequence[str]) -> str:
    shown: list[str] = []
    room = DIFF_CHARS_MAX
    for at, line in enumerate(lines):
        room -= len(line)
        if room < 0:
            return "".join(shown) + f"[{len(lines) - at:,} more lines of the diff are not shown]\n"
        shown.append(line)
    return "".join(shown)
