"""Readers that ask for a conversation as fast as they can; their answers are compared with its journal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.removals import TurnHistory
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.http.schemas.responses import MessageList, message_info, run_info, usage_info
from tests.support.api_client import ApiClient
from tests.support.in_process_app import AppHarness

READERS = 4


class ExpectedState(msgspec.Struct, frozen=True):
    """A conversation after one change: its row, and its page as a response shows it."""

    row: SessionRow
    messages: list[Any]
    runs: dict[str, Any]


class ConversationReaders:
    """Collect every response about a conversation, and its whole journal."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.pages: dict[bytes, Any] = {}
        self.sessions: dict[bytes, Any] = {}
        self.journal: list[Event] = []
        self.heads: list[int] = []
        """The head after each change: no reader can see another state."""

    def on_change(self, change: CommittedChange) -> None:
        if change.session_id == self.session_id and change.events:
            self.heads.append(change.last_seq)

    async def follow(self, app: AppHarness) -> None:
        with suppress(NoSuchSession):
            async for event in app.store.tail(self.session_id, 0):
                self.journal.append(event)
                if event.kind == "session_deleted":
                    return

    async def poll(self, api: ApiClient) -> None:
        """Poll until the conversation is gone. Each different answer is kept once."""
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

    async def wait_until_seen(self, app: AppHarness) -> None:
        """Return once a reader has seen the state after the last change."""
        head = self.heads[-1]

        async def has_seen() -> bool:
            return any(page["head"] >= head for page in self.pages.values())

        await app.wait_until(has_seen, "a reader that saw the last change")

    def check(self) -> None:
        """Compare each answer with the fold of the journal at its head."""
        assert self.pages and self.sessions
        seen = {answer["head"] for answer in (*self.pages.values(), *self.sessions.values())}
        assert seen <= set(self.heads), "what is seen was left by a change"
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
            turns, usage = row.live_turns, msgspec.to_builtins(usage_info(row.usage))
            assert shown == {
                "title": row.title, "status": row.status, "turns": turns, "updated_at": row.updated_at,
                "run_id": row.run_id, "usage": usage,
            }, f"the conversation at {said['head']}"  # fmt: skip

    def states(self) -> list[ExpectedState]:
        """Return every state that the conversation was in, in order, whether or not a reader met it."""
        found = []
        for head in self.heads:
            row, page = self._row_at(head), self._page_at(head)
            if row.deleted_at is None:
                found.append(ExpectedState(row, page["messages"], {run["id"]: run for run in page["runs"]}))
        return found

    def _events_through(self, head: int) -> list[Event]:
        return [event for event in self.journal if event.seq <= head]

    def _row_at(self, head: int) -> SessionRow:
        row = fold(self.session_id, self._events_through(head)).session()
        assert row is not None
        return row

    def _page_at(self, head: int) -> Any:
        events = self._events_through(head)
        book, transcript = fold(self.session_id, events), TranscriptFold()
        for event in events:
            transcript.add(event)
        open_calls = {str(tool.id): tool for run in book.runs for tool in book.open_tools(run)}
        reasons = {e.fact.call_id: e.fact for e in events if isinstance(e.fact, f.ApprovalRequested)}
        removals = [
            e for e in events if isinstance(e.fact, f.TurnsUndone | f.TurnsRestored | f.SessionCleared)
        ]
        history = TurnHistory([*book.turns.values()], removals)
        versions = history.versions([turn.turn for turn in transcript.transcript().turns])
        messages = []
        for turn in transcript.transcript().turns:
            for entry in turn.entries:
                tool = open_calls.get(entry.id)
                message = message_info(
                    turn,
                    entry,
                    tool.approval if tool is not None else "",
                    versions=versions.get(turn.turn, ()),
                    removal=history.removed.get(turn.turn),
                )
                if tool is not None and tool.approval == "requested":
                    message = msgspec.structs.replace(message, reason=reasons[tool.id].reason)
                messages.append(message)
        shown = {message.turn for message in messages}
        runs = [run_info(self.session_id, run) for run in book.runs.values() if run.turn in shown]
        runs.sort(key=lambda run: run.turn)
        return msgspec.json.decode(msgspec.json.encode(MessageList(tuple(messages), tuple(runs), head, None)))


@asynccontextmanager
async def conversation_readers(
    app: AppHarness, api: ApiClient, session_id: SessionId
) -> AsyncIterator[ConversationReaders]:
    """Run readers at full speed, until the conversation is deleted."""
    readers = ConversationReaders(session_id)
    app.store.add_change_listener(readers.on_change)
    readers.heads.append(await app.store.head(session_id))
    async with asyncio.TaskGroup() as group:
        group.create_task(readers.follow(app))
        for _ in range(READERS):
            group.create_task(readers.poll(api))
        yield readers
