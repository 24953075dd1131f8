"""Who may import whom: dependencies point one way, and no two modules need each other."""

import ast
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from tests.support.source_files import Source

MAY_USE: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "domain": frozenset(),
        "config": frozenset({"domain"}),
        "overview": frozenset({"domain"}),
        "office": frozenset({"domain"}),
        "administration": frozenset({"domain", "config", "office", "agent", "memory", "store", "gateway"}),
        "hardening": frozenset({"domain"}),
        "store": frozenset({"domain"}),
        "agent": frozenset({"domain"}),
        "memory": frozenset({"domain"}),
        "engine": frozenset({"domain", "store"}),
        "gateway": frozenset({"domain", "store", "engine"}),
        "server": frozenset({"domain", "store", "engine", "overview", "office"}),
        "cli": frozenset({"domain", "store", "engine", "overview", "office", "config"}),
        "__main__": frozenset({"main"}),
    }
)
"""Beside itself and the package's version. `main` sees all."""
ADAPTERS = ("holdfast.store.sqlite", "holdfast.store.postgres")
"""Known to themselves and to `main`; everyone else is written against the ports."""


def imports(source: Source, modules: Collection[str]) -> Iterator[tuple[str, int]]:
    """Every module of ours that `source` imports, with the line."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "holdfast":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, (
                f"{source.module}:{node.lineno}: relative imports hide where things come from"
            )
            base = node.module or ""
            if base.split(".")[0] == "holdfast":
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield (inner if inner in modules else base), node.lineno


def wrong_ways(source: Source, modules: Collection[str]) -> Iterator[str]:
    """Imports that point the wrong way."""
    if source.room == "main":
        return
    allowed = MAY_USE.get(source.room, frozenset()) | {source.room, ""}
    for target, line in imports(source, modules):
        room = [*target.split("."), ""][1]
        if room not in allowed:
            yield f"{source.module}:{line}: {source.room or 'holdfast'} may not use {room}"
        for adapter in ADAPTERS:
            if target.startswith(adapter) and not source.module.startswith(adapter):
                yield f"{source.module}:{line}: only main knows {adapter}"


def cycle(sources: list[Source]) -> list[str]:
    """The modules of one import cycle, in order; nothing when there is none."""
    modules = {each.module for each in sources}
    graph = {each.module: sorted({target for target, _ in imports(each, modules)}) for each in sources}
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        for target in graph.get(module, ()):
            if found := visit(target):
                return found
        done.add(path.pop())
        return []

    return next((found for module in sorted(graph) if (found := visit(module))), [])
