"""Which right each request needs."""

import pytest

from holdfast.domain.credentials import Right
from holdfast.http.app import PATHS
from holdfast.http.route_rights import required_right

PUBLIC = {
    ("GET", "/"), ("GET", "/page/x"), ("GET", "/health/live"), ("POST", "/api/sign-in"),
    ("POST", "/api/channels/telegram"), ("POST", "/api/channels/webhook"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/", None),
        ("HEAD", "/", None),
        ("POST", "/", "write"),
        ("GET", "/page/page.js", None),
        ("GET", "/page/a/b", "read"),
        ("GET", "/health/live", None),
        ("DELETE", "/health/live", "write"),
        ("GET", "/health/ready", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/openapi.json", "read"),
        ("POST", "/api/sign-in", None),
        ("GET", "/api/sign-in", "read"),
        ("POST", "/api/sign-in/", "write"),
        ("GET", "/api/me", "read"),
        ("POST", "/api/sign-out", "write"),
        ("GET", "/api/stream", "read"),
        ("POST", "/api/sessions", "write"),
        ("PATCH", "/api/sessions/s", "write"),
        ("DELETE", "/api/sessions/s", "write"),
        ("POST", "/api/runs/r/cancel", "write"),
        ("POST", "/api/runs/r/tools/c", "approve"),
        ("POST", "/api/runs/r/tools/c/", "approve"),
        ("POST", "//api//runs/r/tools/c", "approve"),
        ("PUT", "/api/runs/r/tools", "approve"),
        ("GET", "/api/runs/r/tools/c", "read"),
        ("GET", "/api/rules", "read"),
        ("POST", "/api/rules", "approve"),
        ("DELETE", "/api/rules/u", "approve"),
        ("DELETE", "/api/rules/u/", "approve"),
        ("GET", "/api/tokens", "admin"),
        ("POST", "/api/tokens", "admin"),
        ("DELETE", "/api/tokens/k", "admin"),
        ("DELETE", "/api/tokens/k\n", "admin"),
        ("BREW", "/api/tokens", "admin"),
        ("GET", "/api/settings", "read"),
        ("PATCH", "/api/settings", "admin"),
        ("PATCH", "/api/settings/", "admin"),
        ("GET", "/api/mcp", "read"),
        ("POST", "/api/mcp/own/reconnect", "admin"),
        ("GET", "/api/agents", "read"),
        ("GET", "/api/agents/reader/prompt", "read"),
        ("PUT", "/api/agents/reader", "admin"),
        ("DELETE", "//api/agents//reader/", "admin"),
        ("GET", "/api/prompts", "read"),
        ("GET", "/api/models", "read"),
        ("POST", "/api/models/test", "admin"),
        ("POST", "//api/models//connect", "admin"),
        ("POST", "/api/models/disconnect", "admin"),
        ("GET", "/api/password", "admin"),
        ("DELETE", "/api/password", "admin"),
        ("GET", "/api/sign-ins", "admin"),
        ("DELETE", "/api/sign-ins/x", "admin"),
        ("POST", "/api/backup", "admin"),
        ("GET", "/api/backups", "admin"),
        ("HEAD", "/api/backups/x.db", "admin"),
        ("GET", "/api/about", "read"),
        ("GET", "/api/memory", "read"),
        ("GET", "/api/memory/waiting", "read"),
        ("POST", "/api/memory", "write"),
        ("PATCH", "/api/memory/n", "write"),
        ("DELETE", "/api/memory/n", "write"),
        ("POST", "/api/memory/commit", "write"),
        ("POST", "/api/memory/waiting/s/1", "write"),
        ("GET", "/api/channels", "admin"),
        ("POST", "/api/channels/webhook", None),
        ("POST", "/api/channels/webhook/", "admin"),
        ("POST", "//api/channels/webhook", "admin"),
        ("GET", "/api/channels/webhook", "admin"),
        ("POST", "/api/channels/telegram", None),
        ("PUT", "/api/channels/telegram", "admin"),
        ("POST", "/api/channels/telegram/connect", "admin"),
        ("POST", "/api/channels/webhook/test", "admin"),
        ("POST", "/api/pairing", "admin"),
        ("GET", "/api/pairing", "admin"),
        ("GET", "/api/senders", "admin"),
        ("DELETE", "/api/senders/telegram/77", "admin"),
        ("POST", "/api/sessions/s/draft", "write"),
        ("BREW", "/nowhere", "write"),
        ("GET", "/nowhere", "read"),
        ("GET", "", "read"),
    ],
)
def test_a_request_needs_its_right(method: str, path: str, right: Right | None) -> None:
    assert required_right(method, path) == right


def test_only_the_listed_paths_are_public() -> None:
    methods = ("GET", "POST", "PATCH", "PUT", "DELETE", "OPTIONS")
    named = [(method, path.replace("{name}", "x")) for method in methods for path in PATHS]
    assert {each for each in named if required_right(*each) is None} == PUBLIC
