"""Summarising older messages, and going on in a new conversation: over HTTP, on a real server."""

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ScriptedModelServer, api_client, text_of

SUMMARY = "A fitting title"
"""What the speaker says to whoever asks on the side."""


async def test_older_messages_are_summarised_and_the_conversation_continues_in_a_new_one(
    server: RunningServer, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        assert (await api.post(f"/api/sessions/{session}/compact", {}))["code"] == "nothing_to_summarise"
        assert api.status == 409
        for text in ("the key is blue", "two", "three"):
            await api.wait_for_run((await api.send(session, text))["run_id"])
        assert (await api.post(f"/api/sessions/{session}/compact", {}))["id"] == session
        await api.wait_for_run((await api.send(session, "four"))["run_id"])
        sent = [each["content"] for each in speaker.requests[-1]["messages"] if each["role"] == "user"]
        assert SUMMARY in str(sent[0]) and "the key is blue" not in str(sent)
        assert text_of((await api.entries(session))[0]) == "the key is blue"
        new = await api.post(f"/api/sessions/{session}/continue", {})
        assert api.status == 201 and new["previous_session_id"] == session
        old = await api.get(f"/api/sessions/{session}")
        assert old["successor_session_id"] == new["id"] and old["archived"]
        receipt = await api.send(session, "where are we?")
        assert receipt["session_id"] == new["id"]
        await api.wait_for_run(receipt["run_id"])
        assert f"What we came to so far:\n\n{SUMMARY}" in [
            each["content"] for each in speaker.requests[-1]["messages"] if each["role"] == "assistant"
        ]
        assert (await api.post(f"/api/sessions/{session}/undo", {}))["code"] == "session_moved"
        assert (await api.post(f"/api/sessions/{session}/continue", {}))["id"] == new["id"]
