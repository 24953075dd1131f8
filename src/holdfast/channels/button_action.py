"""What a button carries: a verb and its target, so that pressing it needs nothing else."""

from typing import Literal, get_args

import msgspec

ActionVerb = Literal[
    "allow", "always", "deny", "rerun", "ran", "skip", "pick", "go", "stop", "again", "switch", "welcome"
]  # fmt: skip
"""The first seven are about a call of a run, `go` and `stop` about a run, `again` about a turn of a
conversation, `switch` about a conversation. `welcome` is on no button: whoever is let in is told so by it.
`pick` answers what the call asks with one of its choices, by its number."""


class ButtonAction(msgspec.Struct, frozen=True):
    verb: ActionVerb
    target: str
    subtarget: str = ""
    number: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.target, self.subtarget, self.number)))


def parse_action(text: str) -> ButtonAction | None:
    """What was pressed; None for anything that no button of ours carries."""
    verb, _, rest = text.partition(" ")
    what, _, rest = rest.partition(" ")
    which, _, number = rest.partition(" ")
    if verb not in get_args(ActionVerb) or not what:
        return None
    return ButtonAction(verb, what, which, number)  # type: ignore[arg-type]
