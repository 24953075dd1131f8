"""`holdfast rules`: what is allowed without asking."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import Desk, JsonOption, carry_out, give
from holdfast.cli.format import age
from holdfast.cli.tables import table, tell_list
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import Ids
from holdfast.domain.shell.rules import Rule
from holdfast.domain.transcript.labels import clean
from holdfast.engine.permissions import Permissions
from holdfast.store.ports import Store

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `holdfast rules list` shows it.")]


def rules() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help="List and revoke what the agent may do without asking.")
    app.command("list")(list_rules)
    app.command("revoke")(revoke)
    return app


def list_rules(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List what is allowed without asking, the oldest first."""

    async def look(desk: Desk) -> list[Rule]:
        if not desk.has_store:
            return []
        async with desk.store() as store:
            return list(await _permissions(store).rules())

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    tell_list(found, as_json, _table, "There are no rules: every call that changes something is asked about.")


def revoke(
    context: typer.Context,
    rule_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Revoke a rule: it is asked about again, from the next call on, by running servers too."""

    async def take(desk: Desk) -> Rule:
        async with desk.store() as store:
            return await _permissions(store).revoke(rule_id)

    taken = carry_out(context, take, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(taken)
    else:
        print(f"Revoked {taken.id}: {clean(taken.tool)} {clean(taken.pattern)}")


def _permissions(store: Store) -> Permissions:
    return Permissions(store, SystemClock(), Ids(SystemClock()), ())


def _table(found: list[Rule]) -> Table:
    shown, now = table("Rule", "Tool", "Allows", "Where", "Made", wraps="Allows"), SystemClock().now_ms()
    for rule in found:
        where = "everywhere" if rule.session_id is None else rule.session_id
        made = age(now - rule.created_at)
        shown.add_row(rule.id, Text(clean(rule.tool)), Text(clean(rule.pattern)), where, made)
    return shown
