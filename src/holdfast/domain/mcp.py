"""Parse and check the `[mcp.NAME]` tables of `holdfast.toml`.

A value in `env`, `headers` or `url` may name environment variables as `${NAME}`; their values are secret and
appear only in what `expand_variables` returns.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Effect
from holdfast.domain.limits import (
    MCP_CALL_S,
    MCP_CALL_S_MAX,
    MCP_SERVERS_MAX,
    MCP_START_S,
    MCP_START_S_MAX,
)
from holdfast.domain.secrets import find_secrets

NAME = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")
NAME_CHARS_MAX = 24
SEPARATOR = "__"
"""The separator between a server's name, which never contains it, and a tool's."""
_VARIABLE = re.compile(r"\$\{(\w*)\}")
_BREAKS = frozenset("\r\n\0")
_FIELD = re.compile(r"`\$\.(\w+)")
_ALLOWED: Mapping[str, str] = MappingProxyType({
    "command": "a program, as text",
    "args": "a list of text",
    "env": "a table of text by the names of variables",
    "cwd": "a folder, as text",
    "url": "an address that begins with http:// or https://, as text",
    "headers": "a table of text by the names of headers",
    "tools": "a list of tools by their names",
    "effects": "a table of pure, idempotent or unsafe by the names of tools",
    "start_timeout_s": f"a whole number from 1 to {MCP_START_S_MAX}",
    "call_timeout_s": f"a whole number from 1 to {MCP_CALL_S_MAX}",
})  # fmt: skip
"""Every key of such a table, with its allowed values."""


class BadMcpServer(ValueError):
    """A table is invalid; the message says why."""


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of an MCP server: a `command` to start, or a `url`."""

    name: str = ""
    command: Annotated[str, Meta(min_length=1, max_length=4_096)] = ""
    args: tuple[str, ...] = ()
    env: dict[Annotated[str, Meta(pattern=r"\A[A-Za-z_][A-Za-z0-9_]*\Z")], str] = msgspec.field(
        default_factory=dict
    )
    cwd: Annotated[str, Meta(min_length=1)] = ""
    url: Annotated[str, Meta(pattern=r"\Ahttps?://\S+\Z")] = ""
    headers: dict[Annotated[str, Meta(pattern=r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")], str] = msgspec.field(
        default_factory=dict
    )
    tools: tuple[str, ...] | None = None
    """The tools that may be used; None: all."""
    effects: dict[str, Effect] = msgspec.field(default_factory=dict)
    """The effect of each tool, if the server does not declare it or is not trusted."""
    start_timeout_s: Annotated[int, Meta(ge=1, le=MCP_START_S_MAX)] = MCP_START_S
    call_timeout_s: Annotated[int, Meta(ge=1, le=MCP_CALL_S_MAX)] = MCP_CALL_S

    @property
    def is_remote(self) -> bool:
        return bool(self.url)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"


McpState = Literal["connecting", "ready", "waiting", "stopped"]


class McpServerInfo(msgspec.Struct, frozen=True):
    """The state of an MCP server in this process.

    `waiting`: it failed and is retried at `retry_at`. `tools` have the names that models use; `left_out` says
    in sentences which tools are not offered, and why. `last_error` remains until the server is ready. Counts
    start with this process. Times are milliseconds since 1970; 0: never.
    """

    name: str
    kind: Literal["stdio", "http"]
    state: McpState
    tools: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    last_error: str = ""
    last_error_at: Instant = 0
    ready_since: Instant = 0
    retry_at: Instant = 0
    connections: int = 0
    """The number of times it became ready."""
    calls: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of tool calls by outcome: done, failed, unknown."""


def parse_servers(tables: object) -> tuple[McpServer, ...]:
    """Parse the table `mcp`. Raises BadMcpServer."""
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise BadMcpServer("mcp must hold tables like [mcp.files]")
    if len(tables) > MCP_SERVERS_MAX:
        raise BadMcpServer(f"there are {len(tables)} MCP servers, but at most {MCP_SERVERS_MAX}")
    return tuple(_parse_server(name, table) for name, table in tables.items())


def _parse_server(name: str, table: Mapping[str, object]) -> McpServer:
    label = f"[mcp.{name}]"
    if not NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise BadMcpServer(
            f"{label}: a name has small letters and digits, with single - or _ between,"
            f" and at most {NAME_CHARS_MAX} characters"
        )
    for key in table:
        if key not in _ALLOWED:
            raise BadMcpServer(f"{label}: there is no key {key}; there are {', '.join(_ALLOWED)}")
    try:
        server = msgspec.convert({**table, "name": name}, McpServer)
    except msgspec.ValidationError as error:
        field = _FIELD.search(str(error))
        key = field[1] if field else "a key"
        raise BadMcpServer(f"{label}: {key} must be {_ALLOWED.get(key, 'as documented')}") from None
    _check_transport(label, server)
    return server


def _check_transport(label: str, server: McpServer) -> None:
    if bool(server.command) == bool(server.url):
        raise BadMcpServer(f"{label}: give either command or url")
    wrong = ("args", "env", "cwd") if server.is_remote else ("headers",)
    for key in wrong:
        if getattr(server, key):
            raise BadMcpServer(f"{label}: {key} goes with {'command' if server.is_remote else 'url'}")
    values = (server.command, server.cwd, *server.args, *server.env.values(), *server.headers.values())
    if any("\0" in value for value in values):
        raise BadMcpServer(f"{label}: no value may hold a NUL")


def server_secrets(server: McpServer, environ: Mapping[str, str]) -> frozenset[str]:
    """Return the secrets that `expand_variables` finds, without the values that it would refuse."""

    def is_set(text: str) -> bool:
        values = [environ.get(found[1]) for found in _VARIABLE.finditer(text)]
        return not set(text) & _BREAKS and all(
            value is not None and not set(value) & _BREAKS for value in values
        )

    expandable = msgspec.structs.replace(
        server,
        headers={name: text for name, text in server.headers.items() if is_set(text)},
        env={name: text for name, text in server.env.items() if is_set(text)},
        url=server.url if is_set(server.url) else "",
    )
    return expand_variables(expandable, environ)[1]


def expand_variables(server: McpServer, environ: Mapping[str, str]) -> tuple[McpServer, frozenset[str]]:
    """Return `server` with its variables substituted, and the secret values in it.

    Every header counts as secret, since servers authenticate by them. Raises BadMcpServer if a variable is
    not set.
    """
    secrets: set[str] = set()

    def substitute(key: str, text: str) -> str:
        def variable_value(found: re.Match[str]) -> str:
            if found[1] not in environ:
                problem = f"{key} names the variable {found[1]}, which is not set"
                raise BadMcpServer(f"[mcp.{server.name}]: {problem}")
            return environ[found[1]]

        return _VARIABLE.sub(variable_value, text)

    headers = {name: substitute(f"headers.{name}", text) for name, text in server.headers.items()}
    for value in headers.values():
        if set(value) & _BREAKS:
            raise BadMcpServer(f"[mcp.{server.name}]: a header holds no line break")
        secrets.update((value, value.rpartition(" ")[2]))
    env = {name: substitute(f"env.{name}", text) for name, text in server.env.items()}
    secrets.update(find_secrets(env))
    secrets.update(environ.get(found[1], "") for found in _VARIABLE.finditer(server.url))
    changed: dict[str, Any] = {"env": env, "headers": headers, "url": substitute("url", server.url)}
    return msgspec.structs.replace(server, **changed), frozenset(secrets - {""})
