"""A loopback server that speaks the part of Telegram's Bot API that the bot uses, well or badly.

It refuses what Telegram refuses, with Telegram's descriptions; it keeps what each chat shows; and it injects
faults (`tests/support/telegram_faults.py`): it accepts and falls silent, drops connections, is slow, fails,
limits the rate, repeats and reorders updates. Every method may be called from any thread: `telegram_server`
runs in the loop of a test, `telegram_server_in_thread` beside one.
"""

import asyncio
import contextlib
import random
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import msgspec
from aiohttp import web

from tests.support.loop_thread import run_in_thread
from tests.support.telegram_faults import Fault
from tests.support.telegram_html import BadMarkup, Entity, parse_markup

TOKEN = "123456:AAtestTOKENtestTOKENtestTOKENtest00"
BOT_USER = {"id": 123456, "is_bot": True, "first_name": "Holdfast", "username": "holdfast_test_bot"}
TEXT_MAX, CAPTION_MAX, PRESS_BYTES_MAX = 4096, 1024, 64
WAIT_S = 60.0
NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the"
    " same as a current content and reply markup of the message"
)
PHOTO_HEADS = (b"\x89PNG", b"\xff\xd8\xff", b"RIFF")

Stage = Literal["arrived", "accepted", "answered"]
Json = dict[str, Any]


class TelegramError(Exception):
    """An error that Telegram returns."""

    def __init__(self, status: int, description: str, **parameters: Any) -> None:
        super().__init__(description)
        self.status, self.description, self.parameters = status, description, parameters


@dataclass
class ShownMessage:
    """A message as a chat shows it now. `text` is without markup; `versions` has all of its texts."""

    id: int
    text: str
    markup: str
    entities: list[Entity]
    buttons: list[Json]
    thread: str = ""
    file: bytes | None = None
    file_kind: str = ""
    file_name: str = ""
    versions: list[str] = field(default_factory=list)


@dataclass
class TelegramApi:
    """The Bot API of one bot. Chats with an id below zero are groups, the others are people."""

    token: str = TOKEN
    url: str = ""
    on_stage: Callable[[Stage, str, Json], None] = lambda *_: None
    """Called in the server's thread when a request has arrived, was executed, and was answered."""
    shuffle_rng: random.Random | None = None
    """Whether updates of one answer come in any order."""
    copies: int = 1
    """How often one answer repeats each update."""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    sent_updates: list[int] = field(default_factory=list)
    """Numbers of the delivered updates, in order."""
    confirmed: set[int] = field(default_factory=set)
    webhook: Json = field(default_factory=dict)
    answered_callbacks: list[str] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    _chats: dict[int, list[ShownMessage]] = field(default_factory=dict)
    _pending: list[Json] = field(default_factory=list)
    _repeated_updates: list[Json] = field(default_factory=list)
    _updates_by_number: dict[int, Json] = field(default_factory=dict)
    _faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _next_update: int = 1000
    _next_message: int = 1
    _polls: int = 0
    _updates_changed: asyncio.Event = field(default_factory=asyncio.Event)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    # What a test does and sees.

    def post_message(
        self, chat: int, text: str = "", *, sender: int | None = None, name: str = "Ada", **fields: Any
    ) -> int:
        """Post a message of a person; return its update number. `more` are fields of Telegram's Message."""
        with self._lock:
            message = self._incoming_message(chat, sender if sender is not None else abs(chat), name)
            entities = _command_entities(text) + fields.pop("entities", [])
            content = {"text": text, "entities": entities} if text else {}
            return self.add_update({"message": {**message, **content, **fields}})

    def press_button(self, chat: int, message_id: int, press: str, *, sender: int | None = None) -> int:
        """Press a button that carries `press`."""
        with self._lock:
            message = {**self._incoming_message(chat, BOT_USER["id"], "Holdfast"), "message_id": message_id}
            user = _user(sender if sender is not None else abs(chat), "Ada")
            query = {"id": f"q{self._next_update}", "from": user, "chat_instance": "1", "data": press}
            return self.add_update({"callback_query": {**query, "message": message}})

    def add_update(self, update: Json) -> int:
        with self._lock:
            number = self._next_update
            self._next_update += 1
            self._updates_by_number[number] = {"update_id": number, **update}
            self._pending.append(self._updates_by_number[number])
        self._notify_polls()
        return number

    def repeat_update(self, number: int) -> None:
        """Deliver an update again that was confirmed long ago."""
        with self._lock:
            self._repeated_updates.append(self._updates_by_number[number])
        self._notify_polls()

    def open_chat(self, chat: int) -> None:
        with self._lock:
            self._chats.setdefault(chat, [])

    def add_file(self, file_id: str, content: bytes) -> None:
        self.files[file_id] = content

    def add_faults(self, method: str, *faults: Fault) -> None:
        """Inject faults into the next requests of that method, one each."""
        with self._lock:
            self._faults[method].extend(faults)

    def clear_faults(self) -> None:
        """Remove the remaining faults."""
        with self._lock:
            self._faults.clear()

    def shown(self, chat: int) -> list[ShownMessage]:
        with self._lock:
            return list(self._chats.get(chat, ()))

    def texts(self, chat: int) -> list[str]:
        return [each.text for each in self.shown(chat)]

    def count(self, method: str) -> int:
        with self._lock:
            return sum(name == method for name, _ in self.calls)

    async def wait_until(self, condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
        """Wait until `holds` returns a true value, and return it."""
        deadline = time.monotonic() + within_s
        while not (result := condition()):
            assert time.monotonic() < deadline, (
                f"not within {within_s} s: {self._chats}, calls {self.calls[-5:]}"
            )
            await asyncio.sleep(0.005)
        return result

    def wait_until_blocking(self, condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
        """Wait in the same way in a test that blocks."""
        return asyncio.run(self.wait_until(condition, within_s))

    # What the server does.

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer every request to the Bot API."""
        method = request.match_info["method"]
        params = await _parameters(request)
        with self._lock:
            self.calls.append((method, params))
            fault = self._faults[method].popleft() if self._faults[method] else None
        self.on_stage("arrived", method, params)
        try:
            result = None
            if fault is None or fault.is_done:
                result = await self._perform(request.match_info["token"], method, params)
                self.on_stage("accepted", method, params)
            if fault is not None:
                await self._apply_fault(request, fault)
        except TelegramError as refuse:
            return _error_response(refuse)
        if fault is not None and fault.kind in ("dropped", "silent"):
            return web.Response()  # It goes nowhere.
        response = web.json_response({"ok": True, "result": result})
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            await response.write_eof()
            self.on_stage("answered", method, params)
        return response

    async def download(self, request: web.Request) -> web.StreamResponse:
        content = self.files.get(request.match_info["path"])
        if content is None or request.match_info["token"] != self.token:
            return web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)
        return web.Response(body=content)

    async def _apply_fault(self, request: web.Request, fault: Fault) -> None:
        if request.transport is None:
            return  # Whoever asked was killed meanwhile.
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        elif fault.kind == "refused":
            raise TelegramError(fault.status, fault.words, **fault.parameters)
        elif fault.kind == "dropped":
            request.transport.abort()
        else:
            await self._closing.wait()
            request.transport.abort()

    async def _perform(self, token: str, method: str, params: Json) -> Any:
        if token != self.token:
            raise TelegramError(401, "Unauthorized")
        if method == "getUpdates":
            return await self._updates(params)
        if method == "setWebhook":
            self.webhook = {"url": params["url"], "secret_token": params.get("secret_token", "")}
            self._notify_polls()
            return True
        handler = getattr(self, f"_{method}", None)
        if handler is None:
            raise TelegramError(404, "Not Found")
        with self._lock:
            return handler(params)

    async def _updates(self, params: Json) -> list[Json]:
        if self.webhook:
            raise TelegramError(409, "Conflict: can't use getUpdates method while webhook is active")
        self._polls += 1
        poll_number, offset = self._polls, int(params.get("offset", 0))
        self._notify_polls()
        with self._lock:
            unconfirmed = [each for each in self._pending if each["update_id"] >= offset]
            self.confirmed |= {each["update_id"] for each in self._pending if each not in unconfirmed}
            self._pending[:] = unconfirmed
        deadline = time.monotonic() + float(params.get("timeout", 0))
        while (
            not (self._pending or self._repeated_updates)
            and time.monotonic() < deadline
            and not self._closing.is_set()
        ):
            self._updates_changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(deadline - time.monotonic(), 0.001)):
                    await self._updates_changed.wait()
            if self._polls != poll_number:
                raise TelegramError(409, "Conflict: terminated by other getUpdates request")
        with self._lock:
            copies = [each for each in self._pending[:100] for _ in range(self.copies)]
            batch = self._repeated_updates + copies
            self._repeated_updates = []
            if self.shuffle_rng is not None:
                self.shuffle_rng.shuffle(batch)
            self.sent_updates += [each["update_id"] for each in batch]
            return batch

    def _getMe(self, params: Json) -> Json:
        return {**BOT_USER, "can_join_groups": True, "can_read_all_group_messages": False}

    def _deleteWebhook(self, params: Json) -> bool:
        self.webhook = {}
        return True

    def _setMyCommands(self, params: Json) -> bool:
        return bool(params["commands"])

    def _sendChatAction(self, params: Json) -> bool:
        self._chat_id(params)
        return True

    def _answerCallbackQuery(self, params: Json) -> bool:
        self.answered_callbacks.append(params["callback_query_id"])
        return True

    def _getFile(self, params: Json) -> Json:
        content = self.files.get(params["file_id"])
        if content is None:
            raise TelegramError(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(content) > 20_000_000:
            raise TelegramError(400, "Bad Request: file is too big")
        known = {"file_id": params["file_id"], "file_unique_id": "u", "file_size": len(content)}
        return {**known, "file_path": params["file_id"]}

    def _sendMessage(self, params: Json) -> Json:
        chat = self._chat_id(params)
        text, entities = _parse_text(params, "text", TEXT_MAX, "message")
        if not text:
            raise TelegramError(400, "Bad Request: message text is empty")
        return self._add_message(chat, params, text, entities)

    def _sendPhoto(self, params: Json) -> Json:
        if not params["photo"].startswith(PHOTO_HEADS):
            raise TelegramError(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return self._send_file(params, "photo")

    def _sendDocument(self, params: Json) -> Json:
        return self._send_file(params, "document")

    def _send_file(self, params: Json, kind: str) -> Json:
        chat = self._chat_id(params)
        text, entities = _parse_text(params, "caption", CAPTION_MAX, "message caption")
        result = self._add_message(chat, params, text, entities)
        shown = self._chats[chat][-1]
        shown.file, shown.file_kind, shown.file_name = params[kind], kind, params[kind].name
        return result

    def _editMessageText(self, params: Json) -> Json:
        return self._edit_message(params, "text", TEXT_MAX)

    def _editMessageCaption(self, params: Json) -> Json:
        return self._edit_message(params, "caption", CAPTION_MAX)

    def _edit_message(self, params: Json, name: str, max_length: int) -> Json:
        chat = self._chat_id(params)
        shown = next((each for each in self._chats[chat] if each.id == int(params["message_id"])), None)
        if shown is None:
            raise TelegramError(400, "Bad Request: message to edit not found")
        if name == "text" and shown.file is not None:
            raise TelegramError(400, "Bad Request: there is no text in the message to edit")
        text, entities = _parse_text(params, name, max_length, "message")
        if not text and name == "text":
            raise TelegramError(400, "Bad Request: message text is empty")
        buttons = _buttons(params)
        if (text, entities, buttons) == (shown.text, shown.entities, shown.buttons):
            raise TelegramError(400, NOT_MODIFIED)
        shown.text, shown.entities, shown.buttons = text, entities, buttons
        shown.markup = params.get(name, "")
        shown.versions.append(text)
        return self._message_json(chat, shown)

    def _chat_id(self, params: Json) -> int:
        chat = int(params["chat_id"])
        if chat in self.blocked:
            raise TelegramError(403, "Forbidden: bot was blocked by the user")
        if chat in self.moved:
            description = "Bad Request: group chat was upgraded to a supergroup chat"
            raise TelegramError(400, description, migrate_to_chat_id=self.moved[chat])
        if chat not in self._chats:
            raise TelegramError(400, "Bad Request: chat not found")
        return chat

    def _add_message(self, chat: int, params: Json, text: str, entities: list[Entity]) -> Json:
        markup = params.get("text", params.get("caption", ""))
        number, self._next_message = self._next_message, self._next_message + 1
        thread = params.get("message_thread_id", "")
        shown = ShownMessage(number, text, markup, entities, _buttons(params), thread, versions=[text])
        self._chats[chat].append(shown)
        return self._message_json(chat, shown)

    def _message_json(self, chat: int, shown: ShownMessage) -> Json:
        place = {"id": chat, "type": "private" if chat > 0 else "supergroup"}
        return {
            "message_id": shown.id,
            "date": int(time.time()),
            "chat": place,
            "from": BOT_USER,
            "text": shown.text,
        }

    def _incoming_message(self, chat: int, sender: int, name: str) -> Json:
        self._chats.setdefault(chat, [])
        number, self._next_message = self._next_message, self._next_message + 1
        place = {"id": chat, "type": "private" if chat > 0 else "supergroup"}
        return {"message_id": number, "date": int(time.time()), "chat": place, "from": _user(sender, name)}

    def _notify_polls(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # Its loop has ended.
                self._loop.call_soon_threadsafe(self._updates_changed.set)

    async def push_updates(self) -> None:
        """Call the webhook with new updates, in order, until each succeeds; forever."""
        async with aiohttp.ClientSession() as http:
            while True:
                while not (self.webhook and self._pending):
                    self._updates_changed.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.1):
                            await self._updates_changed.wait()
                update, headers = self._pending[0], {}
                if self.webhook["secret_token"]:
                    headers["X-Telegram-Bot-Api-Secret-Token"] = self.webhook["secret_token"]
                self.sent_updates.append(update["update_id"])
                try:
                    async with http.post(self.webhook["url"], json=update, headers=headers) as answer:
                        is_accepted = 200 <= answer.status <= 299
                except aiohttp.ClientError:
                    is_accepted = False
                if is_accepted:
                    self.confirmed.add(update["update_id"])
                    self._pending.remove(update)
                else:
                    await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def telegram_server(api: TelegramApi | None = None, port: int = 0) -> AsyncIterator[TelegramApi]:
    """Run the server in the current event loop."""
    api = api or TelegramApi()
    api._loop = asyncio.get_running_loop()
    api._updates_changed, api._closing = asyncio.Event(), asyncio.Event()
    app = web.Application(client_max_size=100_000_000)
    app.router.add_get("/file/bot{token}/{path:.*}", api.download)
    app.router.add_route("*", "/bot{token}/{method}", api.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    push_task = asyncio.create_task(api.push_updates())
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield api
    finally:
        push_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await push_task
        api._closing.set()
        api._updates_changed.set()
        await runner.cleanup()


def telegram_server_in_thread(api: TelegramApi | None = None) -> AbstractContextManager[TelegramApi]:
    """Run the server on its own thread, for tests that block or kill the process that uses it."""
    return run_in_thread(telegram_server(api))


class _Upload(bytes):
    """An uploaded file and its name."""

    name: str

    @classmethod
    def of(cls, field: web.FileField) -> "_Upload":
        upload = cls(field.file.read())
        upload.name = field.filename
        return upload


async def _parameters(request: web.Request) -> Json:
    params: Json = dict(request.query)
    for name, value in (await request.post()).items():
        params[name] = _Upload.of(value) if isinstance(value, web.FileField) else value
    for name, value in list(params.items()):  # Files are named in a field and attached in another.
        if isinstance(value, str) and value.startswith("attach://"):
            params[name] = params.pop(value.removeprefix("attach://"))
    return params


def _error_response(error: TelegramError) -> web.Response:
    body: Json = {"ok": False, "error_code": error.status, "description": error.description}
    if error.parameters:
        body["parameters"] = error.parameters
    return web.json_response(body, status=error.status)


def _parse_text(params: Json, name: str, max_length: int, field_label: str) -> tuple[str, list[Entity]]:
    text, entities = params.get(name, ""), []
    if params.get("parse_mode") == "HTML":
        try:
            text, entities = parse_markup(text)
        except BadMarkup as error:
            raise TelegramError(400, f"Bad Request: can't parse entities: {error}") from None
    if len(text.strip().encode("utf-16-le")) // 2 > max_length:
        raise TelegramError(400, f"Bad Request: {field_label} is too long")
    return text.strip(), entities


def _buttons(params: Json) -> list[Json]:
    if not params.get("reply_markup"):
        return []
    rows = msgspec.json.decode(params["reply_markup"]).get("inline_keyboard", [])
    buttons = [button for row in rows for button in row]
    for button in buttons:
        if not button["text"]:
            raise TelegramError(400, "Bad Request: text buttons are unallowed in the inline keyboard")
        if not 1 <= len(button.get("callback_data", "").encode()) <= PRESS_BYTES_MAX:
            raise TelegramError(400, "Bad Request: BUTTON_DATA_INVALID")
    return buttons


def _user(number: int, name: str) -> Json:
    return {"id": number, "is_bot": number == BOT_USER["id"], "first_name": name}


def _command_entities(text: str) -> list[Json]:
    """Return the entities that Telegram adds itself at the beginning of a message."""
    word = text.split(maxsplit=1)[0] if text.split() else ""
    return [{"type": "bot_command", "offset": 0, "length": len(word)}] if word.startswith("/") else []
