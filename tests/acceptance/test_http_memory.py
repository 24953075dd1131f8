"""Memory over HTTP: what is remembered and where it comes from, what waits, and what people do about both."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX, PAGE_MEMORIES_MAX
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, api_client, scripted_model_server, wait_until
from tests.support.memory_model_server import MemoryModelServer
from tests.support.turn_events import IDS, TurnEvents

REX = "My dog is called Rex."
NOTED = "The user's dog is called Rex."
NOBODY = "s_0000000000000000"
QUIET = {"HOLDFAST_MEMORY_IDLE_S": "86400"}
"""Nothing is remembered here because it has become late."""


@pytest.fixture
def model() -> Iterator[MemoryModelServer]:
    with scripted_model_server(MemoryModelServer()) as model:
        assert isinstance(model, MemoryModelServer)
        yield model


@pytest.fixture
def command(model: MemoryModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(model), **QUIET) as command:
        yield command


@pytest.fixture
def server(command: CliHarness) -> RunningServer:
    return command.serve("--port", "0")


async def start_conversation(api: ApiClient, text: str = REX, **begin: Any) -> str:
    """A conversation in which `text` was said and answered."""
    session = await api.create_session(title="About me", **begin)
    await api.wait_for_run((await api.send(session, text))["run_id"])
    return session


async def texts(api: ApiClient, query: str = "") -> list[str]:
    found = await api.get(f"/api/memory{query}")
    assert api.status == 200, found
    return [each["text"] for each in found["memories"]]


async def pending_commits(api: ApiClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get("/api/memory/waiting"))["waiting"]
    return found


async def commit(api: ApiClient, **body: Any) -> dict[str, Any]:
    result: dict[str, Any] = await api.post("/api/memory/commit", body)
    assert api.status == 200, result
    return result


async def decide(api: ApiClient, session: str, segment: int, decision: str) -> int:
    await api.post(f"/api/memory/waiting/{session}/{segment}", {"decision": decision})
    return api.status


async def wait_until_none_pending(api: ApiClient) -> None:
    async def is_empty() -> bool:
        return await pending_commits(api) == []

    await wait_until(is_empty)


# What is remembered.


async def test_a_commit_remembers_the_conversation_with_its_origin(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        before = await api.get("/api/memory")
        assert (before["provider"], before["health"]["ok"], before["memories"]) == ("notes", True, [])
        (owed,) = await pending_commits(api)
        assert (owed["session_id"], owed["title"], owed["segment"]) == (session, "About me", 1)
        assert (owed["from_turn"], owed["through_turn"], owed["state"]) == (1, 1, "owed")
        assert (owed["attempts"], owed["retry_at"], owed["detail"], owed["deleted"]) == (0, None, "", False)
        assert (before["waiting"], before["oldest_waiting_at"]) == (1, owed["since"])
        assert await commit(api) == {"outcome": "paid", "paid": 1, "detail": ""}
        (memory,) = (await api.get("/api/memory"))["memories"]
        assert (memory["text"], memory["by"]) == (NOTED, "model")
        assert (memory["session_id"], memory["title"]) == (session, "About me")
        assert (memory["from_turn"], memory["through_turn"]) == (1, 1)
        after = await api.get("/api/memory")
        assert (after["waiting"], after["oldest_waiting_at"], await pending_commits(api)) == (0, None, [])
        assert await commit(api) == await commit(api, session_id=session)
        assert await commit(api) == {"outcome": "nothing", "paid": 0, "detail": ""}
        assert len(model.extractions) == 1
        # A conversation that is gone has no title any more; what it brought stays.
        await api.request("DELETE", f"/api/sessions/{session}")
        (memory,) = (await api.get("/api/memory"))["memories"]
        assert (memory["session_id"], memory["title"]) == (session, "")


async def test_a_session_but_not_a_list_has_its_last_commit_time(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        assert (await api.get(f"/api/sessions/{session}"))["remembered_at"] is None
        before = (await pending_commits(api))[0]["since"]
        assert (await commit(api))["outcome"] == "paid"
        info = await api.get(f"/api/sessions/{session}")
        assert info["remembered_at"] >= before
        (listed,) = (await api.get("/api/sessions"))["sessions"]
        assert (listed["head"], listed["remembered_at"]) == (None, None)
        # What is let be afterwards is not remembered, whatever was before it.
        await api.wait_for_run((await api.send(session, "My cat is called Tom."))["run_id"])
        (owed,) = await pending_commits(api)
        await api.post(f"/api/memory/waiting/{session}/{owed['segment']}", {"decision": "drop"})
        assert api.status == 204
        assert (await api.get(f"/api/sessions/{session}"))["remembered_at"] is None


async def test_messages_show_the_recalled_memories(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": NOTED})
        session = await start_conversation(api, "hello there")
        for _ in range(2):
            await api.wait_for_run((await api.send(session, "What is my dog called?"))["run_id"])
        page = await api.get(f"/api/sessions/{session}/messages")
        brought = {each["turn"]: each["memories"] for each in page["messages"] if each.get("memories")}
        assert set(brought) >= {2}
        assert all(NOTED in text for texts in brought.values() for text in texts)
        assert {each["role"] for each in page["messages"] if each.get("memories")} == {"assistant"}
        # A page says it of its own answers alone.
        first = await api.get(f"/api/sessions/{session}/messages?limit=2&before=2.0")
        assert [each["turn"] for each in first["messages"]] == [1, 1]
        assert not any(each.get("memories") for each in first["messages"])


async def test_memories_are_added_found_in_pages_changed_and_forgotten(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        made = [await api.post("/api/memory", {"text": f"Fact number {n} is green."}) for n in range(3)]
        assert api.status == 201
        assert [(each["by"], each["session_id"], each["title"]) for each in made] == [("user", None, "")] * 3
        first = await api.get("/api/memory?limit=2")
        rest = await api.get(f"/api/memory?limit=2&cursor={first['cursor']}")
        listed = [each["id"] for each in (*first["memories"], *rest["memories"])]
        assert listed == [each["id"] for each in reversed(made)]
        assert rest["cursor"] is None
        changed = await api.request("PATCH", f"/api/memory/{made[0]['id']}", {"text": "The sky is blue."})
        assert (api.status, changed["text"], changed["by"]) == (200, "The sky is blue.", "user")
        assert await texts(api, "?q=sky+blue") == ["The sky is blue."]
        assert len(await texts(api, "?q=green")) == 2
        assert await texts(api, "?q=purple") == []
        await api.request("DELETE", f"/api/memory/{made[0]['id']}")
        assert (api.status, await texts(api, "?q=sky")) == (204, [])
        problem = await api.request("DELETE", f"/api/memory/{made[0]['id']}")
        assert (api.status, problem["code"]) == (404, "no_such_memory")
        problem = await api.request("PATCH", f"/api/memory/{made[0]['id']}", {"text": "x"})
        assert (api.status, problem["code"]) == (404, "no_such_memory")


async def test_undoing_a_turn_retracts_its_memories(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        assert (await commit(api))["outcome"] == "paid"
        assert await texts(api) == [NOTED]
        await api.post(f"/api/sessions/{session}/undo", {})
        assert api.status == 200
        await commit(api)
        await wait_until_none_pending(api)
        assert await texts(api) == []
        assert (await commit(api))["outcome"] == "nothing"


# What waits.


async def test_a_failed_commit_says_why_and_succeeds_on_retry(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        model.extraction.status = 400
        result = await commit(api)
        assert (result["outcome"], result["paid"]) == ("failed", 0)
        (failed,) = await pending_commits(api)
        assert (failed["state"], failed["attempts"]) == ("failed", 1)
        assert failed["detail"] and failed["retry_at"] > failed["since"]
        assert result["detail"]
        assert (await api.get("/api/memory"))["waiting"] == 1
        model.extraction.status = 0
        assert await decide(api, session, 1, "retry") == 204
        await wait_until_none_pending(api)
        assert await texts(api) == [NOTED]
        assert await decide(api, session, 1, "retry") == 409


async def test_a_dismissed_queue_entry_is_never_remembered(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        assert await decide(api, session, 1, "drop") == 204
        assert await pending_commits(api) == []
        assert (await commit(api))["outcome"] == "nothing"
        assert (model.extractions, await texts(api)) == ([], [])


async def test_deleting_a_conversation_discards_its_uncommitted_turns(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session, untried = await start_conversation(api), await start_conversation(api, "I live in Bonn.")
        model.extraction.status = 400
        assert (await commit(api, session_id=session))["outcome"] == "failed"
        model.extraction.status = 0
        for each in (session, untried):
            await api.request("DELETE", f"/api/sessions/{each}")
        assert await pending_commits(api) == []
        assert ((await commit(api))["outcome"], await texts(api)) == ("nothing", [])
        assert len(model.extractions) == 1


async def test_notes_are_deleted_with_their_conversation_on_request(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session, other = await start_conversation(api), await start_conversation(api, "I live in Bonn.")
        await commit(api)
        (mine,) = [note for note in (await api.get("/api/memory"))["memories"] if note["text"] == NOTED]
        await api.request("PATCH", f"/api/memory/{mine['id']}", {"text": "Rex is the user's dog."})
        assert (await api.get(f"/api/sessions/{session}"))["notes"] == 1
        assert (await api.get("/api/sessions"))["sessions"][0]["notes"] is None
        problem = await api.request("DELETE", f"/api/sessions/{session}?notes=burn")
        assert (api.status, problem["code"]) == (400, "bad_request") and "notes: " in problem["detail"]
        await api.request("DELETE", f"/api/sessions/{session}?notes=delete")
        assert api.status == 204 and await texts(api) == ["The user lives in Bonn."]
        await wait_until_none_pending(api)
        await api.request("DELETE", f"/api/sessions/{other}?notes=keep")
        assert api.status == 204 and await texts(api) == ["The user lives in Bonn."]


async def test_disabling_remember_abandons_pending_commits(
    server: RunningServer, model: MemoryModelServer
) -> None:
    async with api_client(server.address) as api:
        session, other = await start_conversation(api), await start_conversation(api, "I live in Bonn.")
        await api.request("PATCH", f"/api/sessions/{session}", {"remember": False})
        assert [each["session_id"] for each in await pending_commits(api)] == [other]
        assert (await commit(api))["paid"] == 1
        assert len(model.extractions) == 1 and NOTED not in await texts(api)


async def test_a_conversation_without_remember_queues_nothing(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api, remember=False)
        assert (await api.get(f"/api/sessions/{session}"))["remember"] is False
        assert await pending_commits(api) == []
        changed = await api.request("PATCH", f"/api/sessions/{session}", {"remember": True})
        assert changed["remember"] is True
        await api.wait_for_run((await api.send(session, "I live in Lisbon."))["run_id"])
        (owed,) = await pending_commits(api)
        assert (owed["from_turn"], owed["through_turn"]) == (2, 2)
        assert (await commit(api))["outcome"] == "paid"
        assert await texts(api) == ["The user lives in Lisbon."]
        fork = await api.post(f"/api/sessions/{session}/fork", {})
        assert fork["remember"] is True
        await api.request("PATCH", f"/api/sessions/{session}", {"remember": False})
        fork = await api.post(f"/api/sessions/{session}/fork", {})
        assert fork["remember"] is False
        assert await pending_commits(api) == []


@asynccontextmanager
async def start_in_doubt(command: CliHarness) -> AsyncIterator[tuple[ApiClient, list[SessionId]]]:
    """A server that was killed three times while it told a memory that does not know keys."""
    folder = Path(command.environ["XDG_DATA_HOME"]) / "holdfast"
    store, sessions = await SqliteStore.open(folder), [IDS.session() for _ in range(3)]
    for session_id in sessions:
        story = TurnEvents(text=REX)
        key = IDS.commit_key()
        turn_facts = (*story.opening(), story.text("I see."), story.message_settled(), story.step_settled())
        doubt = (
            f.RunCompleted(story.run_id, owed=True),
            f.MemoryCommitStarted(1, key, ((1, 1),), "", "d", 1, store.own_process),
            f.MemoryInDoubt(1, key, 1, 1),
        )
        await store.append(Append(session_id, (f.SessionCreated("Doubtful"), *turn_facts, *doubt)))
    await store.close()
    async with api_client(command.serve("--port", "0").address) as api:
        yield api, sessions


async def test_a_person_resolves_a_commit_in_doubt(command: CliHarness) -> None:
    async with start_in_doubt(command) as (api, (done, drop, again)):
        assert [each["state"] for each in await pending_commits(api)] == ["in_doubt"] * 3
        result = await commit(api)
        assert (result["outcome"], result["paid"]) == ("in_doubt", 0)
        assert await decide(api, done, 1, "done") == 204
        assert await decide(api, drop, 1, "drop") == 204
        assert [each["session_id"] for each in await pending_commits(api)] == [again]
        assert await decide(api, again, 1, "retry") == 204
        assert "in_doubt" not in {each["state"] for each in await pending_commits(api)}
        assert await decide(api, done, 1, "done") == 409


# What goes with it.


async def test_a_commit_notifies_readers_and_changes_nothing_else(
    command: CliHarness, server: RunningServer
) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        before = await api.get(f"/api/sessions/{session}")
        await api.post(f"/api/sessions/{session}/seen", {"seq": before["head"]})
        await start_conversation(api, "I like tea.")
        listed = [each["id"] for each in (await api.get("/api/sessions"))["sessions"]]
        assert (await commit(api, session_id=session))["outcome"] == "paid"
        frames = await api.events_through(session, before["head"], "memory_committed")
        kinds = [frame.event for frame in frames if frame.event != "session_renamed"]
        assert kinds == ["memory_commit_started", "memory_committed"]
        assert (frames[-1].data["segment"], frames[-1].data["through_turn"]) == (1, 1)
        after = await api.get(f"/api/sessions/{session}")
        assert (after["updated_at"], after["unread"]) == (before["updated_at"], False)
        assert [each["id"] for each in (await api.get("/api/sessions"))["sessions"]] == listed
        for words in (("show", session), ("export", session, "--format", "markdown")):
            ended = command.run("sessions", *words)
            assert ended.returncode == 0, ended.stderr
            assert REX in ended.stdout and "memory" not in ended.stdout.lower()
        exported = command.run("sessions", "export", session)
        kinds = [each["kind"] for each in json.loads(exported.stdout)["events"]]
        assert kinds[-2:] == ["memory_commit_started", "memory_committed"]


async def test_metrics_count_pending_and_finished_commits(server: RunningServer) -> None:
    async with api_client(server.address) as api:

        async def metric(line: str) -> float | None:
            text = (await api.get("/metrics")).decode()
            values = [each.rpartition(" ")[2] for each in text.splitlines() if each.startswith(f"{line} ")]
            return float(values[0]) if values else None

        assert await metric("holdfast_memory_owed") == await metric("holdfast_memory_owed_age_seconds") == 0
        assert await metric('holdfast_memory_commits_total{outcome="paid"}') == 0
        assert await metric('holdfast_memory_recalls_total{outcome="slow"}') == 0
        await start_conversation(api)
        assert await metric("holdfast_memory_owed") == 1
        age_s = await metric("holdfast_memory_owed_age_seconds")
        assert age_s is not None and 0 <= age_s < 600
        await commit(api)
        assert await metric("holdfast_memory_owed") == 0
        assert await metric('holdfast_memory_commits_total{outcome="paid"}') == 1
        assert await metric('holdfast_memory_recalls_total{outcome="none"}') == 1


async def test_without_memory_everything_else_works_and_nothing_is_queued(
    model: MemoryModelServer, tmp_path: Path
) -> None:
    with cli_in(tmp_path, **environ_for(model), HOLDFAST_MEMORY="off") as command:
        async with api_client(command.serve("--port", "0").address) as api:
            await start_conversation(api)
            found = await api.get("/api/memory")
            assert (found["provider"], found["health"]["ok"], found["memories"]) == ("off", True, [])
            assert (found["waiting"], await pending_commits(api)) == (0, [])
            assert (await commit(api))["outcome"] == "nothing"
            text = {"text": "x"}
            for method, path, body in (("POST", "", text), ("PATCH", "/n_0", text), ("DELETE", "/n_0", None)):
                problem = await api.request(method, f"/api/memory{path}", body)
                assert (api.status, problem["code"]) == (409, "memory_off"), method
            assert (await api.get("/health/ready"))["status"] == "ready"


async def test_an_unreachable_provider_is_reported_and_blocks_nothing_else(
    model: MemoryModelServer, tmp_path: Path
) -> None:
    away = {"HOLDFAST_MEMORY": "webhook", "HOLDFAST_MEMORY_WEBHOOK_URL": "http://127.0.0.1:1/memory"}
    with cli_in(tmp_path, **environ_for(model), **QUIET, **away) as command:
        async with api_client(command.serve("--port", "0").address) as api:
            session = await start_conversation(api)
            for method, path, body in (
                ("GET", "", None),
                ("POST", "", {"text": "x"}),
                ("PATCH", "/n_0", {"text": "x"}),
                ("DELETE", "/n_0", None),
            ):
                reply = await api.request(method, f"/api/memory{path}", body)
                assert (api.status, reply["code"]) == (502, "memory_failed"), (method, reply)
            assert (await api.get("/health/ready"))["status"] == "ready"
            reply = await commit(api, session_id=session)
            assert (reply["outcome"], reply["paid"]) == ("failed", 0)
            assert [each["state"] for each in await pending_commits(api)] == ["failed"]


# What is refused.

BAD: list[tuple[str, str, object, int, str]] = [
    ("POST", "", {}, 400, "bad_request"),
    ("POST", "", {"text": ""}, 400, "bad_request"),
    ("POST", "", {"text": " \n"}, 400, "bad_request"),
    ("POST", "", {"text": 5}, 400, "bad_request"),
    ("POST", "", {"text": "x" * (MEMORY_CHARS_MAX + 1)}, 400, "bad_request"),
    ("POST", "", {"text": "x", "by": "model"}, 400, "bad_request"),
    ("POST", "", ["x"], 400, "bad_request"),
    ("PATCH", "/MEMORY", {}, 400, "bad_request"),
    ("PATCH", "/MEMORY", {"text": ""}, 400, "bad_request"),
    ("PATCH", "/MEMORY", {"text": None}, 400, "bad_request"),
    ("PATCH", "/MEMORY", {"text": "x" * (MEMORY_CHARS_MAX + 1)}, 400, "bad_request"),
    ("PATCH", "/n_0", {"text": "x"}, 404, "no_such_memory"),
    ("PATCH", "/%00'", {"text": "x"}, 404, "no_such_memory"),
    ("DELETE", "/n_0", None, 404, "no_such_memory"),
    ("GET", "/MEMORY", None, 405, "method_not_allowed"),
    ("DELETE", "", None, 405, "method_not_allowed"),
    ("GET", "?limit=0", None, 400, "bad_request"),
    ("GET", f"?limit={PAGE_MEMORIES_MAX + 1}", None, 400, "bad_request"),
    ("GET", "?limit=many", None, 400, "bad_request"),
    ("GET", f"?q={'x' * 201}", None, 400, "bad_request"),
    ("GET", "?cursor=nonsense", None, 400, "bad_cursor"),
    ("POST", "/commit", {"session_id": 5}, 400, "bad_request"),
    ("POST", "/commit", {"session": "x"}, 400, "bad_request"),
    ("POST", "/commit", {"session_id": ""}, 404, "no_such_session"),
    ("POST", "/commit", {"session_id": NOBODY}, 404, "no_such_session"),
    ("POST", "/waiting/SESSION/1", {}, 400, "bad_request"),
    ("POST", "/waiting/SESSION/1", {"decision": "pay"}, 400, "bad_request"),
    ("POST", "/waiting/SESSION/1", {"decision": "retry"}, 409, "debt_refused"),
    ("POST", "/waiting/SESSION/1", {"decision": "done"}, 409, "debt_refused"),
    ("POST", "/waiting/SESSION/2", {"decision": "drop"}, 404, "no_such_debt"),
    ("POST", "/waiting/SESSION/0", {"decision": "drop"}, 404, "no_such_debt"),
    ("POST", f"/waiting/SESSION/{10**30}", {"decision": "drop"}, 404, "no_such_debt"),
    ("POST", "/waiting/SESSION/x", {"decision": "drop"}, 404, "no_such_page"),
    ("POST", f"/waiting/{NOBODY}/1", {"decision": "drop"}, 404, "no_such_session"),
    ("POST", "/api/sessions", {"remember": "no"}, 400, "bad_request"),
    ("PATCH", "/api/sessions/SESSION", {"remember": 0}, 400, "bad_request"),
]


async def test_what_is_wrong_is_refused_and_changes_nothing(
    server: RunningServer, model: MemoryModelServer
) -> None:
    wrong = []
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        memory = (await api.post("/api/memory", {"text": "The sky is blue."}))["id"]
        paths = (f"/api/sessions/{session}", "/api/memory", "/api/memory/waiting", "/api/sessions")
        before = [await api.get(path) for path in paths]
        for method, path, body, status, code in BAD:
            whole = path if path.startswith("/api/") else f"/api/memory{path}"
            named = whole.replace("SESSION", session).replace("MEMORY", memory)
            answer = await api.request(method, named, body)
            if (api.status, answer.get("code")) != (status, code):
                wrong.append((method, path[:60], body, api.status, answer))
        assert wrong == []
        blank = await api.request("POST", "/api/memory", {"text": " "})
        assert blank["detail"].endswith("the text is blank, so there is nothing to remember.")
        assert [await api.get(path) for path in paths] == before
        assert model.extractions == []


async def test_reading_needs_the_right_to_read_and_changing_the_right_to_write(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        memory = (await api.post("/api/memory", {"text": "The sky is blue."}))["id"]
        changes: tuple[tuple[str, str, object], ...] = (
            ("POST", "", {"text": "x"}),
            ("PATCH", f"/{memory}", {"text": "x"}),
            ("DELETE", f"/{memory}", None),
            ("POST", "/commit", {}),
            ("POST", f"/waiting/{session}/1", {"decision": "drop"}),
        )
        for held in ("read", "approve"):
            made = await api.post("/api/tokens", {"name": held, "rights": [held]})
            async with api_client(server.address, made["secret"]) as other:
                for path in ("", "/waiting"):
                    await other.get(f"/api/memory{path}")
                    assert other.status == (200 if held == "read" else 403)
                for method, path, body in changes:
                    problem = await other.request(method, f"/api/memory{path}", body)
                    assert (other.status, problem["code"]) == (403, "not_allowed"), (held, method, path)
        assert await texts(api) == ["The sky is blue."]
        assert [each["state"] for each in await pending_commits(api)] == ["owed"]
