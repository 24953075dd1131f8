"""The help of every command, where what takes no value is shown without one."""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

HELP_NAMES = ("-h", "--help")


def runnable(app: typer.Typer) -> Any:
    """`app` as it is run. typer would show each of its flags, `--help` too, as if it took a `<bool>`."""
    command = get_command(app)
    _tidy(command)
    return command


def _tidy(command: Any) -> None:
    # Made here, since each command makes its own when it is first asked for, and keeps it.
    asks_help = command.get_help_option(typer.Context(command, help_option_names=list(HELP_NAMES)))
    for option in (*command.params, asks_help):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for each in command.commands.values() if isinstance(command, TyperGroup) else ():
        _tidy(each)
