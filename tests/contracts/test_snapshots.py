"""C13: every response is one snapshot. Readers poll at full speed while a conversation changes."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.domain.ids import SessionId
from holdfast.models.ports import TextDelta
from tests.contracts.readers import conversation_readers
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    StepAction,
    running_app,
    text_step,
    tool_call_step,
)
from tests.support.in_process_server import http_server
from tests.support.summarising_model import install_summarizing_model

ROUNDS = 4
WORDS: list[StepAction] = [TextDelta(f"word{n} ") for n in range(60)]


async def stream_and_cancel(app: AppHarness, session_id: SessionId) -> None:
    app.model.steps = [[*WORDS, asyncio.Event()]]
    sent = await app.send(session_id, "Begin")
    await _wait_for_words(app, session_id)
    assert sent.run_id is not None
    await app.engine.cancel(sent.run_id)


async def stream_and_undo(app: AppHarness, session_id: SessionId) -> None:
    app.model.steps = [[*WORDS, asyncio.Event()]]
    await app.send(session_id, "And again")
    await _wait_for_words(app, session_id)
    await app.engine.commands.undo(session_id, None)


async def answer_and_retry(app: AppHarness, session_id: SessionId) -> None:
    app.model.steps = [[*WORDS, *text_step("the end")], [*WORDS, *text_step("another end")]]
    sent = await app.send(session_id, "Once more")
    await app.wait_for_run(sent.run_id, "completed")
    again = await app.engine.replace(session_id, None, None)
    await app.wait_for_run(again.run_id, "completed")


async def restore_and_choose_a_version(app: AppHarness, session_id: SessionId) -> None:
    """Restore undone turns, which removes what followed them; then select the other version."""
    page = await app.store.snapshot(lambda snapshot: snapshot.turns(session_id))
    last = next(row for row in reversed(page) if row.status == "live")
    await app.engine.commands.restore(session_id, None)
    await app.engine.commands.restore(session_id, last.replaces)
    await app.engine.commands.restore(session_id, last.id)


async def approve_a_call(app: AppHarness, session_id: SessionId) -> None:
    app.model.steps = [[*WORDS, *tool_call_step("lever")], text_step("pulled")]
    sent = await app.send(session_id, "Pull it")
    run = await app.wait_for_run(sent.run_id, "waiting")
    (tool,) = await app.store.tools(session_id, run.id)
    await app.engine.resolve(run.id, tool.id, "approve")
    await app.wait_for_run(run.id, "completed")


async def _wait_for_words(app: AppHarness, session_id: SessionId) -> None:
    async def has_words() -> bool:
        return (await app.entry_texts(session_id))[-1][2].endswith("word59 ")

    await app.wait_until(has_words, "a whole stream")


ACTIONS: tuple[Callable[[AppHarness, SessionId], Awaitable[None]], ...] = (
    stream_and_cancel,
    approve_a_call,
    stream_and_undo,
    answer_and_retry,
    restore_and_choose_a_version,
)


async def test_every_response_equals_the_fold_of_the_journal_at_its_head(tmp_path: Path) -> None:
    """C13"""
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, http_server(app) as api:
        install_summarizing_model(app)
        session_id = await app.create_session()
        async with conversation_readers(app, api, session_id) as readers:
            for _ in range(ROUNDS):
                for action in ACTIONS:
                    await action(app, session_id)
                    await readers.wait_until_seen(app)
            await app.engine.continuation.continue_session(session_id)
            await readers.wait_until_seen(app)
            await app.engine.delete(session_id)
    readers.check()


async def test_a_completed_run_has_its_whole_answer(tmp_path: Path) -> None:
    """C13: as a script sees it that polls until its run is over."""
    async with running_app(tmp_path) as app, http_server(app) as api:
        for number in range(40):
            app.model.steps = [[*WORDS, *text_step("the end")]]
            session_id = await app.create_session()
            sent = await app.send(session_id, f"Question {number}")
            while True:
                async with api.session.get(f"{api.address}/api/sessions/{session_id}/messages") as response:
                    page = await response.json()
                if any(run["status"] == "completed" for run in page["runs"]):
                    break
            answer = page["messages"][-1]
            assert (answer["run_id"], answer["status"]) == (sent.run_id, "settled")
            assert answer["parts"][0]["text"].endswith("word59 the end")
