"""Secrets are planted everywhere, then looked for everywhere: in what is stored, sent, printed and exported.

Beside each of them a word is planted that nobody knows to be secret. The same search must find that one, or
the search would prove nothing.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import pytest
from aiohttp import web

from holdfast.domain.ids import SessionId
from holdfast.domain.secrets import MASK
from tests.acceptance.conftest import Holdfast, Running, living_in
from tests.acceptance.talking import Api, Speaker, speaking, until
from tests.keys import bearing
from tests.model_server import DONE, USAGE, call, chunk, event
from tests.stories import Story, in_store, keep

KEY = "sk-proj-Q7vX2mZr9LkPw4Ta"
TOKEN = "T0k/en+of.a=Service~77"
PASSWORD = "pw-hidden-in-an-address"
CONTROL = "wd-nobody-calls-secret"
"""Not a secret to anyone: it is found wherever the others would be."""
SECRETS = (KEY, TOKEN, PASSWORD)
PLANTED = " ".join((*SECRETS, CONTROL))


@dataclass
class Parrot(Speaker):
    """A model that gives away every secret that it knows, in every way that a model has."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await super().answer(request)
        body = await request.json()
        self.asked.append(body)
        messages = body["messages"]
        said = [_text(message) for message in messages if message["role"] == "user"][-1]
        verb, _, rest = said.partition(" ")
        sent = request.headers["Authorization"].removeprefix("Bearer ")
        assert sent == KEY, "the key itself reaches the server that it is for"
        if verb == "refuse" and body.get("tools"):
            error = {"message": f"Incorrect API key provided: {PLANTED}", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for piece in self._pieces(body, messages[-1]["role"], verb, rest):
            await response.write(piece)
        await response.write(USAGE + DONE)
        return response

    async def _pieces(self, body: Any, last: str, verb: str, rest: str) -> AsyncIterator[bytes]:
        if not body.get("tools"):
            yield chunk({"content": f"Title {PLANTED}"}) + chunk({}, "stop")
        elif last == "tool":
            yield chunk({"content": f"It said {PLANTED}."}) + chunk({}, f"because of {PLANTED}")
        elif verb == "say":
            for piece in _cut_everywhere():
                yield chunk({"reasoning_content": piece})
            for piece in _cut_everywhere():
                yield chunk({"content": piece})
                await asyncio.sleep(0)
            yield chunk({}, "stop")
        elif verb == "fail":
            yield chunk({"content": f"Half of it: {KEY[:12]}"})
            yield event({"error": {"message": f"no more for {PLANTED}", "type": "invalid_request_error"}})
        elif verb == "run":
            written = json.dumps({"command": f"{rest}; echo {PLANTED}"})
            yield chunk(call("", index=0, id="call_1", type="function", name="shell"))
            for start in range(0, len(written), 3):
                yield chunk(call(written[start : start + 3], index=0))
            yield chunk({}, "tool_calls")
        elif verb == "read":
            yield chunk(call(json.dumps({"path": rest}), index=0, id="call_1", name="read_file"))
            yield chunk({}, "tool_calls")


def _cut_everywhere() -> Iterator[str]:
    """Each planted word cut in two at each place, then letter by letter."""
    for word in (*SECRETS, CONTROL):
        for cut in range(len(word) + 1):
            yield from (word[:cut], f"{word[cut:]} ")
        yield from word
        yield from (" ", word)  # And whole: the control's search is for this.


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class Listener(Api):
    """Keeps everything that the server has answered."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        super().__init__(address, session)
        self.heard: list[bytes] = []

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        answer = await super().ask(method, path, body, **more)
        self.heard.append(answer if isinstance(answer, bytes) else msgspec.json.encode(answer))
        self.heard.append(str(self.headers).encode())
        return answer


@dataclass
class Found:
    """Everything that is there to be searched, by the name of the place."""

    places: dict[str, bytes] = field(default_factory=dict)
    children: list[bytes] = field(default_factory=list)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    """A server into which secrets were planted, and all that can be had of it afterwards."""
    home, found, parrot = tmp_path_factory.mktemp("home"), Found(), Parrot()
    workspace = tmp_path_factory.mktemp("workspace")
    (workspace / "key.txt").write_text(PLANTED)
    with speaking(parrot):
        secrets = {
            "OPENAI_API_KEY": KEY,
            "MY_SERVICE_TOKEN": TOKEN,
            "MY_SERVICE_NAME": CONTROL,
            "OPENAI_BASE_URL": parrot.url.replace("://", f"://somebody:{PASSWORD}@"),
        }
        settings = {"HOLDFAST_MODEL": f"openai:{CONTROL}", "HOLDFAST_APPROVALS": "ask"}
        with living_in(home, **secrets, **settings) as holdfast:
            server = holdfast.serve("--port", "0")
            asyncio.run(_talk(server, str(workspace), found))
            server.process.terminate()
            told, logged = server.process.communicate(timeout=20)
            found.places["screen"] = "\n".join(server.screen).encode() + told.encode()
            found.places["log"] = logged.encode()
            for shape in ("json", "markdown"):
                done = holdfast.run("sessions", "export", "--all", "--format", shape)
                assert done.returncode == 0, done.stderr
                found.places[f"{shape} export"] = done.stdout.encode() + done.stderr.encode()
            found.places["listing"] = holdfast.run("sessions", "list", "--json").stdout.encode()
            refused = holdfast.run("serve", "--port", PLANTED)
            found.places["refusal on the command line"] = refused.stderr.encode()
        found.places["model's requests"] = msgspec.json.encode(parrot.asked)
        data = home / "share" / "holdfast"
        for path in sorted(path for path in data.rglob("*") if path.is_file()):
            found.places[f"file {path.relative_to(data)}"] = path.read_bytes()
    yield found


async def _talk(server: Running, workspace: str, found: Found) -> None:
    async with aiohttp.ClientSession(headers=bearing(server.token)) as http:
        api = Listener(server.address, http)
        session = await api.begin(title=f"Title {PLANTED}", workspace=workspace)
        await api.ask("PATCH", f"/api/sessions/{session}", {"title": f"Better {PLANTED}"})
        untitled = await api.begin()
        runs = [(await api.say(untitled, f"say {PLANTED}"))["run_id"]]
        for text in (
            f"say {PLANTED}",
            "run cat key.txt; cat key.txt >&2",
            'run while IFS= read -r -n1 c; do printf %s "$c"; sleep 0.002; done < key.txt',
            "read key.txt",
        ):
            runs.append((await api.say(session, text))["run_id"])
            if text.startswith("run"):
                await _decide(api, runs[-1], decision="approve")
            await api.done(runs[-1])
        for decision in (
            {"decision": "deny", "reason": f"not with {PLANTED}"},
            {"decision": "approve", "arguments": {"command": f"echo {PLANTED}"}},
        ):
            runs.append((await api.say(session, "run true"))["run_id"])
            await _decide(api, runs[-1], **decision)
            await api.done(runs[-1])
        # Each in a conversation of its own: what was not answered is put to the model again.
        failing = [await api.begin(), await api.begin()]
        for failed, text in zip(failing, ("refuse me", "fail me"), strict=True):
            runs.append((await api.say(failed, text))["run_id"])
            await api.done(runs[-1], "failed")
        await api.done(runs[0])
        edited = await api.post(f"/api/sessions/{untitled}/edit", {"text": f"say it again {PLANTED}"})
        await api.done(edited["run_id"])
        await _named(api, untitled)
        await _look_at_children(api, session, server.process.pid, found)
        await _name_things(api, untitled)
        await _ask_badly(api)
        await _read_everything(api, (session, untitled, *failing), runs)
        found.places["answers over HTTP"] = b"\n".join(api.heard)


async def _decide(api: Api, run_id: str, **decision: Any) -> None:
    """Answer what the run asks."""
    await api.done(run_id, "waiting")
    asked = [each for each in (await api.get("/api/questions"))["questions"] if each["run_id"] == run_id]
    await api.post(f"/api/runs/{run_id}/tools/{asked[0]['call_id']}", decision)
    assert api.status < 300


async def _named(api: Api, session: str) -> None:
    async def is_so() -> bool:
        return str((await api.get(f"/api/sessions/{session}"))["title"]).startswith("Title ")

    await until(is_so)


async def _look_at_children(api: Api, session: str, pid: int, found: Found) -> None:
    """The environment of what a command runs in, seen from outside while it runs."""
    run_id = (await api.say(session, "run sleep 30"))["run_id"]
    await _decide(api, run_id, decision="approve")

    async def is_so() -> bool:
        found.children = list(_environments(pid))
        return any(b"TERM=dumb" in each for each in found.children)

    await until(is_so)
    await api.post(f"/api/runs/{run_id}/cancel")
    await api.done(run_id, "cancelled")


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


async def _name_things(api: Api, session: str) -> None:
    """Whatever else people and programs give a name to."""
    body = {"text": "say nothing", "key": f"key {PLANTED}"}
    first = await api.post(f"/api/sessions/{session}/turns", body)
    await api.done(first["run_id"])
    assert await api.post(f"/api/sessions/{session}/turns", body) == first, "known again"
    await api.post("/api/tokens", {"name": PLANTED})
    assert api.status == 201
    await api.get("/api/tokens")
    await api.ask("PATCH", "/api/settings", {"never_run": ["halt *", f"echo {PLANTED}"]})
    assert api.status == 200
    await api.get("/api/settings")
    named, kind = quote(f"{PLANTED}.txt", safe=""), {"content-type": "text/plain"}
    kept = await api.post(f"/api/files?name={named}", data=b"words", headers=kind)
    assert api.status == 201
    await api.get(f"/api/files/{kept['id']}?name={named}")
    assert quote(MASK, safe="") in api.headers["content-disposition"]


async def _ask_badly(api: Api) -> None:
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


async def _read_everything(api: Listener, sessions: tuple[str, ...], runs: list[str]) -> None:
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
    "secret", [*SECRETS, quote(TOKEN, safe=""), json.dumps(TOKEN)[1:-1].replace("/", "\\/")]
)
def test_no_planted_secret_is_found_anywhere(found: Found, secret: str) -> None:
    assert len(found.places) > 10
    assert [place for place, content in found.places.items() if secret.encode() in content] == []


@pytest.mark.parametrize(
    "place",
    [
        "answers over HTTP", "json export", "markdown export", "listing", "screen", "file holdfast.db",
        "model's requests", "refusal on the command line",
    ],
)  # fmt: skip
def test_what_nobody_knows_to_be_secret_is_found_by_the_same_search(found: Found, place: str) -> None:
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
        ("model_step_settled", 1), ("approval_resolved", 1),
    ],
)  # fmt: skip
def test_every_way_of_giving_a_secret_away_was_tried(found: Found, kind: str, wanted: int) -> None:
    lines = found.places["json export"].splitlines()
    events = [each for line in lines if line.startswith(b"{") for each in json.loads(line)["events"]]
    bodies = [json.dumps(each["body"]) for each in events if each["kind"] == kind]
    assert len([body for body in bodies if MASK in body and CONTROL in body]) >= wanted, bodies


def test_a_command_is_given_no_secret_in_its_environment(found: Found) -> None:
    assert found.children
    for environ in found.children:
        assert not any(secret.encode() in environ for secret in SECRETS)


def test_the_log_names_no_secret_and_was_kept(found: Found) -> None:
    assert not any(secret.encode() in found.places["log"] for secret in SECRETS)


@pytest.fixture
def stored(holdfast: Holdfast, tmp_path: Path) -> Story:
    """A conversation from before anyone knew that what it holds is secret."""
    story = Story(f"About {PASSWORD}").ask(f"Use {KEY}").answer(f"I use {KEY} and {TOKEN}.", f"Hm: {TOKEN}")
    story.ask("Print").call("shell", f'{{"command":"echo {TOKEN}"}}', f"{KEY}\n{CONTROL}\n").answer("Done.")
    story.ask("And?").break_off(f"Half {PASSWORD} an ans").give_up()
    keep(tmp_path / "share" / "holdfast", story)
    holdfast.environ |= {"OPENAI_API_KEY": KEY, "A_SECRET": PASSWORD, "MY_SERVICE_TOKEN": TOKEN}
    return story


@pytest.mark.parametrize("shape", ["json", "markdown"])
def test_an_export_masks_what_was_stored_before_it_was_secret(
    holdfast: Holdfast, stored: Story, shape: str
) -> None:
    done = holdfast.run("sessions", "export", stored.id, "--format", shape)
    assert done.returncode == 0
    assert not any(secret in done.stdout for secret in SECRETS)
    assert CONTROL in done.stdout and MASK in done.stdout
    for name in ("OPENAI_API_KEY", "A_SECRET", "MY_SERVICE_TOKEN"):
        del holdfast.environ[name]
    bare = holdfast.run("sessions", "export", stored.id, "--format", shape)
    assert all(secret in bare.stdout for secret in SECRETS), "the same search finds them"


def test_a_masked_export_is_imported_and_found_to_be_whole(
    holdfast: Holdfast, stored: Story, tmp_path: Path
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


def test_an_import_masks_what_is_known_to_be_secret_here(
    holdfast: Holdfast, stored: Story, tmp_path: Path
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
    again = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert (again.returncode, "Already here" in again.stdout) == (0, True)
    assert not any(secret in done.stdout + done.stderr for done in (taken, again) for secret in SECRETS)
    checked = holdfast.run("doctor", "--data", str(elsewhere))
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_what_is_set_wrongly_is_told_without_its_secret(holdfast: Holdfast) -> None:
    holdfast.environ |= {"OPENAI_API_KEY": KEY, "HOLDFAST_MODEL": f"bad:{KEY}-{CONTROL}"}
    refused = holdfast.run("serve", "--port", "0")
    assert refused.returncode == 1
    assert CONTROL in refused.stderr and KEY not in refused.stderr + refused.stdout
    assert os.environ.get("OPENAI_API_KEY") != KEY
