"""`holdfast rules`: list and revoke the approval rules."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import CommandContext, JsonOption, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_age
from holdfast.cli.tables import make_table, print_list
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.domain.shell.rules import Rule
from holdfast.domain.transcript.labels import strip_control_chars
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

    async def load_rules(command: CommandContext) -> list[Rule]:
        if not command.has_store:
            return []
        async with command.store() as store:
            return list(await _permissions(store).rules())

    found = run_command(context, load_rules, as_json=as_json, data=data, durability=durability)
    print_list(
        found, as_json, _rules_table, "There are no rules: every call that changes something is asked about."
    )


def revoke(
    context: typer.Context,
    rule_id: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Revoke a rule: it is asked about again, from the next call on, by running servers too."""

    async def revoke_rule(command: CommandContext) -> Rule:
        async with command.store() as store:
            return await _permissions(store).revoke(rule_id)

    revoked = run_command(context, revoke_rule, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(revoked)
    else:
        call = f"{strip_control_chars(revoked.tool)} {strip_control_chars(revoked.pattern)}"
        print(f"Revoked {revoked.id}: {call}")


def _permissions(store: Store) -> Permissions:
    return Permissions(store, SystemClock(), IdGenerator(SystemClock()), ())


def _rules_table(found: list[Rule]) -> Table:
    rules_table, now = (
        make_table("Rule", "Tool", "Allows", "Where", "Made", wrapped_column="Allows"),
        SystemClock().now_ms(),
    )
    for rule in found:
        where = "everywhere" if rule.session_id is None else rule.session_id
        made = format_age(now - rule.created_at)
        rules_table.add_row(
            rule.id,
            Text(strip_control_chars(rule.tool)),
            Text(strip_control_chars(rule.pattern)),
            where,
            made,
        )
    return rules_table
