"""Connect a Telegram bot as a channel.

Telegram forgets an update once a poll asks for later ones, or once its webhook call is answered: the channel
does neither before the update is stored. A repeated send cannot be recognised; a repeated edit or update can.
"""

import asyncio
import base64
import contextlib
import hmac
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from holdfast.channels.ports import (
    ChannelAbilities,
    ChannelFailure,
    ChannelHealth,
    InboundReceiver,
    file_too_large,
)
from holdfast.channels.telegram.bot_api import (
    BotApi,
    FormattedText,
    Rows,
    Target,
    TelegramRefusal,
    TelegramTimeouts,
)
from holdfast.channels.telegram.markup import (
    CAPTION_UNITS_MAX,
    TEXT_UNITS_MAX,
    telegram_html,
    utf16_units,
    visible_text,
)
from holdfast.channels.telegram.updates import (
    CHANNEL,
    BotIdentity,
    expand_press,
    is_shortened,
    parse_update,
    shorten_press,
    update_number,
)
from holdfast.channels.telegram.write_rate_limiter import TelegramRateLimiter
from holdfast.domain import slash
from holdfast.domain.chats import Button, Chat, DeliveryRow, FileRef, InboundUpdate, OutboundMessage
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, StoreFault
from holdfast.domain.files import GIF, HEAD_BYTES, clean_name, file_kind, guess_media_type
from holdfast.domain.limits import INBOUND_TRIES_MAX

ABILITIES = ChannelAbilities(
    text_chars_max=4_000,  # Telegram accepts 4,096; the rest is for the resent note.
    edits=True,
    buttons=True,
    files=True,
    dedupes_sends=False,
    dedupes_updates=True,
    edit_every_ms=1_000,
)
FETCH_BYTES_MAX = 20_000_000
"""Telegram's limit for downloads by a bot."""
PHOTO_BYTES_MAX = 10_000_000
"""Telegram's limit for pictures; larger ones are sent as files."""
RESENT_NOTE = "(Sent again: it may be here twice.)"
_ROW_BUTTONS_MAX, _ROW_CHARS_MAX = 3, 30
_DELIVERIES_KNOWN = 200
"""The deliveries that are searched for a press whose button data was shortened."""
_WEBHOOK_RENEW_S = 3_600
"""The interval at which the webhook is set again, since another process may have changed it."""

Mode = Literal["polling", "webhook"]
_T = TypeVar("_T")
_NamedFile = tuple[bytes, str]
"""A file's content and its name."""


class WrongSecret(HoldfastError):
    """This does not come from Telegram: its secret is not the one that was agreed on."""

    code, status = "wrong_channel_secret", 401


class TelegramStore(Protocol):
    """The part of the store that the channel uses: files to send, and the buttons that were shown."""

    async def get_blob(self, digest: str) -> bytes: ...

    async def deliveries(self, key: str, limit: int) -> Sequence[DeliveryRow]: ...


class Telegram:
    """One bot. The constructor raises ChannelFailure for a malformed token."""

    def __init__(
        self,
        token: str,
        store: TelegramStore,
        clock: Clock,
        *,
        api_url: str = "https://api.telegram.org",
        mode: Mode = "polling",
        webhook_url: str = "",
        timeouts: TelegramTimeouts | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create the channel. In webhook mode, Telegram's calls to `webhook_url` reach `receive_update`."""
        self._timeouts = timeouts or TelegramTimeouts()
        self._api = BotApi(token, api_url, self._timeouts)
        self._token = token
        self._store = store
        self._mode = mode
        self._webhook_url = webhook_url
        self._sleep = sleep
        self._rate_limiter = TelegramRateLimiter(clock)
        self._receiver: InboundReceiver | None = None
        self._identity: BotIdentity | None = None
        self._fault = ""
        self._unreadable_count = 0
        self._tries: Counter[int] = Counter()
        """Failed attempts to store each update that itself causes the failure."""
        self._has_set_commands = False
        self._background_tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return CHANNEL

    @property
    def abilities(self) -> ChannelAbilities:
        return ABILITIES

    @property
    def secret(self) -> str:
        """Return the secret that Telegram sends with its calls, derived from the token."""
        digest = hmac.digest(self._token.encode(), b"holdfast telegram webhook", "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    async def close(self) -> None:
        for task in (*self._background_tasks,):
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        await self._api.close()

    async def health(self) -> ChannelHealth:
        try:
            identity = self._identity = await self._api.get_me()
        except ChannelFailure as error:
            return ChannelHealth(False, str(error.fields["detail"]))
        if self._fault:
            return ChannelHealth(False, self._fault)
        unread_note = (
            f"; {self._unreadable_count} updates could not be read" if self._unreadable_count else ""
        )
        return ChannelHealth(True, f"@{identity.username}{unread_note}")

    # Inbound.

    async def listen(self, receiver: InboundReceiver) -> None:
        self._receiver = receiver
        faults = 0
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._receive(receiver)) as received:
                        async for _ in received:
                            faults, self._fault = 0, ""
                except HoldfastError as error:
                    faults += 1
                    self._fault = str(error)
                    await self._sleep(self._retry_delay_s(error, faults))
        finally:
            self._receiver = None

    def check(self, secret_header: str) -> None:
        """Raise WrongSecret unless the header has Telegram's secret."""
        if not hmac.compare_digest(secret_header.encode(), self.secret.encode()):
            raise WrongSecret()

    async def receive_update(self, body: bytes, secret_header: str) -> None:
        """Store the update of a webhook call; answer the call after this returns.

        Raises WrongSecret, and ChannelFailure if no process listens (yet): Telegram calls again.
        """
        self.check(secret_header)
        take = self._receiver
        if take is None:
            raise ChannelFailure(channel=CHANNEL, detail="nobody listens here at the moment")
        try:
            update = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._unreadable_count += 1
            return
        await self._store_updates([update], take)

    async def _receive(self, receiver: InboundReceiver) -> AsyncGenerator[None, None]:
        """Receive updates, yielding after each success. Raises ChannelFailure, and what `take` raises."""
        await self._get_identity()
        if not self._has_set_commands:
            self._run_in_background(self._set_commands())
        if self._mode == "webhook":
            while True:
                await self._set_webhook()
                yield
                await self._sleep(_WEBHOOK_RENEW_S)
        await self._api.delete_webhook()
        offset = 0
        while True:
            updates = sorted(await self._api.get_updates(offset), key=update_number)
            await self._store_updates(updates, receiver)
            # The next poll makes Telegram forget these updates, so it comes after storing them.
            offset = max([offset, *(update_number(update) + 1 for update in updates)])
            yield

    async def _set_commands(self) -> None:
        """Set the command menu; ignore a failure, since commands can be typed."""
        with contextlib.suppress(ChannelFailure):
            await self._api.set_commands([(name, each.summary) for name, each in slash.COMMANDS.items()])
            self._has_set_commands = True

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that nothing awaits."""
        task = asyncio.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def _set_webhook(self) -> None:
        if not self._webhook_url:
            detail = "Telegram cannot call: the public address of this server is not set"
            raise ChannelFailure(channel=CHANNEL, detail=detail, final=True)
        await self._api.set_webhook(self._webhook_url, self.secret)

    async def _store_updates(self, updates: Sequence[Any], receiver: InboundReceiver) -> None:
        """Store updates. One that fails repeatedly is skipped, so that it does not block those behind it.

        Raises the error of storing them.
        """
        try:
            await self._parse_and_store(updates, receiver)
        except (ChannelFailure, StoreFault):
            raise
        except Exception:
            if len(updates) == 1 and self._count_failed_attempt(update_number(updates[0])):
                return
            if len(updates) == 1:
                raise
            for update in updates:
                await self._store_updates([update], receiver)

    def _count_failed_attempt(self, number: int) -> bool:
        """Count a failed attempt; return whether to skip the update."""
        self._tries[number] += 1
        if self._tries[number] < INBOUND_TRIES_MAX:
            return False
        del self._tries[number]
        self._unreadable_count += 1
        return True

    async def _parse_and_store(self, updates: Sequence[Any], receiver: InboundReceiver) -> None:
        """Parse updates and pass them to `take` in one call, so that a burst is stored together."""
        identity, inbound, query_ids = await self._get_identity(), [], []
        for update in updates:
            try:
                parsed = parse_update(update, identity)
            except msgspec.ValidationError:
                self._unreadable_count += 1  # Skipped: it would block all later updates.
                continue
            if parsed.inbound is not None:
                inbound.append(await self._with_press(parsed.inbound))
            if parsed.query_id:
                query_ids.append(parsed.query_id)
        if inbound:
            await receiver(*inbound)
        for query_id in query_ids:
            self._run_in_background(self._acknowledge(query_id))

    async def _with_press(self, inbound: InboundUpdate) -> InboundUpdate:
        """Return the update with the full press, if its button data was shortened."""
        if not is_shortened(inbound.press):
            return inbound
        rows = await self._store.deliveries(inbound.chat.route, _DELIVERIES_KNOWN)
        shown = [button.press for row in rows for button in row.body.buttons]
        return msgspec.structs.replace(inbound, press=expand_press(inbound.press, shown))

    async def _acknowledge(self, query_id: str) -> None:
        """Stop the button's progress indicator; tried once, since it is of no use later."""
        with contextlib.suppress(ChannelFailure):
            await self._api.answer_callback(query_id)

    async def _get_identity(self) -> BotIdentity:
        if self._identity is None:
            self._identity = await self._api.get_me()
        return self._identity

    def _retry_delay_s(self, error: HoldfastError, faults: int) -> float:
        requested_ms = error.retry_after_ms if isinstance(error, ChannelFailure) else None
        backoff_s = self._timeouts.retry_s * 2.0 ** min(faults - 1, 16)
        return max(min(backoff_s, self._timeouts.retry_s_max), (requested_ms or 0) / 1_000)

    async def fetch(self, file: FileRef) -> bytes:
        _check_size(file, file.size_bytes)
        try:
            path, size = await self._api.file_location(file.ref)
        except TelegramRefusal as refusal:
            if refusal.mentions("file is too big"):
                raise file_too_large(file, FETCH_BYTES_MAX) from None
            raise
        _check_size(file, size)
        content = await self._api.download(path)
        _check_size(file, len(content))
        return content

    # Outbound.

    async def send(self, chat: Chat, message: OutboundMessage, key: str) -> str:
        files = [(await self._store.get_blob(digest), name) for digest, name in message.named_files]
        target = Target(int(chat.chat), int(chat.thread) if chat.thread else None)
        try:
            return await self._send(chat, target, message, files)
        except TelegramRefusal as refusal:
            # A deleted topic falls back to its chat, and an upgraded group to its supergroup.
            is_gone = target.thread is not None and refusal.mentions("message thread not found")
            if not refusal.moved_to and not is_gone:
                raise
            elsewhere = Target(refusal.moved_to or target.chat, None if is_gone else target.thread)
            return await self._send(chat, elsewhere, message, files)

    async def edit(self, chat: Chat, platform_id: str, message: OutboundMessage) -> None:
        rows, at, number = _rows(message.buttons), int(chat.chat), int(platform_id)

        async def edit_text(text: FormattedText) -> None:
            await self._api.edit_text(at, number, text, rows)

        async def edit_caption(caption: FormattedText) -> None:
            await self._api.edit_caption(at, number, caption, rows)

        is_caption = bool(message.files) and _fits_caption(message)
        try:
            await self._write_limited(
                chat,
                _text_variants(message, is_caption),
                edit_caption if is_caption else edit_text,
                is_edit=True,
            )
        except TelegramRefusal as refusal:
            if not refusal.mentions("message is not modified"):
                raise

    async def show_typing(self, chat: Chat) -> None:
        await self._api.show_typing(Target(int(chat.chat), int(chat.thread) if chat.thread else None))

    async def _send(
        self, chat: Chat, target: Target, message: OutboundMessage, files: list[_NamedFile]
    ) -> str:
        """Send the text, as the caption of the first file if it fits, then the other files."""
        rows = _rows(message.buttons)

        async def send_message(text: FormattedText) -> int:
            return await self._api.send_message(target, text, rows)

        if files and _fits_caption(message):
            post = partial(self._send_file, target, files[0], rows)
            sent = await self._write_limited(chat, _text_variants(message, is_caption=True), post)
            files = files[1:]
        else:
            sent = await self._write_limited(chat, _text_variants(message), send_message)
        try:
            for file in files:
                await self._write_limited(
                    chat, [FormattedText("")], partial(self._send_file, target, file, ())
                )
        except ChannelFailure as error:
            # The text has arrived: a retry would send it twice.
            error.arrived = None
            raise
        return str(sent)

    async def _send_file(self, target: Target, named: _NamedFile, rows: Rows, caption: FormattedText) -> int:
        file, name = named
        media_type = guess_media_type(file[:HEAD_BYTES])
        name = clean_name(name, media_type)
        if file_kind(media_type) == "image" and media_type != GIF and len(file) <= PHOTO_BYTES_MAX:
            try:
                return await self._api.send_file(target, file, name, True, caption, rows)
            except TelegramRefusal as refusal:
                # Telegram cannot show every image; such an image is sent as a file.
                if not refusal.mentions("photo_") and not refusal.mentions("image_process_failed"):
                    raise
        return await self._api.send_file(target, file, name, False, caption, rows)

    async def _write_limited(
        self,
        chat: Chat,
        forms: Sequence[FormattedText],
        write: Callable[[FormattedText], Awaitable[_T]],
        is_edit: bool = False,
    ) -> _T:
        """Write the first form within the rate limit; if Telegram cannot parse it, write the last one."""
        is_group = chat.kind == "group"
        wait_ms = self._rate_limiter.wait_ms(chat.chat, is_group=is_group, is_edit=is_edit)
        if wait_ms:
            detail = "this chat was written to as often as Telegram allows"
            raise ChannelFailure(channel=CHANNEL, detail=detail, retry_after_ms=wait_ms)
        self._rate_limiter.record_write(chat.chat, is_group=is_group)
        try:
            return await write(forms[0])
        except TelegramRefusal as refusal:
            if refusal.retry_after_ms:
                self._rate_limiter.block(chat.chat, refusal.retry_after_ms)
            if not refusal.mentions("can't parse entities") or len(forms) == 1:
                raise
        return await write(forms[-1])


def _fits_caption(message: OutboundMessage) -> bool:
    return not message.text or utf16_units(_plain_text(message)) <= CAPTION_UNITS_MAX


def _text_variants(message: OutboundMessage, is_caption: bool = False) -> list[FormattedText]:
    """Return the forms of a message, the best first. Raises ChannelFailure if there is none."""
    units_max = CAPTION_UNITS_MAX if is_caption else TEXT_UNITS_MAX
    if is_caption and not message.text:
        return [FormattedText(RESENT_NOTE if message.is_again else "")]
    plain = _plain_text(message)
    has_text = bool(message.text.strip())
    forms = [FormattedText(plain)] if has_text and utf16_units(plain) <= units_max else []
    for is_padded in (True, False):  # Padding may make the text too long.
        markup = _html_text(message, is_padded)
        if visible_text(markup).strip() and utf16_units(visible_text(markup)) <= units_max:
            return [FormattedText(markup, is_html=True), *forms]
    if not forms:
        detail = "the message is longer than Telegram takes" if has_text else "the message has no words"
        raise ChannelFailure(channel=CHANNEL, detail=detail, final=True)
    return forms


def _html_text(message: OutboundMessage, is_padded: bool) -> str:
    markup = telegram_html(message.text, is_padded=is_padded)
    again = f"\n\n<i>{RESENT_NOTE}</i>" if message.is_again else ""
    return f"{markup}{again}" if markup is not None else ""


def _plain_text(message: OutboundMessage) -> str:
    return f"{message.text}\n\n{RESENT_NOTE}" if message.is_again else message.text


def _rows(buttons: Sequence[Button]) -> Rows:
    """Return the buttons in rows; short ones share a row."""
    rows: list[list[tuple[str, str]]] = []
    for button in buttons:
        beside = rows[-1] if rows else []
        taken = sum(len(text) for text, _ in beside) + len(button.text)
        if not beside or len(beside) == _ROW_BUTTONS_MAX or taken > _ROW_CHARS_MAX:
            rows.append([])
        rows[-1].append((button.text, shorten_press(button.press)))
    return rows


def _check_size(file: FileRef, size: int) -> None:
    if size > FETCH_BYTES_MAX:
        raise file_too_large(file, FETCH_BYTES_MAX, size)
