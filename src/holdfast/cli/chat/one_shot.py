"""`holdfast chat -p`: send one message, print the answer, and exit with a code for the outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.cli.chat.client import Client, OutgoingMessage, RequestRefused, ServerUnavailable, send_message
from holdfast.cli.chat.response_data import (
    EventData,
    QuestionData,
    QuestionListData,
    ReceiptData,
    RunData,
    UsageData,
)
from holdfast.cli.chat.safe_text import json_line, one_line, safe
from holdfast.cli.chat.view_model import OWN_SERVER_STARTED, SERVER_BACK
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.secrets import MaskFunction, StreamMask, mask_value

EXIT_ANSWERED, EXIT_FAILED, EXIT_USAGE, EXIT_NEEDS_USER, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
ResultStatus = Literal["completed", "failed", "cancelled", "needs_you", "interrupted", "unreachable"]
STOP_TIMEOUT_S = 5.0
POLL_INTERVAL_S = 0.2
WAITING_FOR_SERVER = "The server has gone; waiting for it…"
T = TypeVar("T")


class ToolUse(msgspec.Struct, frozen=True):
    name: str
    arguments: str
    outcome: f.ToolOutcome
    ms: int


class ChatResult(msgspec.Struct, frozen=True):
    """The result of a message in JSON."""

    session_id: str
    turn_id: str
    run_id: str | None
    status: ResultStatus
    text: str
    usage: UsageData
    tools: tuple[ToolUse, ...]
    failure: f.Failure | None = None
    waits_for: tuple[QuestionData, ...] = ()


class WriteText(Protocol):
    """Write a piece of the answer's text at once."""

    def __call__(self, text: str) -> None: ...


class StreamedAnswer:
    """The answer of one run, folded from its events: its text in order, each piece once."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.status: ResultStatus | None = None
        self.failure: f.Failure | None = None
        self.tools: list[ToolUse] = []
        self.text = ""
        self.is_interrupted = False
        self._received_text: dict[str, str] = {}
        self._arguments: dict[str, str] = {}
        self._continuation_ids: frozenset[str] = frozenset()

    def apply_fact(self, fact: object) -> str:
        """Apply an event's fact and return the new text."""
        if getattr(fact, "run_id", None) != self.run_id:
            return ""
        before = len(self.text)
        match fact:
            case f.ModelStepStarted() if fact.continues:
                self._continuation_ids |= {fact.message_id}
            case f.TextAppended():
                self._append_text(fact.message_id, fact.text)
            case f.MessageSettled() if fact.role == "assistant" and not fact.late:
                self._settle_message(fact)
            case f.ToolIntended():
                self._arguments[fact.call_id] = fact.arguments
            case f.ToolSettled():
                arguments = fact.arguments or self._arguments.get(fact.call_id, "")
                self.tools.append(ToolUse(fact.name, arguments, fact.outcome, fact.ms))
            case _:
                self._apply_run_fact(fact)
        return self.text[before:]

    def _append_text(self, message_id: str, text: str) -> None:
        if message_id not in self._received_text and self.text and message_id not in self._continuation_ids:
            self.text += _blank_line_after(self.text)
        self._received_text[message_id] = self._received_text.get(message_id, "") + text
        self.text += text

    def _settle_message(self, fact: f.MessageSettled) -> None:
        """Append the end of the message that was not streamed, if only the end is missing."""
        full_text = "".join(part.text for part in fact.parts if isinstance(part, Text))
        received = self._received_text.get(fact.message_id, "")
        is_last = (
            not self._received_text or next(reversed(self._received_text)) == fact.message_id or not received
        )
        if is_last and len(full_text) > len(received) and full_text.startswith(received):
            self._append_text(fact.message_id, full_text[len(received) :])

    def _apply_run_fact(self, fact: object) -> None:
        match fact:
            case f.RunStarted() | f.RunResumed():
                self.is_interrupted = False
            case f.RunInterrupted():
                self.is_interrupted = True
                self.status = "needs_you" if fact.asks else None
            case f.RunWaiting():
                self.status = "needs_you"
            case f.RunCompleted():
                self.status = "completed"
            case f.RunCancelled():
                self.status = "cancelled"
            case f.RunFailed():
                self.status, self.failure = "failed", fact.failure


def _blank_line_after(text: str) -> str:
    """Return the line breaks that put an empty line between two messages of an answer."""
    return "\n" * max(0, 2 - (len(text) - len(text.rstrip("\n"))))


class OneShotChat:
    """One message and its answer, which it streams to `write_output`, if given.

    It passes notes for people to `print_note`. It waits up to `wait_s` for a lost server or an interrupted
    answer.
    """

    def __init__(
        self,
        client: Client,
        wait_s: float,
        mask: StreamMask,
        write_output: WriteText | None,
        print_note: Callable[[str], None],
    ) -> None:
        self._client = client
        self._wait_s = wait_s
        self._mask = mask
        self._write_output = write_output
        self._print_note = print_note
        self._last_char = "\n"
        self._is_mid_line = False
        client.on_change = self._on_connection_change

    def _on_connection_change(self, is_connected: bool) -> None:
        self._print_note_line(
            (OWN_SERVER_STARTED if self._client.endpoint.is_own else SERVER_BACK)
            if is_connected
            else WAITING_FOR_SERVER
        )

    def _print_note_line(self, text: str) -> None:
        """Print a note; start a new line if the answer is in the middle of one."""
        self._print_note(f"\n{text}" if self._is_mid_line else text)
        self._is_mid_line = False

    async def run(self, session_id: str, text: str, key: str) -> ChatResult:
        """Send the message and return the result.

        Raises RequestRefused, and ServerUnavailable if no server accepts the message in time.
        """
        no_answer = StreamedAnswer("")
        receipt = await self._run_with_timeout(
            send_message(self._client, OutgoingMessage(session_id, text, key)), no_answer
        )
        answer = StreamedAnswer(receipt.run_id or "")
        try:
            await self._run_with_timeout(self._follow_answer(session_id, receipt, answer), answer)
        except ServerUnavailable:
            answer.status = "interrupted" if answer.is_interrupted else "unreachable"
        except asyncio.CancelledError:
            await self._cancel_run(receipt)
            answer.status = "cancelled"
        self._write_text(self._mask.finish())
        self._write_text("" if self._last_char == "\n" else "\n")
        return await self._make_result(session_id, receipt, answer)

    async def _follow_answer(self, session_id: str, receipt: ReceiptData, answer: StreamedAnswer) -> None:
        async with aclosing(self._client.follow(session_id, receipt.seq)) as following:
            async for update in following:
                if isinstance(update, EventData):
                    self._write_text(self._mask.feed(answer.apply_fact(update.fact)))
                    self._note_progress(update.fact)
                if answer.status is not None:
                    return

    async def _run_with_timeout(self, work: Coroutine[Any, Any, T], answer: StreamedAnswer) -> T:
        """Return the result of `work`. Raises ServerUnavailable if the server is lost for too long."""
        loop, task = asyncio.get_running_loop(), asyncio.create_task(work)
        waiting_since: float | None = None
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=POLL_INTERVAL_S)
                # An answer may take any time while the server is connected.
                if self._client.is_connected and not answer.is_interrupted:
                    waiting_since = None
                elif waiting_since is None:
                    waiting_since = loop.time()
                elif loop.time() - waiting_since > self._wait_s and not task.done():
                    raise ServerUnavailable("no server came back")
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _cancel_run(self, receipt: ReceiptData) -> None:
        """Cancel the run on the server after an interrupt."""
        with suppress(ServerUnavailable, RequestRefused, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._client.request("POST", f"/api/runs/{receipt.run_id}/cancel", object)

    async def _make_result(self, session_id: str, receipt: ReceiptData, answer: StreamedAnswer) -> ChatResult:
        usage, waits_for = UsageData(), tuple[QuestionData, ...]()
        with suppress(ServerUnavailable, RequestRefused, TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                usage = (await self._client.get(f"/api/runs/{receipt.run_id}", RunData)).usage
                if answer.status == "needs_you":
                    waits_for = await self._questions(receipt.run_id or "")
        assert answer.status is not None, "the answer has ended"
        return ChatResult(
            session_id, receipt.turn_id, receipt.run_id, answer.status, answer.text, usage,
            tuple(answer.tools), answer.failure, waits_for,
        )  # fmt: skip

    async def _questions(self, run_id: str) -> tuple[QuestionData, ...]:
        found = (await self._client.get("/api/questions", QuestionListData)).questions
        return tuple(question for question in found if question.run_id == run_id)

    def _write_text(self, text: str) -> None:
        if text and self._write_output is not None:
            self._last_char = text[-1]
            self._is_mid_line = self._last_char != "\n"
            self._write_output(safe(text))

    def _note_progress(self, fact: object) -> None:
        match fact:
            case f.ToolStarted():
                self._print_note_line("A tool runs.")
            case f.ToolSettled():
                self._print_note_line(f"{one_line(fact.name, 30)}: {fact.outcome}")
            case f.RunInterrupted():
                self._print_note_line("Interrupted by a server restart.")
            case f.RunResumed():
                self._print_note_line("It goes on.")


def exit_code(result: ChatResult) -> int:
    return {"completed": EXIT_ANSWERED, "needs_you": EXIT_NEEDS_USER}.get(result.status, EXIT_FAILED)


def failure_message(result: ChatResult) -> str:
    """Return the message for people about an incomplete answer; empty for a complete one."""
    match result.status:
        case "completed":
            return ""
        case "needs_you":
            question_texts = [
                one_line(each.asked.question, 200)
                if each.asked is not None
                else f"{one_line(each.name or each.kind, 30)} {one_line(each.arguments or each.reason, 200)}"
                for each in result.waits_for
            ]
            questions = "; ".join(question_texts) or "to go on"
            stop = "" if questions.endswith(("?", ".", "!", "…")) else "."
            return f"It waits for you: {questions}{stop} Answer it: holdfast chat {result.session_id}"
        case "failed":
            return f"It failed: {safe(result.failure.detail) if result.failure else ''}"
        case "cancelled":
            return "It was stopped."
        case "interrupted":
            return f"It was cut off, and does not go on by itself. holdfast chat {result.session_id}"
        case "unreachable":
            explanation = "The message is kept, and answered once a server runs"
            return f"The server has gone. {explanation}: {result.session_id}"


def result_json(result: ChatResult, mask: MaskFunction) -> str:
    """Return the result as one line of JSON, without secrets."""
    return json_line(mask_value(result, mask))
