"""`holdfast chat -p`: one message, its answer on standard output, and an exit code that says how it went."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.cli.chat.client import Away, Client, Letter, Refused, send
from holdfast.cli.chat.safe_text import json_line, one_line, safe
from holdfast.cli.chat.view_model import ALONE, BACK
from holdfast.cli.chat.wire import Happened, Question, QuestionList, Receipt, Run, Used
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.secrets import Masking, StreamMask, masked

ANSWERED, FAILED, USAGE, NEEDS_YOU, INTERRUPTED = 0, 1, 2, 3, 130
Status = Literal["completed", "failed", "cancelled", "needs_you", "interrupted", "unreachable"]
STOP_S_MAX = 5.0
TICK_S = 0.2
GONE = "The server has gone; waiting for it…"
T = TypeVar("T")


class ToolUse(msgspec.Struct, frozen=True):
    name: str
    arguments: str
    outcome: f.ToolOutcome
    ms: int


class Result(msgspec.Struct, frozen=True):
    """How it went, for programs."""

    session_id: str
    turn_id: str
    run_id: str | None
    status: Status
    text: str
    usage: Used
    tools: tuple[ToolUse, ...]
    failure: f.Failure | None = None
    waits_for: tuple[Question, ...] = ()


class Output(Protocol):
    """Where an answer's text goes; written at once."""

    def __call__(self, text: str) -> None: ...


class Answering:
    """The answer of one run, from its events: its text in the order in which it is told, each piece once."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.status: Status | None = None
        self.failure: f.Failure | None = None
        self.tools: list[ToolUse] = []
        self.text = ""
        self.is_stopped = False
        self._had: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._joined: frozenset[str] = frozenset()

    def add(self, fact: object) -> str:
        """Take in what happened; returns what of the text is new."""
        if getattr(fact, "run_id", None) != self.run_id:
            return ""
        before = len(self.text)
        match fact:
            case f.ModelStepStarted() if fact.continues:
                self._joined |= {fact.message_id}
            case f.TextAppended():
                self._append(fact.message_id, fact.text)
            case f.MessageSettled() if fact.role == "assistant" and not fact.late:
                self._settle(fact)
            case f.ToolIntended():
                self._arguments[fact.call_id] = fact.arguments
            case f.ToolSettled():
                given = fact.arguments or self._arguments.get(fact.call_id, "")
                self.tools.append(ToolUse(fact.name, given, fact.outcome, fact.ms))
            case _:
                self._move(fact)
        return self.text[before:]

    def _append(self, message_id: str, text: str) -> None:
        if message_id not in self._had and self.text and message_id not in self._joined:
            self.text += _gap(self.text)
        self._had[message_id] = self._had.get(message_id, "") + text
        self.text += text

    def _settle(self, fact: f.MessageSettled) -> None:
        """What of the whole was not streamed to us comes now, if it is the end that is missing."""
        whole = "".join(part.text for part in fact.parts if isinstance(part, Text))
        had = self._had.get(fact.message_id, "")
        is_last = not self._had or next(reversed(self._had)) == fact.message_id or not had
        if is_last and len(whole) > len(had) and whole.startswith(had):
            self._append(fact.message_id, whole[len(had) :])

    def _move(self, fact: object) -> None:
        match fact:
            case f.RunStarted() | f.RunResumed():
                self.is_stopped = False
            case f.RunInterrupted():
                self.is_stopped = True
                self.status = "needs_you" if fact.asks else None
            case f.RunWaiting():
                self.status = "needs_you"
            case f.RunCompleted():
                self.status = "completed"
            case f.RunCancelled():
                self.status = "cancelled"
            case f.RunFailed():
                self.status, self.failure = "failed", fact.failure


def _gap(text: str) -> str:
    """Between two messages of one answer stands an empty line."""
    return "\n" * max(0, 2 - (len(text) - len(text.rstrip("\n"))))


class Script:
    """Sends one message and tells its answer, to `out` as it comes where there is one.

    `note` is for people who look on. When there is no server, or an answer that was cut off does not go on,
    it waits for `wait_s`.
    """

    def __init__(
        self,
        client: Client,
        wait_s: float,
        mask: StreamMask,
        out: Output | None,
        note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._wait_s = wait_s
        self._mask = mask
        self._out = out
        self._note = note
        self._last = "\n"
        self._is_in_line = False
        client.on_change = self._changed

    def _changed(self, is_here: bool) -> None:
        self._beside((ALONE if self._client.place.is_own else BACK) if is_here else GONE)

    def _beside(self, text: str) -> None:
        """For people: it begins with a line's end where the answer is in the middle of one."""
        self._note(f"\n{text}" if self._is_in_line else text)
        self._is_in_line = False

    async def run(self, session_id: str, text: str, key: str) -> Result:
        """Raises Refused, and Away when no server takes the message for too long."""
        never = Answering("")
        receipt = await self._patiently(send(self._client, Letter(session_id, text, key)), never)
        answering = Answering(receipt.run_id or "")
        try:
            await self._patiently(self._listen(session_id, receipt, answering), answering)
        except Away:
            answering.status = "interrupted" if answering.is_stopped else "unreachable"
        except asyncio.CancelledError:
            await self._stop(receipt)
            answering.status = "cancelled"
        self._tell(self._mask.finish())
        self._tell("" if self._last == "\n" else "\n")
        return await self._result(session_id, receipt, answering)

    async def _listen(self, session_id: str, receipt: Receipt, answering: Answering) -> None:
        async with aclosing(self._client.follow(session_id, receipt.seq)) as following:
            async for told in following:
                if isinstance(told, Happened):
                    self._tell(self._mask.feed(answering.add(told.fact)))
                    self._tell_step(told.fact)
                if answering.status is not None:
                    return

    async def _patiently(self, work: Coroutine[Any, Any, T], answering: Answering) -> T:
        """What `work` returns. Raises Away when nothing is there that it could go on with for too long."""
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
        since: float | None = None
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=TICK_S)
                # While nothing is wrong an answer may take its time.
                if self._client.is_here and not answering.is_stopped:
                    since = None
                elif since is None:
                    since = loop.time()
                elif loop.time() - since > self._wait_s and not task.done():
                    raise Away("no server came back")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _stop(self, receipt: Receipt) -> None:
        """Whoever interrupts wants no more of the answer."""
        with suppress(Away, Refused, TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                await self._client.ask("POST", f"/api/runs/{receipt.run_id}/cancel", object)

    async def _result(self, session_id: str, receipt: Receipt, answering: Answering) -> Result:
        usage, waits_for = Used(), tuple[Question, ...]()
        with suppress(Away, Refused, TimeoutError):
            async with asyncio.timeout(STOP_S_MAX):
                usage = (await self._client.get(f"/api/runs/{receipt.run_id}", Run)).usage
                if answering.status == "needs_you":
                    waits_for = await self._questions(receipt.run_id or "")
        assert answering.status is not None, "the answer has ended"
        return Result(
            session_id, receipt.turn_id, receipt.run_id, answering.status, answering.text, usage,
            tuple(answering.tools), answering.failure, waits_for,
        )  # fmt: skip

    async def _questions(self, run_id: str) -> tuple[Question, ...]:
        found = (await self._client.get("/api/questions", QuestionList)).questions
        return tuple(each for each in found if each.run_id == run_id)

    def _tell(self, text: str) -> None:
        if text and self._out is not None:
            self._last = text[-1]
            self._is_in_line = self._last != "\n"
            self._out(safe(text))

    def _tell_step(self, fact: object) -> None:
        match fact:
            case f.ToolStarted():
                self._beside("A tool runs.")
            case f.ToolSettled():
                self._beside(f"{one_line(fact.name, 30)}: {fact.outcome}")
            case f.RunInterrupted():
                self._beside("Interrupted by a server restart.")
            case f.RunResumed():
                self._beside("It goes on.")


def exit_code(result: Result) -> int:
    return {"completed": ANSWERED, "needs_you": NEEDS_YOU}.get(result.status, FAILED)


def complaint(result: Result) -> str:
    """What to say to people about an answer that is none; nothing about one that is whole."""
    match result.status:
        case "completed":
            return ""
        case "needs_you":
            asked = [
                one_line(each.asked.question, 200)
                if each.asked is not None
                else f"{one_line(each.name or each.kind, 30)} {one_line(each.arguments or each.reason, 200)}"
                for each in result.waits_for
            ]
            what = "; ".join(asked) or "to go on"
            stop = "" if what.endswith(("?", ".", "!", "…")) else "."
            return f"It waits for you: {what}{stop} Answer it: holdfast chat {result.session_id}"
        case "failed":
            return f"It failed: {safe(result.failure.detail) if result.failure else ''}"
        case "cancelled":
            return "It was stopped."
        case "interrupted":
            return f"It was cut off, and does not go on by itself. holdfast chat {result.session_id}"
        case "unreachable":
            kept = "The message is kept, and answered once a server runs"
            return f"The server has gone. {kept}: {result.session_id}"


def as_json(result: Result, mask: Masking) -> str:
    """The result as one JSON object on one line, without secrets."""
    return json_line(masked(result, mask))
