"""Connect any program as a channel, with signed calls in both directions.

A caller with the key is trusted to name the senders; pairing decides which senders may speak, as on every
channel. An outgoing call has an id that is the same at each retry, so that its receiver can recognise it.
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

from holdfast.channels.ports import (
    ChannelAbilities,
    ChannelFailure,
    ChannelHealth,
    InboundReceiver,
    file_too_large,
)
from holdfast.domain.chats import Chat, ChatKind, FileRef, InboundUpdate, OutboundMessage
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.files import HEAD_BYTES, clean_name, guess_media_type
from holdfast.domain.limits import ATTACHMENTS_MAX, FILE_BYTES_MAX
from holdfast.domain.webhook_signing import parse_headers, signature_headers, verify

CHANNEL = "webhook"
ABILITIES = ChannelAbilities(
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
_RETRYABLE_STATUSES = frozenset({408, 425, 429})
"""Client errors after which a retry makes sense."""
_SECONDS = re.compile(r"[0-9]{1,9}")

Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
"""The name of a chat, a thread or a person: safe in a session key and in a path."""


class BadChannelCall(HoldfastError):
    """This cannot be taken for a message: {why}."""

    code, status = "bad_channel_call", 400


class WebhookInboundFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file to fetch from the receiver's server."""

    url: Annotated[str, msgspec.Meta(max_length=2_000)]
    name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    media_type: Annotated[str, msgspec.Meta(max_length=200)] = ""
    size_bytes: Annotated[int, msgspec.Meta(ge=0, lt=10**12)] = 0


class WebhookInbound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message in a call. An outgoing call never decodes as this: it has no sender."""

    chat: Name
    sender: Name
    sender_name: Annotated[str, msgspec.Meta(max_length=200)] = ""
    text: str = ""
    files: Annotated[tuple[WebhookInboundFile, ...], msgspec.Meta(max_length=ATTACHMENTS_MAX)] = ()
    press: Annotated[str, msgspec.Meta(max_length=500)] = ""
    thread: Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_.@+-]{0,128}\Z")] = ""
    kind: ChatKind = "dm"
    addressed: bool = True


class _Answer(msgspec.Struct, frozen=True):
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=500)] = ""


class ChannelWebhookTimeouts(msgspec.Struct, frozen=True):
    """The timeouts for the receiver, in seconds."""

    connect_s: float = 10.0
    answer_s: float = 30.0


class BlobReader(Protocol):
    """The part of the store that the channel uses: files to send."""

    async def get_blob(self, digest: str) -> bytes: ...


class WebhookChannel:
    """A channel to one receiver, at `url`. `new_id` creates ids for calls without a key."""

    def __init__(
        self,
        url: str,
        key: bytes,
        blobs: BlobReader,
        clock: Clock,
        new_id: Callable[[], str],
        timeouts: ChannelWebhookTimeouts | None = None,
    ) -> None:
        self._url = url
        self._key = key
        self._blobs = blobs
        self._clock = clock
        self._new_id = new_id
        self._timeouts = timeouts or ChannelWebhookTimeouts()
        self._session: aiohttp.ClientSession | None = None

    @property
    def name(self) -> str:
        return CHANNEL

    @property
    def abilities(self) -> ChannelAbilities:
        return ABILITIES

    # Inbound.

    def check(self, headers: Mapping[str, str]) -> None:
        """Check the signature headers before the body is read. Raises BadSignature."""
        parse_headers(headers, self._clock.now_ms())

    def parse_call(self, headers: Mapping[str, str], body: bytes) -> InboundUpdate:
        """Verify a call and return its update. Calls with the same id are the same update.

        Raises BadSignature, BadChannelCall.
        """
        update_id = verify(self._key, headers, body, self._clock.now_ms())
        try:
            call = msgspec.json.decode(body, type=WebhookInbound)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadChannelCall(why=str(error)) from None
        for file in call.files:
            self._check_same_origin(file.url)
        if not (call.text or call.files or call.press):
            raise BadChannelCall(why="it says nothing")
        files = tuple(FileRef(each.url, each.name, each.media_type, each.size_bytes) for each in call.files)
        chat = Chat(CHANNEL, call.kind, call.chat, call.thread)
        return InboundUpdate(
            chat, update_id, call.sender, call.sender_name, call.text, files, call.press, call.addressed,
            self._clock.now_ms(),
        )  # fmt: skip

    async def listen(self, receiver: InboundReceiver) -> None:
        """Wait until cancelled: the HTTP server receives the calls."""
        await asyncio.Event().wait()

    async def fetch(self, file: FileRef) -> bytes:
        if file.size_bytes > FILE_BYTES_MAX:
            raise file_too_large(file, FILE_BYTES_MAX)
        headers = signature_headers(self._key, self._new_id(), self._clock.now_ms(), b"")
        return await self._request("GET", file.ref, headers, b"", FILE_BYTES_MAX, "The file")

    def _check_same_origin(self, url: str) -> None:
        """Raise BadChannelCall unless `url` is at the receiver's server: callers must not choose another."""
        try:
            is_same_origin = _origin(url) == _origin(self._url)
        except ValueError:
            is_same_origin = False
        if not is_same_origin:
            raise BadChannelCall(why="a file must be at the same server as channel_webhook_url")

    # Outbound.

    async def send(self, chat: Chat, message: OutboundMessage, key: str) -> str:
        files = [(await self._blobs.get_blob(digest), name) for digest, name in message.named_files]
        body = {"type": "message", **_chat_fields(chat), **_message_fields(message, files)}
        return await self._post(body, key) or key

    async def edit(self, chat: Chat, platform_id: str, message: OutboundMessage) -> None:
        await self._post(
            {"type": "edit", "id": platform_id, **_chat_fields(chat), **_message_fields(message, [])}
        )

    async def show_typing(self, chat: Chat) -> None:
        await self._post({"type": "typing", **_chat_fields(chat)})

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

    async def _post(self, fields: dict[str, Any], key: str = "") -> str:
        """Call the receiver; return the id that it answers, or an empty one. Raises ChannelFailure."""
        now = self._clock.now_ms()
        body = msgspec.json.encode({**fields, "at": now})
        headers = {
            **signature_headers(self._key, key or self._new_id(), now, body),
            "content-type": "application/json",
        }
        try:
            answer = await self._request("POST", self._url, headers, body, _ANSWER_BYTES_MAX, "The answer")
            return msgspec.json.decode(answer, type=_Answer).id
        except (TooLarge, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # The call arrived, even if its answer is unusable.
            return ""

    async def _request(
        self, method: str, url: str, headers: dict[str, str], body: bytes, bytes_max: int, what: str
    ) -> bytes:
        """Return the body of the answer. Raises ChannelFailure, TooLarge."""
        try:
            async with asyncio.timeout(self._timeouts.answer_s), self._client().request(
                method, url, data=body or None, headers=headers, allow_redirects=False
            ) as answer:  # fmt: skip
                if not 200 <= answer.status <= 299:
                    text = await answer.content.read(_DETAIL_CHARS_MAX)
                    raise _status_failure(answer, text.decode("utf-8", "replace"), self._clock)
                found = bytearray()
                async for piece in answer.content.iter_any():
                    found += piece
                    if len(found) > bytes_max:
                        raise TooLarge(what=what, size=f"more than {bytes_max}", limit=bytes_max)
                return bytes(found)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise _failure(f"cannot be reached: {_error_text(error)}", arrived=False) from None
        except TimeoutError:
            raise _failure(f"did not answer within {self._timeouts.answer_s:g} s", arrived=None) from None
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(f"broke off: {_error_text(error)}", arrived=None) from None

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"user-agent": "holdfast"},
                timeout=aiohttp.ClientTimeout(total=None, connect=self._timeouts.connect_s),
            )
        return self._session


def _chat_fields(chat: Chat) -> dict[str, Any]:
    return {"chat": chat.chat, "kind": chat.kind, "thread": chat.thread}


def _message_fields(message: OutboundMessage, files: list[tuple[bytes, str]]) -> dict[str, Any]:
    return {
        "text": message.text,
        "buttons": [{"text": each.text, "press": each.press} for each in message.buttons],
        "files": [_file_fields(*each) for each in files],
        "again": message.is_again,
    }


def _file_fields(file: bytes, name: str) -> dict[str, str]:
    media_type = guess_media_type(file[:HEAD_BYTES])
    return {
        "name": clean_name(name, media_type),
        "media_type": media_type,
        "content": base64.b64encode(file).decode(),
    }


def _status_failure(answer: aiohttp.ClientResponse, text: str, clock: Clock) -> ChannelFailure:
    status = answer.status
    reason = " ".join(text.split())
    detail = f"answered {status}" + (f": {reason}" if reason else "")
    if 300 <= status <= 399:
        return _failure(f"{detail}; it leads elsewhere, and that is not followed", arrived=False)
    wait_ms = _wait_ms(answer.headers.get("retry-after", ""), clock)
    if status < 500:
        return _failure(
            detail, arrived=False, retry_after_ms=wait_ms, final=status not in _RETRYABLE_STATUSES
        )
    # A server error may come after the receiver stored the call.
    return _failure(detail, arrived=None, retry_after_ms=wait_ms)


def _wait_ms(retry_after: str, clock: Clock) -> int | None:
    """Return the delay that a `Retry-After` header asks for, given in seconds or as a date."""
    if _SECONDS.fullmatch(retry_after.strip()):
        seconds = float(retry_after)
    else:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - clock.now_ms() / 1000
        except ValueError:
            return None
    return round(1000 * min(max(seconds, 0.0), _RETRY_AFTER_S_MAX))


def _failure(detail: str, **more: Any) -> ChannelFailure:
    return ChannelFailure(channel=CHANNEL, detail=f"the receiver {detail}", **more)


def _error_text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:_DETAIL_CHARS_MAX]


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]
