"""What the page keeps on the server beside what is said: drafts, pins, search within one conversation."""

import asyncio

from holdfast.domain.limits import TEXT_BYTES_MAX
from tests.acceptance.conftest import Running
from tests.support.api_client import Api, talking, until


async def draft_of(api: Api, session: str) -> str:
    text: str = (await api.get(f"/api/sessions/{session}/draft"))["text"]
    return text


async def test_a_draft_is_kept_until_it_is_emptied(server: Running) -> None:
    async with talking(server.address) as api:
        session, other = await api.begin(), await api.begin()
        path = f"/api/sessions/{session}/draft"
        assert await draft_of(api, session) == ""
        assert await api.post(path, {"text": "Dear 🐙,\n\n"}) == {"text": "Dear 🐙,\n\n"}
        assert await draft_of(api, session) == "Dear 🐙,\n\n"
        assert await draft_of(api, other) == ""
        await api.post(path, {"text": "x" * TEXT_BYTES_MAX})
        assert len(await draft_of(api, session)) == TEXT_BYTES_MAX
        assert (await api.post(path, {"text": "x" * (TEXT_BYTES_MAX + 1)}))["code"] == "too_large"
        assert len(await draft_of(api, session)) == TEXT_BYTES_MAX
        await api.post(path, {"text": ""})
        assert (api.status, await draft_of(api, session)) == (200, "")


async def test_a_draft_belongs_to_a_conversation_that_is_there(server: Running) -> None:
    async with talking(server.address) as api:
        session = await api.begin()
        path = f"/api/sessions/{session}/draft"
        await api.post(path, {"text": "And"})
        head = (await api.get(f"/api/sessions/{session}"))["head"]
        assert head == 1, "a draft is no event"
        await api.ask("DELETE", f"/api/sessions/{session}")
        assert (await api.get(path))["code"] == "no_such_session"
        assert (await api.post(path, {"text": "And"}))["code"] == "no_such_session"
        assert (await api.post(path, {}))["code"] == "bad_request"


async def test_a_pin_is_told_in_the_list_alone_and_to_every_feed(server: Running) -> None:
    async with talking(server.address) as api:
        session = await api.begin(title="Keep me")
        path = f"/api/sessions/{session}"
        assert (await api.get(path))["pinned"] is False
        async with asyncio.timeout(30), api.stream("/api/stream?feed=true") as frames:
            async for frame in frames:
                if frame.event == "feed_snapshot":
                    break
            told = await api.ask("PATCH", path, {"pinned": True, "title": "Kept"})
            assert (told["pinned"], told["title"]) == (True, "Kept")
            async for frame in frames:
                changed = frame.data.get("session", {})
                if frame.event == "feed_changed" and changed["id"] == session and changed["pinned"]:
                    break
        listed = {row["id"]: row["pinned"] for row in (await api.get("/api/sessions"))["sessions"]}
        assert listed[session] is True
        assert (await api.ask("PATCH", path, {"title": "Still"}))["pinned"] is True
        assert (await api.ask("PATCH", path, {"pinned": False}))["pinned"] is False


async def test_a_pin_is_refused_with_what_it_came_with_where_the_conversation_moved_on(
    server: Running,
) -> None:
    async with talking(server.address) as api:
        session = await api.begin()
        path = f"/api/sessions/{session}"
        refused = await api.ask("PATCH", path, {"pinned": True}, headers={"if-match": "7"})
        assert refused["code"] == "seq_mismatch"
        assert (await api.get(path))["pinned"] is False


async def test_search_can_be_kept_to_one_conversation(server: Running) -> None:
    async with talking(server.address) as api:
        one, other = await api.begin(), await api.begin()
        for session in (one, other, one):
            await api.done((await api.say(session, "a rare axolotl"))["run_id"])

        async def is_found() -> bool:
            return len((await api.get("/api/search?q=axolotl"))["hits"]) == 6

        await until(is_found)
        hits = (await api.get(f"/api/search?q=axolotl&session={one}"))["hits"]
        assert [(hit["session_id"], hit["turn"]) for hit in hits] == [(one, 2), (one, 2), (one, 1), (one, 1)]
        assert (await api.get("/api/search?q=axolotl&session=s_nobody"))["code"] == "no_such_session"
