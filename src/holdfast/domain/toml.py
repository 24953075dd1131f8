"""Parse TOML that people write, with one error for everything that is invalid."""

import tomllib
from collections.abc import Mapping

_NUMBER_BITS_MAX = 64
"""TOML guarantees no larger numbers, and very long ones cannot even be printed."""


class InvalidToml(ValueError):
    """A text is not usable TOML; the message says why."""


def parse_toml(text: str) -> dict[str, object]:
    """Parse a TOML text. Raises InvalidToml."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidToml(str(error)) from None
    except RecursionError:
        raise InvalidToml("it is nested too deeply") from None
    except ValueError:
        # The parser relies on Python's limit of the digits of a number.
        raise InvalidToml(_TOO_LONG) from None
    left: list[object] = [found]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
        elif isinstance(value, int) and value.bit_length() > _NUMBER_BITS_MAX:
            raise InvalidToml(_TOO_LONG)
    return found


_TOO_LONG = "it has a number that is too long"
