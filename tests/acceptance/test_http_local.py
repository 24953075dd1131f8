"""The local model over HTTP and in the terminal, as far as that goes without a network."""

import asyncio
import shutil
from pathlib import Path

from tests.acceptance.conftest import CliHarness
from tests.support.api_client import api_client, wait_until
from tests.support.fake_llama_packages import Packages

NAME = "local:smollm2-135m"
WAIT_S = 60


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has taken leave of yet has too."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


def cut_off(holdfast: CliHarness, index: str) -> None:
    """Let pip find nothing but what is at `index`."""
    holdfast.environ |= {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": index, "PIP_RETRIES": "1"}
    holdfast.environ.pop("PIP_EXTRA_INDEX_URL", None)


async def test_the_local_install_is_started_watched_cancelled_and_retried(holdfast: CliHarness) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as index:
        cut_off(holdfast, f"http://127.0.0.1:{index.sockets[0].getsockname()[1]}/simple")
        running = await asyncio.to_thread(holdfast.serve, "--port", "0")
        async with api_client(running.address) as api, asyncio.timeout(WAIT_S):
            info = await api.get("/api/models/local")
            assert (info["name"], info["state"], info["running"]) == (NAME, "absent", False)
            assert info["total_bytes"] > 100_000_000
            begun = await api.post("/api/models/local/install")
            assert (api.status, begun["state"]) == (202, "installing")
            await asked.wait()
            again = await api.post("/api/models/local/install")
            assert (api.status, again["code"]) == (409, "local_install_running")
            assert (await api.get("/api/models/local"))["percent"] == 0
            left = await api.request("DELETE", "/api/models/local/install")
            assert (api.status, left["state"], left["problem"]) == (200, "absent", "")
            assert {each.name for each in (running.folder / "local").iterdir()} == {"install.lock"}
            index.close()
            await api.post("/api/models/local/install")
            failed = await api.wait_for_field("/api/models/local", "state", "failed", timeout_s=WAIT_S)
            assert "it can be tried again" in failed["problem"]


async def test_a_local_model_that_is_not_installed_is_refused_with_instructions(
    holdfast: CliHarness,
) -> None:
    result = holdfast.run("local", "show")
    assert result.stdout == f"{NAME} is not installed. `holdfast local install` installs it.\n"
    assert holdfast.run("local", "remove").stdout == "The local model was not installed.\n"
    refused = holdfast.run("serve", "--port", "0", "--model", "local")
    assert refused.returncode == 1
    assert "The local model is not installed.\nRun `holdfast local install`" in refused.stderr
    cut_off(holdfast, "http://127.0.0.1:9/simple")
    failed = holdfast.run("local", "install")
    assert failed.returncode == 1
    assert "The local model could not be installed: " in failed.stderr
    del holdfast.environ["HOLDFAST_MODEL"]
    running = await asyncio.to_thread(holdfast.serve, "--port", "0")
    async with api_client(running.address) as api:
        providers = {each["name"]: each for each in (await api.get("/api/models"))["providers"]}
        assert providers["local"]["ready"] is False
        assert providers["local"]["problem"] == "It is not installed."
        refusal = await api.post("/api/models/connect", {"provider": "local"})
        assert (api.status, refusal["code"]) == (409, "local_not_installed")
        tried = await api.post("/api/models/test", {"model": "local"})
        assert (tried["ok"], "is not installed" in tried["detail"]) == (False, True)


async def test_the_local_model_answers_stops_with_the_server_and_is_released(
    holdfast: CliHarness, tmp_path: Path
) -> None:
    packages = Packages(tmp_path)
    await packages.installed(tmp_path / "elsewhere")
    folder = tmp_path / "share" / "holdfast"
    folder.mkdir(parents=True)
    shutil.copytree(tmp_path / "elsewhere" / "local", folder / "local")
    del holdfast.environ["HOLDFAST_MODEL"]
    running = await asyncio.to_thread(holdfast.serve, "--port", "0")
    async with api_client(running.address) as api:
        reply = await api.post("/api/models/connect", {"provider": "local"})
        assert (api.status, reply["models"][0]["name"]) == (200, NAME)
        assert "should not be relied on" in reply["models"][0]["why"]
        offered = next(each for each in reply["providers"] if each["name"] == "local")
        assert (offered["ready"], offered["source"]) == (True, "installed")
        assert offered["models"][0]["name"] == NAME
        session = await api.create_session()
        receipt = await api.send(session, "Who are you?")
        await api.wait_for_field(f"/api/runs/{receipt['run_id']}", "status", "completed")
        assert ("assistant", "settled", "Ahoy") in await api.message_texts(session)
        state = await api.get("/api/models/local")
        # What stands in is not what this version would install.
        assert (state["state"], state["running"], state["current"]) == ("installed", True, False)
        refusal = await api.request("DELETE", "/api/models/local")
        assert (api.status, refusal["code"]) == (409, "local_in_use")
    (child,) = _children(running.process.pid)
    running.process.kill()
    running.process.wait()
    await wait_until(_all_gone(child), WAIT_S)

    kept = holdfast.run("local", "remove")
    assert kept.returncode == 1 and "The settings name the local model" in kept.stderr
    running = await asyncio.to_thread(holdfast.serve, "--port", "0")
    assert any(NAME in line for line in running.output_lines)
    async with api_client(running.address) as api:
        await api.wait_for_field("/api/models/local", "running", True, timeout_s=WAIT_S)
        (child,) = _children(running.process.pid)
        await api.post("/api/models/disconnect")
        assert api.status == 200
        await wait_until(_all_gone(child), WAIT_S)
        gone = await api.request("DELETE", "/api/models/local")
        assert (api.status, gone["state"], gone["running"]) == (200, "absent", False)


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _all_gone(*pids: int):  # type: ignore[no-untyped-def]
    async def are_gone() -> bool:
        return all(map(is_gone, pids))

    return are_gone
