"""`holdfast tokens`: what lets programs in."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.auth.credentials import Keyring
from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, note
from holdfast.cli.format import age
from holdfast.cli.tables import table, tell_list
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.credentials import RIGHTS, USUAL_RIGHTS, Right, Token
from holdfast.domain.ids import Ids
from holdfast.store.ports import Store

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `holdfast tokens list` shows it.")]
RightOption = Annotated[
    list[str] | None,
    typer.Option(
        "--right",
        metavar="RIGHT",
        help="read, write, approve (allow what the agent asks for) or admin (tokens); give it several times.",
        show_default=" and ".join(USUAL_RIGHTS),
    ),
]


class Listed(msgspec.Struct, frozen=True):
    """A token as programs read it. Times are milliseconds since 1970."""

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: Instant
    last_used_at: Instant | None = None


class Made(msgspec.Struct, frozen=True):
    """A new one; its secret is told here and never again."""

    token: Listed
    secret: str


def tokens() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help="Make, list and revoke the tokens that let programs in.")
    app.command("add")(add)
    app.command("list")(list_tokens)
    app.command("revoke")(revoke)
    return app


def add(
    context: typer.Context,
    name: NameArgument,
    right: RightOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Make a token and show it, this once."""
    wrong = [each for each in right or () if each not in RIGHTS]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]} is none of {', '.join(RIGHTS)}", param_hint="--right")
    rights = tuple(each for each in RIGHTS if each in (right or USUAL_RIGHTS))

    async def make(desk: Desk) -> Made:
        async with desk.store(create=True) as store:
            token, secret = await _keyring(desk, store).add_token(name, rights)
            return Made(_listed(token), secret)

    made = carry_out(context, make, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(made)
        return
    note(f"{made.token.id} may {', '.join(made.token.rights)}. This is shown only now:")
    print(made.secret)


def list_tokens(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List tokens, the oldest first. Their secrets are nowhere."""

    async def look(desk: Desk) -> list[Listed]:
        if not desk.has_store:
            return []
        async with desk.store() as store:
            return [_listed(token, used) for token, used in await _keyring(desk, store).tokens()]

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    tell_list(found, as_json, _table, "There are no tokens.")


def revoke(
    context: typer.Context,
    token_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Revoke a token. A running server holds to it within a second or two."""

    async def take(desk: Desk) -> None:
        async with desk.store() as store:
            await _keyring(desk, store).revoke_token(token_id)

    carry_out(context, take, as_json=as_json, data=data, durability=durability)
    if as_json:
        give({"revoked": token_id})
    else:
        print(f"Revoked {token_id}.")


def _keyring(desk: Desk, store: Store) -> Keyring:
    return Keyring(store, SystemClock(), Ids(SystemClock()), mask=desk.wiring.mask.whole)


def _listed(token: Token, used: Instant | None = None) -> Listed:
    return Listed(token.id, token.name, token.rights, token.created_at, used)


def _table(found: list[Listed]) -> Table:
    shown, now = table("Token", "Name", "May", "Made", "Last used", wraps="Name"), SystemClock().now_ms()
    for each in found:
        used = "never" if each.last_used_at is None else age(now - each.last_used_at)
        may = ", ".join(each.rights)
        shown.add_row(each.id, Text(each.name), may, age(now - each.created_at), used)
    return shown
