"""`holdfast tokens`: create, list and revoke access tokens."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.auth.credentials import CredentialStore
from holdfast.cli.command_context import CommandContext, JsonOption, print_json, print_stderr, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_age
from holdfast.cli.tables import make_table, print_list
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.credentials import DEFAULT_RIGHTS, RIGHTS, AccessToken, Right
from holdfast.domain.ids import IdGenerator
from holdfast.store.ports import Store

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `holdfast tokens list` shows it.")]
RightOption = Annotated[
    list[str] | None,
    typer.Option(
        "--right",
        metavar="RIGHT",
        help="read, write, approve (allow what the agent asks for) or admin (tokens); give it several times.",
        show_default=" and ".join(DEFAULT_RIGHTS),
    ),
]


class TokenSummary(msgspec.Struct, frozen=True):
    """A token in JSON. Times are milliseconds since 1970."""

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: Instant
    last_used_at: Instant | None = None


class CreatedToken(msgspec.Struct, frozen=True):
    """A new token with its secret, which is shown only once."""

    token: TokenSummary
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
    unknown_rights = [each for each in right or () if each not in RIGHTS]
    if unknown_rights:
        raise typer.BadParameter(f"{unknown_rights[0]} is none of {', '.join(RIGHTS)}", param_hint="--right")
    rights = tuple(each for each in RIGHTS if each in (right or DEFAULT_RIGHTS))

    async def create_token(command: CommandContext) -> CreatedToken:
        async with command.store(create=True) as store:
            token, secret = await _credential_store(command, store).add_token(name, rights)
            return CreatedToken(_token_summary(token), secret)

    created = run_command(context, create_token, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(created)
        return
    print_stderr(f"{created.token.id} may {', '.join(created.token.rights)}. This is shown only now:")
    print(created.secret)


def list_tokens(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List tokens, the oldest first. Their secrets are nowhere."""

    async def load_tokens(command: CommandContext) -> list[TokenSummary]:
        if not command.has_store:
            return []
        async with command.store() as store:
            return [
                _token_summary(token, used)
                for token, used in await _credential_store(command, store).tokens()
            ]

    found = run_command(context, load_tokens, as_json=as_json, data=data, durability=durability)
    print_list(found, as_json, _tokens_table, "There are no tokens.")


def revoke(
    context: typer.Context,
    token_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Revoke a token. A running server holds to it within a second or two."""

    async def revoke_token(command: CommandContext) -> None:
        async with command.store() as store:
            await _credential_store(command, store).revoke_token(token_id)

    run_command(context, revoke_token, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json({"revoked": token_id})
    else:
        print(f"Revoked {token_id}.")


def _credential_store(command: CommandContext, store: Store) -> CredentialStore:
    return CredentialStore(
        store, SystemClock(), IdGenerator(SystemClock()), mask=command.dependencies.mask.mask
    )


def _token_summary(token: AccessToken, last_used_at: Instant | None = None) -> TokenSummary:
    return TokenSummary(token.id, token.name, token.rights, token.created_at, last_used_at)


def _tokens_table(found: list[TokenSummary]) -> Table:
    tokens_table, now = (
        make_table("Token", "Name", "May", "Made", "Last used", wrapped_column="Name"),
        SystemClock().now_ms(),
    )
    for token in found:
        used = "never" if token.last_used_at is None else format_age(now - token.last_used_at)
        may = ", ".join(token.rights)
        tokens_table.add_row(token.id, Text(token.name), may, format_age(now - token.created_at), used)
    return tokens_table
