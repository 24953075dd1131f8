"""A model server whose answers a test puts into words, and a client that talks to Holdfast as programs do."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tests.support.auth_tokens import bearing, token_of
from tests.support.model_server import DONE, USAGE, call, chunk

TITLE = "A fitting title"
WRITTEN_UP = """\
## What was found

Two of the three files are **fine**, `third.py` is not:

| file | lines | state |
| --- | ---: | --- |
| first.py | 12 | fine |
| second.py | 340 | fine |
| third.py | 7 | broken |

```python
def third(number: int) -> int:
    # Said to be three times as much.
    return number * 4  # Should be 3.
```

1. Mend the factor.
2. Run the tests:

   - the quick ones
   - the slow ones

> Nothing else was changed.
"""


@dataclass
class Speaker:
    """Answers by the last thing a person said.

    `count N` counts to N, a number each 10 ms; `hold` says a word and waits; `run COMMAND` calls the shell;
    `ask JSON` calls ask_user with that, `use TOOL JSON` any tool, `uses [[TOOL, JSON], …]`
    several at once; `look N` lists files N times at once; `write up` anywhere answers with a table and with
    code; anything else is repeated.
    """

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    sees: bool | None = False
    """Whether its list of models says that it takes images; None: it does not say."""
    refuses_images: bool = False
    _pauses_at: int | None = None

    @contextmanager
    def pausing(self, at: int) -> Iterator[Callable[[], None]]:
        """Meanwhile counts stop before that number, until they are told to go on: no test has to be quick."""
        self._pauses_at = at
        try:
            yield self._go_on
        finally:
            self._go_on()

    def _go_on(self) -> None:
        self._pauses_at = None

    async def may_say(self, number: int) -> None:
        """Return once a count may come to that number."""
        while self._pauses_at is not None and number >= self._pauses_at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            takes = {"input_modalities": ["text", "image"] if self.sees else ["text"]}
            told = {"id": "small"} if self.sees is None else {"id": "small", "architecture": takes}
            return web.json_response({"object": "list", "data": [told]})
        body = await request.json()
        self.asked.append(body)
        if self.refuses_images and "image_url" in str(body):
            return web.json_response({"error": {"message": "no images, please"}}, status=400)
        return await writing(request, pieces_for(body, self))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _asked(messages: list[dict[str, Any]]) -> str:
    """The last thing that a person said."""
    return next((_text(each) for each in reversed(messages) if each["role"] == "user"), "")


async def writing(request: web.Request, pieces: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a stream of them."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    try:
        async for piece in pieces:
            await response.write(piece)
        await response.write(USAGE + DONE)
    except ConnectionResetError:
        return response
    return response


async def pieces_for(body: dict[str, Any], speaker: Speaker) -> AsyncIterator[bytes]:
    """What a `Speaker` says to a request."""
    messages = body["messages"]
    if not body.get("tools"):
        yield chunk({"content": TITLE}) + chunk({}, "stop")
        return
    if messages[-1]["role"] == "tool" and "write up" not in _asked(messages):
        yield chunk({"content": f"It said: {_text(messages[-1]).strip()}"}) + chunk({}, "stop")
        return
    said = [_text(message) for message in messages if message["role"] == "user"]
    partial = _text(messages[-2]) if len(messages) > 1 and messages[-2]["role"] == "assistant" else ""
    goes_on = bool(partial) and "cut off" in said[-1]
    asked = said[-2] if goes_on else said[-1]
    verb, _, rest = asked.partition(" ")
    if verb == "count":
        first = len(partial.split()) if goes_on else 0
        for number in range(first, int(rest)):
            await speaker.may_say(number)
            yield chunk({"content": f"{number} "})
            await asyncio.sleep(0.01)
    elif verb == "hold" and not goes_on:
        yield chunk({"content": "Well"})
        await asyncio.sleep(600)
    elif verb == "run":
        arguments = msgspec.json.encode({"command": rest}).decode()
        yield chunk(call(arguments, index=0, id="call_1", type="function", name="shell"))
        yield chunk({}, "tool_calls")
        return
    elif verb == "ask":
        yield chunk(call(rest, index=0, id="call_1", type="function", name="ask_user"))
        yield chunk({}, "tool_calls")
        return
    elif verb == "use":
        name, _, arguments = rest.partition(" ")
        yield chunk(call(arguments, index=0, id="call_1", type="function", name=name))
        yield chunk({}, "tool_calls")
        return
    elif verb == "uses":
        for number, (name, given) in enumerate(msgspec.json.decode(rest)):
            arguments = msgspec.json.encode(given).decode()
            yield chunk(call(arguments, index=number, id=f"call_{number}", type="function", name=name))
        yield chunk({}, "tool_calls")
        return
    elif verb == "look" and messages[-1]["role"] != "tool":
        for number in range(int(rest.split()[0])):
            yield chunk(call("{}", index=number, id=f"call_{number}", type="function", name="list_files"))
        yield chunk({}, "tool_calls")
        return
    elif "write up" in asked:
        for piece in WRITTEN_UP.splitlines(keepends=True):
            yield chunk({"content": piece})
            await asyncio.sleep(0.01)
    else:
        yield chunk({"reasoning_content": "Hm. "})
        for word in asked.split():
            yield chunk({"content": f"{word} "})
    yield chunk({}, "stop")


@contextmanager
def speaking(speaker: Speaker | None = None, port: int = 0) -> Iterator[Speaker]:
    """A speaker on a thread of its own: the tests that ask it may block. `port` 0 is any."""
    speaker, ready, loop = speaker or Speaker(), threading.Event(), asyncio.new_event_loop()

    async def serve() -> web.AppRunner:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_route("*", "/{path:.*}", speaker.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        speaker.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    def work() -> None:
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield speaker
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@dataclass
class Frame:
    """One server-sent event; a comment has only its text."""

    id: str = ""
    event: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    comment: str = ""


class Api:
    """Talks to one server; `status` and `headers` are those of the last answer."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address = address.rstrip("/")
        self.session = session
        self.status = 0
        self.headers: dict[str, str] = {}

    async def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """The answer: its JSON, or its bytes where it has none."""
        sent: dict[str, Any] = {"json": body} if body is not None else {}
        if method in ("POST", "PATCH") and body is None and "data" not in more:
            more.setdefault("headers", {}).setdefault("content-type", "application/json")
        async with self.session.request(method, self.address + path, **sent, **more) as answer:
            self.status, self.headers = answer.status, {k.lower(): v for k, v in answer.headers.items()}
            raw = await answer.read()
        return msgspec.json.decode(raw) if raw and "json" in self.headers.get("content-type", "") else raw

    async def get(self, path: str, **more: Any) -> Any:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, body: object = None, **more: Any) -> Any:
        return await self.ask("POST", path, body, **more)

    async def begin(self, **body: Any) -> str:
        made = await self.post("/api/sessions", body)
        assert self.status == 201, made
        session: str = made["id"]
        return session

    async def say(self, session: str, text: str, key: str | None = None) -> dict[str, Any]:
        receipt: dict[str, Any] = await self.post(
            f"/api/sessions/{session}/turns", {"text": text} | ({"key": key} if key else {})
        )
        assert self.status == 202, receipt
        return receipt

    async def entries(self, session: str) -> list[dict[str, Any]]:
        page = await self.get(f"/api/sessions/{session}/messages?limit=200")
        messages: list[dict[str, Any]] = page["messages"]
        return messages

    async def read(self, session: str) -> list[tuple[str, str, str]]:
        """(role, status, words) of every message."""
        return [(each["role"], each["status"], words_of(each)) for each in await self.entries(session)]

    async def until(self, path: str, name: str, *wanted: object, timeout_s: float = 60) -> Any:
        """What is at `path`, once its field `name` is one of `wanted`."""
        found: Any = None

        async def is_so() -> bool:
            nonlocal found
            found = await self.get(path)
            return found.get(name) in wanted

        await until(is_so, timeout_s)
        return found

    async def says(self, session: str, words: str) -> None:
        """Return once an answer under way reads so."""

        async def is_so() -> bool:
            return ("assistant", "streaming", words) in await self.read(session)

        await until(is_so)

    async def done(self, run_id: str, *wanted: str) -> Any:
        return await self.until(f"/api/runs/{run_id}", "status", *(wanted or ("completed",)))

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Frame]]:
        """What a stream sends, frame by frame."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        timeout = aiohttp.ClientTimeout(total=120)
        async with self.session.get(self.address + path, headers=more, timeout=timeout) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["content-type"] == "text/event-stream"
            yield _frames(answer)

    async def follow(self, session: str, after: int, last_kind: str, **headers: str) -> list[Frame]:
        """The events after a cursor up to the first of `last_kind`."""
        found = []
        async with self.stream(f"/api/sessions/{session}/events?after={after}", **headers) as frames:
            async for frame in frames:
                if frame.event:
                    found.append(frame)
                if frame.event == last_kind:
                    break
        return found


async def _frames(answer: aiohttp.ClientResponse) -> AsyncIterator[Frame]:
    frame = Frame()
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if not line:
            yield frame
            frame = Frame()
        elif name == "data":
            frame.data = msgspec.json.decode(value)
        elif name in ("id", "event"):
            setattr(frame, name, value)
        elif line.startswith(":"):
            frame.comment = value


async def next_event(frames: AsyncIterator[Frame]) -> Frame:
    """The next thing that happens, whatever signs of life come before it."""
    async for frame in frames:
        if frame.event:
            return frame
    raise AssertionError("nothing more happens")


async def until(is_so: Callable[[], Awaitable[bool]], timeout_s: float = 60) -> None:
    """Return once `is_so` says yes."""
    async with asyncio.timeout(timeout_s):
        for _ in itertools.repeat(None):
            if await is_so():
                return
            await asyncio.sleep(0.01)


def words_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@asynccontextmanager
async def talking(address: str, token: str | None = None) -> AsyncIterator[Api]:
    """Talk with the token that is remembered for `address`, unless another or none ("") is given."""
    headers = bearing(token_of(address) if token is None else token)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield Api(address, session)
