"""A real HTTP server on loopback that speaks Chat Completions, well or badly, to test model adapters.

The streams here are constructed from the published references (OpenAI's API reference for Chat Completions,
the documentation of DeepSeek, vLLM, llama.cpp, Ollama and OpenRouter where they differ); none is a recording.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from holdfast.domain.context.context import ModelProfile, Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, ProtocolName, Secret
from holdfast.models.http_model import HttpModel
from holdfast.models.ports import ModelDelta, ModelFailure, ToolSpec
from holdfast.models.transport import ModelTimeouts
from holdfast.models.wire import WireProtocol

KEY = "sk-test-0123456789abcdef"
PROFILE = ModelProfile("test", 100_000)
REQUEST = Request("Be brief.", (UserMessage((Text("Hello?"),)),))
SHELL = ToolSpec("shell", "Run a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
LONG_TIMEOUTS = ModelTimeouts(
    connect_s=30, first_byte_s=30, between_chunks_s=30, error_body_s=30, trailer_s=30, drain_s=1
)  # fmt: skip
"""Timeouts for servers that answer, on a machine that may be busy."""
SHORT_TIMEOUTS = ModelTimeouts(
    connect_s=30, first_byte_s=30, between_chunks_s=0.2, error_body_s=0.2, trailer_s=0.1, drain_s=0.05
)
"""Timeouts for servers that begin to answer and fall silent."""
VERY_SHORT_TIMEOUTS = ModelTimeouts(
    connect_s=30, first_byte_s=0.3, between_chunks_s=30, error_body_s=0.2, trailer_s=0.1, drain_s=0.05
)
"""Timeouts for servers that never begin."""

Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """Return one event as in OpenAI's reference."""
    body = {
        "id": "chatcmpl-123",
        "object": "chat.completion.chunk",
        "created": 1694268190,
        "model": "small",
        "system_fingerprint": "fp_44709d6fcb",
        "choices": [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}],
        **more,
    }
    return event(body)


def event(body: Any) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def call(arguments: str | dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a delta with one piece of a call."""
    name = fields.pop("name", None)
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"tool_calls": [{**fields, "function": function}]}


DONE = b"data: [DONE]\n\n"
USAGE_FIELDS = {"prompt_tokens": 19, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 16}}
USAGE = event({"object": "chat.completion.chunk", "choices": [], "usage": USAGE_FIELDS})
TEXT_STREAM = (
    b": a comment\n\n"
    + chunk({"role": "assistant", "content": ""})
    + chunk({"reasoning_content": "Héllo is a greeting. "})
    + chunk({"content": "Grüße, "})
    + chunk({"content": "世界 🌍"})
    + chunk({"content": "!\n"})
    + chunk(call("", index=0, id="call_1", type="function", name="shell"))
    + chunk(call('{"comm', index=0))
    + chunk(call('{"command":"pwd"}', index=1, id="call_2", type="function", name="shell"))
    + chunk(call('and":"ls"}', index=0))
    + chunk({}, "tool_calls")
    + USAGE
    + DONE
)
_DETAIL = {"type": "reasoning.text", "format": "unknown", "index": 0}
_SIGNED = {"google": {"thought_signature": "CrICAdHt=="}}
OPAQUE = (
    chunk({"reasoning": "I ", "reasoning_details": [{**_DETAIL, "text": "I ", "signature": None}]})
    + chunk({"reasoning": "see.", "reasoning_details": [{**_DETAIL, "text": "see.", "signature": "Eq"}]})
    + chunk({"content": [{"type": "text", "text": "Well."}]})
    + chunk(call("", index=0, id="call_1", name="shell", extra_content=_SIGNED))
    + chunk(call('{"command":"ls"}', index=0))
    + chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "gA", "id": "call_1"}]})
    + chunk({}, "tool_calls")
    + USAGE
    + DONE
)
"""With fields of some servers that requests must send back."""
TAGGED = (
    chunk({"role": "assistant", "content": "\n"})
    + chunk({"content": "<thi"})
    + chunk({"content": "nk>\nIs a < b, </thi"})
    + chunk({"content": "s>? Yes.\n</"})
    + chunk({"content": "think"})
    + chunk({"content": ">\n\n"})
    + chunk({"content": "It is: `<think>` "})
    + chunk({"content": "stays </think>."})
    + chunk(call('{"command":"ls"}', index=0, id="call_1", name="shell"))
    + chunk({}, "tool_calls")
    + USAGE
    + DONE
)
"""Reasoning between tags in the text, from servers that do not parse it."""


def streaming_answer(
    chunks: Iterable[bytes], pause_s: float = 0.0, cut: bool = False, **headers: str
) -> Answers:
    """Answer with `pieces`, each written by itself; `cut` closes the connection within the body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", **headers})
        await response.prepare(request)
        for piece in chunks:
            await response.write(piece)
            await asyncio.sleep(pause_s)
        if cut and request.transport is not None:
            request.transport.close()
        else:
            await response.write_eof()
        return response

    return answer


def error_answer(status: int, body: Any = None, kind: str = "application/json", **headers: str) -> Answers:
    """Answer with an error; `body` is JSON unless it is bytes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        spelt = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=status, body=raw, content_type=kind, headers=spelt)

    return answer


class ReceivedRequests(msgspec.Struct):
    """The requests of a server."""

    bodies: list[dict[str, Any]]
    headers: list[dict[str, str]]
    peers: set[Any]


@asynccontextmanager
async def model_server(*answers: Answers) -> AsyncIterator[tuple[str, ReceivedRequests]]:
    """Yield a base URL and the requests to it. Each request takes the next answer; the last one repeats."""
    received = ReceivedRequests([], [], set())

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        received.bodies.append(msgspec.json.decode(await request.read() or b"{}"))
        received.headers.append(dict(request.headers))
        received.peers.add(request.transport.get_extra_info("peername"))
        return await answers[min(len(received.bodies), len(answers)) - 1](request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", received
    finally:
        await runner.cleanup()


@asynccontextmanager
async def http_model(
    url: str,
    timeouts: ModelTimeouts = LONG_TIMEOUTS,
    key: str = KEY,
    wire: WireProtocol | None = None,
    protocol: ProtocolName = "chat",
    name: str = "small",
    profile: ModelProfile = PROFILE,
) -> AsyncIterator[HttpModel]:
    """Yield a model at `url` and close it at the end; it speaks Chat Completions by default."""
    endpoint = Endpoint(url, name, Secret(key), "OPENAI_API_KEY", protocol=protocol)
    model = HttpModel(endpoint, wire or ChatWire(), profile, timeouts)
    try:
        yield model
    finally:
        await model.close()


async def collect_deltas(
    model: HttpModel, request: Request = REQUEST, tools: Iterable[ToolSpec] = ()
) -> tuple[list[ModelDelta], ModelFailure | None]:
    """Return every delta of a model, and its failure if it failed."""
    deltas: list[ModelDelta] = []
    try:
        async with aclosing(model.stream(request, list(tools))) as stream:
            async for delta in stream:
                deltas.append(delta)
    except ModelFailure as failure:
        return deltas, failure
    return deltas, None


def ask_once(
    *answers: Answers, timeouts: ModelTimeouts = LONG_TIMEOUTS
) -> tuple[list[ModelDelta], ModelFailure | None]:
    """Return the result of one request to a server with these answers."""

    async def ask() -> tuple[list[ModelDelta], ModelFailure | None]:
        async with model_server(*answers) as (url, _), http_model(url, timeouts) as model:
            return await collect_deltas(model)

    return asyncio.run(ask())
