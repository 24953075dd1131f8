"""What the agent asks, answered over HTTP: by one of several programs, once, with its choices checked."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.domain.limits import TEXT_BYTES_MAX
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client, text_of

COLOURS = {"question": "Which colour?", "choices": ["Red", "Green", "Blue"]}


async def start_pending_question(
    api: ApiClient, question: dict[str, Any], session: str | None = None
) -> tuple[str, str, str]:
    """A conversation in which something is asked, its run, and the address at which it is answered."""
    session = session or await api.create_session()
    run: str = (await api.send(session, f"ask {json.dumps(question)}"))["run_id"]
    assert (await api.wait_for_run(run, "waiting"))["waiting"] == "question"
    return session, run, f"/api/runs/{run}/tools/{(await api.entries(session))[-1]['id']}"


async def test_a_question_appears_everywhere_and_is_answered_once(server: RunningServer) -> None:
    async with api_client(server.address) as api, api_client(server.address) as other:
        session, run, path = await start_pending_question(api, COLOURS)
        call, expected = path.rpartition("/")[2], COLOURS | {"multiple": False}
        entry = (await other.entries(session))[-1]
        assert (entry["name"], entry["approval"], entry["state"]) == ("ask_user", "asked", "intended")
        assert entry["asked"] == expected
        [question] = [q for q in (await other.get("/api/questions"))["questions"] if q["run_id"] == run]
        assert (question["kind"], question["call_id"], question["asked"]) == ("question", call, expected)
        async with other.stream("/api/stream?feed=true") as frames:
            snapshot = await anext(aiter(frames))
            while snapshot.event != "feed_snapshot":
                snapshot = await anext(aiter(frames))
            assert question in snapshot.data["questions"]
            answer = await api.post(path, {"decision": "answer", "choices": ["Green"]})
            assert (api.status, answer["id"]) == (200, run)
            async for frame in frames:
                if frame.event == "feed_changed" and frame.data["session"]["id"] == session:
                    assert frame.data["questions"] == []
                    break
        await api.wait_for_run(run)
        entry = next(each for each in await api.entries(session) if each["id"] == call)
        assert (entry["outcome"], text_of(entry)) == ("done", "Green") and "asked" not in entry
        assert (await api.message_texts(session))[-1][2] == "It said: Green"
        late = await other.post(path, {"decision": "answer", "choices": ["Red"]})
        assert (other.status, late["code"]) == (409, "tool_refused")
        kinds = [frame.event for frame in await api.events_through(session, 0, "run_completed")]
        assert (kinds.count("question_asked"), kinds.count("question_answered")) == (1, 1)


async def test_of_concurrent_answers_one_is_accepted(server: RunningServer) -> None:
    async with api_client(server.address) as api, api_client(server.address) as other:
        session, run, path = await start_pending_question(api, COLOURS)

        async def answer(of: ApiClient, choice: str) -> int:
            body = {"decision": "answer", "choices": [choice]}
            async with of.session.post(of.address + path, json=body) as said:
                return said.status

        colours = [COLOURS["choices"][n % 3] for n in range(12)]  # type: ignore[index]
        statuses = await asyncio.gather(
            *(answer((api, other)[n % 2], each) for n, each in enumerate(colours))
        )
        assert sorted(statuses) == [200, *[409] * 11]
        await api.wait_for_run(run)
        assert (await api.message_texts(session))[-1][2] == f"It said: {colours[statuses.index(200)]}"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"decision": "answer"}, 422, "answer_refused"),
        ({"decision": "answer", "choices": []}, 422, "answer_refused"),
        ({"decision": "answer", "choices": ["Pink"]}, 422, "answer_refused"),
        ({"decision": "answer", "choices": ["Red", "Blue"]}, 422, "answer_refused"),
        ({"decision": "answer", "text": "Red"}, 422, "answer_refused"),
        ({"decision": "answer", "choices": "Red"}, 400, "bad_request"),
        ({"decision": "answer", "choices": [1]}, 400, "bad_request"),
        ({"decision": "answer", "choices": ["Red"], "scope": "always"}, 400, "bad_request"),
        ({"decision": "answer", "choices": ["Red"], "result": "Red"}, 400, "bad_request"),
        ({"decision": "deny", "text": "No."}, 400, "bad_request"),
        ({"decision": "approve", "choices": ["Red"]}, 400, "bad_request"),
        ({"decision": "answer", "text": "x" * (TEXT_BYTES_MAX + 1)}, 413, "too_large"),
        ({"decision": "approve"}, 409, "tool_refused"),
        ({"decision": "skip"}, 409, "tool_refused"),
    ],
)
async def test_an_invalid_answer_is_refused_and_the_question_stays_open(
    server: RunningServer, body: dict[str, Any], status: int, code: str
) -> None:
    async with api_client(server.address) as api:
        _, run, path = await start_pending_question(api, COLOURS)
        refused = await api.post(path, body)
        assert (api.status, refused["code"]) == (status, code)
        await api.post(path, {"decision": "answer", "choices": ["Red"]})
        assert api.status == 200
        await api.wait_for_run(run)


async def test_questions_are_answered_in_text_dismissed_and_superseded(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session, run, path = await start_pending_question(api, {"question": "Why?"})
        refused = await api.post(path, {"decision": "answer", "text": " "})
        assert (api.status, refused["code"]) == (422, "answer_refused")
        await api.post(path, {"decision": "answer", "text": "Because."})
        await api.wait_for_run(run)
        assert (await api.message_texts(session))[-1][2] == "It said: Because."
        _, run, path = await start_pending_question(api, {"question": "And now?"}, session)
        await api.post(path, {"decision": "deny", "reason": "Later."})
        await api.wait_for_run(run)
        assert "chose not to answer. Later." in (await api.message_texts(session))[-1][2]
        _, run, path = await start_pending_question(api, {"question": "Still there?"}, session)
        sent = await api.send(session, "something else")
        assert (await api.wait_for_run(run, "cancelled"))["status"] == "cancelled"
        await api.wait_for_run(sent["run_id"])
        late = await api.post(path, {"decision": "answer", "text": "Yes."})
        assert (api.status, late["code"]) == (409, "tool_refused")
        left = [each for each in await api.entries(session) if each.get("outcome") == "not_run"]
        assert [text_of(each) for each in left][1:] == ["Not answered: the user moved on."]
        unasked = await api.post(f"/api/runs/{run}/tools/c_0000000000000000", {"decision": "answer"})
        assert (api.status, unasked["code"]) == (404, "no_such_tool")


async def test_an_approval_is_not_answered_with_words(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        run = (await api.send(session, "run echo x"))["run_id"]
        await api.wait_for_run(run, "waiting")
        path = f"/api/runs/{run}/tools/{(await api.entries(session))[-1]['id']}"
        refused = await api.post(path, {"decision": "answer", "text": "Yes."})
        assert (api.status, refused["code"]) == (409, "tool_refused")
