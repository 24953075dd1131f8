"""Every wire protocol against a real llama.cpp, through our own adapters."""

import asyncio
from contextlib import aclosing

import pytest

from holdfast.domain.context.context import AssistantMessage, Request, ToolMessage, UserMessage
from holdfast.domain.events.parts import Text, ToolCall
from holdfast.models.endpoint import ProtocolName, Secret
from holdfast.models.factory import build_local_client
from holdfast.models.failures import TOO_LONG
from holdfast.models.local.model import LocalModel
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from tests.local.llama_server import CALLING, PROTOCOLS, WEATHER, request_for, running_model

EVERY = pytest.mark.parametrize("protocol", PROTOCOLS)
WAIT_S = 120
"""A machine that does other things too may be slow."""


async def collect(model: LocalModel, request: Request, *tools: ToolSpec) -> list[ModelDelta]:
    async with asyncio.timeout(WAIT_S), aclosing(model.stream(request, tools)) as deltas:
        return [delta async for delta in deltas]


def text_of(deltas: list[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@EVERY
async def test_an_answer_streams_and_ends_with_its_usage(protocol: ProtocolName) -> None:
    async with running_model(protocol) as model:
        *deltas, end = await collect(model, request_for("Tell me about the sea."))
    assert len(deltas) > 3
    assert text_of(deltas).strip()
    assert isinstance(end, StepEnd)
    assert end.stop_reason in ("stop", "length")
    assert end.usage.input_tokens and end.usage.input_tokens > 10
    assert end.usage.output_tokens and len(deltas) <= end.usage.output_tokens <= 48


@EVERY
async def test_a_truncated_answer_has_the_stop_reason_length(protocol: ProtocolName) -> None:
    async with running_model(protocol, answer_tokens=16) as model:
        end = (await collect(model, request_for("Tell me a very long story about a ship.")))[-1]
    assert isinstance(end, StepEnd)
    assert end.usage.output_tokens == 16
    # By the second protocol llama.cpp calls such an answer complete.
    assert end.stop_reason == ("stop" if protocol == "responses" else "length")


@EVERY
async def test_a_repeated_prompt_is_reported_as_cached(protocol: ProtocolName) -> None:
    async with running_model(protocol) as model:
        await collect(model, request_for("Tell me about the sea."))
        end = (await collect(model, request_for("Tell me about the sea.")))[-1]
    assert isinstance(end, StepEnd)
    assert end.usage.cached_tokens


@EVERY
async def test_a_conversation_beyond_the_window_fails_as_too_long(protocol: ProtocolName) -> None:
    async with running_model(protocol) as model:
        with pytest.raises(ModelFailure, match=TOO_LONG) as failed:
            await collect(model, request_for("word " * 9_000))
        assert failed.value.too_long
        assert not failed.value.retryable
        assert text_of(await collect(model, request_for("Hello"))), "it answers what fits"


@EVERY
async def test_closing_an_answer_ends_it_and_the_next_one_is_answered(protocol: ProtocolName) -> None:
    async with running_model(protocol, answer_tokens=4_000) as model, asyncio.timeout(WAIT_S):
        async with aclosing(model.stream(request_for("Count to ten thousand, one by one."), ())) as deltas:
            async for delta in deltas:
                assert isinstance(delta, TextDelta)
                break
        # There is room for one answer at a time: this one comes because the other has ended.
        async with aclosing(model.stream(request_for("Hello"), ())) as deltas:
            async for delta in deltas:
                assert isinstance(delta, TextDelta)
                break


@EVERY
async def test_a_tool_is_called_and_its_result_is_sent_back(protocol: ProtocolName) -> None:
    asked = request_for("What is the weather in Paris?")
    async with running_model(protocol, CALLING) as model:
        *deltas, end = await collect(model, asked, WEATHER)
        calls = [delta for delta in deltas if isinstance(delta, CallDelta)]
        assert {call.name for call in calls} == {"get_weather"}, deltas
        arguments = "".join(call.arguments for call in calls)
        assert arguments.startswith('{"city":')
        assert isinstance(end, StepEnd)
        assert end.stop_reason == "tool_calls"
        call = ToolCall("call_1", "get_weather", arguments)
        more = (AssistantMessage((call,)), ToolMessage("call_1", (Text("Sunny, 21 degrees."),)))
        thanks = UserMessage((Text("Thank you. Was it sunny?"),))
        answered = await collect(model, Request(asked.system, (*asked.messages, *more, thanks)))
        assert isinstance(answered[-1], StepEnd), "the whole exchange is a request that it takes"


@EVERY
async def test_requests_without_the_key_are_refused(protocol: ProtocolName) -> None:
    async with running_model(protocol) as model:
        await collect(model, request_for("Hello"))
        endpoint = await model._server.endpoint(protocol)
        keyless = build_local_client(
            type(endpoint)(endpoint.base_url, endpoint.model, Secret("another"), protocol=protocol),
            model.profile,
        )
        with pytest.raises(ModelFailure, match="401"):
            async with aclosing(keyless.stream(request_for("Hello"), ())) as deltas:
                await anext(deltas)
        await keyless.close()
