"""Run a one-shot command: give it settings and a store, print its result and report its errors.

The result goes to standard output, everything else to standard error. With `--json` a result is one JSON
value and an error is one JSON object.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
import typer
from rich.console import Console

from holdfast.cli.dependencies import Dependencies, get_dependencies
from holdfast.cli.errors import NoStore
from holdfast.domain.errors import HoldfastError, StoreUnreadable
from holdfast.settings.settings import Settings
from holdfast.store.ports import Store

T = TypeVar("T")
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")]
UNWRAPPED_COLUMNS = 100_000
"""The width of output that does not go to a terminal, so that no line is wrapped."""


class CommandProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in JSON, with the same members as over HTTP."""

    code: str
    detail: str
    remedy: str = ""


class CommandContext(msgspec.Struct, frozen=True):
    """The dependencies and settings of one running command."""

    dependencies: Dependencies
    settings: Settings
    as_json: bool

    @property
    def has_store(self) -> bool:
        """Return whether the data folder holds a store. Raises StoreUnreadable if it cannot hold one."""
        folder = self.settings.data
        if folder.exists() and not folder.is_dir():
            raise StoreUnreadable(path=folder, detail="it is not a folder")
        return self.dependencies.data_dir.holds_store(folder)

    @asynccontextmanager
    async def store(self, create: bool = False) -> AsyncIterator[Store]:
        """Open the store and close it at the end. Raises NoStore if there is none, unless `create` is set."""
        if not create and not self.has_store:
            raise NoStore(path=self.settings.data)
        store = await self.dependencies.open_store(self.settings.data, durability=self.settings.durability)
        try:
            yield store
        finally:
            await store.close()


def run_command(
    context: typer.Context,
    work: Callable[[CommandContext], Coroutine[Any, Any, T]],
    *,
    as_json: bool,
    data: Path | None,
    durability: str | None,
) -> T:
    """Run `work` and return its result; print it only afterwards, when the store is closed."""
    try:
        dependencies = get_dependencies(context)
        settings = dependencies.settings(data=data, durability=durability)
        return asyncio.run(work(CommandContext(dependencies, settings, as_json)))
    except HoldfastError as error:
        if not as_json:
            raise
        print(msgspec.json.encode(problem_from(error)).decode(), file=sys.stderr)
        raise typer.Exit(1) from None


def problem_from(error: HoldfastError) -> CommandProblem:
    return CommandProblem(error.code, str(error), error.advice)


def print_json(value: object) -> None:
    """Print one value as indented JSON."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def output_console() -> Console:
    """Return the console for results: styled and wrapped in a terminal, plain and unwrapped in a pipe."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=UNWRAPPED_COLUMNS, no_color=True)


def print_stderr(text: str) -> None:
    """Print text that is not part of the result."""
    print(text, file=sys.stderr, flush=True)
