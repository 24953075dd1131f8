"""Allowing, changing, denying, and rules, as a person with a browser or a terminal does it."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.domain.limits import ARGUMENTS_BYTES_MAX
from tests.acceptance.conftest import CliHarness, RunningServer
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, text_of


async def start_pending_approval(
    api: ApiClient, command: str, session: str | None = None
) -> tuple[str, str, dict[str, Any]]:
    """A conversation, the address of a call that waits to be allowed, and its entry."""
    session = session or await api.create_session()
    run = (await api.send(session, f"run {command}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    tool = (await api.entries(session))[-1]
    assert tool["approval"] == "requested"
    return session, f"/api/runs/{run}/tools/{tool['id']}", tool


async def wait_settled(api: ApiClient, path: str) -> dict[str, Any]:
    """The call's entry once its run has ended."""
    run, call = path.split("/")[3], path.split("/")[5]
    session = (await api.wait_for_run(run))["session_id"]
    return next(entry for entry in await api.entries(session) if entry["id"] == call)


async def test_tool_call_arguments_are_changed_on_approval(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        _, path, tool = await start_pending_approval(api, "echo one")
        assert "It works in " in tool["reason"]
        await api.post(path, {"decision": "approve", "arguments": {"command": "echo two"}})
        assert api.status == 200
        entry = await wait_settled(api, path)
        assert "two" in text_of(entry) and "one" not in text_of(entry)
        assert json.loads(entry["arguments"]) == {"command": "echo two"}
        answer = (await api.message_texts((await api.get(path.partition("/tools")[0]))["session_id"]))[-1][2]
        assert "The user changed this call" in answer, "the model was told, and repeats what it was told"


def run_rules_command(holdfast: CliHarness, *words: str) -> str:
    """What a command about rules answered; one that failed says why."""
    done = holdfast.run("rules", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_a_rule_is_created_listed_applied_and_revoked(
    server: RunningServer, holdfast: CliHarness
) -> None:
    async with api_client(server.address) as api:
        session, path, _ = await start_pending_approval(api, "echo a b")
        refused = await api.post(path, {"decision": "approve", "scope": "always", "rule": "ls *"})
        assert (api.status, refused["code"]) == (409, "rule_refused")
        await api.post(path, {"decision": "approve", "scope": "always", "rule": "echo a *"})
        assert api.status == 200
        await wait_settled(api, path)
        [rule] = (await api.get("/api/rules"))["rules"]
        assert (rule["tool"], rule["pattern"], rule["session_id"]) == ("shell", "echo a *", None)
        done = await api.send(session, "run echo a c")
        await api.wait_for_run(done["run_id"])
        _, unlike, _ = await start_pending_approval(api, "echo a c && echo d")
        assert unlike
        listed = run_rules_command(holdfast, "list", "--data", str(server.folder), "--json")
        assert [each["id"] for each in json.loads(listed)] == [rule["id"]]
        table = run_rules_command(holdfast, "list", "--data", str(server.folder))
        assert "echo a *" in table and "everywhere" in table
        run_rules_command(holdfast, "revoke", rule["id"], "--data", str(server.folder))
        assert (await api.get("/api/rules"))["rules"] == []
        await start_pending_approval(api, "echo a c", await api.create_session())
        gone = await api.request("DELETE", f"/api/rules/{rule['id']}")
        assert (api.status, gone["code"]) == (404, "no_such_rule")


async def test_a_rule_can_be_created_without_a_tool_call(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        made = await api.post("/api/rules", {"tool": "shell", "pattern": "echo *", "session_id": session})
        assert api.status == 201
        again = await api.post("/api/rules", {"tool": "shell", "pattern": "echo *", "session_id": session})
        assert again == made
        await api.wait_for_run((await api.send(session, "run echo x"))["run_id"])
        await start_pending_approval(api, "echo x")
        await api.request("DELETE", f"/api/rules/{made['id']}")
        assert api.status == 204
        for body, code in (
            ({"tool": "shell", "pattern": "*"}, "rule_refused"),
            ({"tool": "shell", "pattern": "sudo *"}, "rule_refused"),
            ({"tool": "shell", "pattern": "ls", "session_id": "s_0000000000000000"}, "no_such_session"),
            ({"tool": "shell", "pattern": ""}, "bad_request"),
        ):
            assert (await api.post("/api/rules", body))["code"] == code, body


async def test_a_forbidden_command_is_refused_without_asking(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        sent = await api.send(session, "run cd / && sudo reboot")
        await api.wait_for_run(sent["run_id"])
        entry = next(each for each in await api.entries(session) if each["role"] == "tool")
        assert entry["outcome"] == "denied" and "never run: reboot *" in text_of(entry)
        assert "never run" in (await api.message_texts(session))[-1][2], "the model was told"
        _, path, _ = await start_pending_approval(api, "echo x")
        refused = await api.post(path, {"decision": "approve", "arguments": {"command": "halt"}})
        assert (api.status, refused["code"]) == (409, "never_run")
        await api.post(path, {"decision": "deny"})
        assert api.status == 200, "it is still asked about"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"decision": "deny", "scope": "always"}, "bad_request"),
        ({"decision": "skip", "arguments": {}}, "bad_request"),
        ({"decision": "approve", "rule": "echo *"}, "bad_request"),
        ({"decision": "approve", "scope": "ever"}, "bad_request"),
        ({"decision": "approve", "reason": "yes"}, "bad_request"),
        ({"decision": "approve", "arguments": "{"}, "bad_request"),
        ({"decision": "approve", "arguments": "[]"}, "bad_request"),
        ({"decision": "approve", "arguments": 3}, "bad_request"),
        ({"decision": "approve", "arguments": {"command": "x" * ARGUMENTS_BYTES_MAX}}, "too_large"),
        ({"decision": "rerun"}, "tool_refused"),
    ],
)
async def test_an_invalid_decision_is_refused_and_the_question_stays_open(
    server: RunningServer, body: dict[str, Any], code: str
) -> None:
    async with api_client(server.address) as api:
        _, path, _ = await start_pending_approval(api, "echo x")
        assert (await api.post(path, body))["code"] == code
        await api.post(path, {"decision": "deny"})
        assert api.status == 200


async def test_of_concurrent_decisions_one_is_accepted(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session, path, _ = await start_pending_approval(api, "echo once >> ran")
        bodies = [
            {"decision": "approve"},
            {"decision": "deny"},
            {"decision": "approve", "arguments": {"command": "echo changed >> ran"}},
        ]

        async def answer(body: dict[str, Any]) -> int:
            async with api.session.post(server.address.rstrip("/") + path, json=body) as said:
                return said.status

        statuses = await asyncio.gather(*(answer(bodies[i % 3]) for i in range(12)))
        assert sorted(statuses) == [200, *[409] * 11]
        entry = await wait_settled(api, path)
        ran = server.folder / "workspaces" / session / "ran"
        lines = ran.read_text().split() if ran.exists() else []
        assert len(lines) == (entry["outcome"] == "done")
