"""Correct the help of commands: flags are shown without a value."""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

HELP_NAMES = ("-h", "--help")


def build_command(app: typer.Typer) -> Any:
    """Return the command of `app`, without the `<bool>` that typer shows beside flags."""
    command = get_command(app)
    _hide_flag_metavars(command)
    return command


def _hide_flag_metavars(command: Any) -> None:
    # Created here, because each command creates and caches its own help option on first use.
    help_option = command.get_help_option(typer.Context(command, help_option_names=list(HELP_NAMES)))
    for option in (*command.params, help_option):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for subcommand in command.commands.values() if isinstance(command, TyperGroup) else ():
        _hide_flag_metavars(subcommand)
