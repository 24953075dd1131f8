"""People who should not be here: another user of the machine, a finder of a log, a guesser of passwords."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from holdfast.http.app import PATHS
from holdfast.http.route_rights import required_right
from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.acceptance.test_sign_in import PASSWORD, browser_request, session_headers, set_password, sign_in
from tests.support.api_client import ScriptedModelServer, api_client

NOBODY = 65_534
VISITOR = """
import encodings.idna, json, os, sys, urllib.error, urllib.request
uid, address, folder, paths = int(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
os.setgroups([]); os.setgid(uid); os.setuid(uid)
found = {"readable": [], "answers": {}}
for name in ("", "token", "holdfast.db", "holdfast.db-wal", "processes"):
    try:
        path = os.path.join(folder, name)
        os.listdir(path) if name in ("", "processes") else open(path)
        found["readable"].append(name)
    except OSError:
        pass
for method, path in paths:
    body = b"{}" if method in ("POST", "PATCH") else None
    asked = urllib.request.Request(address + path, body, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found["answers"][f"{method} {path}"] = answer.status
    except urllib.error.HTTPError as refused:
        found["answers"][f"{method} {path}"] = refused.code
print(json.dumps(found))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_of_this_machine_can_neither_read_nor_control(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    # The folders above are the test's own and closed to others: what is tested is the data folder itself.
    for above in server.folder.parents:
        if str(above).startswith("/tmp/"):
            above.chmod(0o755)
    asked = [(m, p) for p in PATHS for m in ("GET", "POST", "PATCH", "DELETE")]
    paths = [(m, p.replace("{name}", "x")) for m, p in asked if required_right(m, p.replace("{name}", "x"))]
    words = [str(NOBODY), server.address.rstrip("/"), str(server.folder), json.dumps(paths)]
    ended = subprocess.run(
        [sys.executable, "-c", VISITOR, *words], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["readable"] == []
    assert len(found["answers"]) == len(paths) > 50
    assert set(found["answers"].values()) == {401}
    assert json.loads(server.request("/api/sessions").body)["sessions"] == []


async def test_a_data_folder_that_others_may_enter_holds_nothing_that_they_can_read(
    speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    """Made by somebody before, and files in it by a version that left them open."""
    umask, data = os.umask(0o022), tmp_path / "share" / "holdfast"

    def open_to_others() -> dict[str, str]:
        return {path.name: oct(mode) for path in data.iterdir() if (mode := path.stat().st_mode) & 0o077}

    async def use(command: CliHarness) -> dict[str, str]:
        server = await asyncio.to_thread(command.serve, "--port", "0")
        async with api_client(server.address) as api:
            receipt = await api.send(await api.create_session(), "run echo made here >file")
            await api.wait_for_run(receipt["run_id"])
            await api.post("/api/backup", {})
            assert (data / "holdfast.db-shm").exists() and (data / "workspaces").exists()
            found = open_to_others()
        server.process.terminate()
        await asyncio.to_thread(server.process.wait, 60)
        return found | open_to_others()

    try:
        data.mkdir(parents=True)
        with cli_in(tmp_path, **environ_for(speaker), HOLDFAST_APPROVALS="allow") as command:
            assert await use(command) == {}
            for name in ("holdfast.db", "format", "workspaces"):
                (data / name).chmod((data / name).stat().st_mode | 0o055)
            assert await use(command) == {}
    finally:
        os.umask(umask)


def test_a_leaked_log_grants_no_access(holdfast: CliHarness) -> None:
    """Everything that lets people in is used, well and badly; then all that was printed is tried."""
    set_password(holdfast, PASSWORD)
    secret = holdfast.run("tokens", "add", "a script").stdout.strip()
    server = holdfast.serve("--port", "0")
    browsers = [
        session_headers(sign_in(server, code=server.code)),
        session_headers(sign_in(server, password=PASSWORD)),
    ]
    assert sign_in(server, password="wrong " + PASSWORD).status == 401
    assert server.request("/api/me?code=" + server.code, token=secret).status == 200
    assert server.request("/api/me", token=secret + "x").status == 401
    assert server.request("/%00" + secret, token=secret).status == 404
    assert [browser_request(server, shown).status for shown in browsers] == [200, 200]
    server.process.terminate()
    out, errors = server.process.communicate(timeout=60)
    log = "\n".join((*server.output_lines, out, errors))
    shown = [value.rpartition("=")[2] for browser in browsers for value in browser.values()]
    secrets = [secret, server.token, PASSWORD, *shown]
    assert len(set(secrets)) == 7
    assert [each for each in secrets if each in log] == []
    again = holdfast.serve("--port", "0")
    words = {word for line in log.split() for word in (line, line.partition("#code=")[2]) if word}
    assert server.code in words, "the link itself was printed, and is used up"
    for word in words:
        if word.isascii():
            assert again.request("/api/me", token=word).status in (401, 429)
            assert sign_in(again, code=word[:200]).status in (401, 429)


async def test_a_thousand_failed_logins_are_cheap_and_lock_out_no_signed_in_user(
    holdfast: CliHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    set_password(holdfast, PASSWORD)
    secret = holdfast.run("tokens", "add", "a script").stdout.strip()
    server = holdfast.serve("--port", "0")
    shown = session_headers(sign_in(server, password=PASSWORD))
    before_kb, before_s, began = rss_kb(server), cpu_s(server), time.monotonic()
    waits: list[float] = []
    async with api_client(server.address, secret) as known, aiohttp.ClientSession() as anonymous:
        flood = asyncio.ensure_future(_thousand(anonymous, server.address))
        most_kb = before_kb
        while not flood.done():
            asked = time.monotonic()
            assert (await known.get("/api/me"))["signed_in"]
            waits.append(time.monotonic() - asked)
            most_kb = max(most_kb, rss_kb(server))
            await asyncio.sleep(0.02)
        statuses, problems = await flood
    took_s, spent_s = time.monotonic() - began, cpu_s(server) - before_s
    with capsys.disabled():
        median_ms, most_ms = 1000 * sorted(waits)[len(waits) // 2], 1000 * max(waits)
        print(
            f"\n1,000 failed logins in {took_s:.1f} s: {statuses[401]} got 401, {statuses[429]} got 429;"
            f" the server spent {spent_s:.1f} s CPU and grew by {(most_kb - before_kb) / 1000:.0f} MB;"
            f" one who is signed in waited {median_ms:.0f} ms, at most {most_ms:.0f} ms"
        )
    assert statuses[401] <= 10 and statuses[401] + statuses[429] == 1_000
    assert problems == {"sign_in_failed", "too_many_tries"}
    # One password is checked at a time, in 64 MB.
    assert most_kb - before_kb < 150_000
    locked_out = sign_in(server, password=PASSWORD)
    assert (locked_out.status, 0 < int(locked_out.headers["retry-after"]) <= 60) == (429, True)
    assert browser_request(server, shown).status == 200
    assert server.request("/api/me", token=secret).status == 200
    link = holdfast.run("link").stdout.strip()
    assert sign_in(server, code=link.partition("#code=")[2]).status == 200


async def _thousand(anonymous: aiohttp.ClientSession, address: str) -> tuple[Counter[int], set[str]]:
    statuses: Counter[int] = Counter()
    problems: set[str] = set()

    async def guess(first: int) -> None:
        for n in range(first, first + 100):
            body = {"password": f"guess number {n}"}
            async with anonymous.post(f"{address}api/sign-in", json=body) as answer:
                statuses[answer.status] += 1
                problems.add((await answer.json(content_type=None))["code"])

    await asyncio.gather(*(guess(100 * each) for each in range(10)))
    return statuses, problems


def test_wrong_tokens_and_codes_are_limited_and_right_ones_are_not(holdfast: CliHarness) -> None:
    secret = holdfast.run("tokens", "add", "a script").stdout.strip()
    server = holdfast.serve("--port", "0")
    wrong = Counter(server.request("/api/me", token=f"hf_wrong{n}").status for n in range(30))
    wrong += Counter(sign_in(server, code=f"hf_wrong{n}").status for n in range(30))
    assert wrong == {401: 10, 429: 50}
    fresh = holdfast.run("tokens", "add", "made just now").stdout.strip()
    assert [server.request("/api/me", token=each).status for each in (secret, fresh, server.token)] == [
        200
    ] * 3
    assert sign_in(server, code=server.code).status == 200


def rss_kb(server: RunningServer) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))


def cpu_s(server: RunningServer) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
