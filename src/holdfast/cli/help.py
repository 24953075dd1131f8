"""The help of every command, where what takes no value is shown without one."""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

HELP_NAMES = ("-h", "--help")


def build_command(app: typer.Typer) -> Any:
    """`app` as it is run. typer would show each of its flags, `--help` too, as if it took a `<bool>`."""
    command = get_command(app)
    _hide_flag_metavars(command)
    return command


def _hide_flag_metavars(command: Any) -> None:
    # Made here, since each command makes its own when it is first asked for, and keeps it.
    help_option = command.get_help_option(typer.Context(command, help_option_names=list(HELP_NAMES)))
    for option in (*command.params, help_option):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for each in command.commands.values() if isinstance(command, TyperGroup) else ():
        _hide_flag_metavars(each)
