"""`holdfast agents`: the agents and prompts that people have written, and what is wrong with them."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.agent.config.info import AgentsTold, AgentText, AgentTold
from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, note, screen
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.transcript.labels import clean

_STAYS = " It stays as it was when its file was last right."
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `holdfast agents list` shows it.")]


def agents() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help="List, show and check the agents in the data folder.")
    app.command("list")(list_agents)
    app.command("show")(show)
    app.command("check")(check)
    return app


def list_agents(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List every agent: its model, its tools, what it is for."""

    async def look(desk: Desk) -> AgentsTold:
        return desk.wiring.agents(desk.settings).told()

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(found)
    else:
        screen().print(_table(found))
        unasked = (f"{each.name}: {told}" for each in found.agents for told in each.unasked)
        for error in (*found.errors, *unasked):
            note(f"holdfast: {clean(error)}")


def show(
    context: typer.Context,
    name: NameArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Show what an agent's file says."""

    async def look(desk: Desk) -> AgentText:
        return desk.wiring.agents(desk.settings).show(name)

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(found)
        return
    if found.text:
        print(found.text.rstrip("\n"))
    else:
        note(f"{found.agent.name} has no file: it is as the server's settings say.")
    if found.agent.error:
        note(f"holdfast: {clean(found.agent.error)}{_STAYS if found.agent.stays else ''}")


def check(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Check every agent and prompt; the exit code is 1 if anything is wrong with one."""

    async def look(desk: Desk) -> tuple[str, ...]:
        return desk.wiring.agents(desk.settings).problems()

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(found)
    for problem in () if as_json else found:
        print(clean(problem))
    if found:
        raise typer.Exit(1)
    if not as_json:
        print("All is well.")


def _table(found: AgentsTold) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Name", "Model", "Tools", "For"):
        table.add_column(name, overflow="fold")
    for each in found.agents:
        table.add_row(*(Text(clean(cell)) for cell in _row(each)))
    return table


def _row(agent: AgentTold) -> tuple[str, str, str, str]:
    tools = "all" if agent.tools is None else ", ".join(agent.tools) or "none"
    about = agent.description or ("as the settings say" if not agent.digest else "")
    stays = _STAYS if agent.stays else ""
    return agent.name, agent.model or "the server's", tools, agent.error + stays or about
