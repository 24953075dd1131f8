"""How much a model is to think: said in each protocol's own words, and left out where it is not taken.

The refusals are worded as OpenAI, Anthropic, Google, Groq and Ollama word them.
"""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.domain.agents import BadAgent, parse
from holdfast.domain.context.context import Profile
from holdfast.domain.context.request import Effort
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Protocol
from holdfast.models.fallback import Fallback
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import AskedInstead, ModelFailure, TextDelta
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import Wire
from tests.support.model_server import ASKED, DONE, asking, chunk, event, heard, refusing, serving, streaming

ROOMY = Profile("test", 200_000, 32_000)
EASY: Effort = "low"
CHAT = streaming([chunk({"content": "Yes."}), chunk({}, "stop"), DONE])
RESPONSES = streaming(
    [
        event({"type": "response.output_text.delta", "delta": "Yes.", "item_id": "m", "output_index": 0}),
        event({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]
)
MESSAGES = streaming(
    [
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Yes."}}),
        event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}),
        event({"type": "message_stop"}),
    ]
)


def sent(wire: Wire, model: str, effort: Effort | None, *without: str) -> dict[str, Any]:
    body = wire.encode(model, ROOMY, replace(ASKED, effort=effort), (), without)
    decoded: dict[str, Any] = msgspec.json.decode(body)
    return decoded


def test_each_protocol_has_its_own_words_for_it() -> None:
    assert sent(ChatWire(), "small", "high")["reasoning_effort"] == "high"
    assert sent(ResponsesWire(), "gpt-6-sol", "low")["reasoning"] == {"summary": "auto", "effort": "low"}
    claude = sent(MessagesWire(), "claude-sonnet-5-5", "medium")
    assert claude["output_config"] == {"effort": "medium"} and claude["thinking"]["type"] == "adaptive"


def test_nothing_is_said_where_nobody_asked() -> None:
    assert "reasoning_effort" not in sent(ChatWire(), "small", None)
    assert sent(ResponsesWire(), "gpt-6-sol", None)["reasoning"] == {"summary": "auto"}
    assert "output_config" not in sent(MessagesWire(), "claude-sonnet-5-5", None)


def test_a_model_that_wants_a_budget_gets_a_smaller_or_a_larger_one() -> None:
    budgets = [
        sent(MessagesWire(), "claude-haiku-4-5", effort)["thinking"]["budget_tokens"]
        for effort in ("low", None, "medium", "high")
    ]
    assert budgets == [4_000, 16_000, 16_000, 24_000]
    assert "output_config" not in sent(MessagesWire(), "claude-haiku-4-5", "high")


def test_a_refused_summary_does_not_cost_the_effort_nor_the_other_way_round() -> None:
    wire = ResponsesWire()
    assert sent(wire, "m", "low", "reasoning.summary")["reasoning"] == {"effort": "low"}
    assert sent(wire, "m", "low", "effort")["reasoning"] == {"summary": "auto"}
    assert "reasoning" not in sent(wire, "m", "low", "reasoning.summary", "effort")
    assert "reasoning" not in sent(wire, "m", "low", "reasoning")


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
async def test_a_model_that_does_not_take_it_answers_without_and_says_so_once(
    wire: Wire, protocol: Protocol, good: Any, refusal: str
) -> None:
    refused = refusing(400, {"error": {"type": "invalid_request_error", "message": refusal}})
    asked = replace(ASKED, effort=EASY)
    async with serving(refused, good) as (url, seen), asking(url, wire=wire, protocol=protocol) as model:
        first, failure = await heard(model, asked)
        again, failed = await heard(model, asked)
    assert failure is None and failed is None
    told = first[0]
    assert isinstance(told, AskedInstead) and told.model == model.name
    assert "does not take the effort 'low'" in str(told.failure)
    assert [delta.text for delta in first if isinstance(delta, TextDelta)] == ["Yes."]
    assert not any(isinstance(delta, AskedInstead) for delta in again)
    efforts = ["effort" in msgspec.json.encode(body).decode() for body in seen.bodies]
    assert efforts == [True, False, False]


async def test_being_asked_without_it_is_no_answer_that_a_fallback_would_have_to_leave_alone() -> None:
    refused = refusing(400, {"error": {"message": "Unrecognized request argument: reasoning_effort"}})
    empty = streaming([chunk({"role": "assistant"})])
    async with (
        serving(refused, empty) as (lame, _), serving(CHAT) as (well, _),
        asking(lame) as first, asking(well, name="second") as second,
    ):  # fmt: skip
        chain = Fallback([first, second], sleep=_at_once)
        deltas = [delta async for delta in chain.stream(replace(ASKED, effort=EASY), ())]
    assert [delta.text for delta in deltas if isinstance(delta, TextDelta)] == ["Yes."]
    assert [delta.model for delta in deltas if isinstance(delta, AskedInstead)] == [first.name, second.name]
    assert all(isinstance(d.failure, ModelFailure) for d in deltas if isinstance(d, AskedInstead))


async def _at_once(seconds: float) -> None:
    return


def test_a_file_says_it_in_one_of_three_words() -> None:
    assert parse("a", 'effort = "high"', ()).effort == "high"
    assert parse("a", "", ()).effort is None
    with pytest.raises(BadAgent) as refusal:
        parse("a", 'effort = "huge"', ())
    assert "effort must be low, medium or high" in str(refusal.value)
