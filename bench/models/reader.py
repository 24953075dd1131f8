"""`python -m bench.models.reader WAY PORT STREAMS TOKENS RATE`: read paced answers with one reader.

Runs in its own process. It prints the CPU seconds and the tokens of the time in which all answers streamed.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import anthropic
import openai
import uvloop

from holdfast.domain.context.request import ModelProfile, Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, ProtocolName, Secret
from holdfast.models.http_model import HttpModel
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import TextDelta
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol

ANSWER_TEXT = "Hello?"
REQUEST = Request("Be brief.", (UserMessage((Text(ANSWER_TEXT),)),))
WARM_S = 1.5
"""The measurement starts this long after the first request."""
MARGIN_S = 0.5
"""The measurement stops this long before the answers end."""


class TokenCount:
    """The number of tokens read, of all answers."""

    read = 0


ReadMethod = tuple[Callable[[TokenCount], Awaitable[None]], Callable[[], Awaitable[None]]]
"""A function that reads one answer, and one that closes the client afterwards."""


def holdfast_model(url: str, model: str, wire: WireProtocol, protocol: ProtocolName) -> ReadMethod:
    endpoint = Endpoint(url, model, Secret("none"), protocol=protocol)
    client = HttpModel(endpoint, wire, ModelProfile("bench", 100_000))

    async def read(count: TokenCount) -> None:
        async for delta in client.stream(REQUEST, []):
            if isinstance(delta, TextDelta):
                count.read += 1

    return read, client.close


def openai_chat(url: str, model: str) -> ReadMethod:
    client = openai.AsyncOpenAI(base_url=url, api_key="none")

    async def read(count: TokenCount) -> None:
        stream = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": ANSWER_TEXT}], stream=True
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                count.read += 1

    return read, client.close


def openai_responses(url: str, model: str) -> ReadMethod:
    client = openai.AsyncOpenAI(base_url=url, api_key="none")

    async def read(count: TokenCount) -> None:
        async for event in await client.responses.create(model=model, input=ANSWER_TEXT, stream=True):
            if event.type == "response.output_text.delta":
                count.read += 1

    return read, client.close


def anthropic_messages(url: str, model: str) -> ReadMethod:
    client = anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="none")

    async def read(count: TokenCount) -> None:
        stream = await client.messages.create(
            model=model, max_tokens=1_000, messages=[{"role": "user", "content": ANSWER_TEXT}], stream=True
        )
        async for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "text_delta":
                count.read += 1

    return read, client.close


READ_METHODS: Mapping[str, Callable[[str, str], ReadMethod]] = MappingProxyType(
    {
        "chat": lambda url, model: holdfast_model(url, model, ChatWire(), "chat"),
        "responses": lambda url, model: holdfast_model(url, model, ResponsesWire(), "responses"),
        "messages": lambda url, model: holdfast_model(url, model, MessagesWire(), "messages"),
        "openai_chat": openai_chat,
        "openai_responses": openai_responses,
        "anthropic_messages": anthropic_messages,
    }
)


async def measure(method: str, url: str, streams: int, tokens: int, rate: float) -> dict[str, float]:
    read, close = READ_METHODS[method](url, f"{tokens}@{rate:g}")
    count = TokenCount()

    async def one(i: int) -> None:
        await asyncio.sleep(i / streams)  # Start them over a second, so that they do not march in step.
        await read(count)

    reading = [asyncio.create_task(one(i)) for i in range(streams)]
    await asyncio.sleep(WARM_S)
    before_s, before = time.process_time(), count.read
    await asyncio.sleep(tokens / rate - WARM_S - MARGIN_S)
    spent_s, counted = time.process_time() - before_s, count.read - before
    async with asyncio.timeout(60):
        await asyncio.gather(*reading)
    await close()
    return {"cpu_s": spent_s, "tokens": counted, "missing": streams * tokens - count.read}


if __name__ == "__main__":
    way, port, streams, tokens, rate = sys.argv[1:]
    found = uvloop.run(measure(way, f"http://127.0.0.1:{port}/v1", int(streams), int(tokens), float(rate)))
    print(json.dumps(found))
