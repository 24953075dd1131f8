"""C13: every response is one snapshot. Readers ask as fast as they can while a conversation is changed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.agent.ports import TextDelta
from holdfast.domain import facts as f
from holdfast.domain.codec import Event
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId
from holdfast.domain.projections import fold
from holdfast.domain.rows import SessionRow
from holdfast.domain.transcript import TranscriptFold
from holdfast.server.shapes import MessageList, message_of, run_of, used
from tests.acceptance.talking import Api
from tests.doors import door
from tests.house import House, Lever, Line, calls, house, says
from tests.scribe import scribe

READERS = 4
ROUNDS = 4
WORDS: list[Line] = [TextDelta(f"word{n} ") for n in range(60)]


class Readers:
    """Collect every response about a conversation, and its whole journal."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.pages: dict[bytes, Any] = {}
        self.sessions: dict[bytes, Any] = {}
        self.journal: list[Event] = []

    async def follow(self, here: House) -> None:
        with suppress(NoSuchSession):
            async for event in here.store.tail(self.session_id, 0):
                self.journal.append(event)

    async def poll(self, api: Api) -> None:
        """Ask until the conversation is gone. Each different answer is kept once."""
        path = f"/api/sessions/{self.session_id}"
        while True:
            async with api.session.get(f"{api.address}{path}/messages?limit=200") as response:
                if response.status == 404:
                    return
                body = await response.read()
            self.pages[body] = msgspec.json.decode(body)
            async with api.session.get(api.address + path) as response:
                body = await response.read()
            if response.status == 200:
                self.sessions[body] = msgspec.json.decode(body)

    def check(self) -> None:
        """Compare each answer with the fold of the journal at its head."""
        heads = {said["head"] for said in self.pages.values()}
        assert len(heads) > ROUNDS * len(DEEDS), "the readers were too slow to see anything"
        for said in self.pages.values():
            page = self._page_at(said["head"])
            assert said["summary"] == page["summary"]
            assert said["messages"] == page["messages"], f"the messages at {said['head']}"
            assert said["runs"] == page["runs"], f"the runs at {said['head']}"
        for said in self.sessions.values():
            row = self._row_at(said["head"])
            shown = {
                name: said[name] for name in ("title", "status", "turns", "updated_at", "run_id", "usage")
            }
            turns, usage = row.live_turns, msgspec.to_builtins(used(row.usage))
            assert shown == {
                "title": row.title, "status": row.status, "turns": turns, "updated_at": row.updated_at,
                "run_id": row.run_id, "usage": usage,
            }, f"the conversation at {said['head']}"  # fmt: skip

    def _until(self, head: int) -> list[Event]:
        return [event for event in self.journal if event.seq <= head]

    def _row_at(self, head: int) -> SessionRow:
        row = fold(self.session_id, self._until(head)).session()
        assert row is not None
        return row

    def _page_at(self, head: int) -> Any:
        events = self._until(head)
        book, transcript = fold(self.session_id, events), TranscriptFold()
        for event in events:
            transcript.add(event)
        open_calls = {str(tool.id): tool for run in book.runs for tool in book.open_tools(run)}
        reasons = {e.fact.call_id: e.fact for e in events if isinstance(e.fact, f.ApprovalRequested)}
        messages = []
        for turn in transcript.transcript().turns:
            for entry in turn.entries:
                tool = open_calls.get(entry.id)
                message = message_of(turn, entry, tool.approval if tool is not None else "")
                if tool is not None and tool.approval == "requested":
                    message = msgspec.structs.replace(message, reason=reasons[tool.id].reason)
                messages.append(message)
        shown = {message.turn for message in messages}
        runs = [run_of(self.session_id, run) for run in book.runs.values() if run.turn in shown]
        runs.sort(key=lambda run: run.turn)
        return msgspec.json.decode(msgspec.json.encode(MessageList(tuple(messages), tuple(runs), head, None)))


@asynccontextmanager
async def reading(here: House, api: Api, session_id: SessionId) -> AsyncIterator[Readers]:
    """Readers at full speed, until the conversation is deleted."""
    readers = Readers(session_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(readers.follow(here))
        for _ in range(READERS):
            group.create_task(readers.poll(api))
        yield readers


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
            await here.engine.moves.move_on(session_id)
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
