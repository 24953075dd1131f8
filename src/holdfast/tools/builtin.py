"""The tools that come with Holdfast."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from holdfast.tools.ask_user import AskUser
from holdfast.tools.files.edit_file import EditFile
from holdfast.tools.files.file_changer import Changing
from holdfast.tools.files.list_files import ListFiles
from holdfast.tools.files.read_file import ReadFile
from holdfast.tools.files.search_files import SearchFiles
from holdfast.tools.files.write_file import WriteFile
from holdfast.tools.ports import Tool
from holdfast.tools.sandbox.protected_paths import Vault
from holdfast.tools.sandbox.sandbox import NO_WALLS, Walls
from holdfast.tools.shell import Shell
from holdfast.tools.web.address_policy import Admission
from holdfast.tools.web.fetch_url import FetchUrl
from holdfast.tools.web.web_client import WebClient
from holdfast.tools.web.web_search import WebSearch, engine_from


def builtin_tools(
    folder: Path, environ: Mapping[str, str] | None = None, walls: Walls = NO_WALLS
) -> tuple[Tool, ...]:
    """Every built-in tool. `folder` is the data folder, which none of them may reach into.

    Commands get only harmless parts of `environ` and run behind `walls`.
    """
    shell, vault = Shell(folder, os.environ if environ is None else environ, walls), Vault(folder)
    changing = Changing(folder, vault)
    files = (ReadFile(vault), WriteFile(changing), EditFile(changing), ListFiles(vault), SearchFiles(vault))
    return (shell, *files, AskUser())


def web_tools(
    allowed: Iterable[str], own_port: int, searxng_url: str, environ: Mapping[str, str]
) -> tuple[Tool, ...]:
    """The tools that ask others for pages; searching is one only where there is somebody to ask.

    `allowed` and `own_port`: see `Admission`. Raises BadUrl.
    """
    fetch = FetchUrl(WebClient(Admission(allowed, own_port)))
    engine = engine_from(searxng_url, environ)
    return (fetch,) if engine is None else (fetch, WebSearch(engine))


def by_name(tools: tuple[Tool, ...]) -> Mapping[str, Tool]:
    """The tools as a call names them."""
    named = {tool.spec.name: tool for tool in tools}
    assert len(named) == len(tools), "two tools have the same name"
    return named


class Joined(Mapping[str, Tool]):
    """The tools of several mappings, as they are when somebody looks. No two have the same name in them."""

    def __init__(self, *all_: Mapping[str, Tool]) -> None:
        self._all = all_

    def __getitem__(self, name: str) -> Tool:
        for each in self._all:
            if (tool := each.get(name)) is not None:
                return tool
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for each in self._all for name in each)

    def __len__(self) -> int:
        return sum(map(len, self._all))
