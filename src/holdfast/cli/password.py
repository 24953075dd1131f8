"""`holdfast password`: set or remove the password for browsers."""

import sys
from getpass import getpass
from typing import Annotated

import typer

from holdfast.auth.credentials import CredentialStore
from holdfast.cli.command_context import CommandContext, JsonOption, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.errors import PasswordsDiffer
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN

StdinOption = Annotated[bool, typer.Option("--stdin", help="Read it from the standard input, one line.")]
RemoveOption = Annotated[bool, typer.Option("--remove", help="Have none any more.")]


def password(
    context: typer.Context,
    stdin: StdinOption = False,
    remove: RemoveOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Set or change the password. Browsers that are signed in are signed out when there was one before."""

    async def change_password(command: CommandContext) -> str:
        async with command.store(create=not remove) as store:
            credential_store = CredentialStore(store, SystemClock(), IdGenerator(SystemClock()))
            if remove:
                return "removed" if await credential_store.remove_password() else "not_there"
            await credential_store.set_password(_read_password(stdin))
            return "set"

    outcome = run_command(context, change_password, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json({"password": outcome})
        return
    messages = {"set": "The password is set.", "removed": "There is no password any more."}
    print(messages.get(outcome, "There was no password."))


def _read_password(stdin: bool) -> str:
    """Read the password from stdin or twice from the terminal. Raises PasswordsDiffer."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass(f"New password, {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters: ")
    if getpass("Once more: ") != first:
        raise PasswordsDiffer()
    return first
