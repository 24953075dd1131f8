"""Whatever the description allows and forbids, sent to a real server: signed in, and as a stranger.

`HOLDFAST_EXAMPLES=500` sends more than the usual few; a failure prints what repeats it.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.acceptance.conftest import RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "8"))
STREAMS = r"(/events|^/api/stream)$"
"""Answers without an end, which have tests of their own."""
PENDING, MEMORIES, AGENTS, LONG, UNDONE, EDITABLE = 6, 40, 40, 8, 10, 4
"""More than are dropped and forgotten before everything was tried."""
DECIDES = "POST /api/runs/{run_id}/tools/{call_id}"
MOVES = "POST /api/sessions/{session_id}/continue"
DELETES = "DELETE /api/sessions/{session_id}"
SIGNS_OUT = r"^/api/sign-out$"
PUBLIC = frozenset({"/health/live", "/api/sign-in", "/api/channels/telegram", "/api/channels/webhook"})
"""What a stranger may reach."""
NEVER_DONE = frozenset({
    "POST /api/sign-in", "POST /api/runs/{run_id}/resume", "POST /api/models/connect",
    "POST /api/models/disconnect", "GET /api/backups/{name}", "DELETE /api/sign-ins/{sign_in_id}",
    "POST /api/channels/{name}/test", "POST /api/channels/telegram/connect", "POST /api/channels/telegram",
    "POST /api/channels/webhook", "POST /api/pairing", "DELETE /api/senders/{channel}/{sender}",
    "POST /api/mcp/{name}/reconnect",
})  # fmt: skip
"""What no made-up request brings about: a code that was given, a run that was interrupted, another model than
the one in the environment, a backup by its name, a browser that is signed in, a chat app, tools of others."""
CONFIG = """
[dictionaries]
session_ids.values = {sessions}
run_ids.values = {runs}
call_ids.values = {calls}
asking_ids.values = {asking}
asked_ids.values = {asked}
memory_ids.values = {memories}
owing_ids.values = {owing}
segments.values = [1]
agent_names.values = {agents}
long_ids.values = {long}
undone_ids.values = {undone}
editable_ids.values = {editable}
providers.values = ["mistral", "groq", "ollama"]

[parameters]
"path.session_id" = {{ dictionary = "session_ids", probability = 0.7 }}
"path.run_id" = {{ dictionary = "run_ids", probability = 0.7 }}
"path.call_id" = {{ dictionary = "call_ids", probability = 0.7 }}
"path.memory_id" = {{ dictionary = "memory_ids", probability = 0.8 }}

[generation]
database = "none"
deterministic = true

# A question is about one call of one run.
[[operations]]
include-name = "POST /api/runs/{{run_id}}/tools/{{call_id}}"
parameters."path.run_id" = {{ dictionary = "asking_ids", probability = 0.9 }}
parameters."path.call_id" = {{ dictionary = "asked_ids", probability = 0.9 }}

# What memory is owed is one stretch of one conversation.
[[operations]]
include-name = "POST /api/memory/waiting/{{session_id}}/{{segment}}"
parameters."path.session_id" = {{ dictionary = "owing_ids", probability = 0.9 }}
parameters."path.segment" = {{ dictionary = "segments", probability = 0.9 }}

# There is something to summarise in a long one.
[[operations]]
include-name = "POST /api/sessions/{{session_id}}/compact"
parameters."path.session_id" = {{ dictionary = "long_ids", probability = 0.9 }}

# There is something to restore where something was undone.
[[operations]]
include-name = "POST /api/sessions/{{session_id}}/restore"
parameters."path.session_id" = {{ dictionary = "undone_ids", probability = 0.9 }}

# A turn can be edited where no other request removed it.
[[operations]]
include-name = "POST /api/sessions/{{session_id}}/edit"
parameters."path.session_id" = {{ dictionary = "editable_ids", probability = 0.9 }}

# Agents have files, and names that files can have.
[[operations]]
include-path-regex = "^/api/agents/"
parameters."path.name" = {{ dictionary = "agent_names", probability = 0.9 }}

# Providers of models are a list that everybody knows.
[[operations]]
include-path-regex = "^/api/models/providers/"
parameters."path.provider" = {{ dictionary = "providers", probability = 0.9 }}

# What a stranger sends is limited before it is read, so that is said first.
[[operations]]
include-path = "/api/sign-in"
checks.negative_data_rejection.expected-statuses = ["400", "401", "403", "413", "415", "422", "429"]

# What is sent by other methods must be JSON before anything else is looked at; that has tests of its own.
[phases.coverage]
unexpected-methods = ["PUT", "DELETE", "TRACE"]
"""
NOT_CHECKED = ("positive_data_acceptance", "ignored_auth")
"""That a folder is there or a cursor was given cannot be described. Wrong tokens are tried by the strangers
below: after a few of them the answer is that there were too many, and schemathesis would not have that."""


@pytest.fixture
def server(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[RunningServer]:
    """Each test leaves a different one behind."""
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command.serve("--port", "0")


async def _create_fixtures(api: ApiClient) -> dict[str, list[str]]:
    """Conversations in which nothing moves by itself: the ids of all that requests may be about."""
    ids: dict[str, list[str]] = {"sessions": [], "runs": [], "calls": []}
    for text, state in (("hello", "completed"), ("run true", "waiting"), ("run false", "waiting")):
        session, run, calls = await _start_run(api, text, state)
        ids["sessions"].append(session)
        ids["runs"].append(run)
        ids["calls"] += calls
    _, asking, asked = await _start_run(api, "run id", "waiting")
    long = await api.create_session()
    for _ in range(LONG):
        await api.wait_for_run((await api.send(long, "hello"))["run_id"])
    pending = [(await _start_run(api, "hello", "completed"))[0] for _ in range(PENDING)]
    undone = [(await _start_run(api, "hello", "completed"))[0] for _ in range(UNDONE)]
    editable = [(await _start_run(api, "hello", "completed"))[0] for _ in range(EDITABLE)]
    for session in undone:
        await api.post(f"/api/sessions/{session}/undo", {})
    memories = [(await api.post("/api/memory", {"text": f"Fact {n}."}))["id"] for n in range(MEMORIES)]
    agents = [f"agent{n}" for n in range(AGENTS)]
    for name in agents:
        await api.request("PUT", f"/api/agents/{name}", {"text": ""})
    return ids | {
        "asking": [asking], "asked": asked, "owing": pending, "memories": memories, "agents": agents,
        "long": [long], "undone": undone, "editable": editable,
    }  # fmt: skip


async def _start_run(api: ApiClient, text: str, state: str) -> tuple[str, str, list[str]]:
    """A conversation whose run has come to `state`: its id, the run's and the calls'."""
    session = await api.create_session()
    receipt = await api.send(session, text)
    await api.wait_for_run(receipt["run_id"], state)
    calls = [each["id"] for each in await api.entries(session) if each["role"] == "tool"]
    return session, receipt["run_id"], calls


def _fuzz(server: RunningServer, folder: Path, ids: dict[str, list[str]], token: str) -> dict[str, set[int]]:
    """Send what schemathesis makes of the description: the statuses by operation. Fails for a fault.

    Whoever is in answers questions first, moves conversations on late and deletes them last: what else is
    sent closes questions, and would find nothing where a conversation was.
    """
    described = folder / "openapi.json"
    description = server.request("/openapi.json").body
    described.write_text(description)
    paths = json.loads(description)["paths"]
    config, answers = folder / "schemathesis.toml", folder / "answers.har"
    config.write_text(CONFIG.format(**{name: json.dumps(values) for name, values in ids.items()}))
    words = ["--config-file", config, "run", described, "--url", server.address.rstrip("/")]
    # Whoever is outside is not told what would be taken.
    not_checked = NOT_CHECKED if token == server.token else (*NOT_CHECKED, "unsupported_method")
    words += ["--checks", "all", "--exclude-checks", ",".join(not_checked), "--no-color"]
    words += ["--max-examples", str(EXAMPLES), "--request-timeout", "20", "--warnings", "off"]
    words += ["--report", "har", "--report-har-path", answers, "--output-truncate", "false"]
    if token:
        words += ["--header", f"Authorization: Bearer {token}"]
    found: dict[str, set[int]] = defaultdict(set)
    rest = ["--exclude-path-regex", f"{STREAMS}|{SIGNS_OUT}"]
    most = [*rest, "--exclude-name", MOVES, "--exclude-name", DELETES]
    passes = [["--include-name", DECIDES], most, ["--include-name", MOVES], ["--include-name", DELETES]]
    for chosen in passes if token == server.token else [rest]:
        command = [sys.executable, "-m", "schemathesis.cli", *map(str, words), *chosen]
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=600 + EXAMPLES * 10
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        for entry in json.loads(answers.read_text())["log"]["entries"]:
            path = _template(paths, urlsplit(entry["request"]["url"]).path)
            found[f"{entry['request']['method']} {path}"].add(entry["response"]["status"])
    return found


def _template(paths: Collection[str], path: str) -> str:
    """Which of the described paths `path` is one of; itself where it is none."""
    if path in paths:
        return path
    steps = path.split("/")
    for known in paths:
        each = known.split("/")
        if len(each) == len(steps) and all(
            a == b or a.startswith("{") for a, b in zip(each, steps, strict=True)
        ):
            return known
    return path


async def _store_snapshot(api: ApiClient) -> list[Any]:
    """What a stranger could have changed: every conversation with its head, and what lets people in."""
    sessions = (await api.get("/api/sessions?limit=100"))["sessions"]
    heads = [await api.get(f"/api/sessions/{each['id']}") for each in sessions]
    settled = (
        "/api/sessions?archived=true", "/api/settings", "/api/password", "/api/backups", "/api/models",
        "/api/memory?limit=200", "/api/memory/waiting", "/api/channels", "/api/senders",
    )  # fmt: skip
    return [heads, (await api.get("/api/tokens"))["tokens"], *[await api.get(path) for path in settled]]


async def test_authenticated_requests_get_only_documented_responses(
    server: RunningServer, tmp_path: Path
) -> None:
    async with api_client(server.address) as api:
        ids = await _create_fixtures(api)
        busy, running, _ = await _start_run(api, "count 3000", "running")
        ids["sessions"].append(busy)
        ids["runs"].append(running)
        statuses = _fuzz(server, tmp_path, ids, server.token)
        # The other end is reached: each operation did what it is for at least once.
        described = await api.get("/openapi.json")
        unreached = [
            name
            for name in _operations(described)
            if not any(status < 300 for status in statuses.get(name, ())) and name not in NEVER_DONE
        ]
        assert unreached == [], "\n".join(unreached)
        assert (await api.get("/health/ready"))["status"] == "ready"
    assert server.process.poll() is None


@pytest.mark.parametrize("token", ["", "hf_a-token-that-nobody-was-given"], ids=["none", "wrong"])
async def test_unauthenticated_requests_are_refused_and_change_nothing(
    token: str, server: RunningServer, tmp_path: Path
) -> None:
    async with api_client(server.address) as api:
        ids = await _create_fixtures(api)
        before = await _store_snapshot(api)
        statuses = _fuzz(server, tmp_path, ids, token)
        let_in = {
            name: sorted(found)
            for name, found in statuses.items()
            if name.partition(" ")[2] not in PUBLIC and not found <= {401, 403, 429}
        }
        assert let_in == {}
        assert len(statuses) >= len(_operations(await api.get("/openapi.json")))
        assert await _store_snapshot(api) == before


async def test_streams_need_authentication_and_answer_any_cursor_as_documented(
    server: RunningServer,
) -> None:
    async with api_client(server.address) as api, api_client(server.address, token="") as anonymous:
        session = await api.create_session()
        streams = [
            f"/api/sessions/{session}/events",
            "/api/stream?feed=true",
            f"/api/stream?session={session}:0",
        ]
        for path in streams:
            problem = await anonymous.get(path)
            assert (anonymous.status, problem["code"]) == (401, "not_signed_in")
            async with asyncio.timeout(30), api.stream(path) as frames:
                await anext(frames)
        described = (await api.get("/openapi.json"))["paths"]
        for cursor in ("-1", "x", "9" * 30, "", "0x1", "1.5", "%00", "null", "1&after=2"):
            found = await api.get(f"/api/sessions/{session}/events?after={cursor}")
            documented = described["/api/sessions/{session_id}/events"]["get"]["responses"]
            assert str(api.status) in documented, (cursor, found)
            assert (api.status, found["code"]) == (400, "bad_cursor"), cursor


def _operations(described: dict[str, Any]) -> list[str]:
    """Every operation that is sent something to: not the streams, nor what would sign us out."""
    return [
        f"{method.upper()} {path}"
        for path, item in described["paths"].items()
        for method in item
        if not re.search(f"{STREAMS}|{SIGNS_OUT}", path)
    ]
