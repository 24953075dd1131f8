"""Messages on their way: each is sent until the server has it, in order, and is kept there once."""

import asyncio
from collections.abc import Callable
from urllib.parse import quote

import msgspec

from holdfast.cli.chat.client import Client, Refused
from holdfast.cli.chat.completion import Attached
from holdfast.cli.chat.wire import Receipt, StoredFile


class Letter(msgspec.Struct, frozen=True):
    """A message and its key: however often it is sent, it is one message."""

    session_id: str
    text: str
    key: str
    files: tuple[Attached, ...] = ()
    anyway: bool = False
    """Send images also to a model that is not known to take them."""


async def send(client: Client, letter: Letter) -> Receipt:
    """Returns once the server has it, whatever becomes of the server meanwhile. Raises Refused."""
    body: dict[str, object] = {"text": letter.text, "key": letter.key}
    if letter.files:
        # The same content is kept once, so that a file may be sent twice.
        kept = [
            await client.insist("POST", f"/api/files?name={quote(each.name)}", StoredFile, raw=each.content)
            for each in letter.files
        ]
        body["attachments"] = [{"id": each.id, "name": each.name, "anyway": letter.anyway} for each in kept]
    return await client.insist("POST", f"/api/sessions/{letter.session_id}/turns", Receipt, body)


class Outbox:
    """Sends what is put in, one after the other. `on_refused` is told what the server does not take."""

    def __init__(self, client: Client, on_refused: Callable[[Letter, Refused], None]) -> None:
        self._client = client
        self._on_refused = on_refused
        self._waiting: asyncio.Queue[Letter] = asyncio.Queue()
        self.unsent: list[Letter] = []

    def put(self, letter: Letter) -> None:
        self.unsent.append(letter)
        self._waiting.put_nowait(letter)

    async def send_for_ever(self) -> None:
        while True:
            letter = await self._waiting.get()
            try:
                await send(self._client, letter)
            except Refused as refused:
                self._on_refused(letter, refused)
            finally:
                self.unsent.remove(letter)
