"""Commands that people type where they chat: a slash, a word, and what it is about, through every door.

What one does is its door's affair; what there is, how it is read and what people are told of it is here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

CommandName = Literal[
    "new", "undo", "restore", "retry", "stop", "status", "sessions", "switch", "title", "model",
    "agent", "agents",
    "approve", "deny", "memory", "summarise", "continue", "help",
]  # fmt: skip


class Explained(msgspec.Struct, frozen=True):
    """What a command takes, and what it does."""

    takes: str
    does: str


COMMANDS: Mapping[CommandName, Explained] = MappingProxyType({
    "new": Explained("", "Begin another conversation."),
    "undo": Explained("", "Undo the last message and its answer."),
    "restore": Explained("", "Restore what was undone last."),
    "retry": Explained("", "Answer the last message again."),
    "stop": Explained("", "Stop the answer under way."),
    "status": Explained("", "Say what is going on here."),
    "sessions": Explained("", "List the newest conversations."),
    "switch": Explained("NUMBER or words", "Go on in another conversation."),
    "title": Explained("words", "Name this conversation."),
    "model": Explained("", "Say which model answers."),
    "agent": Explained("NAME", "Say which agent answers here, or have another one answer."),
    "agents": Explained("", "List the agents."),
    "approve": Explained("", "Allow what was asked about."),
    "deny": Explained("a reason", "Decline, with an optional reason."),
    "memory": Explained("words", "Say what is remembered, or what of it is about those words."),
    "summarise": Explained("", "Summarise older messages."),
    "continue": Explained("", "Go on in a new conversation that begins with a summary of this one."),
    "help": Explained("", "Say what can be typed here."),
})  # fmt: skip


_ALSO: Mapping[str, CommandName] = MappingProxyType({"compact": "summarise", "summarize": "summarise"})
"""What else people call them."""


class Command(msgspec.Struct, frozen=True):
    name: CommandName
    rest: str = ""


class NotACommand(msgspec.Struct, frozen=True):
    """Something that begins like a command and is none; `nearest` is what may have been meant."""

    word: str
    nearest: CommandName | None = None


def read(text: str) -> Command | NotACommand | None:
    """What was typed, as a command; None for anything else: `//x` and `/usr/bin` are just said."""
    line = text.strip()
    if not line.startswith("/") or line.startswith("//") or "\n" in line:
        return None
    word, _, rest = line[1:].partition(" ")
    # Chat apps put the name of who is meant behind it: /new@some_bot.
    word = word.partition("@")[0].lower()
    word = _ALSO.get(word, word)
    if not word.isalpha():
        return None
    if word in COMMANDS:
        return Command(word, rest.strip())  # type: ignore[arg-type]
    return NotACommand(
        word, next((name for name in COMMANDS if len(word) > 1 and name.startswith(word)), None)
    )


def told(prompts: Sequence[tuple[str, str]] = ()) -> str:
    """Every command with what it does, one on a line; then the prompts, each a name and how it begins."""
    lines = [f"/{name} {each.takes}".rstrip() + f": {each.does}" for name, each in COMMANDS.items()]
    return "\n".join([*lines, *(f"/{name}: {about}" for name, about in prompts)])
