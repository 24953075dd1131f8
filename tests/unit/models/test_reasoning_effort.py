"""How much a model is to think: said in each protocol's own words, and left out where it is not taken.

The refusals are worded as OpenAI, Anthropic, Google, Groq and Ollama word them.
"""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.domain.agents import BadAgent, parse
from holdfast.domain.context.context import ModelProfile
from holdfast.domain.context.request import Effort
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import ProtocolName
from holdfast.models.fallback import FallbackModel
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import FallbackStarted, ModelFailure, TextDelta
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol
from tests.support.model_server import (
    DONE,
    REQUEST,
    chunk,
    collect_deltas,
    error_answer,
    event,
    http_model,
    model_server,
    streaming_answer,
)

ROOMY = ModelProfile("test", 200_000, 32_000)
EASY: Effort = "low"
CHAT = streaming_answer([chunk({"content": "Yes."}), chunk({}, "stop"), DONE])
RESPONSES = streaming_answer(
    [
        event({"type": "response.output_text.delta", "delta": "Yes.", "item_id": "m", "output_index": 0}),
        event({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]
)
MESSAGES = streaming_answer(
    [
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}),
        event({"type": "message_stop"}),
    ]
)


def encode_request(wire: WireProtocol, model: str, effort: Effort | None, *without: str) -> dict[str, Any]:
    body = wire.encode(model, ROOMY, replace(REQUEST, effort=effort), (), without)
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def test_each_protocol_encodes_the_effort_in_its_own_field() -> None:
    assert encode_request(ChatWire(), "small", "high")["reasoning_effort"] == "high"
    assert encode_request(ResponsesWire(), "gpt-6-sol", "low")["reasoning"] == {
        "summary": "auto",
        "effort": "low",
    }
    claude = encode_request(MessagesWire(), "claude-sonnet-5-5", "medium")
    assert claude["output_config"] == {"effort": "medium"} and claude["thinking"]["type"] == "adaptive"


def test_no_effort_is_sent_by_default() -> None:
    assert "reasoning_effort" not in encode_request(ChatWire(), "small", None)
    assert encode_request(ResponsesWire(), "gpt-6-sol", None)["reasoning"] == {"summary": "auto"}
    assert "output_config" not in encode_request(MessagesWire(), "claude-sonnet-5-5", None)


def test_the_effort_scales_the_thinking_budget() -> None:
    budgets = [
        encode_request(MessagesWire(), "claude-haiku-4-5", effort)["thinking"]["budget_tokens"]
        for effort in ("low", None, "medium", "high")
    ]
    assert budgets == [4_000, 16_000, 16_000, 24_000]
    assert "output_config" not in encode_request(MessagesWire(), "claude-haiku-4-5", "high")


def test_rejected_summary_and_effort_are_omitted_independently() -> None:
    wire = ResponsesWire()
    assert encode_request(wire, "m", "low", "reasoning.summary")["reasoning"] == {"effort": "low"}
    assert encode_request(wire, "m", "low", "effort")["reasoning"] == {"summary": "auto"}
    assert "reasoning" not in encode_request(wire, "m", "low", "reasoning.summary", "effort")
    assert "reasoning" not in encode_request(wire, "m", "low", "reasoning")


@pytest.mark.parametrize(
    ("wire", "protocol", "good", "refusal"),
    [
        (ChatWire(), "chat", CHAT, "Unrecognized request argument supplied: reasoning_effort"),
        (ChatWire(), "chat", CHAT, "`reasoning_effort` is not supported with this model"),
        (ChatWire(), "chat", CHAT, '"qwen2.5" does not support thinking'),
        (ChatWire(), "chat", CHAT, "Thinking level MEDIUM is not supported for this model."),
        (ResponsesWire(), "responses", RESPONSES,
         "Unsupported parameter: 'reasoning.effort' is not supported with this model."),
        (MessagesWire(), "messages", MESSAGES, "This model does not support the effort parameter."),
    ],
)  # fmt: skip
async def test_a_model_that_rejects_the_effort_answers_without_it_and_reports_it_once(
    wire: WireProtocol, protocol: ProtocolName, good: Any, refusal: str
) -> None:
    refused = error_answer(400, {"error": {"type": "invalid_request_error", "message": refusal}})
    asked = replace(REQUEST, effort=EASY)
    async with (
        model_server(refused, good) as (url, seen),
        http_model(url, wire=wire, protocol=protocol) as model,
    ):
        first, failure = await collect_deltas(model, asked)
        again, failed = await collect_deltas(model, asked)
    assert failure is None and failed is None
    fallback = first[0]
    assert isinstance(fallback, FallbackStarted) and fallback.model == model.name
    assert "does not take the effort 'low'" in str(fallback.failure)
    assert [delta.text for delta in first if isinstance(delta, TextDelta)] == ["Yes."]
    assert not any(isinstance(delta, FallbackStarted) for delta in again)
    efforts = ["effort" in msgspec.json.encode(body).decode() for body in seen.bodies]
    assert efforts == [True, False, False]


async def test_dropping_the_effort_does_not_prevent_a_fallback() -> None:
    refused = error_answer(400, {"error": {"message": "Unrecognized request argument: reasoning_effort"}})
    empty = streaming_answer([chunk({"role": "assistant"})])
    async with (
        model_server(refused, empty) as (lame, _), model_server(CHAT) as (well, _),
        http_model(lame) as first, http_model(well, name="second") as second,
    ):  # fmt: skip
        chain = FallbackModel([first, second], sleep=_at_once)
        deltas = [delta async for delta in chain.stream(replace(REQUEST, effort=EASY), ())]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Yes."]
    assert [delta.model for delta in deltas if isinstance(delta, FallbackStarted)] == [
        first.name,
        second.name,
    ]
    assert all(isinstance(d.failure, ModelFailure) for d in deltas if isinstance(d, FallbackStarted))


async def _at_once(seconds: float) -> None:
    return


def test_the_effort_in_an_agent_file_has_three_values() -> None:
    assert parse("a", 'effort = "high"', ()).effort == "high"
    assert parse("a", "", ()).effort is None
    with pytest.raises(BadAgent) as refusal:
        parse("a", 'effort = "huge"', ())
    assert "effort must be low, medium or high" in str(refusal.value)
