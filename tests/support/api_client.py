"""A scripted model server, and a client of Holdfast's HTTP API."""

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

from tests.support.auth_tokens import bearer_headers, token_for
from tests.support.model_server import DONE, USAGE, call, chunk

TITLE = "A fitting title"
MARKDOWN_ANSWER = """\
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
class ScriptedModelServer:
    """Answer according to the last user message.

    `count N` counts to N, a number each 10 ms; `hold` says a word and waits; `run COMMAND` calls the shell;
    `ask JSON` calls ask_user with that, `use TOOL JSON` any tool, `uses [[TOOL, JSON], …]`
    several at once; `look N` lists files N times at once; `write up` anywhere answers with a table and with
    code; anything else is repeated.
    """

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    lists_images: bool | None = False
    """Whether the model list says that the model takes images; None omits the field."""
    refuses_images: bool = False
    _pause_at: int | None = None

    @contextmanager
    def pausing_count(self, at: int) -> Iterator[Callable[[], None]]:
        """Counts stop before this number until the test continues them, so that no test depends on timing."""
        self._pause_at = at
        try:
            yield self._resume
        finally:
            self._resume()

    def _resume(self) -> None:
        self._pause_at = None

    async def wait_if_paused(self, number: int) -> None:
        """Return once a count may reach that number."""
        while self._pause_at is not None and number >= self._pause_at:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            takes = {"input_modalities": ["text", "image"] if self.lists_images else ["text"]}
            model = {"id": "small"} if self.lists_images is None else {"id": "small", "architecture": takes}
            return web.json_response({"object": "list", "data": [model]})
        body = await request.json()
        self.requests.append(body)
        if self.refuses_images and "image_url" in str(body):
            return web.json_response({"error": {"message": "no images, please"}}, status=400)
        return await stream_response(request, answer_chunks(body, self))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _last_user_text(messages: list[dict[str, Any]]) -> str:
    """Return the last user message."""
    return next((_text(each) for each in reversed(messages) if each["role"] == "user"), "")


async def stream_response(request: web.Request, chunks: AsyncIterator[bytes]) -> web.StreamResponse:
    """Answer with a stream of chunks."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    try:
        async for chunk_bytes in chunks:
            await response.write(chunk_bytes)
        await response.write(USAGE + DONE)
    except ConnectionResetError:
        return response
    return response


async def answer_chunks(body: dict[str, Any], server: ScriptedModelServer) -> AsyncIterator[bytes]:
    """Return the chunks with which a `ScriptedModelServer` answers a request."""
    messages = body["messages"]
    if not body.get("tools"):
        yield chunk({"content": TITLE}) + chunk({}, "stop")
        return
    if messages[-1]["role"] == "tool" and "write up" not in _last_user_text(messages):
        yield chunk({"content": f"It said: {_text(messages[-1]).strip()}"}) + chunk({}, "stop")
        return
    user_texts = [_text(message) for message in messages if message["role"] == "user"]
    partial = _text(messages[-2]) if len(messages) > 1 and messages[-2]["role"] == "assistant" else ""
    is_continuation = bool(partial) and "cut off" in user_texts[-1]
    prompt = user_texts[-2] if is_continuation else user_texts[-1]
    verb, _, rest = prompt.partition(" ")
    if verb == "count":
        first = len(partial.split()) if is_continuation else 0
        for number in range(first, int(rest)):
            await server.wait_if_paused(number)
            yield chunk({"content": f"{number} "})
            await asyncio.sleep(0.01)
    elif verb == "hold" and not is_continuation:
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
    elif "write up" in prompt:
        for piece in MARKDOWN_ANSWER.splitlines(keepends=True):
            yield chunk({"content": piece})
            await asyncio.sleep(0.01)
    else:
        yield chunk({"reasoning_content": "Hm. "})
        for word in prompt.split():
            yield chunk({"content": f"{word} "})
    yield chunk({}, "stop")


@contextmanager
def scripted_model_server(
    server: ScriptedModelServer | None = None, port: int = 0
) -> Iterator[ScriptedModelServer]:
    """Run a scripted model server on its own thread, for tests that block. `port` 0 picks a free one."""
    server, ready, loop = server or ScriptedModelServer(), threading.Event(), asyncio.new_event_loop()

    async def serve() -> web.AppRunner:
        app = web.Application(client_max_size=100_000_000)
        app.router.add_route("*", "/{path:.*}", server.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        return runner

    def run_loop() -> None:
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run_loop, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


@dataclass
class SseFrame:
    """A server-sent event; a comment has only its text."""

    id: str = ""
    event: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    comment: str = ""


class ApiClient:
    """Call one server; `status` and `headers` are those of the last response."""

    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address = address.rstrip("/")
        self.session = session
        self.status = 0
        self.headers: dict[str, str] = {}

    async def request(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Return the JSON of the response, or its bytes if it has none."""
        sent: dict[str, Any] = {"json": body} if body is not None else {}
        if method in ("POST", "PATCH") and body is None and "data" not in options:
            options.setdefault("headers", {}).setdefault("content-type", "application/json")
        async with self.session.request(method, self.address + path, **sent, **options) as answer:
            self.status, self.headers = answer.status, {k.lower(): v for k, v in answer.headers.items()}
            raw = await answer.read()
        return msgspec.json.decode(raw) if raw and "json" in self.headers.get("content-type", "") else raw

    async def get(self, path: str, **options: Any) -> Any:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: object = None, **options: Any) -> Any:
        return await self.request("POST", path, body, **options)

    async def create_session(self, **body: Any) -> str:
        created = await self.post("/api/sessions", body)
        assert self.status == 201, created
        session: str = created["id"]
        return session

    async def send(self, session: str, text: str, key: str | None = None) -> dict[str, Any]:
        receipt: dict[str, Any] = await self.post(
            f"/api/sessions/{session}/turns", {"text": text} | ({"key": key} if key else {})
        )
        assert self.status == 202, receipt
        return receipt

    async def entries(self, session: str) -> list[dict[str, Any]]:
        page = await self.get(f"/api/sessions/{session}/messages?limit=200")
        messages: list[dict[str, Any]] = page["messages"]
        return messages

    async def message_texts(self, session: str) -> list[tuple[str, str, str]]:
        """Return (role, status, text) of every message."""
        return [(each["role"], each["status"], text_of(each)) for each in await self.entries(session)]

    async def wait_for_field(self, path: str, field_name: str, *values: object, timeout_s: float = 60) -> Any:
        """Return the object at `path` once its field `name` is one of `wanted`."""
        row: Any = None

        async def has_value() -> bool:
            nonlocal row
            row = await self.get(path)
            return row.get(field_name) in values

        await wait_until(has_value, timeout_s)
        return row

    async def wait_for_streaming_text(self, session: str, text: str) -> None:
        """Return once the streaming answer has this text."""

        async def is_streaming() -> bool:
            return ("assistant", "streaming", text) in await self.message_texts(session)

        await wait_until(is_streaming)

    async def wait_for_run(self, run_id: str, *statuses: str) -> Any:
        return await self.wait_for_field(f"/api/runs/{run_id}", "status", *(statuses or ("completed",)))

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[SseFrame]]:
        """Yield the frames of a stream."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        timeout = aiohttp.ClientTimeout(total=120)
        async with self.session.get(self.address + path, headers=more, timeout=timeout) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.headers["content-type"] == "text/event-stream"
            yield _frames(answer)

    async def events_through(
        self, session: str, after: int, last_kind: str, **headers: str
    ) -> list[SseFrame]:
        """Return the events after a cursor, up to the first of `last_kind`."""
        events = []
        async with self.stream(f"/api/sessions/{session}/events?after={after}", **headers) as frames:
            async for frame in frames:
                if frame.event:
                    events.append(frame)
                if frame.event == last_kind:
                    break
        return events


async def _frames(answer: aiohttp.ClientResponse) -> AsyncIterator[SseFrame]:
    frame = SseFrame()
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        name, _, value = line.partition(": ")
        if not line:
            yield frame
            frame = SseFrame()
        elif name == "data":
            frame.data = msgspec.json.decode(value)
        elif name in ("id", "event"):
            setattr(frame, name, value)
        elif line.startswith(":"):
            frame.comment = value


async def next_event(frames: AsyncIterator[SseFrame]) -> SseFrame:
    """Return the next event, skipping keep-alive comments."""
    async for frame in frames:
        if frame.event:
            return frame
    raise AssertionError("nothing more happens")


async def wait_until(condition: Callable[[], Awaitable[bool]], timeout_s: float = 60) -> None:
    """Return once `is_so` returns True."""
    async with asyncio.timeout(timeout_s):
        for _ in itertools.repeat(None):
            if await condition():
                return
            await asyncio.sleep(0.01)


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@asynccontextmanager
async def api_client(address: str, token: str | None = None) -> AsyncIterator[ApiClient]:
    """Open a client with the token registered for `address`, with another token, or with none ("")."""
    headers = bearer_headers(token_for(address) if token is None else token)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield ApiClient(address, session)
