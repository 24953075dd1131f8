"""The tools that come with Holdfast."""

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.agent.ports import Tool
from holdfast.agent.tools.confinement import NO_WALLS, Walls
from holdfast.agent.tools.list_files import ListFiles
from holdfast.agent.tools.read_file import ReadFile
from holdfast.agent.tools.shell import Shell
from holdfast.agent.tools.vault import Vault
from holdfast.agent.tools.write_file import WriteFile


def builtin_tools(
    folder: Path, environ: Mapping[str, str] | None = None, walls: Walls = NO_WALLS
) -> tuple[Tool, ...]:
    """Every built-in tool. `folder` is the data folder, which none of them may reach into.

    Commands get only harmless parts of `environ` and run behind `walls`.
    """
    shell, vault = Shell(folder, os.environ if environ is None else environ, walls), Vault(folder)
    return (shell, ReadFile(vault), WriteFile(vault), ListFiles(vault))


def by_name(tools: tuple[Tool, ...]) -> Mapping[str, Tool]:
    """The tools as a call names them."""
    named = {tool.spec.name: tool for tool in tools}
    assert len(named) == len(tools), "two tools have the same name"
    return named
