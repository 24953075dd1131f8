"""Encode the action of a button as text: a verb and its target."""

from typing import Literal, get_args

import msgspec

ActionVerb = Literal[
    "allow", "always", "deny", "rerun", "ran", "skip", "pick", "go", "stop", "again", "switch", "welcome"
]  # fmt: skip
"""The first seven target a call of a run, `go` and `stop` a run, `again` a turn of a conversation, `switch` a
conversation. `pick` answers a call's question with the number of one of its choices. `welcome` is on no
button: pairing stores it as an update when a sender is allowed."""


class ButtonAction(msgspec.Struct, frozen=True):
    verb: ActionVerb
    target: str
    subtarget: str = ""
    number: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.target, self.subtarget, self.number)))


def parse_action(text: str) -> ButtonAction | None:
    """Return the action of a pressed button; None if the text is not one of ours."""
    verb, _, rest = text.partition(" ")
    target, _, rest = rest.partition(" ")
    subtarget, _, number = rest.partition(" ")
    if verb not in get_args(ActionVerb) or not target:
        return None
    return ButtonAction(verb, target, subtarget, number)  # type: ignore[arg-type]
