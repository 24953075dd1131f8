"""`holdfast agents`: list, show and check the agents and prompts in the data folder."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.agent.config.info import AgentInfo, AgentListing, AgentText
from holdfast.cli.command_context import (
    CommandContext,
    JsonOption,
    output_console,
    print_json,
    print_stderr,
    run_command,
)
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.domain.transcript.labels import strip_control_chars

_LAST_VALID_VERSION_USED = " It stays as it was when its file was last right."
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

    async def load_agents(command: CommandContext) -> AgentListing:
        return command.dependencies.agents(command.settings).list_all()

    found = run_command(context, load_agents, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(found)
    else:
        output_console().print(_agents_table(found))
        unused = (f"{agent.name}: {note}" for agent in found.agents for note in agent.unasked)
        for error in (*found.errors, *unused):
            print_stderr(f"holdfast: {strip_control_chars(error)}")


def show(
    context: typer.Context,
    name: NameArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Show what an agent's file says."""

    async def load_agent(command: CommandContext) -> AgentText:
        return command.dependencies.agents(command.settings).get_text(name)

    found = run_command(context, load_agent, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(found)
        return
    if found.text:
        print(found.text.rstrip("\n"))
    else:
        print_stderr(f"{found.agent.name} has no file: it is as the server's settings say.")
    if found.agent.error:
        stays = _LAST_VALID_VERSION_USED if found.agent.stays else ""
        print_stderr(f"holdfast: {strip_control_chars(found.agent.error)}{stays}")


def check(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Check every agent and prompt; the exit code is 1 if anything is wrong with one."""

    async def load_problems(command: CommandContext) -> tuple[str, ...]:
        return command.dependencies.agents(command.settings).problems()

    found = run_command(context, load_problems, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(found)
    for problem in () if as_json else found:
        print(strip_control_chars(problem))
    if found:
        raise typer.Exit(1)
    if not as_json:
        print("All is well.")


def _agents_table(found: AgentListing) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("Name", "Model", "Tools", "For"):
        table.add_column(name, overflow="fold")
    for agent in found.agents:
        table.add_row(*(Text(strip_control_chars(cell)) for cell in _row(agent)))
    return table


def _row(agent: AgentInfo) -> tuple[str, str, str, str]:
    tools = "all" if agent.tools is None else ", ".join(agent.tools) or "none"
    about = agent.description or ("as the settings say" if not agent.digest else "")
    stays = _LAST_VALID_VERSION_USED if agent.stays else ""
    return agent.name, agent.model or "the server's", tools, agent.error + stays or about
