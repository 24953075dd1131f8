"""TOML as people write it: whatever is in a file, it is read or it is no TOML."""

import tomllib
from collections.abc import Mapping

_NUMBER_BITS_MAX = 64
"""Beyond what TOML promises, numbers are of no use, and long ones cannot even be shown."""


class InvalidToml(ValueError):
    """Not TOML, or none that can be used; the message says why."""


def parse_toml(text: str) -> dict[str, object]:
    """What a text says. Raises InvalidToml."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidToml(str(error)) from None
    except RecursionError:
        raise InvalidToml("it is nested too deeply") from None
    except ValueError:
        # The parser leaves to Python how many digits a number may have.
        raise InvalidToml(_TOO_LONG) from None
    left: list[object] = [found]
    while left:
        each = left.pop()
        if isinstance(each, Mapping):
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
        elif isinstance(each, int) and each.bit_length() > _NUMBER_BITS_MAX:
            raise InvalidToml(_TOO_LONG)
    return found


_TOO_LONG = "it has a number that is too long"
