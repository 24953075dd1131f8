"""The public API as a program uses it: a real server, a real model server, JSON over HTTP."""

import asyncio
from typing import Any

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import TITLE, ScriptedModelServer, api_client


async def test_a_message_is_stored_answered_and_read_back(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        receipt = await api.send(session, "Good morning")
        assert set(receipt) == {"turn_id", "run_id", "seq", "session_id"}
        run = await api.wait_for_run(receipt["run_id"])
        assert (run["session_id"], run["turn"], run["failure"]) == (session, 1, None)
        assert run["usage"] == {
            "input_tokens": 19, "output_tokens": 10, "cached_tokens": 16, "cost_micros": 0,
            "written_tokens": 0, "estimated_tokens": 0,
        }  # fmt: skip
        page = await api.get(f"/api/sessions/{session}/messages")
        asked, answer = page["messages"]
        assert asked["parts"] == [{"type": "text", "text": "Good morning"}]
        assert (asked["role"], asked["turn"], asked["place"], asked["live"]) == ("user", 1, 0, True)
        assert (asked["turn_id"], asked["run_id"]) == (receipt["turn_id"], receipt["run_id"])
        thought, said = answer["parts"]
        assert (thought["type"], thought["text"]) == ("reasoning", "Hm. ")
        assert said == {"type": "text", "text": "Good morning "}
        assert [run["status"] for run in page["runs"]] == ["completed"]
        assert page["before"] is None
        assert page["head"] >= receipt["seq"]


async def test_a_repeated_idempotency_key_returns_the_same_receipt(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        first, *others = await asyncio.gather(*(api.send(session, "Once", "key-1") for _ in range(5)))
        assert others == [first] * 4
        await api.wait_for_run(first["run_id"])
        assert [role for role, _, _ in await api.message_texts(session)] == ["user", "assistant"]


async def test_the_model_titles_a_conversation_and_a_users_title_stays(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.send(session, "Something to name")
        found = await api.wait_for_field(f"/api/sessions/{session}", "title", TITLE)
        assert found["turns"] == 1
        changed = await api.request("PATCH", f"/api/sessions/{session}", {"title": "Mine"})
        assert (changed["title"], changed["head"]) == ("Mine", found["head"] + 1)
        await api.wait_for_run((await api.send(session, "More"))["run_id"])
        await asyncio.sleep(0.2)
        assert (await api.get(f"/api/sessions/{session}"))["title"] == "Mine"


async def test_session_fields_change_together_and_the_list_hides_archived_sessions(
    server: RunningServer,
) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session(title="To put away")
        body = {"title": "Put away", "archived": True, "resume": "ask", "workspace": "/tmp"}
        changed = await api.request("PATCH", f"/api/sessions/{session}", body)
        assert {name: changed[name] for name in body} == body
        shown = [each["id"] for each in (await api.get("/api/sessions?limit=200"))["sessions"]]
        assert session not in shown
        away = [each["id"] for each in (await api.get("/api/sessions?archived=true"))["sessions"]]
        assert session in away


async def test_the_session_list_is_paged(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        begun = [await api.create_session(title=str(n)) for n in range(5)]
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await api.get("/api/sessions?limit=2" + (f"&cursor={cursor}" if cursor else ""))
            assert len(page["sessions"]) <= 2
            found += [each["id"] for each in page["sessions"]]
            cursor = page["cursor"]
        assert len(found) == len(set(found))
        assert found[:5] == begun[::-1]


async def test_messages_are_paged_backwards(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        for n in range(3):
            await api.wait_for_run((await api.send(session, f"Say {n}"))["run_id"])
        first = await api.get(f"/api/sessions/{session}/messages?limit=4")
        second = await api.get(f"/api/sessions/{session}/messages?limit=4&before={first['before']}")
        turns = [each["turn"] for each in second["messages"] + first["messages"]]
        assert turns == [1, 1, 2, 2, 3, 3]
        assert second["before"] is None


async def test_a_deleted_conversation_is_gone(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        run = (await api.send(session, "hold"))["run_id"]
        await api.wait_for_run(run, "running")
        await api.request("DELETE", f"/api/sessions/{session}")
        assert api.status == 204
        for path in ("", "/messages"):
            problem = await api.get(f"/api/sessions/{session}{path}")
            assert (api.status, problem["code"]) == (404, "no_such_session")


async def test_a_cancelled_run_keeps_its_partial_output(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        run = (await api.send(session, "hold"))["run_id"]
        await api.wait_for_streaming_text(session, "Well")
        assert (await api.get(f"/api/sessions/{session}"))["status"] == "working"
        cancelled = await api.post(f"/api/runs/{run}/cancel")
        assert (api.status, cancelled["status"]) == (200, "cancelled")
        assert (await api.message_texts(session))[1] == ("assistant", "interrupted", "Well")
        assert (await api.get(f"/api/sessions/{session}"))["status"] == "idle"
        problem = await api.post(f"/api/runs/{run}/cancel")
        assert (api.status, problem["code"]) == (409, "run_refused")


async def test_a_message_sent_during_a_run_is_queued_and_answered_in_order(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        with speaker.pausing_count(15):
            await api.send(session, "count 30")
            second = await api.send(session, "And then")
            page = await api.get(f"/api/sessions/{session}/messages")
        assert [run["status"] for run in page["runs"]] in (["running", "queued"], ["accepted", "queued"])
        await api.wait_for_run(second["run_id"])
        assert [words for role, _, words in await api.message_texts(session) if role == "assistant"] == [
            "".join(f"{n} " for n in range(30)),
            "And then ",
        ]


async def test_an_approved_tool_call_runs_and_a_denied_one_does_not(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        for command, decision, answer in (
            ("echo it-ran", {"decision": "approve"}, "it-ran"),
            ("touch not-there", {"decision": "deny", "reason": "Rather not."}, "Rather not."),
        ):
            run = (await api.send(session, f"run {command}"))["run_id"]
            waiting = await api.wait_for_run(run, "waiting")
            assert waiting["waiting"] == "approval"
            assert (await api.get(f"/api/sessions/{session}"))["status"] == "needs_you"
            tool = (await api.entries(session))[-1]
            assert (tool["role"], tool["name"], tool["state"], tool["approval"]) == (
                "tool", "shell", "intended", "requested",
            )  # fmt: skip
            await api.post(f"/api/runs/{run}/tools/{tool['id']}", decision)
            assert api.status == 200
            await api.wait_for_run(run)
            entries = await api.entries(session)
            assert answer in entries[-1]["parts"][0]["text"]
            settled = next(entry for entry in entries if entry["id"] == tool["id"])
            assert settled["outcome"] == ("done" if decision["decision"] == "approve" else "denied")
            again = await api.post(f"/api/runs/{run}/tools/{tool['id']}", decision)
            assert (api.status, again["code"]) == (409, "tool_refused")


async def test_turns_are_undone_retried_and_edited(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        base = f"/api/sessions/{session}"
        first = await api.send(session, "One")
        await api.wait_for_run(first["run_id"])
        await api.wait_for_run((await api.send(session, "Two"))["run_id"])

        undone = await api.post(f"{base}/undo", {})
        assert (api.status, undone["turns"]) == (200, 1)
        again = await api.post(f"{base}/retry", {"turn_id": first["turn_id"]})
        assert api.status == 202
        await api.wait_for_run(again["run_id"])
        edited = await api.post(f"{base}/edit", {"text": "Another", "turn_id": again["turn_id"]})
        assert api.status == 202
        await api.wait_for_run(edited["run_id"])
        live = [entry for entry in await api.entries(session) if entry["live"]]
        assert [entry["parts"][-1]["text"] for entry in live] == ["Another", "Another "]

        head = (await api.get(base))["head"]
        stale = await api.post(f"{base}/undo", {}, headers={"If-Match": str(head - 1)})
        assert (api.status, stale["code"]) == (409, "seq_mismatch")
        stale = await api.request("DELETE", base, headers={"If-Match": str(head - 1)})
        assert stale["code"] == "seq_mismatch"
        cleared = await api.post(f"{base}/clear", headers={"If-Match": f'"{head}"'})
        assert (api.status, cleared["turns"]) == (200, 0)


async def test_removed_turns_are_restored_and_versions_chosen(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        base = f"/api/sessions/{session}"

        async def shown() -> list[tuple[str, bool, Any, Any]]:
            """Return the words of each message, whether it is live, its versions and what removed it."""
            asked = [entry for entry in await api.entries(session) if entry["role"] == "user"]
            return [
                (each["parts"][0]["text"], each["live"], each.get("versions"), each.get("removed"))
                for each in asked
            ]

        first, second = [await api.send(session, text) for text in ("One", "Two")]
        for sent in (first, second):
            await api.wait_for_run(sent["run_id"])
        nothing = await api.post(f"{base}/restore")
        assert (api.status, nothing["code"]) == (404, "nothing_to_restore")
        undone = await api.post(f"{base}/undo", {"turn_id": first["turn_id"]})
        removed = {"seq": undone["head"], "replaced": False, "after": 0}
        assert await shown() == [("One", False, None, removed), ("Two", False, None, removed)]
        stale = {"If-Match": str(undone["head"] - 1)}
        refused = await api.post(f"{base}/restore", {}, headers=stale)
        assert (api.status, refused["code"]) == (409, "seq_mismatch")
        restored = await api.post(f"{base}/restore", {})
        assert (api.status, restored["turns"]) == (200, 2)
        assert await shown() == [("One", True, None, None), ("Two", True, None, None)]
        again = await api.post(f"{base}/restore", {"turn_id": first["turn_id"]})
        assert again["head"] == restored["head"], "what is live already stays as it is"

        retried = await api.post(f"{base}/retry", {"turn_id": first["turn_id"]})
        await api.wait_for_run(retried["run_id"])
        versions = [first["turn_id"], retried["turn_id"]]
        at = (await shown())[0][3]["seq"]
        replaced = {"seq": at, "replaced": True, "after": 0}
        assert await shown() == [
            ("One", False, versions, replaced),
            ("Two", False, None, replaced),
            ("One", True, None, None),
        ]
        chosen = await api.post(f"{base}/restore", {"turn_id": first["turn_id"]})
        assert chosen["turns"] == 2
        assert await shown() == [
            ("One", True, versions, None),
            ("Two", True, None, None),
            ("One", False, None, {"seq": chosen["head"], "replaced": True, "after": 0}),
        ]

        await api.post(f"{base}/clear")
        refused = await api.post(f"{base}/restore", {"turn_id": first["turn_id"]})
        assert (api.status, refused["code"]) == (409, "restore_refused")
        unknown = await api.post(f"{base}/restore", {"turn_id": "t_nowhere"})
        assert (api.status, unknown["code"]) == (404, "no_such_turn")


async def test_without_a_body_the_last_turn_is_used(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "One"))["run_id"])
        await api.post(f"/api/sessions/{session}/undo")
        assert api.status == 200


async def test_a_fork_is_independent_of_its_parent(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        first = await api.send(session, "One")
        await api.wait_for_run(first["run_id"])
        await api.wait_for_run((await api.send(session, "Two"))["run_id"])
        branch = await api.post(f"/api/sessions/{session}/fork", {"turn_id": first["turn_id"]})
        assert (api.status, branch["parent_session_id"]) == (201, session)
        await api.wait_for_run((await api.send(branch["id"], "Three"))["run_id"])
        said = [words for role, _, words in await api.message_texts(branch["id"]) if role == "user"]
        assert said == ["One", "Three"]
        assert len(await api.message_texts(session)) == 4


async def test_search_covers_all_conversations(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "The quokka smiles"))["run_id"])
        found = await api.get("/api/search?q=quokka&limit=5")
        assert {hit["session_id"] for hit in found["hits"]} == {session}
        start, end = found["hits"][0]["marks"][0]
        assert found["hits"][0]["snippet"][start:end] == "quokka"


async def test_the_model_list_says_which_model_answers_and_why(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        (model,) = (await api.get("/api/models"))["models"]
        assert model["name"] == "openai:small"
        assert "as HOLDFAST_MODEL asks" in model["why"]


async def test_metrics_are_served_to_prometheus(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "count 20"))["run_id"])
        async with api.stream(f"/api/sessions/{session}/events") as frames:
            await anext(frames)
            lines = (await api.get("/metrics")).decode().splitlines()
        assert api.headers["content-type"].startswith("text/plain; version=0.0.4")
        values: dict[str, Any] = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        assert int(values["holdfast_subscribers"]) == 1
        assert int(values["holdfast_deltas_total"]) >= 20
        assert int(values["holdfast_commit_seconds_count"]) > 0
        assert int(values['holdfast_commit_seconds_bucket{le="+Inf"}']) == int(
            values["holdfast_commit_seconds_count"]
        )
        assert int(values['holdfast_http_requests_total{status="2xx"}']) > 0
