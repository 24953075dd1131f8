"""What the agent asks, answered over HTTP: by one of several programs, once, with its choices checked."""

import asyncio
import json
from typing import Any

import pytest

from holdfast.domain.limits import TEXT_BYTES_MAX
from tests.acceptance.conftest import Running
from tests.support.api_client import Api, talking, words_of

COLOURS = {"question": "Which colour?", "choices": ["Red", "Green", "Blue"]}


async def asked(api: Api, question: dict[str, Any], session: str | None = None) -> tuple[str, str, str]:
    """A conversation in which something is asked, its run, and the address at which it is answered."""
    session = session or await api.begin()
    run: str = (await api.say(session, f"ask {json.dumps(question)}"))["run_id"]
    assert (await api.done(run, "waiting"))["waiting"] == "question"
    return session, run, f"/api/runs/{run}/tools/{(await api.entries(session))[-1]['id']}"


async def test_a_question_is_told_everywhere_and_answered_once(server: Running) -> None:
    async with talking(server.address) as api, talking(server.address) as other:
        session, run, path = await asked(api, COLOURS)
        call, told = path.rpartition("/")[2], COLOURS | {"multiple": False}
        entry = (await other.entries(session))[-1]
        assert (entry["name"], entry["approval"], entry["state"]) == ("ask_user", "asked", "intended")
        assert entry["asked"] == told
        [question] = [q for q in (await other.get("/api/questions"))["questions"] if q["run_id"] == run]
        assert (question["kind"], question["call_id"], question["asked"]) == ("question", call, told)
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
        await api.done(run)
        entry = next(each for each in await api.entries(session) if each["id"] == call)
        assert (entry["outcome"], words_of(entry)) == ("done", "Green") and "asked" not in entry
        assert (await api.read(session))[-1][2] == "It said: Green"
        late = await other.post(path, {"decision": "answer", "choices": ["Red"]})
        assert (other.status, late["code"]) == (409, "tool_refused")
        kinds = [frame.event for frame in await api.follow(session, 0, "run_completed")]
        assert (kinds.count("question_asked"), kinds.count("question_answered")) == (1, 1)


async def test_of_many_answers_at_once_one_is_heard(server: Running) -> None:
    async with talking(server.address) as api, talking(server.address) as other:
        session, run, path = await asked(api, COLOURS)

        async def answer(of: Api, choice: str) -> int:
            body = {"decision": "answer", "choices": [choice]}
            async with of.session.post(of.address + path, json=body) as said:
                return said.status

        colours = [COLOURS["choices"][n % 3] for n in range(12)]  # type: ignore[index]
        statuses = await asyncio.gather(
            *(answer((api, other)[n % 2], each) for n, each in enumerate(colours))
        )
        assert sorted(statuses) == [200, *[409] * 11]
        await api.done(run)
        assert (await api.read(session))[-1][2] == f"It said: {colours[statuses.index(200)]}"


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
async def test_what_does_not_answer_it_is_refused_and_leaves_it_open(
    server: Running, body: dict[str, Any], status: int, code: str
) -> None:
    async with talking(server.address) as api:
        _, run, path = await asked(api, COLOURS)
        refused = await api.post(path, body)
        assert (api.status, refused["code"]) == (status, code)
        await api.post(path, {"decision": "answer", "choices": ["Red"]})
        assert api.status == 200
        await api.done(run)


async def test_an_answer_in_words_one_that_is_left_and_one_that_is_passed_over(server: Running) -> None:
    async with talking(server.address) as api:
        session, run, path = await asked(api, {"question": "Why?"})
        refused = await api.post(path, {"decision": "answer", "text": " "})
        assert (api.status, refused["code"]) == (422, "answer_refused")
        await api.post(path, {"decision": "answer", "text": "Because."})
        await api.done(run)
        assert (await api.read(session))[-1][2] == "It said: Because."
        _, run, path = await asked(api, {"question": "And now?"}, session)
        await api.post(path, {"decision": "deny", "reason": "Later."})
        await api.done(run)
        assert "chose not to answer. Later." in (await api.read(session))[-1][2]
        _, run, path = await asked(api, {"question": "Still there?"}, session)
        sent = await api.say(session, "something else")
        assert (await api.done(run, "cancelled"))["status"] == "cancelled"
        await api.done(sent["run_id"])
        late = await api.post(path, {"decision": "answer", "text": "Yes."})
        assert (api.status, late["code"]) == (409, "tool_refused")
        left = [each for each in await api.entries(session) if each.get("outcome") == "not_run"]
        assert [words_of(each) for each in left][1:] == ["Not answered: the user moved on."]
        unasked = await api.post(f"/api/runs/{run}/tools/c_0000000000000000", {"decision": "answer"})
        assert (api.status, unasked["code"]) == (404, "no_such_tool")


async def test_an_approval_is_not_answered_with_words(server: Running) -> None:
    async with talking(server.address) as api:
        session = await api.begin()
        run = (await api.say(session, "run echo x"))["run_id"]
        await api.done(run, "waiting")
        path = f"/api/runs/{run}/tools/{(await api.entries(session))[-1]['id']}"
        refused = await api.post(path, {"decision": "answer", "text": "Yes."})
        assert (api.status, refused["code"]) == (409, "tool_refused")
