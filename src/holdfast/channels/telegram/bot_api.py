"""Call Telegram's Bot API through its client library, and turn its errors into channel failures.

The library's update loop is not used: it confirms an update before it is stored. Its update types are not
used either: an update that it cannot parse would block all later ones.
"""

import re
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from telegram import Bot, InlineKeyboardButton, InlineKeyboardMarkup, LinkPreviewOptions
from telegram.constants import ChatAction, ParseMode
from telegram.error import TelegramError
from telegram.request import HTTPXRequest

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.telegram.updates import CHANNEL, UPDATE_KINDS, BotIdentity

_DETAIL_CHARS_MAX = 300
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
"""Errors before the first byte of a request is sent."""
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{10,128}")
_CONNECTIONS_MAX = 64
_T = TypeVar("_T")

Rows = Sequence[Sequence[tuple[str, str]]]
"""Rows of buttons: the label and the press of each."""


class TelegramTimeouts(msgspec.Struct, frozen=True):
    """The timeouts for Telegram. `poll_s` is the duration of a long poll."""

    connect_s: float = 10.0
    answer_s: float = 20.0
    upload_s: float = 120.0
    pool_s: float = 10.0
    poll_s: int = 25
    retry_s: float = 1.0
    """The first delay after a fault; it doubles with each further fault."""
    retry_s_max: float = 60.0


class FormattedText(msgspec.Struct, frozen=True):
    """The text of a message, in Telegram's HTML or plain."""

    text: str
    is_html: bool = False

    @property
    def mode(self) -> ParseMode | None:
        return ParseMode.HTML if self.is_html else None


class Target(msgspec.Struct, frozen=True):
    """The destination of a message."""

    chat: int
    thread: int | None = None


class TelegramRefusal(ChannelFailure):
    """{channel}: {detail}."""

    def __init__(self, detail: str, description: str, moved_to: int, **fields: Any) -> None:
        super().__init__(channel=CHANNEL, detail=detail, **fields)
        self._description = description.lower()
        self.moved_to = moved_to
        """The successor of the requested chat; 0 if there is none."""

    def mentions(self, phrase: str) -> bool:
        return phrase in self._description


class _TelegramRejection(TelegramError):
    """An error answer of Telegram."""

    def __init__(self, status: int, description: str, retry_after_s: float = 1.0, moved_to: int = 0) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.retry_after_s = retry_after_s
        self.moved_to = moved_to


class _Answer(msgspec.Struct, frozen=True):
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)


class _Client(Bot):
    """The library's bot with two methods that return raw answers."""

    async def raw_updates(self, offset: int, wait_s: int, read_s: float) -> list[Any]:
        params = {"offset": offset, "timeout": wait_s, "allowed_updates": list(UPDATE_KINDS)}
        found = await self._post("getUpdates", params, read_timeout=wait_s + read_s)
        return found if isinstance(found, list) else []

    async def raw_file(self, file_id: str) -> dict[str, Any]:
        # The library's own method reads a local file if the returned path exists on this machine.
        found = await self._post("getFile", {"file_id": file_id})
        return found if isinstance(found, dict) else {}


class BotApi:
    """A bot's connections to Telegram: one for the long poll, the others for requests.

    Every request may raise ChannelFailure, or TelegramRefusal if Telegram refused it.
    """

    def __init__(self, token: str, api_url: str, timeouts: TelegramTimeouts) -> None:
        """Create the client without connecting. Raises ChannelFailure if the token is malformed."""
        if not _TOKEN.fullmatch(token):
            detail = "that is not a bot's token as BotFather gives it"
            raise ChannelFailure(channel=CHANNEL, detail=detail, final=True)
        base = api_url.rstrip("/")
        self._token = token
        self._timeouts = timeouts
        self._requests, self._polling = _http_request(_CONNECTIONS_MAX, timeouts), _http_request(1, timeouts)
        self._files_url = f"{base}/file/bot{token}"
        self._bot = _Client(token, lambda known: f"{base}/bot{known}", request=self._requests,
                            get_updates_request=self._polling)  # fmt: skip

    async def close(self) -> None:
        await self._requests.shutdown()
        await self._polling.shutdown()

    async def get_me(self) -> BotIdentity:
        user = await self._call(self._bot.get_me())
        return BotIdentity(user.id, user.username or "")

    async def get_updates(self, offset: int) -> list[Any]:
        """Return new updates from `offset` on; Telegram forgets those before it."""
        timeouts = self._timeouts
        return await self._call(self._bot.raw_updates(offset, timeouts.poll_s, timeouts.answer_s))

    async def set_webhook(self, url: str, secret: str) -> None:
        await self._call(self._bot.set_webhook(url, allowed_updates=UPDATE_KINDS, secret_token=secret))

    async def delete_webhook(self) -> None:
        """Delete the webhook; Telegram keeps pending updates."""
        await self._call(self._bot.delete_webhook(drop_pending_updates=False))

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> None:
        """Set the commands that Telegram's menu shows, each with its description."""
        await self._call(self._bot.set_my_commands(commands))

    async def answer_callback(self, query_id: str) -> None:
        await self._call(self._bot.answer_callback_query(query_id))

    async def show_typing(self, to: Target) -> None:
        await self._call(self._bot.send_chat_action(to.chat, ChatAction.TYPING, message_thread_id=to.thread))

    async def send_message(self, to: Target, text: FormattedText, rows: Rows) -> int:
        sent = self._bot.send_message(
            to.chat,
            text.text,
            parse_mode=text.mode,
            reply_markup=_keyboard(rows),
            message_thread_id=to.thread,
            link_preview_options=LinkPreviewOptions(is_disabled=True),
        )
        return (await self._call(sent)).message_id

    async def send_file(
        self, to: Target, file: bytes, name: str, is_picture: bool, caption: FormattedText, rows: Rows
    ) -> int:
        """Send a file with a caption."""
        method = self._bot.send_photo if is_picture else self._bot.send_document
        sent = method(
            to.chat,
            file,
            caption=caption.text or None,
            parse_mode=caption.mode,
            reply_markup=_keyboard(rows),
            message_thread_id=to.thread,
            filename=name,
        )
        return (await self._call(sent)).message_id

    async def edit_text(self, chat: int, message: int, text: FormattedText, rows: Rows) -> None:
        edited = self._bot.edit_message_text(
            text.text,
            chat,
            message,
            parse_mode=text.mode,
            reply_markup=_keyboard(rows),
            link_preview_options=LinkPreviewOptions(is_disabled=True),
        )
        await self._call(edited)

    async def edit_caption(self, chat: int, message: int, caption: FormattedText, rows: Rows) -> None:
        edited = self._bot.edit_message_caption(
            chat, message, caption=caption.text, parse_mode=caption.mode, reply_markup=_keyboard(rows)
        )
        await self._call(edited)

    async def file_location(self, file_id: str) -> tuple[str, int]:
        """Return a file's path and its reported size."""
        found = await self._call(self._bot.raw_file(file_id))
        path, size = found.get("file_path"), found.get("file_size")
        if not isinstance(path, str) or path.startswith("/"):
            raise ChannelFailure(channel=CHANNEL, detail="Telegram does not offer that file", final=True)
        return path, size if isinstance(size, int) else 0

    async def download(self, path: str) -> bytes:
        return await self._call(self._requests.retrieve(f"{self._files_url}/{quote(path)}"))

    async def _call(self, call: Awaitable[_T]) -> _T:
        try:
            return await call
        except TelegramError as error:
            raise _failure(error, self._token) from None  # The cause contains the token.


def _http_request(connections: int, timeouts: TelegramTimeouts) -> HTTPXRequest:
    return HTTPXRequest(
        connection_pool_size=connections,
        connect_timeout=timeouts.connect_s,
        read_timeout=timeouts.answer_s,
        write_timeout=timeouts.answer_s,
        media_write_timeout=timeouts.upload_s,
        pool_timeout=timeouts.pool_s,
        httpx_kwargs={"event_hooks": {"response": [_check]}},
    )


async def _check(response: httpx.Response) -> None:
    """Raise on an error answer before the library sees it: the library's error lacks the status."""
    if not response.is_success:
        raise _refused(response.status_code, await response.aread())


def _keyboard(rows: Rows) -> InlineKeyboardMarkup | None:
    if not rows:
        return None
    return InlineKeyboardMarkup(
        [[InlineKeyboardButton(text, callback_data=press) for text, press in row] for row in rows]
    )


def _refused(status: int, body: bytes) -> _TelegramRejection:
    """Return the rejection in an error answer."""
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _TelegramRejection(status, f"HTTP {status}")
    after, moved = answer.parameters.get("retry_after"), answer.parameters.get("migrate_to_chat_id")
    return _TelegramRejection(
        status,
        answer.description or f"HTTP {status}",
        float(after) if isinstance(after, int | float) else 1.0,
        moved if isinstance(moved, int) else 0,
    )


def _failure(error: TelegramError, token: str) -> ChannelFailure:
    """Return the channel failure of an error, without the token that URLs contain."""
    if isinstance(error, _TelegramRejection):
        return _refusal(error, _redacted(error.description, token))
    cause = error.__cause__
    if isinstance(cause, _UNSENT):
        detail = f"Telegram cannot be reached ({type(cause).__name__})"
        return ChannelFailure(channel=CHANNEL, detail=detail, arrived=False)
    if isinstance(cause, httpx.TimeoutException):
        detail = "Telegram did not answer in time; what was sent may have arrived"
        return ChannelFailure(channel=CHANNEL, detail=detail, arrived=None)
    detail = (
        f"the connection to Telegram broke ({_redacted(error.message, token)}); "
        "what was sent may have arrived"
    )
    return ChannelFailure(channel=CHANNEL, detail=detail, arrived=None)


def _refusal(error: _TelegramRejection, description: str) -> TelegramRefusal:
    match error.status:
        case 429:
            detail = f"Telegram asks for patience: {description}"
            return TelegramRefusal(detail, description, 0, retry_after_ms=int(1_000 * error.retry_after_s))
        case 401 | 404:
            detail = "Telegram does not know this bot's token; BotFather tells the one that counts"
            # Telegram refuses the bot, not the message: the message waits for a valid token.
            return TelegramRefusal(detail, description, 0)
        case 409:
            return TelegramRefusal(
                f"somebody else asks Telegram for this bot's messages: {description}", description, 0
            )
        case status if 400 <= status <= 499:
            return TelegramRefusal(
                f"Telegram refuses: {description}", description, error.moved_to, final=True
            )
        case _:  # Telegram may have carried out the request before it failed.
            return TelegramRefusal(f"Telegram is in trouble: {description}", description, 0, arrived=None)


def _redacted(text: str, token: str) -> str:
    return text.replace(token, "…").replace(token.partition(":")[2], "…")[:_DETAIL_CHARS_MAX]
