"""Realistic conversations for tests, created by the domain's own decisions."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.decisions import endings, runs, tools, turns
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.events.stream_fold import OutputFold, StreamFold, settle_message
from holdfast.domain.ids import CallId, IdGenerator, SessionId
from holdfast.domain.state.projections import project
from holdfast.domain.state.rows import RunRow
from holdfast.domain.state.session_state import InMemorySessionState
from holdfast.store.ports import Append, Store
from holdfast.store.sqlite.store import SqliteStore

T = TypeVar("T")


class SampleConversation:
    """A conversation that grows call by call; `facts` are all of its facts so far."""

    def __init__(self, title: str = "", clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.ids = IdGenerator(self.clock)
        self.id: SessionId = self.ids.session()
        self.facts: list[f.AnyFact | UnknownFact] = []
        self._book = InMemorySessionState()
        self._add(*turns.create_session(self._book, f.SessionCreated(title, model="demo:storyteller")))

    def user_message(self, text: str, *files: File, key: str | None = None) -> "SampleConversation":
        self._add(*turns.accept_turn(self._book, self.id, self.ids, (Text(text), *files), key))
        self._add(*runs.start(self._run()))
        return self

    def assistant_message(self, text: str, thinking: str = "") -> "SampleConversation":
        """Append an answer with reasoning, and complete the run."""
        self._step(text, thinking)
        self._add(*runs.complete(self._run()))
        return self

    def tool_call(self, name: str, arguments: str, output: str, *files: AnyPart) -> "SampleConversation":
        """Append a tool call that runs and prints."""
        call_id = self.ids.call()
        body = self._step("", call=(call_id, name, arguments))
        self._add(*tools.intend(self._run(), body, lambda _: "unsafe"))
        self._add(*tools.start(self._run(), self._book.tools[call_id]))
        printed = OutputFold()
        for line in output.splitlines(keepends=True):
            delta = f.ToolOutputAppended(self._run().id, call_id, line)
            printed.add(delta)
            self._add(delta)
        parts = (*printed.parts(), *files) if files else None
        self._add(tools.settle(self._book, self._book.tools[call_id], "done", printed, parts))
        return self

    def interrupt(self, text: str) -> "SampleConversation":
        """Interrupt the run in the middle of its answer, as a dying server does."""
        run = self._run()
        begun = runs.begin_step(run, self.ids.message(), "storyteller")
        self._add(begun, f.TextAppended(run.id, begun.message_id, text))
        self._add(*endings.interrupt(self._book, self._run(), self.ids.message()))
        return self

    def fail_run(self) -> "SampleConversation":
        """Cancel the run, as a person does."""
        self._add(*endings.cancel(self._book, self._run()))
        return self

    def undo(self) -> "SampleConversation":
        self._add(*turns.undo(self._book, self.id))
        return self

    def archive(self) -> "SampleConversation":
        self._add(*turns.archive(self._book, self.id))
        return self

    def add_fact(self, fact: f.AnyFact | UnknownFact) -> "SampleConversation":
        self._add(fact)
        return self

    def _step(
        self, text: str, thinking: str = "", call: tuple[CallId, str, str] | None = None
    ) -> f.MessageSettled:
        run, stream = self._run(), StreamFold()
        begun = runs.begin_step(run, self.ids.message(), "storyteller")
        self._add(begun)
        deltas: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended] = []
        deltas += [f.ReasoningAppended(run.id, begun.message_id, word) for word in _split_words(thinking)]
        deltas += [f.TextAppended(run.id, begun.message_id, word) for word in _split_words(text)]
        if call is not None:
            deltas.append(f.ToolArgumentsAppended(run.id, begun.message_id, *call))
        for delta in deltas:
            stream.add(delta)
            self._add(delta)
        body = settle_message(begun, stream)
        self._add(body, f.ModelStepSettled(run.id, begun.message_id, "end"))
        return body

    def _run(self) -> RunRow:
        return self._book.open_runs()[-1]

    def _add(self, *facts: f.AnyFact | UnknownFact) -> None:
        for fact in facts:
            self.facts.append(fact)
            project(self._book, self.id, len(self.facts), self.clock.now_ms(), fact)


def _split_words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def trip_conversation(title: str = "A trip to Reykjavík ✈") -> SampleConversation:
    """Return a conversation with every common kind of content."""
    story = SampleConversation(title)
    story.user_message("How cold is it in Reykjavík?", key="first").assistant_message(
        "About 3 °C.", thinking="Look it up."
    )
    story.user_message("List my notes").tool_call("shell", '{"command":"ls notes"}', "flights.md\nhotel.md\n")
    story.assistant_message("There are two: flights.md and hotel.md.")
    return story


def in_store(folder: Path, work: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store in `folder`, do `work`, close it."""

    async def whole() -> T:
        store = await SqliteStore.open(folder)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def save_conversations(folder: Path, *stories: SampleConversation, files: tuple[bytes, ...] = ()) -> None:
    """Store `stories` in `folder` with their files."""

    async def work(store: Store) -> None:
        for content in files:
            await store.put_blob(content)
        for story in stories:
            await store.append(Append(story.id, story.facts))

    in_store(folder, work)
