"""Convert turn numbers to inclusive ranges and back."""

from collections.abc import Iterable

from holdfast.domain.events.facts import Ranges


def to_ranges(turns: Iterable[int]) -> Ranges:
    """Return ascending numbers as inclusive ranges."""
    ranges: list[tuple[int, int]] = []
    for turn in turns:
        if ranges and turn == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], turn)
        else:
            ranges.append((turn, turn))
    return tuple(ranges)


def clip_ranges(ranges: Ranges, last: int) -> Ranges:
    """Return `ranges` limited to 1 through `last`, since an import may contain anything."""
    return tuple((max(first, 1), min(end, last)) for first, end in ranges)


def expand_ranges(ranges: Ranges) -> list[int]:
    return [number for first, last in ranges for number in range(first, last + 1)]
