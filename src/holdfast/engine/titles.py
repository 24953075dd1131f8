"""Give conversations without a title one, in the background."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import AnyPart, message_text
from holdfast.domain.files import file_parts
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import TITLE_CHARS_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import first_words, truncate_line
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.engine.session_commands import SessionCommands
from holdfast.store.ports import Store

GenerateTitle = Callable[[SessionRow, str], Awaitable[str]]
"""Return a few words for the beginning of a conversation; raises a HoldfastError on failure."""

_READ_TURNS, _READ_MESSAGES = 4, 50


class TitleScheduler:
    """Give conversations titles; without `generate_title`, the first words of the first message."""

    def __init__(self, store: Store, commands: SessionCommands, generate_title: GenerateTitle | None) -> None:
        self._store = store
        self._commands = commands
        self._generate_title = generate_title
        self._tasks: set[asyncio.Task[None]] = set()

    def schedule(self, session_id: SessionId) -> None:
        """Give the session a title in the background, if it has none by then."""
        task = asyncio.create_task(self._set_title(session_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _set_title(self, session_id: SessionId) -> None:
        # A title is a convenience: after a failure, the next completed run tries again.
        with suppress(HoldfastError):
            session = await self._store.session(session_id)
            if session.title or session.last_turn > _READ_TURNS:
                return
            page = await self._store.messages(session_id, None, _READ_MESSAGES)
            fold = TranscriptFold()
            fold.add_messages(page.messages)
            entries = [entry for turn in fold.transcript().turns for entry in turn.entries]
            # The model gets a person's first message and the first answer.
            questions = [message_text(e.parts) or _file_names(e.parts) for e in entries if e.role == "user"]
            answers = [text for e in entries if e.role == "assistant" and (text := message_text(e.parts))]
            texts = [*questions[:1], *answers[:1]]
            title = await self._make_title(session, texts)
            if title:
                await self._commands.rename(session_id, title, by="model")

    async def _make_title(self, session: SessionRow, texts: list[str]) -> str:
        first = first_words(texts[0]) if texts else ""
        if self._generate_title is None or not first:
            return first
        with suppress(HoldfastError):
            title = (await self._generate_title(session, "\n\n".join(texts))).strip().strip("\"'").strip()
            return truncate_line(title, TITLE_CHARS_MAX) or first
        return first


def _file_names(parts: tuple[AnyPart, ...]) -> str:
    return ", ".join(file.name for file in file_parts(parts))
