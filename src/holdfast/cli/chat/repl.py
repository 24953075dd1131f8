"""A chat as people have it: what is typed goes out, what happens anywhere in the conversation is drawn."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from holdfast.cli.chat.answers import (
    Answer,
    AskMore,
    GoOn,
    Unclear,
    choices,
    editable,
    edited,
    keys,
    meaning_of,
    read_answer,
)
from holdfast.cli.chat.client import Away, Client, Letter, Outbox, Refused
from holdfast.cli.chat.completion import TooMany, attached
from holdfast.cli.chat.prompt import Prompt
from holdfast.cli.chat.render import Drawing, Pieces
from holdfast.cli.chat.safe_text import safe
from holdfast.cli.chat.slash_commands import Commands
from holdfast.cli.chat.view_model import Contact, Notice, Scene, Shown
from holdfast.cli.chat.wire import Happened, Listed, Page, Question, Session
from holdfast.domain.events import facts as f
from holdfast.domain.limits import ATTACHMENTS_MAX
from holdfast.domain.slash import Command, NotACommand, read
from holdfast.domain.transcript.labels import title_of

MESSAGES_READ = 60
MESSAGES_SHOWN = 8
"""How much of a conversation is shown when it is opened."""
SEEN_MS, ANSWERED_MS = 700, 3_000
"""Ignore what is typed so soon after a question came up: nobody has read it yet."""
Heard = Happened | Listed | Contact | Shown
_READ_KINDS = (f.MessageSettled, f.RunCompleted, f.RunFailed, f.ToolSettled)


class Talk:
    """One terminal. `new_key` makes the keys that have a message kept once."""

    def __init__(
        self,
        client: Client,
        drawing: Drawing,
        folder: Path,
        new_key: Callable[[], str],
        anyway: bool = False,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._client = client
        self._drawing = drawing
        self._folder = folder
        self._new_key = new_key
        self._anyway = anyway
        self._now_ms = now_ms
        self._outbox = Outbox(client, self._refused)
        self._prompt = Prompt(
            self._live, self._toolbar, self._on_stop, folder, lambda: self._commands.known, self._is_answer
        )
        self._commands = Commands(client, lambda: self._scene, self._open, self._say, self._prompt.leave)
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._small: set[asyncio.Task[None]] = set()
        self._scene = Scene(Session("", "", "idle", 0, 0))
        self._put_back = ""
        self._stopping = ""
        self._question = ""
        self._shown_ms = 0
        self._replaced_ms = 0
        client.on_change = self._changed

    async def run(self, session: Session) -> None:
        """Until the person leaves."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._prompt.leave)
        loop.add_signal_handler(signal.SIGHUP, self._prompt.leave)
        lasting = [
            asyncio.create_task(self._draw_for_ever()),
            asyncio.create_task(self._outbox.send_for_ever()),
        ]
        for task in lasting:
            # Without them there is nothing to stay for; what went wrong is raised below.
            task.add_done_callback(lambda task: self._prompt.leave())
        with self._prompt.covering():
            try:
                await self._open(session)
                while (typed := await self._prompt.ask(text=self._take_back())) is not None:
                    await self._typed(typed)
                for task in lasting:
                    if task.done():
                        task.result()
            finally:
                ending = [*lasting, *self._small, *filter(None, [self._following])]
                for task in ending:
                    task.cancel()
                await asyncio.gather(*ending, return_exceptions=True)
        # What was drawn below is gone with the prompt, and was read: it stays as what came before it does.
        print(self._drawing.printed(self._scene.so_far(), get_terminal_size().columns), end="")
        for letter in self._outbox.unsent:
            print(f"Not sent: {safe(letter.text)}")

    async def _open(self, session: Session) -> None:
        """Go to a conversation: show its end, then follow it. Raises Away or Refused, and stays then."""
        page = await self._client.get(f"/api/sessions/{session.id}/messages?limit={MESSAGES_READ}", Page)
        here = await self._client.get(f"/api/sessions/{session.id}", Session)
        if self._following is not None:
            self._following.cancel()
        scene = Scene(session, here.answering or "")
        called = title_of(session.title, session.opening)
        shown: list[Shown] = [Notice(f"{called} · /help says what can be typed", plain=True)]
        shown += scene.begin(page, MESSAGES_SHOWN)
        self._prompt.remember(scene.said_before(page))
        self._scene = scene
        # What was heard of the conversation before this one is not to be drawn in it.
        self._heard = asyncio.Queue()
        for each in shown:
            self._heard.put_nowait(each)
        self._following = asyncio.create_task(self._follow(scene, self._heard))
        self._soon(self._commands.look())

    async def _follow(self, scene: Scene, heard: "asyncio.Queue[Heard]") -> None:
        try:
            async for told in self._client.follow(scene.session_id, scene.cursor):
                heard.put_nowait(told)
        except Refused as refused:
            heard.put_nowait(Notice(refused.problem.detail, bad=True))

    async def _draw_for_ever(self) -> None:
        while True:
            heard, scene = self._heard, self._scene
            try:
                # A conversation that is left takes its queue with it. Not `wait_for`: Python 3.11's does not
                # hear that it is cancelled when something comes just then, and the chat could not be left.
                async with asyncio.timeout(0.25):
                    batch = [await heard.get()]
            except TimeoutError:
                continue
            while not heard.empty():
                batch.append(heard.get_nowait())
            shown: list[Shown] = []
            for each in batch:
                match each:
                    case Happened():
                        shown += scene.add(each)
                        if isinstance(each.fact, f.SessionConfigured):
                            self._soon(self._look_who_answers(scene))
                    case Listed():
                        scene.listed(each)
                    case Contact():
                        shown += scene.contacted(each)
                    case _:
                        shown.append(each)
            # Before anything waits: a question counts as read only some time after it can be seen.
            self._look_at_question()
            if shown:
                await self._prompt.print(lambda columns, shown=shown: self._drawing.printed(shown, columns))  # type: ignore[misc]
            self._prompt.redraw()
            if any(isinstance(each, Happened) and isinstance(each.fact, _READ_KINDS) for each in batch):
                self._soon(self._seen(scene))

    async def _look_who_answers(self, scene: Scene) -> None:
        with suppress(Away, Refused):
            here = await self._client.get(f"/api/sessions/{scene.session_id}", Session)
            scene.model, scene.agent = here.answering or scene.model, here.agent

    async def _seen(self, scene: Scene) -> None:
        with suppress(Away, Refused):
            path = f"/api/sessions/{scene.session_id}/seen"
            await self._client.ask("POST", path, object, {"seq": scene.cursor})

    async def _typed(self, typed: str) -> None:
        question = self._scene.asked[0] if self._scene.asked else None
        meant = read_answer(typed, question) if question is not None else None
        since_ms = self._now_ms() - self._replaced_ms
        if question is not None and meant is not None:
            if since_ms < SEEN_MS:
                self._put_back = typed if question.asked is not None else ""
                self._say(Notice("Another question has just come up: read it, and type your answer again."))
            else:
                await self._trying(self._answer(question, meant))
            return
        if question is None and len(typed.strip()) == 1 and since_ms < ANSWERED_MS:
            self._say(Notice("That question was answered already. Nothing was sent."))
            return
        if not typed.strip():
            return
        command = read(typed)
        if question is not None and command is None and not self._is_seen:
            self._put_back = typed
            self._say(Notice("A question has just come up: read it first. Nothing was sent."))
            return
        if command is not None:
            self._soon(self._commands.look())  # Whoever types commands may have written some.
        if isinstance(command, Command):
            await self._trying(self._commands.carry_out(command))
        elif isinstance(command, NotACommand) and not await self._is_prompt(command.word):
            self._commands.unknown(command)
        else:
            self._send(typed)

    async def _is_prompt(self, word: str) -> bool:
        """Whether the server knows what a message means that begins so."""
        return any(each.name == word for each in await self._commands.prompts())

    def _look_at_question(self) -> None:
        """Remember when a question came up, and took the place of another: nobody answers what they have
        not read."""
        first = self._scene.asked[0] if self._scene.asked else None
        name = (first.call_id or first.run_id) if first is not None else ""
        if name != self._question:
            self._shown_ms = self._now_ms()
            if self._question:
                self._replaced_ms = self._shown_ms
            self._question = name
            asyncio.get_running_loop().call_later(SEEN_MS / 1000, self._prompt.redraw)

    @property
    def _is_seen(self) -> bool:
        return self._now_ms() - self._shown_ms >= SEEN_MS

    def _is_answer(self, letter: str) -> bool:
        """Return whether a key answers the question on the screen, without Enter."""
        asked = self._scene.asked
        return bool(asked) and self._is_seen and letter.lower() in keys(asked[0])

    def _keys(self) -> str | None:
        """Return the line about the keys; None: the question's own."""
        if not self._scene.asked:
            return None
        if self._prompt.is_aside:
            return "Enter answers, Esc goes back."
        if not self._is_seen:
            return "…"
        return meaning_of(self._prompt.line, self._scene.asked[0]) or None

    def _send(self, text: str) -> None:
        try:
            files = tuple(attached(text, self._folder))
        except OSError as error:
            self._put_back = text
            self._say(
                Notice(f"{error.filename} cannot be read: {error.strerror}. Nothing was sent.", bad=True)
            )
        except TooMany:
            self._put_back = text
            self._say(Notice(f"A message has at most {ATTACHMENTS_MAX} files. Nothing was sent.", bad=True))
        else:
            # What comes up from here on is about this message.
            self._replaced_ms = 0
            self._outbox.put(Letter(self._scene.session_id, text, self._new_key(), files, self._anyway))

    async def _answer(self, question: Question, meant: "Answer | GoOn | AskMore | Unclear") -> None:
        match meant:
            case Answer():
                await self._commands.answer(question, meant)
            case GoOn():
                await self._commands.go_on(question)
            case Unclear():
                self._say(Notice(f"Nothing was sent. {choices(question)}"))
            case AskMore(what="reason"):
                reason = await self._prompt.ask("Reason (optional, sent to the assistant) > ")
                if reason is not None:
                    await self._commands.answer(question, Answer("deny", reason=reason.strip()))
            case AskMore():
                await self._edit(question)

    async def _edit(self, question: Question) -> None:
        if question.arguments_cut:
            self._say(Notice("This is too long to be changed here; the page can.", bad=True))
            return
        label = "Run this instead > " if question.name == "shell" else "Do this instead > "
        text = await self._prompt.ask(label, editable(question))
        if text is None or not text.strip():
            return
        arguments = edited(question, text)
        if arguments is None:
            self._say(Notice("That is not a JSON object; nothing was sent.", bad=True))
            return
        await self._commands.answer(question, Answer("approve", arguments=arguments))

    async def _trying(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Refused as refused:
            self._say(Notice(_told(refused), bad=True))
        except Away:
            self._say(
                Notice("The server does not answer; nothing was done. Try again when it is back.", bad=True)
            )

    def _refused(self, letter: Letter, refused: Refused) -> None:
        self._say(Notice(f"Not sent: {_told(refused)}", bad=True))
        self._put_back = letter.text

    def _on_stop(self) -> bool:
        """At Ctrl+C: whether there was an answer to stop. One that does not stop is left."""
        run_id = self._scene.run_id
        if run_id is None or self._scene.unanswered or run_id == self._stopping or not self._client.is_here:
            return False
        self._stopping = run_id
        self._soon(self._trying(self._commands.stop()))
        return True

    def _changed(self, is_here: bool) -> None:
        self._heard.put_nowait(Contact(is_here, self._client.place.is_own))

    def _say(self, shown: Shown) -> None:
        self._heard.put_nowait(shown)

    def _soon(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._small.add(task)
        task.add_done_callback(self._small.discard)

    def _take_back(self) -> str:
        text, self._put_back = self._put_back, ""
        return text

    def _live(self, columns: int, rows: int) -> Pieces:
        pieces = self._drawing.live(self._scene, columns, rows, self._now_ms(), self._keys())
        waiting = [each.text for each in self._scene.queued.values()]
        if not self._client.is_here:
            waiting += [each.text for each in self._outbox.unsent]
        return pieces + self._drawing.waiting(waiting, columns)

    def _toolbar(self, columns: int) -> str:
        unsent, agents = len(self._outbox.unsent), len(self._commands.known.agents)
        return self._drawing.toolbar(self._scene, self._client.is_here, unsent, agents, columns)


def _told(refused: Refused) -> str:
    return f"{refused.problem.detail} {refused.problem.remedy}".strip()
