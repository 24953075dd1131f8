"""Which package may import which: dependencies point one way, and no two modules need each other."""

import ast
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from tests.support.source_files import SourceFile

_BASE = frozenset({"aio", "domain"})
_MODELS = _BASE | {"settings"}
_TOOLS = _BASE | {"models"}
_MEMORY = _BASE | {"settings", "models"}
_AGENT = _BASE | {"settings", "models", "tools", "memory"}
_CHANNELS = _BASE | {"store", "settings", "engine", "agent"}
_FEATURES = frozenset({"models", "tools", "mcp", "memory", "agent", "auth", "channels"})
_CLIENTS = _BASE | _FEATURES | {"store", "settings", "engine", "status", "services"}

MAY_IMPORT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "aio": frozenset(),
        "domain": frozenset(),
        "hardening": _BASE,
        "status": _BASE,
        "store": _BASE,
        "settings": _BASE | {"store"},
        "engine": _BASE | {"store"},
        "models": _MODELS,
        "tools": _TOOLS,
        "mcp": _TOOLS | {"tools"},
        "memory": _MEMORY,
        "agent": _AGENT,
        "auth": _BASE | {"store"},
        "channels": _CHANNELS,
        "services": _BASE | _FEATURES | {"settings", "engine"},
        "http": _CLIENTS,
        "cli": _CLIENTS,
        "__main__": frozenset({"app"}),
    }
)
"""What each package may import beside itself and the package's version. `app` may import everything."""
READ_SETTINGS = (
    "holdfast.settings",
    "holdfast.cli",
    "holdfast.channels.access",
    "holdfast.channels.service",
    "holdfast.memory.provider_selection",
    "holdfast.models.connection_file",
    "holdfast.models.overrides",
    "holdfast.models.service",
)
"""Only these modules, `app` apart, see all settings; every other part receives plain values."""
ADAPTERS = ("holdfast.store.sqlite", "holdfast.store.postgres")
"""Only `app` knows which store there is; everything else is written against the ports."""


def imports(source: SourceFile, modules: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield every module of the product that `source` imports, with the line."""
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


def wrong_imports(source: SourceFile, modules: Collection[str]) -> Iterator[str]:
    """Yield the imports that point the wrong way."""
    if source.package == "app":
        return
    allowed = MAY_IMPORT.get(source.package, frozenset()) | {source.package, ""}
    for target, line in imports(source, modules):
        package = [*target.split("."), ""][1]
        if package not in allowed:
            yield f"{source.module}:{line}: {source.package or 'holdfast'} may not import {package}"
        for adapter in ADAPTERS:
            if target.startswith(adapter) and not source.module.startswith(adapter):
                yield f"{source.module}:{line}: only app may import {adapter}"
        if target == "holdfast.settings.settings" and not source.module.startswith(READ_SETTINGS):
            yield f"{source.module}:{line}: pass it plain values, not the settings"


def cycle(sources: list[SourceFile]) -> list[str]:
    """Return the modules of one import cycle, in order; nothing if there is none."""
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
