"""Any program as a channel: signed calls come in, signed calls go out.

Whoever has the key is believed in who says what; who of them may speak is decided as for every channel. What
goes out carries an id that is the same whenever it is sent again, so that its receiver can know it.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast.channels.ports import Abilities, ChannelFailure, ChannelHealth, Take, file_too_large
from holdfast.domain.chats import Chat, ChatKind, FileRef, Inbound, Outgoing
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.files import HEAD_BYTES, clean_name, likely_type
from holdfast.domain.limits import ATTACHMENTS_MAX, FILE_BYTES_MAX
from holdfast.domain.webhook_signing import check, check_head, signed

CHANNEL = "webhook"
ABILITIES = Abilities(
    text_chars_max=30_000,
    edits=True,
    buttons=True,
    files=True,
    dedupes_sends=True,
    dedupes_updates=True,
    edit_every_ms=500,
)
_NAME = r"\A[A-Za-z0-9_.@+-]{1,128}\Z"
_DETAIL_CHARS_MAX = 200
_ANSWER_BYTES_MAX = 64_000
_RETRY_AFTER_S_MAX = 3_600
_LATER = frozenset({408, 425, 429})
"""Refusals that are not meant for good."""
_SECONDS = re.compile(r"[0-9]{1,9}")

Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
"""Of a chat, a thread or a person: what can stand in a session key and in a path."""


class BadCall(HoldfastError):
    """This cannot be taken for a message: {why}."""

    code, status = "bad_channel_call", 400


class CalledFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file that is fetched from where answers go to."""

    url: Annotated[str, msgspec.Meta(max_length=2_000)]
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    media_type: Annotated[str, msgspec.Meta(max_length=200)] = ""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, lt=10**12)] = 0


class Called(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody said, as a program tells it. What we send never reads as this: it has no sender."""

    chat: Name
    sender: Name
    sender_name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    text: str = ""
    files: Annotated[tuple[CalledFile, ...], msgspec.Meta(max_length=ATTACHMENTS_MAX)] = ()
    press: Annotated[str, msgspec.Meta(max_length=500)] = ""
    thread: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.@+-]{0,128}\Z")] = ""
    kind: ChatKind = "dm"
    addressed: bool = True


class _Answer(msgspec.Struct, frozen=True):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] = ""


class Patience(msgspec.Struct, frozen=True):
    """How long is waited for the receiver, in seconds."""

    connect_s: float = 10.0
    answer_s: float = 30.0


class Blobs(Protocol):
    """What the channel needs of the store: files that are sent."""

    async def get_blob(self, digest: str) -> bytes: ...


class Webhook:
    """One receiver, at `url`. `new_id` names calls that need no name of their own."""

    def __init__(
        self,
        url: str,
        key: bytes,
        blobs: Blobs,
        clock: Clock,
        new_id: Callable[[], str],
        patience: Patience | None = None,
    ) -> None:
        self._url = url
        self._key = key
        self._blobs = blobs
        self._clock = clock
        self._new_id = new_id
        self._patience = patience or Patience()
        self._session: aiohttp.ClientSession | None = None

    @property
    def name(self) -> str:
        return CHANNEL

    @property
    def abilities(self) -> Abilities:
        return ABILITIES

    # What comes in.

    def check(self, headers: Mapping[str, str]) -> None:
        """Whether what is called in could be signed, before it is read. Raises BadSignature."""
        check_head(headers, self._clock.now_ms())

    def heard(self, headers: Mapping[str, str], body: bytes) -> Inbound:
        """What was called in, if it is signed: the same id is the same thing.

        Raises BadSignature, BadCall.
        """
        update_id = check(self._key, headers, body, self._clock.now_ms())
        try:
            told = msgspec.json.decode(body, type=Called)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadCall(why=str(error)) from None
        for file in told.files:
            self._check_near(file.url)
        if not (told.text or told.files or told.press):
            raise BadCall(why="it says nothing")
        files = tuple(FileRef(each.url, each.name, each.media_type, each.size_bytes) for each in told.files)
        chat = Chat(CHANNEL, told.kind, told.chat, told.thread)
        return Inbound(
            chat, update_id, told.sender, told.sender_name, told.text, files, told.press, told.addressed,
            self._clock.now_ms(),
        )  # fmt: skip

    async def listen(self, take: Take) -> None:
        """Calls come to the server's own door, whoever listens."""
        await asyncio.Event().wait()

    async def fetch(self, file: FileRef) -> bytes:
        if file.size_bytes > FILE_BYTES_MAX:
            raise file_too_large(file, FILE_BYTES_MAX)
        headers = signed(self._key, self._new_id(), self._clock.now_ms(), b"")
        return await self._ask("GET", file.ref, headers, b"", FILE_BYTES_MAX, "The file")

    def _check_near(self, url: str) -> None:
        """Only what lies where answers go to is fetched: nobody is to send this server anywhere else."""
        try:
            is_near = _origin(url) == _origin(self._url)
        except ValueError:
            is_near = False
        if not is_near:
            raise BadCall(why="a file must be at the same server as channel_webhook_url")

    # What goes out.

    async def send(self, chat: Chat, message: Outgoing, key: str) -> str:
        files = [(await self._blobs.get_blob(digest), name) for digest, name in message.named_files]
        body = {"type": "message", **_place(chat), **_said(message, files)}
        return await self._post(body, key) or key

    async def edit(self, chat: Chat, platform_id: str, message: Outgoing) -> None:
        await self._post({"type": "edit", "id": platform_id, **_place(chat), **_said(message, [])})

    async def show_typing(self, chat: Chat) -> None:
        await self._post({"type": "typing", **_place(chat)})

    async def health(self) -> ChannelHealth:
        try:
            await self._post({"type": "test"})
        except ChannelFailure as error:
            return ChannelHealth(False, str(error.fields["detail"]))
        return ChannelHealth(True, f"{urlsplit(self._url).netloc} answers")

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _post(self, told: dict[str, Any], key: str = "") -> str:
        """Tell the receiver; what it calls it, if it says so. Raises ChannelFailure."""
        now = self._clock.now_ms()
        body = msgspec.json.encode({**told, "at": now})
        headers = {**signed(self._key, key or self._new_id(), now, body), "content-type": "application/json"}
        try:
            answer = await self._ask("POST", self._url, headers, body, _ANSWER_BYTES_MAX, "The answer")
            return msgspec.json.decode(answer, type=_Answer).id
        except (TooLarge, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # It has arrived, whatever is said to it.
            return ""

    async def _ask(
        self, method: str, url: str, headers: dict[str, str], body: bytes, bytes_max: int, what: str
    ) -> bytes:
        """What is answered. Raises ChannelFailure, TooLarge."""
        try:
            async with asyncio.timeout(self._patience.answer_s), self._client().request(
                method, url, data=body or None, headers=headers, allow_redirects=False
            ) as answer:  # fmt: skip
                if not 200 <= answer.status <= 299:
                    words = await answer.content.read(_DETAIL_CHARS_MAX)
                    raise _refused(answer, words.decode("utf-8", "replace"), self._clock)
                found = bytearray()
                async for piece in answer.content.iter_any():
                    found += piece
                    if len(found) > bytes_max:
                        raise TooLarge(what=what, size=f"more than {bytes_max}", limit=bytes_max)
                return bytes(found)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise _failed(f"cannot be reached: {_words(error)}", arrived=False) from None
        except TimeoutError:
            raise _failed(f"did not answer within {self._patience.answer_s:g} s", arrived=None) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failed(f"broke off: {_words(error)}", arrived=None) from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"user-agent": "holdfast"},
                timeout=aiohttp.ClientTimeout(total=None, connect=self._patience.connect_s),
            )
        return self._session


def _place(chat: Chat) -> dict[str, Any]:
    return {"chat": chat.chat, "kind": chat.kind, "thread": chat.thread}


def _said(message: Outgoing, files: list[tuple[bytes, str]]) -> dict[str, Any]:
    return {
        "text": message.text,
        "buttons": [{"text": each.text, "press": each.press} for each in message.buttons],
        "files": [_enclosed(*each) for each in files],
        "again": message.is_again,
    }


def _enclosed(file: bytes, name: str) -> dict[str, str]:
    media_type = likely_type(file[:HEAD_BYTES])
    return {
        "name": clean_name(name, media_type),
        "media_type": media_type,
        "content": base64.b64encode(file).decode(),
    }


def _refused(answer: aiohttp.ClientResponse, words: str, clock: Clock) -> ChannelFailure:
    status = answer.status
    told = " ".join(words.split())
    detail = f"answered {status}" + (f": {told}" if told else "")
    if 300 <= status <= 399:
        return _failed(f"{detail}; it leads elsewhere, and that is not followed", arrived=False)
    wait_ms = _wait_ms(answer.headers.get("retry-after", ""), clock)
    if status < 500:
        return _failed(detail, arrived=False, retry_after_ms=wait_ms, final=status not in _LATER)
    # Whoever fails in the middle of it may have taken it.
    return _failed(detail, arrived=None, retry_after_ms=wait_ms)


def _wait_ms(retry_after: str, clock: Clock) -> int | None:
    """For how long the receiver asks to be left alone: so many seconds, or until a date."""
    if _SECONDS.fullmatch(retry_after.strip()):
        seconds = float(retry_after)
    else:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - clock.now_ms() / 1000
        except ValueError:
            return None
    return round(1000 * min(max(seconds, 0.0), _RETRY_AFTER_S_MAX))


def _failed(detail: str, **more: Any) -> ChannelFailure:
    return ChannelFailure(channel=CHANNEL, detail=f"the receiver {detail}", **more)


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_DETAIL_CHARS_MAX]


def _origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
