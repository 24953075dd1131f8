"""Slash commands: their names, their parsing and their help.

Each chat client implements what a command does.
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


class CommandHelp(msgspec.Struct, frozen=True):
    """The arguments and the summary of a command."""

    arguments: str
    summary: str


COMMANDS: Mapping[CommandName, CommandHelp] = MappingProxyType({
    "new": CommandHelp("", "Begin another conversation."),
    "undo": CommandHelp("", "Undo the last message and its answer."),
    "restore": CommandHelp("", "Restore what was undone last."),
    "retry": CommandHelp("", "Answer the last message again."),
    "stop": CommandHelp("", "Stop the answer under way."),
    "status": CommandHelp("", "Say what is going on here."),
    "sessions": CommandHelp("", "List the newest conversations."),
    "switch": CommandHelp("NUMBER or words", "Go on in another conversation."),
    "title": CommandHelp("words", "Name this conversation."),
    "model": CommandHelp("", "Say which model answers."),
    "agent": CommandHelp("NAME", "Say which agent answers here, or have another one answer."),
    "agents": CommandHelp("", "List the agents."),
    "approve": CommandHelp("", "Allow what was asked about."),
    "deny": CommandHelp("a reason", "Decline, with an optional reason."),
    "memory": CommandHelp("words", "Say what is remembered, or what of it is about those words."),
    "summarise": CommandHelp("", "Summarise older messages."),
    "continue": CommandHelp("", "Go on in a new conversation that begins with a summary of this one."),
    "help": CommandHelp("", "Say what can be typed here."),
})  # fmt: skip


_ALIASES: Mapping[str, CommandName] = MappingProxyType({"compact": "summarise", "summarize": "summarise"})
"""Other names of commands."""


class SlashCommand(msgspec.Struct, frozen=True):
    name: CommandName
    rest: str = ""


class UnknownCommand(msgspec.Struct, frozen=True):
    """Text that begins like a command and is none; `nearest` is a guess."""

    word: str
    nearest: CommandName | None = None


def parse_command(text: str) -> SlashCommand | UnknownCommand | None:
    """Parse a typed line; return None if it is no command, like `//x` and `/usr/bin`."""
    line = text.strip()
    if not line.startswith("/") or line.startswith("//") or "\n" in line:
        return None
    word, _, rest = line[1:].partition(" ")
    # Chat apps append the addressed bot: /new@some_bot.
    word = word.partition("@")[0].lower()
    word = _ALIASES.get(word, word)
    if not word.isalpha():
        return None
    if word in COMMANDS:
        return SlashCommand(word, rest.strip())  # type: ignore[arg-type]
    return UnknownCommand(
        word, next((name for name in COMMANDS if len(word) > 1 and name.startswith(word)), None)
    )


def help_text(prompts: Sequence[tuple[str, str]] = ()) -> str:
    """Return a line for each command, then one for each prompt, given by name and first line."""
    lines = [f"/{name} {item.arguments}".rstrip() + f": {item.summary}" for name, item in COMMANDS.items()]
    return "\n".join([*lines, *(f"/{name}: {about}" for name, about in prompts)])
