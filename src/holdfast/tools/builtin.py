"""Build the tools that come with Holdfast."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast.tools.ask_user import AskUserTool
from holdfast.tools.files.edit_file import EditFileTool
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.files.list_files import ListFilesTool
from holdfast.tools.files.read_file import ReadFileTool
from holdfast.tools.files.search_files import SearchFilesTool
from holdfast.tools.files.write_file import WriteFileTool
from holdfast.tools.ports import Tool
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from holdfast.tools.sandbox.sandbox import NO_SANDBOX, Sandbox
from holdfast.tools.shell import ShellTool
from holdfast.tools.web.address_policy import AddressPolicy
from holdfast.tools.web.fetch_url import FetchUrlTool
from holdfast.tools.web.web_client import WebClient
from holdfast.tools.web.web_search import WebSearchTool, select_search_engine


def builtin_tools(
    folder: Path, environ: Mapping[str, str] | None = None, sandbox: Sandbox = NO_SANDBOX
) -> tuple[Tool, ...]:
    """Return every built-in tool but the web tools. None of them may access `folder`, the data folder.

    Commands get only harmless parts of `environ` and run in `sandbox`.
    """
    shell, protected_paths = (
        ShellTool(folder, os.environ if environ is None else environ, sandbox),
        ProtectedPaths(folder),
    )
    file_changer = FileChanger(folder, protected_paths)
    files = (
        ReadFileTool(protected_paths),
        WriteFileTool(file_changer),
        EditFileTool(file_changer),
        ListFilesTool(protected_paths),
        SearchFilesTool(protected_paths),
    )
    return (shell, *files, AskUserTool())


def web_tools(
    allowed: Iterable[str], own_port: int, searxng_url: str, environ: Mapping[str, str]
) -> tuple[Tool, ...]:
    """Return the web tools; searching is one of them only if a search engine is configured.

    `AddressPolicy` explains `allowed` and `own_port`. Raises InvalidUrl.
    """
    fetch = FetchUrlTool(WebClient(AddressPolicy(allowed, own_port)))
    engine = select_search_engine(searxng_url, environ)
    return (fetch,) if engine is None else (fetch, WebSearchTool(engine))


def tools_by_name(tools: tuple[Tool, ...]) -> Mapping[str, Tool]:
    by_name = {tool.spec.name: tool for tool in tools}
    assert len(by_name) == len(tools), "two tools have the same name"
    return by_name


class ToolSet(Mapping[str, Tool]):
    """A live view of the tools in several mappings, whose names must differ."""

    def __init__(self, *sources: Mapping[str, Tool]) -> None:
        self._sources = sources

    def __getitem__(self, name: str) -> Tool:
        for source in self._sources:
            if (tool := source.get(name)) is not None:
                return tool
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for source in self._sources for name in source)

    def __len__(self) -> int:
        return sum(map(len, self._sources))
