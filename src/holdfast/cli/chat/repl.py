"""Run the interactive chat: send what the user types, and print all events of the conversation."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from holdfast.cli.chat.answers import (
    NeedsFollowUp,
    QuestionAnswer,
    ResumeRun,
    UnclearAnswer,
    answer_hint,
    answer_keys,
    editable_text,
    edited_arguments,
    enter_hint,
    parse_answer,
)
from holdfast.cli.chat.client import ChatOutbox, Client, OutgoingMessage, RequestRefused, ServerUnavailable
from holdfast.cli.chat.completion import TooManyFiles, read_attachments
from holdfast.cli.chat.prompt import InputPrompt
from holdfast.cli.chat.render import Renderer, StyledPieces
from holdfast.cli.chat.response_data import EventData, FeedUpdate, MessagePageData, QuestionData, SessionData
from holdfast.cli.chat.safe_text import safe
from holdfast.cli.chat.slash_commands import SlashCommandRunner
from holdfast.cli.chat.view_model import ConnectionChange, ConversationViewModel, Notice, PrintedItem
from holdfast.domain.events import facts as f
from holdfast.domain.limits import ATTACHMENTS_MAX
from holdfast.domain.slash import SlashCommand, UnknownCommand, parse_command
from holdfast.domain.transcript.labels import display_title

MESSAGES_READ = 60
MESSAGES_SHOWN = 8
"""The most messages that are printed when a conversation is opened."""
QUESTION_READ_MS, LATE_ANSWER_MS = 700, 3_000
"""Input this soon after a question has changed is ignored, since nobody has read the question yet."""
DisplayUpdate = EventData | FeedUpdate | ConnectionChange | PrintedItem
_SEEN_KINDS = (f.MessageSettled, f.RunCompleted, f.RunFailed, f.ToolSettled)


class ChatRepl:
    """The chat in one terminal. `new_key` creates the idempotency keys of messages."""

    def __init__(
        self,
        client: Client,
        renderer: Renderer,
        folder: Path,
        new_key: Callable[[], str],
        anyway: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._renderer = renderer
        self._folder = folder
        self._new_key = new_key
        self._anyway = anyway
        self._now_ms = now_ms
        self._outbox = ChatOutbox(client, self._on_refused)
        self._prompt = InputPrompt(
            self._render_live,
            self._render_toolbar,
            self._on_interrupt,
            folder,
            lambda: self._commands.completion_names,
            self._is_answer_key,
        )
        self._commands = SlashCommandRunner(
            client, lambda: self._conversation, self._open_session, self._show, self._prompt.close
        )
        self._updates: asyncio.Queue[DisplayUpdate] = asyncio.Queue()
        self._follow_task: asyncio.Task[None] | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._conversation = ConversationViewModel(SessionData("", "", "idle", 0, 0))
        self._draft = ""
        self._stopping_run_id = ""
        self._question_id = ""
        self._question_shown_ms = 0
        self._question_replaced_ms = 0
        client.on_change = self._on_connection_change

    async def run(self, session: SessionData) -> None:
        """Chat until the user leaves."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._prompt.close)
        loop.add_signal_handler(signal.SIGHUP, self._prompt.close)
        permanent_tasks = [
            asyncio.create_task(self._draw_updates()),
            asyncio.create_task(self._outbox.send_messages()),
        ]
        for task in permanent_tasks:
            # The chat is useless without them, so it ends; their error is raised below.
            task.add_done_callback(lambda task: self._prompt.close())
        with self._prompt.capture_terminal():
            try:
                await self._open_session(session)
                while (typed := await self._prompt.ask(text=self._take_draft())) is not None:
                    await self._handle_input(typed)
                for task in permanent_tasks:
                    if task.done():
                        task.result()
            finally:
                ending_tasks = [*permanent_tasks, *self._background_tasks, *filter(None, [self._follow_task])]
                for task in ending_tasks:
                    task.cancel()
                await asyncio.gather(*ending_tasks, return_exceptions=True)
        # The live area disappears with the prompt, so print its text for good.
        print(
            self._renderer.render_items(self._conversation.flush_streaming(), get_terminal_size().columns),
            end="",
        )
        for message in self._outbox.unsent:
            print(f"Not sent: {safe(message.text)}")

    async def _open_session(self, session: SessionData) -> None:
        """Switch to a session: print its end, then follow it.

        Raises ServerUnavailable or RequestRefused, and keeps the current session then.
        """
        page = await self._client.get(
            f"/api/sessions/{session.id}/messages?limit={MESSAGES_READ}", MessagePageData
        )
        current_session = await self._client.get(f"/api/sessions/{session.id}", SessionData)
        if self._follow_task is not None:
            self._follow_task.cancel()
        conversation = ConversationViewModel(session, current_session.answering or "")
        title = display_title(session.title, session.opening)
        items: list[PrintedItem] = [Notice(f"{title} · /help says what can be typed", plain=True)]
        items += conversation.load_page(page, MESSAGES_SHOWN)
        self._prompt.add_history(conversation.user_texts(page))
        self._conversation = conversation
        # A new queue, so that updates of the previous session are not printed in this one.
        self._updates = asyncio.Queue()
        for item in items:
            self._updates.put_nowait(item)
        self._follow_task = asyncio.create_task(self._follow_session(conversation, self._updates))
        self._start_background_task(self._commands.refresh_completion_names())

    async def _follow_session(
        self, conversation: ConversationViewModel, updates: "asyncio.Queue[DisplayUpdate]"
    ) -> None:
        try:
            async for update in self._client.follow(conversation.session_id, conversation.cursor):
                updates.put_nowait(update)
        except RequestRefused as refused:
            updates.put_nowait(Notice(refused.problem.detail, bad=True))

    async def _draw_updates(self) -> None:
        while True:
            updates, conversation = self._updates, self._conversation
            try:
                # The timeout makes the loop notice that `_open_session` has replaced the queue. Not
                # `wait_for`: in Python 3.11 it can lose a cancellation when an item arrives, and then nobody
                # could leave the chat.
                async with asyncio.timeout(0.25):
                    batch = [await updates.get()]
            except TimeoutError:
                continue
            while not updates.empty():
                batch.append(updates.get_nowait())
            items: list[PrintedItem] = []
            for update in batch:
                match update:
                    case EventData():
                        items += conversation.apply_event(update)
                        if isinstance(update.fact, f.SessionConfigured):
                            self._start_background_task(self._refresh_model_and_agent(conversation))
                    case FeedUpdate():
                        conversation.apply_feed_update(update)
                    case ConnectionChange():
                        items += conversation.apply_connection_change(update)
                    case _:
                        items.append(update)
            # Before any await: a question counts as read only some time after it is visible.
            self._track_question()
            if items:
                await self._prompt.print(partial(self._renderer.render_items, items))
            self._prompt.redraw()
            if any(
                isinstance(update, EventData) and isinstance(update.fact, _SEEN_KINDS) for update in batch
            ):
                self._start_background_task(self._mark_seen(conversation))

    async def _refresh_model_and_agent(self, conversation: ConversationViewModel) -> None:
        with suppress(ServerUnavailable, RequestRefused):
            current_session = await self._client.get(f"/api/sessions/{conversation.session_id}", SessionData)
            conversation.model, conversation.agent = (
                current_session.answering or conversation.model,
                current_session.agent,
            )

    async def _mark_seen(self, conversation: ConversationViewModel) -> None:
        with suppress(ServerUnavailable, RequestRefused):
            path = f"/api/sessions/{conversation.session_id}/seen"
            await self._client.request("POST", path, object, {"seq": conversation.cursor})

    async def _handle_input(self, typed: str) -> None:
        question = self._conversation.pending_questions[0] if self._conversation.pending_questions else None
        answer = parse_answer(typed, question) if question is not None else None
        since_ms = self._now_ms() - self._question_replaced_ms
        if question is not None and answer is not None:
            if since_ms < QUESTION_READ_MS:
                self._draft = typed if question.asked is not None else ""
                self._show(Notice("Another question has just come up: read it, and type your answer again."))
            else:
                await self._report_errors(self._apply_answer(question, answer))
            return
        if question is None and len(typed.strip()) == 1 and since_ms < LATE_ANSWER_MS:
            self._show(Notice("That question was answered already. Nothing was sent."))
            return
        if not typed.strip():
            return
        command = parse_command(typed)
        if question is not None and command is None and not self._is_question_read:
            self._draft = typed
            self._show(Notice("A question has just come up: read it first. Nothing was sent."))
            return
        if command is not None:
            # A user who types a command may just have written a new prompt.
            self._start_background_task(self._commands.refresh_completion_names())
        if isinstance(command, SlashCommand):
            await self._report_errors(self._commands.run(command))
        elif isinstance(command, UnknownCommand) and not await self._is_prompt_name(command.word):
            self._commands.report_unknown(command)
        else:
            self._send_message(typed)

    async def _is_prompt_name(self, word: str) -> bool:
        """Return whether the server has a prompt of that name."""
        return any(prompt.name == word for prompt in await self._commands.prompts())

    def _track_question(self) -> None:
        """Record when the current question appeared and when it replaced another.

        Input that comes sooner than a person can read the question must not answer it.
        """
        first = self._conversation.pending_questions[0] if self._conversation.pending_questions else None
        question_id = (first.call_id or first.run_id) if first is not None else ""
        if question_id != self._question_id:
            self._question_shown_ms = self._now_ms()
            if self._question_id:
                self._question_replaced_ms = self._question_shown_ms
            self._question_id = question_id
            asyncio.get_running_loop().call_later(QUESTION_READ_MS / 1000, self._prompt.redraw)

    @property
    def _is_question_read(self) -> bool:
        return self._now_ms() - self._question_shown_ms >= QUESTION_READ_MS

    def _is_answer_key(self, letter: str) -> bool:
        """Return whether a key answers the current question, without Enter."""
        questions = self._conversation.pending_questions
        return bool(questions) and self._is_question_read and letter.lower() in answer_keys(questions[0])

    def _key_hint(self) -> str | None:
        """Return the hint about keys; None for the question's own hint."""
        if not self._conversation.pending_questions:
            return None
        if self._prompt.is_side_question:
            return "Enter answers, Esc goes back."
        if not self._is_question_read:
            return "…"
        return enter_hint(self._prompt.line, self._conversation.pending_questions[0]) or None

    def _send_message(self, text: str) -> None:
        try:
            files = tuple(read_attachments(text, self._folder))
        except OSError as error:
            self._draft = text
            self._show(
                Notice(f"{error.filename} cannot be read: {error.strerror}. Nothing was sent.", bad=True)
            )
        except TooManyFiles:
            self._draft = text
            self._show(Notice(f"A message has at most {ATTACHMENTS_MAX} files. Nothing was sent.", bad=True))
        else:
            # Questions from now on concern this message, so an answer is not too early.
            self._question_replaced_ms = 0
            self._outbox.put(
                OutgoingMessage(self._conversation.session_id, text, self._new_key(), files, self._anyway)
            )

    async def _apply_answer(
        self, question: QuestionData, answer: "QuestionAnswer | ResumeRun | NeedsFollowUp | UnclearAnswer"
    ) -> None:
        match answer:
            case QuestionAnswer():
                await self._commands.answer(question, answer)
            case ResumeRun():
                await self._commands.resume_run(question)
            case UnclearAnswer():
                self._show(Notice(f"Nothing was sent. {answer_hint(question)}"))
            case NeedsFollowUp(what="reason"):
                reason = await self._prompt.ask("Reason (optional, sent to the assistant) > ")
                if reason is not None:
                    await self._commands.answer(question, QuestionAnswer("deny", reason=reason.strip()))
            case NeedsFollowUp():
                await self._edit_call(question)

    async def _edit_call(self, question: QuestionData) -> None:
        if question.arguments_cut:
            self._show(Notice("This is too long to be changed here; the page can.", bad=True))
            return
        label = "Run this instead > " if question.name == "shell" else "Do this instead > "
        text = await self._prompt.ask(label, editable_text(question))
        if text is None or not text.strip():
            return
        arguments = edited_arguments(question, text)
        if arguments is None:
            self._show(Notice("That is not a JSON object; nothing was sent.", bad=True))
            return
        await self._commands.answer(question, QuestionAnswer("approve", arguments=arguments))

    async def _report_errors(self, operation: Coroutine[Any, Any, None]) -> None:
        try:
            await operation
        except RequestRefused as refused:
            self._show(Notice(_problem_text(refused), bad=True))
        except ServerUnavailable:
            self._show(
                Notice("The server does not answer; nothing was done. Try again when it is back.", bad=True)
            )

    def _on_refused(self, message: OutgoingMessage, refused: RequestRefused) -> None:
        self._show(Notice(f"Not sent: {_problem_text(refused)}", bad=True))
        self._draft = message.text

    def _on_interrupt(self) -> bool:
        """Stop the running answer; return False if there is none or it is already stopping."""
        run_id = self._conversation.run_id
        if (
            run_id is None
            or self._conversation.unanswered
            or run_id == self._stopping_run_id
            or not self._client.is_connected
        ):
            return False
        self._stopping_run_id = run_id
        self._start_background_task(self._report_errors(self._commands.stop()))
        return True

    def _on_connection_change(self, is_connected: bool) -> None:
        self._updates.put_nowait(ConnectionChange(is_connected, self._client.endpoint.is_own))

    def _show(self, item: PrintedItem) -> None:
        self._updates.put_nowait(item)

    def _start_background_task(self, operation: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(operation)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    def _take_draft(self) -> str:
        text, self._draft = self._draft, ""
        return text

    def _render_live(self, columns: int, rows: int) -> StyledPieces:
        pieces = self._renderer.render_live(
            self._conversation, columns, rows, self._now_ms(), self._key_hint()
        )
        waiting = [each.text for each in self._conversation.queued.values()]
        if not self._client.is_connected:
            waiting += [each.text for each in self._outbox.unsent]
        return pieces + self._renderer.render_waiting(waiting, columns)

    def _render_toolbar(self, columns: int) -> str:
        unsent, agents = len(self._outbox.unsent), len(self._commands.completion_names.agents)
        return self._renderer.render_toolbar(
            self._conversation, self._client.is_connected, unsent, agents, columns
        )


def _problem_text(refused: RequestRefused) -> str:
    return f"{refused.problem.detail} {refused.problem.remedy}".strip()
