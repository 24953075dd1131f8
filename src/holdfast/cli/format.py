"""Format ages and counts for people."""

from holdfast.cli.tables import _DAY, _HOUR, _MINUTE


def format_age(ms: int) -> str:
    """Return how long ago something was, such as `5 min ago`."""
    seconds = max(0, ms) // 1000
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min ago"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h ago"
    days = seconds // _DAY
    return "yesterday" if days == 1 else f"{days:,} days ago"


def format_count(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: `1 conversation`, `2 conversations`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
