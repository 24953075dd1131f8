"""A title for a conversation that nobody has named: asked for in the background, never in anyone's way."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import AnyPart, text_of
from holdfast.domain.files import files_among
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import TITLE_CHARS_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import first_words, shortened
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.engine.session_commands import Verbs
from holdfast.store.ports import Store

Ask = Callable[[SessionRow, str], Awaitable[str]]
"""Gives a few words for the beginning of a conversation; raises a HoldfastError when it cannot."""

_READ_TURNS, _READ_MESSAGES = 4, 50


class Titles:
    """Names conversations. Without someone to `ask`, by the first words of what a person wrote."""

    def __init__(self, store: Store, verbs: Verbs, ask: Ask | None) -> None:
        self._store = store
        self._verbs = verbs
        self._ask = ask
        self._tasks: set[asyncio.Task[None]] = set()

    def consider(self, session_id: SessionId) -> None:
        """Give the session a title later, if it has none by then."""
        task = asyncio.create_task(self._name(session_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _name(self, session_id: SessionId) -> None:
        # A title is a convenience: whatever keeps it from being made, the next completed run tries again.
        with suppress(HoldfastError):
            session = await self._store.session(session_id)
            if session.title or session.last_turn > _READ_TURNS:
                return
            page = await self._store.messages(session_id, None, _READ_MESSAGES)
            fold = TranscriptFold()
            fold.add_page(page.messages)
            entries = [entry for turn in fold.transcript().turns for entry in turn.entries]
            # What a person said first, and the first answer to it.
            asked = [text_of(e.parts) or _names(e.parts) for e in entries if e.role == "user"]
            told = [text for e in entries if e.role == "assistant" and (text := text_of(e.parts))]
            said = [*asked[:1], *told[:1]]
            title = await self._title(session, said)
            if title:
                await self._verbs.rename(session_id, title, by="model")

    async def _title(self, session: SessionRow, said: list[str]) -> str:
        first = first_words(said[0]) if said else ""
        if self._ask is None or not first:
            return first
        with suppress(HoldfastError):
            asked = (await self._ask(session, "\n\n".join(said))).strip().strip("\"'").strip()
            return shortened(asked, TITLE_CHARS_MAX) or first
        return first


def _names(parts: tuple[AnyPart, ...]) -> str:
    return ", ".join(file.name for file in files_among(parts))
