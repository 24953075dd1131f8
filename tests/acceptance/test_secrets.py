"""Secrets are planted everywhere, then looked for everywhere: in what is stored, sent, printed and exported.

Beside each of them a word is planted that nobody knows to be secret. The same search must find that one, or
the search would prove nothing.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from holdfast.domain.ids import SessionId
from holdfast.domain.secrets import MASK
from tests.acceptance.conftest import CliHarness, RunningServer, cli_in
from tests.acceptance.leaking_model import (
    CONTROL,
    HEADER,
    KEY,
    MASKED,
    PASSWORD,
    PLANTED,
    SECRETS,
    TOKEN,
    WHOLE,
    LeakingModelServer,
)
from tests.support.api_client import ApiClient, scripted_model_server, wait_until
from tests.support.auth_tokens import bearer_headers
from tests.support.sample_conversations import SampleConversation, in_store, save_conversations


class RecordingApiClient(ApiClient):
    """Keeps everything that the server has answered."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        super().__init__(address, session)
        self.heard: list[bytes] = []

    async def request(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        answer = await super().request(method, path, body, **more)
        self.heard.append(answer if isinstance(answer, bytes) else msgspec.json.encode(answer))
        self.heard.append(str(self.headers).encode())
        return answer


@dataclass
class CollectedOutputs:
    """Everything that is there to be searched, by the name of the place."""

    places: dict[str, bytes] = field(default_factory=dict)
    children: list[bytes] = field(default_factory=list)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectedOutputs]:
    """A server into which secrets were planted, and all that can be had of it afterwards."""
    home, found, parrot = tmp_path_factory.mktemp("home"), CollectedOutputs(), LeakingModelServer()
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / "key.txt").write_text(PLANTED)
    (workspace / "AGENTS.md").write_text(f"Here one says {WHOLE}.")
    data = home / "share" / "holdfast"
    with scripted_model_server(parrot):
        written = _write_secrets(data, parrot.url)
        secrets = {
            "OPENAI_API_KEY": KEY,
            "MY_SERVICE_TOKEN": TOKEN,
            "MY_SERVICE_NAME": CONTROL,
            "OPENAI_BASE_URL": parrot.url.replace("://", f"://somebody:{PASSWORD}@"),
        }
        settings = {"HOLDFAST_MODEL": f"openai:{CONTROL}", "HOLDFAST_APPROVALS": "ask"}
        with cli_in(home, **secrets, **settings) as holdfast:
            server = holdfast.serve("--port", "0")
            asyncio.run(_run_conversation(server, str(workspace), found))
            server.process.terminate()
            stdout, logged = server.process.communicate(timeout=60)
            found.places["screen"] = "\n".join(server.output_lines).encode() + stdout.encode()
            found.places["log"] = logged.encode()
            for shape in ("json", "markdown"):
                done = holdfast.run("sessions", "export", "--all", "--format", shape)
                assert done.returncode == 0, done.stderr
                found.places[f"{shape} export"] = done.stdout.encode() + done.stderr.encode()
            found.places["listing"] = holdfast.run("sessions", "list", "--json").stdout.encode()
            refused = holdfast.run("serve", "--port", PLANTED)
            found.places["refusal on the command line"] = refused.stderr.encode()
        found.places["model's requests"] = msgspec.json.encode(parrot.requests)
        # What people have written stays as they wrote it; all else is ours.
        for path in sorted(path for path in data.rglob("*") if path.is_file() and path not in written):
            found.places[f"file {path.relative_to(data)}"] = path.read_bytes()
    yield found


def _write_secrets(data: Path, url: str) -> frozenset[Path]:
    """What people write into files of their own."""
    server = f'url = "{url.removesuffix("/v1")}/mcp"\n'
    headers = f'headers = {{ x-key = "{HEADER}", x-token = "${{MY_SERVICE_TOKEN}}" }}\n'
    texts = {
        "holdfast.toml": f"[mcp.told]\n{server}{headers}",
        "agents/leaky.toml": f'description = "About {WHOLE}"\ninstructions = "Say {WHOLE}"\n',
        "agents/broken.toml": f'model = "{WHOLE}"\n',
        "prompts/leaky.md": f"say {WHOLE} $ARGUMENTS",
    }
    for name, text in texts.items():
        path = data / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
    return frozenset(data / name for name in texts)


async def _run_conversation(server: RunningServer, workspace: str, found: CollectedOutputs) -> None:
    async with aiohttp.ClientSession(headers=bearer_headers(server.token)) as http:
        api = RecordingApiClient(server.address, http)
        session = await api.create_session(title=f"Title {PLANTED}", workspace=workspace)
        await api.request("PATCH", f"/api/sessions/{session}", {"title": f"Better {PLANTED}"})
        untitled = await api.create_session()
        runs = [(await api.send(untitled, f"say {PLANTED}"))["run_id"]]
        for text in (
            f"say {PLANTED}",
            "run cat key.txt; cat key.txt >&2",
            'run while IFS= read -r -n1 c; do printf %s "$c"; sleep 0.002; done < key.txt',
            "read key.txt",
        ):
            runs.append((await api.send(session, text))["run_id"])
            if text.startswith("run"):
                await _decide(api, runs[-1], decision="approve")
            await api.wait_for_run(runs[-1])
        for decision in (
            {"decision": "deny", "reason": f"not with {PLANTED}"},
            {"decision": "approve", "arguments": {"command": f"echo {PLANTED}"}},
        ):
            runs.append((await api.send(session, "run true"))["run_id"])
            await _decide(api, runs[-1], **decision)
            await api.wait_for_run(runs[-1])
        # Each in a conversation of its own: what was not answered is put to the model again.
        failing = [await api.create_session(), await api.create_session()]
        for failed, text in zip(failing, ("refuse me", "fail me"), strict=True):
            runs.append((await api.send(failed, text))["run_id"])
            await api.wait_for_run(runs[-1], "failed")
        await api.wait_for_run(runs[0])
        edited = await api.post(f"/api/sessions/{untitled}/edit", {"text": f"say it again {PLANTED}"})
        await api.wait_for_run(edited["run_id"])
        await _named(api, untitled)
        await _record_child_environments(api, session, server.process.pid, found)
        await _create_named_objects(api, untitled)
        others = await _run_all_tools(api, workspace, runs)
        await _send_invalid_requests(api)
        await _read_everything(api, (session, untitled, *failing, *others), runs)
        found.places["answers over HTTP"] = b"\n".join(api.heard)


async def _run_all_tools(api: RecordingApiClient, workspace: str, runs: list[str]) -> list[str]:
    """What files of people, other servers, questions, changes of files and summaries bring along."""
    session = await api.create_session(agent="leaky", workspace=workspace)
    asks = {"question": f"Which of {WHOLE}?"}
    edit = {"path": "key.txt", "old_text": CONTROL, "new_text": f"{CONTROL}!"}
    for text, decision in (
        (f"/leaky {WHOLE}", {}),
        (f"use ask_user {json.dumps(asks)}", {"decision": "answer", "text": f"All of {WHOLE}"}),
        (
            f"use ask_user {json.dumps(asks | {'choices': [WHOLE, 'none']})}",
            {"decision": "answer", "choices": [MASKED]},
        ),
        ("use told__tell {}", {}),
        ("use told__refuse {}", {}),
        (f"use write_file {json.dumps({'path': 'new.txt', 'content': WHOLE})}", {"decision": "approve"}),
        (f"use edit_file {json.dumps(edit)}", {"decision": "approve"}),
    ):
        runs.append((await api.send(session, text))["run_id"])
        if decision:
            await _decide(api, runs[-1], **decision)
        await api.wait_for_run(runs[-1])
        await api.get(f"/api/runs/{runs[-1]}/changes")
        assert api.status == 200
    for path in ("/api/agents", "/api/agents/leaky", "/api/agents/broken", "/api/prompts", "/api/mcp"):
        await api.get(path)
        assert api.status == 200
    await api.get(f"/api/agents/leaky/prompt?session_id={session}")
    assert api.status == 200
    bad = {"text": f'description = "{WHOLE}"\nnothing = "{WHOLE}"\n'}
    await api.request("PUT", "/api/agents/worse", bad)
    assert api.status == 400
    await api.post(f"/api/sessions/{session}/compact", {})
    assert api.status < 300
    moved = await api.post(f"/api/sessions/{session}/continue", {})
    assert api.status == 201
    return [session, moved["id"]]


async def _decide(api: ApiClient, run_id: str, **decision: Any) -> None:
    """Answer what the run asks."""
    await api.wait_for_run(run_id, "waiting")
    asked = [each for each in (await api.get("/api/questions"))["questions"] if each["run_id"] == run_id]
    await api.post(f"/api/runs/{run_id}/tools/{asked[0]['call_id']}", decision)
    assert api.status < 300


async def _named(api: ApiClient, session: str) -> None:
    async def is_so() -> bool:
        return str((await api.get(f"/api/sessions/{session}"))["title"]).startswith("Title ")

    await wait_until(is_so)


async def _record_child_environments(api: ApiClient, session: str, pid: int, found: CollectedOutputs) -> None:
    """The environment of what a command runs in, seen from outside while it runs."""
    run_id = (await api.send(session, "run sleep 30"))["run_id"]
    await _decide(api, run_id, decision="approve")

    async def is_so() -> bool:
        found.children = list(_environments(pid))
        return any(b"TERM=dumb" in each for each in found.children)

    await wait_until(is_so)
    await api.post(f"/api/runs/{run_id}/cancel")
    await api.wait_for_run(run_id, "cancelled")


def _environments(pid: int) -> Iterator[bytes]:
    """Of all processes below `pid` that let themselves be looked at."""
    for child in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _parent(child) == pid:
                yield (child / "environ").read_bytes()
        with suppress(OSError):
            if _parent(child) == pid:
                yield from _environments(int(child.name))


def _parent(process: Path) -> int:
    # Whatever its name holds, the state and the parent stand behind the last bracket.
    return int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])


async def _create_named_objects(api: ApiClient, session: str) -> None:
    """Whatever else people and programs give a name to."""
    body = {"text": "say nothing", "key": f"key {PLANTED}"}
    first = await api.post(f"/api/sessions/{session}/turns", body)
    await api.wait_for_run(first["run_id"])
    assert await api.post(f"/api/sessions/{session}/turns", body) == first, "known again"
    await api.post("/api/tokens", {"name": PLANTED})
    assert api.status == 201
    await api.get("/api/tokens")
    await api.request("PATCH", "/api/settings", {"never_run": ["halt *", f"echo {PLANTED}"]})
    assert api.status == 200
    await api.get("/api/settings")
    named, kind = quote(f"{PLANTED}.txt", safe=""), {"content-type": "text/plain"}
    kept = await api.post(f"/api/files?name={named}", data=b"words", headers=kind)
    assert api.status == 201
    await api.get(f"/api/files/{kept['id']}?name={named}")
    assert quote(MASK, safe="") in api.headers["content-disposition"]


async def _send_invalid_requests(api: ApiClient) -> None:
    """Every way in which an answer repeats what was asked."""
    named = quote(PLANTED, safe="")
    for path in (
        f"/api/sessions/{named}",
        f"/nothing/{named}",
        f"/api/runs/{named}",
        f"/api/search?q={named}",
    ):
        await api.get(path)
    await api.post("/api/sessions", {PLANTED: 1})
    await api.post("/api/rules", {"tool": "shell", "pattern": f"echo {PLANTED}"})
    await api.get("/", headers={"Origin": f"https://{CONTROL}.example"})
    await api.get("/", headers={"Host": f"{KEY}.example"})
    await api.get("/", headers={"Authorization": f"Bearer {TOKEN}"})


async def _read_everything(api: RecordingApiClient, sessions: tuple[str, ...], runs: list[str]) -> None:
    paths = [
        "/", "/health/live", "/health/ready", "/metrics", "/openapi.json", "/api/models", "/api/sessions",
        "/api/questions", "/api/search?q=hidden", *(f"/api/runs/{run_id}" for run_id in runs),
    ]  # fmt: skip
    for path in paths:
        await api.get(path)
    for session in sessions:
        await api.get(f"/api/sessions/{session}")
        page = await api.get(f"/api/sessions/{session}/messages?limit=200")
        async with api.stream(f"/api/sessions/{session}/events?after=0") as frames:
            async for frame in frames:
                api.heard.append(msgspec.json.encode(frame.data))
                if frame.id and int(frame.id) >= page["head"]:
                    break


@pytest.mark.parametrize(
    "secret", [*SECRETS, HEADER, quote(TOKEN, safe=""), json.dumps(TOKEN)[1:-1].replace("/", "\\/")]
)
def test_no_planted_secret_is_found_anywhere(found: CollectedOutputs, secret: str) -> None:
    assert len(found.places) > 10
    assert [place for place, content in found.places.items() if secret.encode() in content] == []


@pytest.mark.parametrize(
    "place",
    [
        "answers over HTTP", "json export", "markdown export", "listing", "screen", "file holdfast.db",
        "model's requests", "refusal on the command line",
    ],
)  # fmt: skip
def test_the_search_finds_an_unregistered_control_secret(found: CollectedOutputs, place: str) -> None:
    assert CONTROL.encode() in found.places[place]
    # And where it stands, the others stood too.
    if place != "screen":
        assert MASK.encode() in found.places[place]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("session_created", 1), ("session_renamed", 2), ("turn_accepted", 3), ("text_appended", 1),
        ("reasoning_appended", 1), ("tool_arguments_appended", 1), ("tool_output_appended", 1),
        ("tool_intended", 2), ("tool_settled", 3), ("message_settled", 4), ("run_failed", 2),
        ("model_step_settled", 1), ("approval_resolved", 1), ("question_asked", 2), ("question_answered", 2),
        ("session_compacted", 1),
    ],
)  # fmt: skip
def test_every_leak_path_was_exercised(found: CollectedOutputs, kind: str, wanted: int) -> None:
    lines = found.places["json export"].splitlines()
    events = [each for line in lines if line.startswith(b"{") for each in json.loads(line)["events"]]
    bodies = [json.dumps(each["body"]) for each in events if each["kind"] == kind]
    assert len([body for body in bodies if MASK in body and CONTROL in body]) >= wanted, bodies


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("model's requests", f"Here one says {MASKED}."),
        ("model's requests", f"Say {MASKED}"),
        ("model's requests", f"All of {MASKED}"),
        ("answers over HTTP", f"About {MASKED}"),
        ("answers over HTTP", f'"name":"told__tell","description":"{MASKED}"'),
        ("answers over HTTP", f"{' '.join([MASK] * 3)} {CONTROL}!"),
        ("file mcp/told.json", MASKED),
    ],
)
def test_user_and_tool_text_was_passed_on_masked(found: CollectedOutputs, place: str, words: str) -> None:
    assert words.encode() in found.places[place]


def test_command_environments_hold_no_secret(found: CollectedOutputs) -> None:
    assert found.children
    for environ in found.children:
        assert not any(secret.encode() in environ for secret in SECRETS)


def test_the_log_is_written_and_holds_no_secret(found: CollectedOutputs) -> None:
    assert not any(secret.encode() in found.places["log"] for secret in SECRETS)


@pytest.fixture
def stored(holdfast: CliHarness, tmp_path: Path) -> SampleConversation:
    """A conversation from before anyone knew that what it holds is secret."""
    story = (
        SampleConversation(f"About {PASSWORD}")
        .user_message(f"Use {KEY}")
        .assistant_message(f"I use {KEY} and {TOKEN}.", f"Hm: {TOKEN}")
    )
    story.user_message("Print").tool_call(
        "shell", f'{{"command":"echo {TOKEN}"}}', f"{KEY}\n{CONTROL}\n"
    ).assistant_message("Done.")
    story.user_message("And?").interrupt(f"Half {PASSWORD} an ans").fail_run()
    save_conversations(tmp_path / "share" / "holdfast", story)
    holdfast.environ |= {"OPENAI_API_KEY": KEY, "A_SECRET": PASSWORD, "MY_SERVICE_TOKEN": TOKEN}
    return story


@pytest.mark.parametrize("shape", ["json", "markdown"])
def test_an_export_masks_secrets_stored_before_they_were_registered(
    holdfast: CliHarness, stored: SampleConversation, shape: str
) -> None:
    done = holdfast.run("sessions", "export", stored.id, "--format", shape)
    assert done.returncode == 0
    assert not any(secret in done.stdout for secret in SECRETS)
    assert CONTROL in done.stdout and MASK in done.stdout
    for name in ("OPENAI_API_KEY", "A_SECRET", "MY_SERVICE_TOKEN"):
        del holdfast.environ[name]
    bare = holdfast.run("sessions", "export", stored.id, "--format", shape)
    assert all(secret in bare.stdout for secret in SECRETS), "the same search finds them"


def test_a_masked_export_imports_cleanly(
    holdfast: CliHarness, stored: SampleConversation, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "masked.json", tmp_path / "elsewhere"
    done = holdfast.run("sessions", "export", stored.id, "-o", str(file))
    assert "held a secret of your environment" in done.stderr
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.returncode == 0, taken.stderr
    checked = holdfast.run("doctor", "--data", str(elsewhere))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    events = in_store(elsewhere, lambda store: store.read(SessionId(stored.id), 0, 1000))
    bodies = b"".join(each.body for each in events)
    assert not any(secret.encode() in bodies for secret in SECRETS)
    assert f"I use {MASK} and {MASK}.".encode() in bodies and CONTROL.encode() in bodies


def test_an_import_masks_known_secrets(
    holdfast: CliHarness, stored: SampleConversation, tmp_path: Path
) -> None:
    file, elsewhere = tmp_path / "raw.json", tmp_path / "elsewhere"
    known = {name: holdfast.environ.pop(name) for name in ("OPENAI_API_KEY", "A_SECRET", "MY_SERVICE_TOKEN")}
    assert holdfast.run("sessions", "export", stored.id, "-o", str(file)).returncode == 0
    assert all(secret in file.read_text() for secret in SECRETS)
    holdfast.environ |= known
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.returncode == 0, taken.stderr
    assert "held a secret of your environment, which was masked" in taken.stderr
    for path in (path for path in elsewhere.rglob("*") if path.is_file()):
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path
    # What lies packed in the file is not found there as it reads.
    events = in_store(elsewhere, lambda store: store.read(SessionId(stored.id), 0, 1000))
    assert not any(secret.encode() in b"".join(each.body for each in events) for secret in SECRETS)
    again = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert (again.returncode, "Already here" in again.stdout) == (0, True)
    assert not any(secret in done.stdout + done.stderr for done in (taken, again) for secret in SECRETS)
    checked = holdfast.run("doctor", "--data", str(elsewhere))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_setting_error_is_reported_without_its_secret(holdfast: CliHarness) -> None:
    holdfast.environ |= {"OPENAI_API_KEY": KEY, "HOLDFAST_MODEL": f"bad:{KEY}-{CONTROL}"}
    refused = holdfast.run("serve", "--port", "0")
    assert refused.returncode == 1
    assert CONTROL in refused.stderr and KEY not in refused.stderr + refused.stdout
    assert os.environ.get("OPENAI_API_KEY") != KEY
