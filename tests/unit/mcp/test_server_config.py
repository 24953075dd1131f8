"""The tables of MCP servers: what they say, what is wrong with them, and what is secret in them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.mcp import BadMcpServer, McpServer, expand_variables, parse_servers, server_secrets
from holdfast.mcp.ports import OfferedTool, ToolListing
from holdfast.mcp.tool import tool_name_for
from holdfast.mcp.tool_cache import ToolCache
from holdfast.settings.settings import ConfigError, resolve


def read_one(**table: object) -> McpServer:
    return parse_servers({"own": table})[0]


def test_a_table_configures_a_server() -> None:
    server = read_one(
        command="uvx", args=["mcp-server-time"], env={"TZ": "UTC"}, tools=["now"], call_timeout_s=5
    )
    assert (server.name, server.is_remote) == ("own", False)
    assert (server.args, server.env, server.tools) == (("mcp-server-time",), {"TZ": "UTC"}, ("now",))
    assert (server.start_timeout_s, server.call_timeout_s) == (60, 5)
    assert read_one(url="https://example.org/mcp").is_remote


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "give either command or url"),
        ({"command": "a", "url": "http://b"}, "give either command or url"),
        ({"command": 1}, "command must be a program, as text"),
        ({"command": ""}, "command must be a program, as text"),
        ({"command": "a", "args": "b"}, "args must be a list of text"),
        ({"command": "a", "args": [1]}, "args must be a list of text"),
        ({"command": "a", "env": {"A B": "c"}}, "env must be a table of text by the names of variables"),
        ({"command": "a", "env": {"A": 1}}, "env must be a table of text by the names of variables"),
        ({"command": "a", "headers": {"A": "b"}}, "headers goes with url"),
        ({"command": "a\0"}, "no value may hold a NUL"),
        ({"url": "ftp://x"}, "url must be an address that begins with http:// or https://, as text"),
        ({"url": "http://x", "args": ["b"]}, "args goes with command"),
        ({"url": "http://x", "headers": {"A b": "c"}}, "headers must be a table of text"),
        (
            {"command": "a", "effects": {"b": "harmless"}},
            "effects must be a table of pure, idempotent or unsafe",
        ),
        ({"command": "a", "call_timeout_s": 0}, "call_timeout_s must be a whole number from 1 to 3600"),
        ({"command": "a", "call_timeout_s": "5"}, "call_timeout_s must be a whole number from 1 to 3600"),
        ({"command": "a", "name": "b"}, "there is no key name; there are command, args"),
    ],
)
def test_a_bad_server_table_names_the_allowed_values(table: dict[str, object], said: str) -> None:
    with pytest.raises(BadMcpServer) as refused:
        read_one(**table)
    assert str(refused.value).startswith(f"[mcp.own]: {said}")


@pytest.mark.parametrize("name", ["", "A", "a__b", "_a", "a-", "a b", "a.b", "a" * 25, "ä"])
def test_an_ambiguous_server_name_is_rejected(name: str) -> None:
    with pytest.raises(BadMcpServer):
        parse_servers({name: {"command": "a"}})


@pytest.mark.parametrize("tables", [[], "x", {"a": 1}, {f"s{n}": {"command": "a"} for n in range(21)}])
def test_a_value_that_is_not_a_table_of_tables_is_rejected(tables: object) -> None:
    with pytest.raises(BadMcpServer):
        parse_servers(tables)


def test_a_bad_table_error_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text('port = 1\n[mcp.own]\ncommand = "a"\n[mcp.other]\nurl = 1\n')
    with pytest.raises(ConfigError, match=r"holdfast\.toml: \[mcp\.other\]: url must be"):
        resolve({"data": str(tmp_path)}, {})
    (tmp_path / "holdfast.toml").write_text('port = 1\n[mcp.own]\ncommand = "a"\n')
    settings = resolve({"data": str(tmp_path)}, {})
    assert ([each.name for each in settings.mcp], settings.port) == (["own"], 1)
    assert "mcp" not in settings.given


def test_variables_are_expanded_and_their_values_are_secret() -> None:
    environ = {"KEY": "k-123456789", "HOST": "example.org", "HOME": "/folder/ada"}
    server = read_one(
        url="https://${HOST}/x", headers={"Authorization": "Bearer ${KEY}", "X-Team": "builders"}
    )
    reached, secrets = expand_variables(server, environ)
    assert reached.url == "https://example.org/x"
    assert reached.headers["Authorization"] == "Bearer k-123456789"
    assert secrets == {"Bearer k-123456789", "k-123456789", "builders", "example.org"}
    server = read_one(command="a", env={"API_KEY": "${KEY}", "DATA": "${HOME}/x", "PRICE": "$5 ${"})
    reached, secrets = expand_variables(server, environ)
    assert reached.env == {"API_KEY": "k-123456789", "DATA": "/folder/ada/x", "PRICE": "$5 ${"}
    assert secrets == {"k-123456789"}, "a folder is none"
    assert "k-123456789" not in repr(reached)


def test_secrets_are_known_even_if_a_variable_is_unset() -> None:
    headers = {"Authorization": "Bearer ${KEY}", "X-Own": "own-123456789", "X-Bad": "a\nb"}
    server = read_one(url="https://x/${PATH_SECRET}", headers=headers)
    assert server_secrets(server, {}) == {"own-123456789"}
    assert server_secrets(server, {"KEY": "k-1"}) == {"own-123456789", "Bearer k-1", "k-1"}
    assert server_secrets(server, {"KEY": "a\nb", "PATH_SECRET": "p-1"}) == {"own-123456789", "p-1"}
    server = read_one(command="a", env={"API_KEY": "${KEY}", "API_TOKEN": "t-123456789"})
    assert server_secrets(server, {}) == {"t-123456789"}


@pytest.mark.parametrize("value", ["a\nb", "a\r\nX: y"])
def test_a_header_value_cannot_inject_another_header(value: str) -> None:
    with pytest.raises(BadMcpServer, match="no line break"):
        expand_variables(read_one(url="http://x", headers={"A": "${B}"}), {"B": value})


@given(st.text(max_size=200), st.text(max_size=200))
def test_tool_names_are_unique_and_accepted_by_models(one: str, other: str) -> None:
    first, second = tool_name_for("own", one), tool_name_for("own", other)
    assert len(first) <= 64
    assert set(first) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
    assert (first == second) == (one == other)
    assert first.startswith("own__")


def test_cached_tools_belong_to_one_server_only(tmp_path: Path) -> None:
    kept, listing = (
        ToolCache(tmp_path / "mcp"),
        ToolListing((OfferedTool("a", "A.", {"type": "object"}, "pure"),)),
    )
    server = read_one(command="a")
    assert kept.read(server) == ToolListing()
    kept.write(server, listing)
    assert kept.read(server) == listing
    assert kept.read(read_one(command="b")) == ToolListing()
    for wrong in (b"", b"{", b"[]", b"\xff", b"[" * 100_000):
        (tmp_path / "mcp" / "own.json").write_bytes(wrong)
        assert kept.read(server) == ToolListing()
    assert (tmp_path / "mcp" / "own.json").stat().st_mode & 0o077 == 0
