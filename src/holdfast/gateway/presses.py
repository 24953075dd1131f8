"""What a button carries: a verb and what it is about, so that pressing it says all there is to say."""

from typing import Literal, get_args

import msgspec

Verb = Literal["allow", "always", "deny", "rerun", "ran", "skip", "go", "stop", "again", "switch", "welcome"]
"""The first six are about a call of a run, `go` and `stop` about a run, `again` about a turn of a
conversation, `switch` about a conversation. `welcome` is on no button: whoever is let in is told so by it."""


class Press(msgspec.Struct, frozen=True):
    verb: Verb
    what: str
    which: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.what, self.which)))


def read(text: str) -> Press | None:
    """What was pressed; None for anything that no button of ours carries."""
    verb, _, rest = text.partition(" ")
    what, _, which = rest.partition(" ")
    if verb not in get_args(Verb) or not what:
        return None
    return Press(verb, what, which)  # type: ignore[arg-type]
