"""What the page keeps on the server beside what is said: drafts, pins, search within one conversation."""

import asyncio

from holdfast.domain.limits import TEXT_BYTES_MAX
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client, wait_until


async def draft_of(api: ApiClient, session: str) -> str:
    text: str = (await api.get(f"/api/sessions/{session}/draft"))["text"]
    return text


async def test_a_draft_is_stored_until_it_is_emptied(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session, other = await api.create_session(), await api.create_session()
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


async def test_a_draft_needs_an_existing_conversation(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        path = f"/api/sessions/{session}/draft"
        await api.post(path, {"text": "And"})
        head = (await api.get(f"/api/sessions/{session}"))["head"]
        assert head == 1, "a draft is no event"
        await api.request("DELETE", f"/api/sessions/{session}")
        assert (await api.get(path))["code"] == "no_such_session"
        assert (await api.post(path, {"text": "And"}))["code"] == "no_such_session"
        assert (await api.post(path, {}))["code"] == "bad_request"


async def test_a_pin_appears_in_the_list_and_in_every_feed(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session(title="Keep me")
        path = f"/api/sessions/{session}"
        assert (await api.get(path))["pinned"] is False
        async with asyncio.timeout(30), api.stream("/api/stream?feed=true") as frames:
            async for frame in frames:
                if frame.event == "feed_snapshot":
                    break
            answer = await api.request("PATCH", path, {"pinned": True, "title": "Kept"})
            assert (answer["pinned"], answer["title"]) == (True, "Kept")
            async for frame in frames:
                changed = frame.data.get("session", {})
                if frame.event == "feed_changed" and changed["id"] == session and changed["pinned"]:
                    break
        listed = {row["id"]: row["pinned"] for row in (await api.get("/api/sessions"))["sessions"]}
        assert listed[session] is True
        assert (await api.request("PATCH", path, {"title": "Still"}))["pinned"] is True
        assert (await api.request("PATCH", path, {"pinned": False}))["pinned"] is False


async def test_a_pin_is_refused_with_the_whole_change_on_a_seq_mismatch(
    server: RunningServer,
) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        path = f"/api/sessions/{session}"
        refused = await api.request("PATCH", path, {"pinned": True}, headers={"if-match": "7"})
        assert refused["code"] == "seq_mismatch"
        assert (await api.get(path))["pinned"] is False


async def test_search_can_be_limited_to_one_conversation(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        one, other = await api.create_session(), await api.create_session()
        for session in (one, other, one):
            await api.wait_for_run((await api.send(session, "a rare axolotl"))["run_id"])

        async def is_found() -> bool:
            return len((await api.get("/api/search?q=axolotl"))["hits"]) == 6

        await wait_until(is_found)
        hits = (await api.get(f"/api/search?q=axolotl&session={one}"))["hits"]
        assert [(hit["session_id"], hit["turn"]) for hit in hits] == [(one, 2), (one, 2), (one, 1), (one, 1)]
        assert (await api.get("/api/search?q=axolotl&session=s_nobody"))["code"] == "no_such_session"
