"""Looking after a server over HTTP: its settings, and the model that answers."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import (
    ApiClient,
    ScriptedModelServer,
    api_client,
    scripted_model_server,
    wait_until,
)

KEY = "sk-office-0123456789abcdef"


@pytest.fixture
def found(tmp_path: Path, speaker: ScriptedModelServer) -> Iterator[CliHarness]:
    """A server that finds its model by itself, so that another can be connected."""
    with cli_in(tmp_path, OPENAI_BASE_URL=speaker.url, HOLDFAST_MODEL="") as command:
        yield command


@pytest.fixture
def other() -> Iterator[ScriptedModelServer]:
    """A second model server."""
    with scripted_model_server() as speaker:
        yield speaker


async def settings(api: ApiClient) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (await api.get("/api/settings"))["settings"]}


async def change(api: ApiClient, **wanted: object) -> Any:
    return await api.request("PATCH", "/api/settings", wanted)


# Settings.


async def test_every_setting_reports_its_source(holdfast: CliHarness) -> None:
    folder = Path(holdfast.environ["XDG_DATA_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "holdfast.toml").write_text('resume = "ask"\n')
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api:
        reply = await settings(api)
        found = {
            name: (reply[name]["value"], reply[name]["source"])
            for name in ("port", "model", "resume", "auth")
        }
        assert found == {
            "port": (0, "command line"),
            "model": ("demo", "environment"),
            "resume": ("ask", "file"),
            "auth": ("on", "default"),
        }
        assert reply["data"]["value"] == str(folder)
        assert [name for name, each in reply.items() if each["changeable"]] == [
            "approvals", "never_run", "run_steps_max", "run_tokens_max", "run_cost_usd_max", "run_time_s_max",
            "runs_at_once", "summarise_above", "resume",
        ]  # fmt: skip
        assert reply["approvals"]["allowed"] == "ask or allow"


async def test_a_setting_takes_effect_at_once_and_after_a_restart(
    holdfast: CliHarness, speaker: ScriptedModelServer
) -> None:
    holdfast.environ |= environ_for(speaker)
    server = holdfast.serve("--port", "0")
    file = server.folder / "holdfast.toml"
    file.write_text("# Mine\nopen_browser = 'never'\n")
    async with api_client(server.address) as api:
        session = await api.create_session()
        waiting = await api.send(session, "run echo first")
        await api.wait_for_run(waiting["run_id"], "waiting")
        reply = await change(api, approvals="allow", run_steps_max=7, never_run=["echo never *"])
        assert api.status == 200, reply
        assert (await settings(api))["approvals"]["source"] == "file"
        second = await api.create_session()
        await api.wait_for_run((await api.send(second, "run echo second"))["run_id"])
        assert "It said: second" in (await api.message_texts(second))[-1][2]
        await api.wait_for_run((await api.send(second, "run echo never more"))["run_id"])
        assert "never" in (await api.entries(second))[-2]["parts"][0]["text"]
    assert file.read_text() == (
        "# Mine\nopen_browser = 'never'\n"
        'approvals = "allow"\nrun_steps_max = 7\nnever_run = ["echo never *"]\n'
    )
    server.process.kill()
    server.process.wait()
    again = holdfast.serve("--port", "0")
    async with api_client(again.address) as api:
        reply = await settings(api)
        assert (reply["approvals"]["value"], reply["run_steps_max"]["value"]) == ("allow", 7)
        await change(api, approvals=None)
        reply = await settings(api)
        assert (reply["approvals"]["value"], reply["approvals"]["source"]) == ("ask", "default")
    assert "approvals" not in file.read_text()


async def test_a_lower_run_limit_takes_effect_at_once(
    holdfast: CliHarness, speaker: ScriptedModelServer
) -> None:
    holdfast.environ |= environ_for(speaker)
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api:
        await change(api, runs_at_once=1)
        first, second = await api.create_session(), await api.create_session()
        held = await api.send(first, "hold")
        await api.wait_for_streaming_text(first, "Well")
        waits = await api.send(second, "hello")

        async def is_in_line() -> bool:
            return b"holdfast_runs_in_line 1" in await api.get("/metrics")

        await wait_until(is_in_line)
        await change(api, runs_at_once=2)
        await api.wait_for_run(waits["run_id"])
        assert (await api.get(f"/api/runs/{held['run_id']}"))["status"] == "running"


@pytest.mark.parametrize(
    ("wanted", "status", "code"),
    [
        ({"approvals": "maybe"}, 400, "bad_setting"),
        ({"run_steps_max": 0}, 400, "bad_setting"),
        ({"run_steps_max": "7"}, 400, "bad_setting"),
        ({"run_steps_max": True}, 400, "bad_setting"),
        ({"never_run": ["halt", " "]}, 400, "bad_setting"),
        ({"never_run": "halt"}, 400, "bad_setting"),
        ({"speed": 1}, 400, "bad_setting"),
        ({"resume": "ask", "speed": 1}, 400, "bad_setting"),
        ({"port": 1}, 409, "setting_needs_restart"),
        ({"runs_at_once": 5}, 409, "setting_fixed"),
    ],
)
async def test_what_cannot_be_changed_is_refused_and_changes_nothing(
    admin_server: RunningServer, wanted: dict[str, object], status: int, code: str
) -> None:
    async with api_client(admin_server.address) as api:
        before = await settings(api)
        refused = await api.request("PATCH", "/api/settings", wanted)
        assert (api.status, refused["code"]) == (status, code)
        assert await settings(api) == before
        assert not (admin_server.folder / "holdfast.toml").exists()


@pytest.fixture(scope="module")
def admin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with cli_in(tmp_path_factory.mktemp("office"), HOLDFAST_RUNS_AT_ONCE="9") as command:
        yield command.serve("--port", "0")


async def test_changing_settings_needs_the_admin_right(admin_server: RunningServer) -> None:
    async with api_client(admin_server.address) as api:
        made = await api.post("/api/tokens", {"name": "x", "rights": ["read", "write", "approve"]})
    async with api_client(admin_server.address, made["secret"]) as api:
        assert len(await settings(api)) > 10
        assert (await change(api, approvals="allow"))["code"] == "not_allowed"
        for path in ("test", "connect", "disconnect"):
            assert (await api.post(f"/api/models/{path}", {}))["code"] == "not_allowed"


# The model.


async def test_a_model_given_in_the_environment_cannot_be_changed_here(admin_server: RunningServer) -> None:
    async with api_client(admin_server.address) as api:
        refused = await api.post(
            "/api/models/connect", {"model": "small", "base_url": "http://127.0.0.1:1/v1"}
        )
        assert (api.status, refused["code"]) == (409, "setting_fixed")
        assert "HOLDFAST_MODEL" in refused["detail"]
        assert (await api.post("/api/models/disconnect"))["code"] == "setting_fixed"


async def test_a_connected_model_answers_from_the_next_run_on_and_after_a_restart(
    found: CliHarness, speaker: ScriptedModelServer, other: ScriptedModelServer
) -> None:
    server = found.serve("--port", "0")
    connection = {"base_url": other.url, "key": KEY, "model": "small"}
    async with api_client(server.address) as api:
        one, two = await api.create_session(), await api.create_session()
        held = await api.send(one, "count 60")
        await api.wait_for_field(f"/api/runs/{held['run_id']}", "status", "running")
        tried = await api.post("/api/models/test", connection)
        assert (tried["ok"], tried["models"]) == (True, ["small"])
        asked = len(other.requests)
        reply = await api.post("/api/models/connect", connection)
        assert api.status == 200, reply
        assert KEY not in str(reply)
        assert other.url.split("/")[2] in reply["models"][0]["why"]
        await api.wait_for_run((await api.send(two, "hello there"))["run_id"])
        assert len(other.requests) > asked
        await api.wait_for_run(held["run_id"])
        assert len((await api.message_texts(one))[-1][2].split()) == 60, "what is under way keeps its model"
        saved = server.folder / "connection.toml"
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        assert KEY not in (server.folder / "holdfast.toml").read_text()
        # A name alone keeps the address and the key; what a person says of the key is not kept.
        assert (await api.post("/api/models/connect", {"model": "tiny"}))["models"][0][
            "name"
        ] == "openai:tiny"
        await api.wait_for_run((await api.send(two, f"my key is {KEY}"))["run_id"])
        assert KEY not in str(await api.entries(two))
        assert KEY not in str(await settings(api))
    server.process.terminate()
    output, errors = server.process.communicate(timeout=60)
    assert KEY not in output + errors + "".join(server.output_lines)
    assert KEY.encode() not in (server.folder / "holdfast.db").read_bytes()
    asked = len(other.requests)
    again = found.serve("--port", "0")
    async with api_client(again.address) as api:
        assert (await api.get("/api/models"))["models"][0]["name"] == "openai:tiny"
        await api.wait_for_run((await api.send(two, "hello again"))["run_id"])
        assert len(other.requests) > asked
        assert other.requests[asked]["model"] == "tiny"
        back = await api.post("/api/models/disconnect")
        assert back["models"][0]["name"] == "openai:small"
        assert "OPENAI_BASE_URL" in back["models"][0]["why"]
        assert not (again.folder / "connection.toml").exists()
        assert (await settings(api))["model"]["source"] == "default"


async def test_a_key_goes_to_no_other_server_than_the_one_it_was_given_for(
    found: CliHarness, other: ScriptedModelServer
) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        await api.post("/api/models/connect", {"base_url": other.url, "key": KEY, "model": "small"})
        elsewhere = other.url.replace("/v1", "/elsewhere/v1")
        await api.post("/api/models/connect", {"base_url": elsewhere, "model": "small"})
    assert KEY not in (server.folder / "connection.toml").read_text()


async def test_a_failed_connection_test_is_explained_and_changes_nothing(
    found: CliHarness, other: ScriptedModelServer
) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        before = await api.get("/api/models")
        tried = await api.post("/api/models/test", {"base_url": "not an address", "model": "x"})
        assert (api.status, tried["ok"]) == (200, False)
        assert "not the address of a server" in tried["detail"]
        tried = await api.post(
            "/api/models/test", {"base_url": "http://127.0.0.1:1/v1", "model": "x", "key": KEY}
        )
        assert "Connection refused" in tried["detail"]
        assert (await api.post("/api/models/connect", {"base_url": "nowhere", "model": "x"}))[
            "code"
        ] == "no_model"
        assert (await api.post("/api/models/connect", {"base_url": other.url}))["code"] == "bad_setting"
        assert await api.get("/api/models") == before
        assert not (server.folder / "holdfast.toml").exists()
