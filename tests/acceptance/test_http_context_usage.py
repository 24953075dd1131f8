"""How full a model's window is, and what stands for older messages, as a page reads it over HTTP."""

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import api_client
from tests.support.model_server import USAGE_FIELDS


async def test_a_message_has_its_context_tokens_and_a_session_its_window(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "one"))["run_id"])
        asked, said = await api.entries(session)
        assert "context_tokens" not in asked and said["context_tokens"] == USAGE_FIELDS["prompt_tokens"]
        shown = await api.get(f"/api/agents/main/prompt?session_id={session}")
        assert (await api.get(f"/api/sessions/{session}"))["window_tokens"] == shown["window_tokens"] > 0
        listed = (await api.get("/api/sessions"))["sessions"]
        assert [each["window_tokens"] for each in listed] == [None]


async def test_the_newest_page_has_the_current_summary(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        path = f"/api/sessions/{session}/messages?limit=2"
        for text in ("one", "two", "three"):
            await api.wait_for_run((await api.send(session, text))["run_id"])
        page = await api.get(path)
        assert page["summary"] is None
        await api.post(f"/api/sessions/{session}/compact", {})
        frames = await api.events_through(session, page["head"], "session_compacted")
        page = await api.get(path)
        made = frames[-1].data
        assert page["summary"] == {"through_turn": 1, "text": made["summary"], "at": made["at"]}
        assert (await api.get(f"{path}&before={page['before']}"))["summary"] is None
        await api.post(
            f"/api/sessions/{session}/undo", {"turn_id": (await api.entries(session))[0]["turn_id"]}
        )
        assert (await api.get(path))["summary"] is None
