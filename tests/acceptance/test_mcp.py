"""Tools of MCP servers through a real server: a package from a registry, and one of our own to be killed."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, text_of, wait_until
from tests.support.free_ports import own_port
from tests.support.mcp_fixture import PLAIN, SDK, http_mcp_server, read_effects, wait_for_effects
from tests.support.tool_fixture import is_alive

SECRET = "wiki-0123456789-secret"
KEPT_OUT = "There is nobody who may read this."


def table(name: str, **keys: object) -> str:
    """A table of `holdfast.toml`."""
    return f"[mcp.{name}]\n" + "".join(f"{key} = {_spelt(value)}\n" for key, value in keys.items())


def _spelt(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {json.dumps(text)}' for key, text in value.items())}}}"
    return json.dumps(value)


def time_table() -> str:
    """The package as anyone would run it."""
    return table("time", command=sys.executable, args=["-m", "mcp_server_time"])


def write_config(command: CliHarness, *tables: str) -> Path:
    folder = Path(command.environ["XDG_DATA_HOME"]) / "holdfast"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "holdfast.toml").write_text("\n".join(tables))
    return folder


async def mcp_server_info(api: ApiClient, name: str) -> dict[str, Any]:
    servers: list[dict[str, Any]] = (await api.get("/api/mcp"))["servers"]
    return next(each for each in servers if each["name"] == name)


async def wait_for_state(api: ApiClient, name: str, **wanted: object) -> dict[str, Any]:
    """How a server fares once it is as wanted: ready, if nothing is said."""

    async def has_state() -> bool:
        found = await mcp_server_info(api, name)
        return all(found[key] == value for key, value in (wanted or {"state": "ready"}).items())

    await wait_until(has_state, timeout_s=30)
    return await mcp_server_info(api, name)


async def run_tool(api: ApiClient, tool: str, **arguments: object) -> dict[str, Any]:
    """The entry of a call that nobody is asked about, once it has ended."""
    session = await api.create_session()
    await api.wait_for_run((await api.send(session, f"use {tool} {json.dumps(arguments)}"))["run_id"])
    return next(each for each in await api.entries(session) if each["role"] == "tool")


@asynccontextmanager
async def client_of(running: RunningServer) -> AsyncIterator[ApiClient]:
    async with api_client(running.address) as api:
        yield api


async def test_a_package_from_a_registry_is_used_over_stdio_and_over_http(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    """Over HTTP its own tools are served by the SDK: by itself it only talks over a pipe."""
    port = own_port()
    with cli_in(tmp_path, **environ_for(speaker)) as command, http_mcp_server("--time", port=port):
        write_config(command, time_table(), table("clock", url=f"http://127.0.0.1:{port}/mcp"))
        async with client_of(command.serve("--port", "0")) as api:
            for name in ("time", "clock"):
                found = await wait_for_state(api, name)
                assert found["tools"] == [f"{name}__get_current_time", f"{name}__convert_time"]
                entry = await run_tool(api, f"{name}__get_current_time", timezone="Asia/Tokyo")
                assert (entry["outcome"], entry.get("approval", "")) == ("done", ""), "it only looks"
                assert '"timezone": "Asia/Tokyo"' in text_of(entry)
            last = [request for request in speaker.requests if request.get("tools")][-1]
            offered = {each["function"]["name"] for each in last["tools"]}
            assert {"time__convert_time", "clock__convert_time", "shell"} <= offered
            assert (await api.get("/health/ready"))["status"] == "ready"
            metrics = (await api.get("/metrics")).decode()
            assert 'holdfast_mcp_ready{server="time"} 1' in metrics
            assert 'holdfast_mcp_calls_total{server="clock",outcome="done"} 1' in metrics


async def start_pending_call(api: ApiClient, session: str, **arguments: object) -> tuple[str, str]:
    """A call of ours that waits to be allowed: its run and the address to answer at."""
    run = (await api.send(session, f"use own__act {json.dumps(arguments)}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    tool = (await api.entries(session))[-1]
    assert tool["approval"] == "requested"
    assert tool["reason"] == "It is carried out by the MCP server own."
    return run, f"/api/runs/{run}/tools/{tool['id']}"


async def wait_for_in_doubt(api: ApiClient, session: str) -> dict[str, Any]:
    """The call whose end is not known."""

    async def is_so() -> bool:
        return any(each.get("state") == "in_doubt" for each in await api.entries(session))

    await wait_until(is_so, timeout_s=30)
    return next(each for each in await api.entries(session) if each.get("state") == "in_doubt")


async def test_an_mcp_server_killed_during_a_call_leaves_it_in_doubt_and_not_repeated(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    effects, go = tmp_path / "effects", tmp_path / "go"
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        write_config(command, table("own", command=sys.executable, args=[SDK]))
        async with client_of(command.serve("--port", "0")) as api:
            await wait_for_state(api, "own")
            pid, session = int(text_of(await run_tool(api, "own__pid"))), await api.create_session()
            run, path = await start_pending_call(
                api, session, effects=str(effects), line="one", until=str(go)
            )
            await api.post(path, {"decision": "approve"})
            await wait_for_effects(effects)
            os.kill(pid, signal.SIGKILL)
            entry = await wait_for_in_doubt(api, session)
            assert "was killed by signal 9" in text_of(entry)
            assert (await api.wait_for_run(run, "waiting"))["status"] == "waiting"
            await wait_for_state(api, "own", state="ready", connections=2)
            assert read_effects(effects) == ["one"], "it is back, and nobody has asked it again"
            await api.post(path, {"decision": "skip"})
            await api.wait_for_run(run)
            go.touch()
            run, path = await start_pending_call(api, session, effects=str(effects), line="two")
            await api.post(path, {"decision": "approve"})
            await api.wait_for_run(run)
            assert read_effects(effects) == ["one", "two"]
            assert "did two" in (await api.message_texts(session))[-1][2]


async def test_our_server_killed_during_an_mcp_call_asks_a_person_after_the_restart(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    effects = tmp_path / "effects"
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        write_config(command, table("own", command=sys.executable, args=["-S", PLAIN]))
        running = command.serve("--port", "0")
        async with client_of(running) as api:
            await wait_for_state(api, "own")
            pid = int(text_of(await run_tool(api, "own__spawn", path=str(tmp_path / "child"))).split()[0])
            session = await api.create_session()
            run, path = await start_pending_call(api, session, path=str(effects))
            await api.post(path, {"decision": "approve"})
            await wait_for_effects(effects)
        running.process.kill()
        running.process.wait()

        async def is_gone() -> bool:
            return not is_alive(pid) and not is_alive(int((tmp_path / "child").read_text()))

        await wait_until(is_gone)
        (tmp_path / "effects.go").touch()
        async with client_of(command.serve("--port", "0")) as api:
            await wait_for_in_doubt(api, session)
            await wait_for_state(api, "own")
            assert read_effects(effects) == ["done"]
            await api.post(path, {"decision": "rerun"})
            assert api.status == 200
            await api.wait_for_run(run)
            assert read_effects(effects) == ["done", "done"], "a person said so"


async def test_a_call_that_was_allowed_waits_for_its_server_after_a_restart(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    effects = tmp_path / "effects"
    (tmp_path / "effects.go").touch()
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        write_config(command, table("own", command=sys.executable, args=["-S", PLAIN, "slow"]))
        running = command.serve("--port", "0")
        async with client_of(running) as api:
            await wait_for_state(api, "own")
            run, path = await start_pending_call(api, await api.create_session(), path=str(effects))
        running.process.kill()
        running.process.wait()
        async with client_of(command.serve("--port", "0")) as api:
            assert "own__act" in (await mcp_server_info(api, "own"))["tools"], "known from before"
            await api.post(path, {"decision": "approve"})
            await api.wait_for_run(run)
            assert read_effects(effects) == ["done"]


async def test_an_mcp_server_sees_neither_secrets_nor_the_data_folder(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    given = environ_for(speaker) | {"WIKI_TOKEN": SECRET}
    with cli_in(tmp_path, **given) as command:
        own = table("own", command=sys.executable, args=["-S", PLAIN], env={"WIKI": "${WIKI_TOKEN}"})
        away = table("away", url="http://127.0.0.1:9/mcp", headers={"Authorization": "Bearer ${WIKI_TOKEN}"})
        folder = write_config(command, own, away)
        (folder / "kept-out").write_text(KEPT_OUT)
        running = command.serve("--port", "0")
        async with client_of(running) as api:
            await wait_for_state(api, "own")
            entry = await run_tool(api, "own__environment")
            assert "WIKI=[secret]" in text_of(entry)
            assert "WIKI_TOKEN" not in text_of(entry)
            if (await api.get("/health/ready"))["confinement"] not in ("", "none"):
                entry = await run_tool(api, "own__read", path=str(folder / "kept-out"))
                assert entry["outcome"] == "failed"
                assert KEPT_OUT not in text_of(entry)
                entry = await run_tool(api, "own__connect", path=str(running.port))
                assert entry["outcome"] == "failed"

            async def has_error() -> bool:
                return bool((await mcp_server_info(api, "away"))["last_error"])

            await wait_until(has_error)
            seen = [await api.get(path) for path in ("/api/mcp", "/health/ready", "/api/settings")]
            assert SECRET not in json.dumps(seen)
            problems = (await api.get("/health/ready"))["problems"]
            assert problems[0].startswith("The MCP server away is not connected: it cannot be reached")
        running.process.send_signal(signal.SIGTERM)
        output = running.process.communicate(timeout=60)
        assert SECRET not in "".join(map(str, output))
        assert running.process.returncode == 0


async def test_an_mcp_server_reconnects_on_request(tmp_path: Path, speaker: ScriptedModelServer) -> None:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        write_config(command, table("own", command=sys.executable, args=["-S", PLAIN, "slow"]))
        async with client_of(command.serve("--port", "0")) as api:
            assert (await mcp_server_info(api, "own"))["state"] == "connecting", "nobody waits for it"
            await wait_for_state(api, "own")
            await api.post("/api/mcp/own/reconnect")
            assert api.status == 202
            await wait_for_state(api, "own", state="ready", connections=2)
            refused = await api.post("/api/mcp/other/reconnect")
            assert (api.status, refused["code"]) == (404, "no_such_mcp_server")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('[mcp.own]\ncommand = "x"\nurl = "http://x"', "[mcp.own]: give either command or url"),
        ("[mcp.own]\ncommnad = 1", "[mcp.own]: there is no key commnad"),
        (
            '[mcp.own]\nurl = "http://x"\nheaders = {A = "${NOT_SET_AT_ALL}"}',
            "NOT_SET_AT_ALL, which is not set",
        ),
    ],
)
async def test_an_invalid_mcp_config_is_reported_at_startup(
    holdfast: CliHarness, wrong: str, said: str
) -> None:
    folder = write_config(holdfast, wrong)
    ended = await asyncio.to_thread(holdfast.run, "serve", "--port", "0")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"holdfast: {folder / 'holdfast.toml'}: ")
    assert said in ended.stderr
