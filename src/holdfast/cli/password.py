"""`holdfast password`: the password that signs a browser in."""

import sys
from getpass import getpass
from typing import Annotated

import typer

from holdfast.auth.credentials import Keyring
from holdfast.cli.command_context import Desk, JsonOption, carry_out, give
from holdfast.cli.errors import PasswordsDiffer
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import Ids
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

    async def change(desk: Desk) -> str:
        async with desk.store(create=not remove) as store:
            keyring = Keyring(store, SystemClock(), Ids(SystemClock()))
            if remove:
                return "removed" if await keyring.remove_password() else "not_there"
            await keyring.set_password(_asked(stdin))
            return "set"

    outcome = carry_out(context, change, as_json=as_json, data=data, durability=durability)
    if as_json:
        give({"password": outcome})
        return
    said = {"set": "The password is set.", "removed": "There is no password any more."}
    print(said.get(outcome, "There was no password."))


def _asked(stdin: bool) -> str:
    """Raises PasswordsDiffer."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    first = getpass(f"New password, {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters: ")
    if getpass("Once more: ") != first:
        raise PasswordsDiffer()
    return first
