"""Telegram as a channel.

Telegram forgets an update once it is asked for those after it, or once its call is answered: neither happens
before the update is kept. What is sent cannot be recognised when it is sent again; edits and updates can.
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

from holdfast.channels.ports import Abilities, ChannelFailure, ChannelHealth, Take, file_too_large
from holdfast.channels.telegram.bot_api import Line, Patience, Refusal, Rows, Target, Words
from holdfast.channels.telegram.markup import (
    CAPTION_UNITS_MAX,
    TEXT_UNITS_MAX,
    html_of,
    units,
    visible,
)
from holdfast.channels.telegram.pace import Pace
from holdfast.channels.telegram.updates import (
    CHANNEL,
    Us,
    is_short,
    long_press,
    number_of,
    short_press,
    told,
)
from holdfast.domain import slash
from holdfast.domain.chats import Button, Chat, DeliveryRow, FileRef, Inbound, Outgoing
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, StoreFault
from holdfast.domain.files import GIF, HEAD_BYTES, clean_name, kind_of, likely_type
from holdfast.domain.limits import INBOUND_TRIES_MAX

ABILITIES = Abilities(
    text_chars_max=4_000,  # Telegram takes 4,096; the rest is for the line that says that it is sent again.
    edits=True,
    buttons=True,
    files=True,
    dedupes_sends=False,
    dedupes_updates=True,
    edit_every_ms=1_000,
)
FETCH_BYTES_MAX = 20_000_000
"""What Telegram lets a bot download."""
PHOTO_BYTES_MAX = 10_000_000
"""What it shows as a picture; larger ones go as files."""
AGAIN = "(Sent again: it may be here twice.)"
_ROW_BUTTONS_MAX, _ROW_CHARS_MAX = 3, 30
_DELIVERIES_KNOWN = 200
"""Among which a button is looked for whose press was too long to be carried."""
_CALLED_S = 3_600
"""How often Telegram is told again where it can call us: another may have told it otherwise."""

Mode = Literal["polling", "webhook"]
_T = TypeVar("_T")
_Named = tuple[bytes, str]
"""A file and what it is called."""


class WrongSecret(HoldfastError):
    """This does not come from Telegram: its secret is not the one that was agreed on."""

    code, status = "wrong_channel_secret", 401


class Kept(Protocol):
    """What the channel needs of the store: files that are sent, and what buttons were shown."""

    async def get_blob(self, digest: str) -> bytes: ...

    async def deliveries(self, key: str, limit: int) -> Sequence[DeliveryRow]: ...


class Telegram:
    """One bot. A token that cannot be one raises ChannelFailure here already."""

    def __init__(
        self,
        token: str,
        kept: Kept,
        clock: Clock,
        *,
        api_url: str = "https://api.telegram.org",
        mode: Mode = "polling",
        webhook_url: str = "",
        patience: Patience | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`webhook_url` is where Telegram reaches `arrived`, for the mode of that name."""
        self._patience = patience or Patience()
        self._line = Line(token, api_url, self._patience)
        self._token = token
        self._kept = kept
        self._mode = mode
        self._webhook_url = webhook_url
        self._sleep = sleep
        self._pace = Pace(clock)
        self._take: Take | None = None
        self._us: Us | None = None
        self._fault = ""
        self._unread = 0
        self._tries: Counter[int] = Counter()
        """How often each update could not be kept that is at fault itself."""
        self._offered = False
        self._asides: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        return CHANNEL

    @property
    def abilities(self) -> Abilities:
        return ABILITIES

    @property
    def secret(self) -> str:
        """What Telegram shows when it calls us. Every process that has the token has the same."""
        made = hmac.digest(self._token.encode(), b"holdfast telegram webhook", "sha256")
        return base64.urlsafe_b64encode(made).decode().rstrip("=")

    async def close(self) -> None:
        for task in (*self._asides,):
            task.cancel()
        await asyncio.gather(*self._asides, return_exceptions=True)
        await self._line.close()

    async def health(self) -> ChannelHealth:
        try:
            us = self._us = await self._line.me()
        except ChannelFailure as error:
            return ChannelHealth(False, str(error.fields["detail"]))
        if self._fault:
            return ChannelHealth(False, self._fault)
        odd = f"; {self._unread} updates could not be read" if self._unread else ""
        return ChannelHealth(True, f"@{us.username}{odd}")

    # What comes in.

    async def listen(self, take: Take) -> None:
        self._take = take
        faults = 0
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._heard(take)) as heard:
                        async for _ in heard:
                            faults, self._fault = 0, ""
                except HoldfastError as error:
                    faults += 1
                    self._fault = str(error)
                    await self._sleep(self._rest_s(error, faults))
        finally:
            self._take = None

    def check(self, secret_header: str) -> None:
        """Whether it is Telegram who calls, by its secret alone. Raises WrongSecret."""
        if not hmac.compare_digest(secret_header.encode(), self.secret.encode()):
            raise WrongSecret()

    async def arrived(self, body: bytes, secret_header: str) -> None:
        """Telegram has called. Answer it only once this returns: until then it keeps what it told.

        Raises WrongSecret, and ChannelFailure where there is nobody to take it (yet): Telegram calls again.
        """
        self.check(secret_header)
        take = self._take
        if take is None:
            raise ChannelFailure(channel=CHANNEL, detail="nobody listens here at the moment")
        try:
            update = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._unread += 1
            return
        await self._keep([update], take)

    async def _heard(self, take: Take) -> AsyncGenerator[None, None]:
        """Yields whenever all is well. Raises ChannelFailure, and whatever keeping an update raises."""
        await self._who()
        if not self._offered:
            self._aside(self._offer_commands())
        if self._mode == "webhook":
            while True:
                await self._be_called()
                yield
                await self._sleep(_CALLED_S)
        await self._line.be_asked()
        offset = 0
        while True:
            updates = sorted(await self._line.updates(offset), key=number_of)
            await self._keep(updates, take)
            # Telegram is asked for those after them, and so forgets them, only now that they are kept.
            offset = max([offset, *(number_of(update) + 1 for update in updates)])
            yield

    async def _offer_commands(self) -> None:
        """The menu is a convenience: where it cannot be set, everything can be typed all the same."""
        with contextlib.suppress(ChannelFailure):
            await self._line.offer([(name, each.does) for name, each in slash.COMMANDS.items()])
            self._offered = True

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        """Nothing waits for it."""
        task = asyncio.create_task(work)
        self._asides.add(task)
        task.add_done_callback(self._asides.discard)

    async def _be_called(self) -> None:
        if not self._webhook_url:
            detail = "Telegram cannot call: the public address of this server is not set"
            raise ChannelFailure(channel=CHANNEL, detail=detail, final=True)
        await self._line.be_called(self._webhook_url, self.secret)

    async def _keep(self, updates: Sequence[Any], take: Take) -> None:
        """Have them kept. One that never can be is passed over in the end: nothing behind it would come.

        Raises what stands against keeping them now.
        """
        try:
            await self._hand_over(updates, take)
        except (ChannelFailure, StoreFault):
            raise
        except Exception:
            if len(updates) == 1 and self._is_hopeless(number_of(updates[0])):
                return
            if len(updates) == 1:
                raise
            for update in updates:
                await self._keep([update], take)

    def _is_hopeless(self, number: int) -> bool:
        """Whether an update that could not be kept has been tried often enough."""
        self._tries[number] += 1
        if self._tries[number] < INBOUND_TRIES_MAX:
            return False
        del self._tries[number]
        self._unread += 1
        return True

    async def _hand_over(self, updates: Sequence[Any], take: Take) -> None:
        """All together: whoever says much at once does not keep those behind them waiting."""
        us, came, presses = await self._who(), [], []
        for update in updates:
            try:
                heard = told(update, us)
            except msgspec.ValidationError:
                self._unread += 1  # It would come for ever, and nothing behind it.
                continue
            if heard.inbound is not None:
                came.append(await self._with_press(heard.inbound))
            if heard.query_id:
                presses.append(heard.query_id)
        if came:
            await take(*came)
        for query_id in presses:
            self._aside(self._acknowledge(query_id))

    async def _with_press(self, inbound: Inbound) -> Inbound:
        """With what its button stands for, where that was too long to be carried."""
        if not is_short(inbound.press):
            return inbound
        rows = await self._kept.deliveries(inbound.chat.route, _DELIVERIES_KNOWN)
        shown = [button.press for row in rows for button in row.body.buttons]
        return msgspec.structs.replace(inbound, press=long_press(inbound.press, shown))

    async def _acknowledge(self, query_id: str) -> None:
        """The button stops turning. It is of no use later, so it is tried once."""
        with contextlib.suppress(ChannelFailure):
            await self._line.acknowledge(query_id)

    async def _who(self) -> Us:
        if self._us is None:
            self._us = await self._line.me()
        return self._us

    def _rest_s(self, error: HoldfastError, faults: int) -> float:
        asked_ms = error.retry_after_ms if isinstance(error, ChannelFailure) else None
        grown = self._patience.retry_s * 2.0 ** min(faults - 1, 16)
        return max(min(grown, self._patience.retry_s_max), (asked_ms or 0) / 1_000)

    async def fetch(self, file: FileRef) -> bytes:
        _check_size(file, file.size_bytes)
        try:
            path, size = await self._line.where(file.ref)
        except Refusal as refusal:
            if refusal.says("file is too big"):
                raise file_too_large(file, FETCH_BYTES_MAX) from None
            raise
        _check_size(file, size)
        content = await self._line.content(path)
        _check_size(file, len(content))
        return content

    # What goes out.

    async def send(self, chat: Chat, message: Outgoing, key: str) -> str:
        files = [(await self._kept.get_blob(digest), name) for digest, name in message.named_files]
        target = Target(int(chat.chat), int(chat.thread) if chat.thread else None)
        try:
            return await self._send(chat, target, message, files)
        except Refusal as refusal:
            # A topic that is gone leaves its chat, and a group that became a larger one its successor.
            is_gone = target.thread is not None and refusal.says("message thread not found")
            if not refusal.moved_to and not is_gone:
                raise
            elsewhere = Target(refusal.moved_to or target.chat, None if is_gone else target.thread)
            return await self._send(chat, elsewhere, message, files)

    async def edit(self, chat: Chat, platform_id: str, message: Outgoing) -> None:
        rows, at, number = _rows(message.buttons), int(chat.chat), int(platform_id)

        async def say(words: Words) -> None:
            await self._line.say_instead(at, number, words, rows)

        async def say_below(words: Words) -> None:
            await self._line.say_below_instead(at, number, words, rows)

        is_below = bool(message.files) and _fits_below(message)
        try:
            await self._written(
                chat, _fitting(message, is_below), say_below if is_below else say, is_edit=True
            )
        except Refusal as refusal:
            if not refusal.says("message is not modified"):
                raise

    async def show_typing(self, chat: Chat) -> None:
        await self._line.show_typing(Target(int(chat.chat), int(chat.thread) if chat.thread else None))

    async def _send(self, chat: Chat, target: Target, message: Outgoing, files: list[_Named]) -> str:
        """The words, below the first file if they fit there; then whatever files there are more."""
        rows = _rows(message.buttons)

        async def say(words: Words) -> int:
            return await self._line.say(target, words, rows)

        if files and _fits_below(message):
            post = partial(self._post, target, files[0], rows)
            sent = await self._written(chat, _fitting(message, is_below=True), post)
            files = files[1:]
        else:
            sent = await self._written(chat, _fitting(message), say)
        try:
            for file in files:
                await self._written(chat, [Words("")], partial(self._post, target, file, ()))
        except ChannelFailure as error:
            # The words have arrived: whoever sends it all again sends them twice.
            error.arrived = None
            raise
        return str(sent)

    async def _post(self, target: Target, named: _Named, rows: Rows, words: Words) -> int:
        file, name = named
        media_type = likely_type(file[:HEAD_BYTES])
        name = clean_name(name, media_type)
        if kind_of(media_type) == "image" and media_type != GIF and len(file) <= PHOTO_BYTES_MAX:
            try:
                return await self._line.post(target, file, name, True, words, rows)
            except Refusal as refusal:
                # A picture that Telegram cannot show as one is a file like any other.
                if not refusal.says("photo_") and not refusal.says("image_process_failed"):
                    raise
        return await self._line.post(target, file, name, False, words, rows)

    async def _written(
        self,
        chat: Chat,
        forms: Sequence[Words],
        write: Callable[[Words], Awaitable[_T]],
        is_edit: bool = False,
    ) -> _T:
        """Write in the first form; in the last, if there is another, if Telegram cannot read that one."""
        is_group = chat.kind == "group"
        wait_ms = self._pace.wait_ms(chat.chat, is_group=is_group, is_edit=is_edit)
        if wait_ms:
            detail = "this chat was written to as often as Telegram allows"
            raise ChannelFailure(channel=CHANNEL, detail=detail, retry_after_ms=wait_ms)
        self._pace.wrote(chat.chat, is_group=is_group)
        try:
            return await write(forms[0])
        except Refusal as refusal:
            if refusal.retry_after_ms:
                self._pace.close(chat.chat, refusal.retry_after_ms)
            if not refusal.says("can't parse entities") or len(forms) == 1:
                raise
        return await write(forms[-1])


def _fits_below(message: Outgoing) -> bool:
    return not message.text or units(_plain(message)) <= CAPTION_UNITS_MAX


def _fitting(message: Outgoing, is_below: bool = False) -> list[Words]:
    """How a message can be said, the best way first, plain at the end. Raises ChannelFailure if in no way."""
    units_max = CAPTION_UNITS_MAX if is_below else TEXT_UNITS_MAX
    if is_below and not message.text:
        return [Words(AGAIN if message.is_again else "")]
    plain = _plain(message)
    has_words = bool(message.text.strip())
    forms = [Words(plain)] if has_words and units(plain) <= units_max else []
    for is_padded in (True, False):  # The one that may be longer than the text was, first.
        markup = _marked(message, is_padded)
        if visible(markup).strip() and units(visible(markup)) <= units_max:
            return [Words(markup, is_html=True), *forms]
    if not forms:
        detail = "the message is longer than Telegram takes" if has_words else "the message has no words"
        raise ChannelFailure(channel=CHANNEL, detail=detail, final=True)
    return forms


def _marked(message: Outgoing, is_padded: bool) -> str:
    markup = html_of(message.text, is_padded=is_padded)
    again = f"\n\n<i>{AGAIN}</i>" if message.is_again else ""
    return f"{markup}{again}" if markup is not None else ""


def _plain(message: Outgoing) -> str:
    return f"{message.text}\n\n{AGAIN}" if message.is_again else message.text


def _rows(buttons: Sequence[Button]) -> Rows:
    """Short buttons stand beside each other."""
    rows: list[list[tuple[str, str]]] = []
    for button in buttons:
        beside = rows[-1] if rows else []
        taken = sum(len(text) for text, _ in beside) + len(button.text)
        if not beside or len(beside) == _ROW_BUTTONS_MAX or taken > _ROW_CHARS_MAX:
            rows.append([])
        rows[-1].append((button.text, short_press(button.press)))
    return rows


def _check_size(file: FileRef, size: int) -> None:
    if size > FETCH_BYTES_MAX:
        raise file_too_large(file, FETCH_BYTES_MAX, size)
