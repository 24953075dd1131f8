"""The tools that come with Holdfast."""

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.agent.ports import Tool
from holdfast.agent.tools.list_files import ListFiles
from holdfast.agent.tools.read_file import ReadFile
from holdfast.agent.tools.shell import Shell
from holdfast.agent.tools.write_file import WriteFile


def builtin_tools(folder: Path, environ: Mapping[str, str] | None = None) -> tuple[Tool, ...]:
    """Every built-in tool. `folder` is the data folder; commands get only harmless parts of `environ`."""
    shell = Shell(folder, os.environ if environ is None else environ)
    return (shell, ReadFile(), WriteFile(), ListFiles())


def by_name(tools: tuple[Tool, ...]) -> Mapping[str, Tool]:
    """The tools as a call names them."""
    named = {tool.spec.name: tool for tool in tools}
    assert len(named) == len(tools), "two tools have the same name"
    return named
