"""C13: every response is one snapshot. Readers ask as fast as they can while a conversation is changed."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.domain.ids import SessionId
from holdfast.models.ports import TextDelta
from tests.contracts.readers import reading
from tests.support.in_process_app import House, Lever, Line, calls, house, says
from tests.support.in_process_server import door
from tests.support.summarising_model import scribe

ROUNDS = 4
WORDS: list[Line] = [TextDelta(f"word{n} ") for n in range(60)]


async def stream_and_cancel(here: House, session_id: SessionId) -> None:
    here.model.steps = [[*WORDS, asyncio.Event()]]
    sent = await here.say(session_id, "Begin")
    await _until_words(here, session_id)
    assert sent.run_id is not None
    await here.engine.cancel(sent.run_id)


async def stream_and_undo(here: House, session_id: SessionId) -> None:
    here.model.steps = [[*WORDS, asyncio.Event()]]
    await here.say(session_id, "And again")
    await _until_words(here, session_id)
    await here.engine.verbs.undo(session_id, None)


async def answer_and_retry(here: House, session_id: SessionId) -> None:
    here.model.steps = [[*WORDS, *says("the end")], [*WORDS, *says("another end")]]
    sent = await here.say(session_id, "Once more")
    await here.until_run(sent.run_id, "completed")
    again = await here.engine.replace(session_id, None, None)
    await here.until_run(again.run_id, "completed")


async def restore_and_choose_a_version(here: House, session_id: SessionId) -> None:
    """Restore what was undone, which removes what followed it; then go back to the other version."""
    page = await here.store.snapshot(lambda snapshot: snapshot.turns(session_id))
    last = next(row for row in reversed(page) if row.status == "live")
    await here.engine.verbs.restore(session_id, None)
    await here.engine.verbs.restore(session_id, last.replaces)
    await here.engine.verbs.restore(session_id, last.id)


async def approve_a_call(here: House, session_id: SessionId) -> None:
    here.model.steps = [[*WORDS, *calls("lever")], says("pulled")]
    sent = await here.say(session_id, "Pull it")
    run = await here.until_run(sent.run_id, "waiting")
    (tool,) = await here.store.tools(session_id, run.id)
    await here.engine.resolve(run.id, tool.id, "approve")
    await here.until_run(run.id, "completed")


async def _until_words(here: House, session_id: SessionId) -> None:
    async def has_words() -> bool:
        return (await here.text(session_id))[-1][2].endswith("word59 ")

    await here.until(has_words, "a whole stream")


DEEDS: tuple[Callable[[House, SessionId], Awaitable[None]], ...] = (
    stream_and_cancel,
    approve_a_call,
    stream_and_undo,
    answer_and_retry,
    restore_and_choose_a_version,
)


async def test_every_response_equals_the_fold_of_the_journal_at_its_head(tmp_path: Path) -> None:
    """C13"""
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here, door(here) as api:
        scribe(here)
        session_id = await here.begin()
        async with reading(here, api, session_id) as readers:
            for _ in range(ROUNDS):
                for deed in DEEDS:
                    await deed(here, session_id)
                    await readers.see(here)
            await here.engine.moves.move_on(session_id)
            await readers.see(here)
            await here.engine.delete(session_id)
    readers.check()


async def test_a_run_that_is_said_to_be_completed_has_its_whole_answer_beside_it(tmp_path: Path) -> None:
    """C13: as a script sees it that polls until its run is over."""
    async with house(tmp_path) as here, door(here) as api:
        for number in range(40):
            here.model.steps = [[*WORDS, *says("the end")]]
            session_id = await here.begin()
            sent = await here.say(session_id, f"Question {number}")
            while True:
                async with api.session.get(f"{api.address}/api/sessions/{session_id}/messages") as response:
                    page = await response.json()
                if any(run["status"] == "completed" for run in page["runs"]):
                    break
            answer = page["messages"][-1]
            assert (answer["run_id"], answer["status"]) == (sent.run_id, "settled")
            assert answer["parts"][0]["text"].endswith("word59 the end")
