"""Chat Completions: what a model thought comes back to it, in whichever field its server wants it.

The streams are constructed from the published documentation of DeepSeek, Google, OpenRouter, Mistral and
Moonshot; none is a recording. What is sent is made from what was received, as the loop keeps it.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.domain.context.request import AssistantMessage, ModelProfile, Request, ToolMessage, UserMessage
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.domain.events.stream_fold import StreamFold
from holdfast.domain.ids import CallId, MessageId, RunId
from holdfast.domain.usage import Usage
from holdfast.models.chat.request import encode
from holdfast.models.chat.wire import ChatDecoder, ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import HttpModel
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta
from tests.support.model_server import (
    DONE,
    LONG_TIMEOUTS,
    REQUEST,
    SHELL,
    Answers,
    ReceivedRequests,
    chunk,
    collect_deltas,
    error_answer,
    model_server,
    streaming_answer,
)

RUN, MESSAGE = RunId("r"), MessageId("m")
CALL = {"index": 0, "id": "t_1", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
SIGNATURE = {"google": {"thought_signature": "CrICAdHt=="}}


def decode_chunks(*chunks: bytes) -> list[ModelDelta]:
    decoder = ChatDecoder()
    deltas: list[ModelDelta] = []
    for each in (*chunks, chunk({}, "tool_calls"), DONE):
        deltas += decoder.feed(each.removeprefix(b"data: ").strip())
    return [*deltas, *decoder.end()]


def message_from(deltas: list[ModelDelta]) -> AssistantMessage:
    """A message as it stands in the model's context later: thinking without a signature is not in it."""
    fold = StreamFold()
    for delta in deltas:
        match delta:
            case TextDelta():
                fold.add(f.TextAppended(RUN, MESSAGE, delta.text))
            case ReasoningDelta():
                fold.add(f.ReasoningAppended(RUN, MESSAGE, delta.text))
                if delta.signature:
                    fold.sign(delta.signature, "test")
            case CallDelta():
                call_id = CallId(f"c_{delta.index}")
                fold.add(f.ToolArgumentsAppended(RUN, MESSAGE, call_id, delta.name, delta.arguments))
    parts = (part for part in fold.parts() if not isinstance(part, Reasoning) or part.signature)
    return AssistantMessage(tuple(part for part in parts if isinstance(part, Text | Reasoning | ToolCall)))


def request_messages(*answers: AssistantMessage) -> Request:
    messages: list[Any] = [*REQUEST.messages]
    for answer in answers:
        messages.append(answer)
        calls = [part.call_id for part in answer.parts if isinstance(part, ToolCall)]
        messages += [ToolMessage(call_id, (Text("done"),)) for call_id in calls]
    return Request("", tuple(messages))


def sent_back(*answers: AssistantMessage, without: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    body = msgspec.json.decode(encode("small", request_messages(*answers), (), without))
    return [message for message in body["messages"] if message["role"] == "assistant"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_sent_back_in_its_own_field_during_a_tool_turn(field: str) -> None:
    first = message_from(
        decode_chunks(
            chunk({field: "I should "}),
            chunk({field: "look."}),
            chunk({"content": "Looking."}),
            chunk({"tool_calls": [CALL]}),
        )
    )
    last = message_from(decode_chunks(chunk({field: "It is there."}), chunk({"content": "Yes."})))
    loop = sent_back(first, last)
    assert [message[field] for message in loop] == ["I should look.", "It is there."]
    assert loop[0]["content"] == "Looking." and loop[0]["tool_calls"][0]["id"] == "c_0"
    # In a turn without calls nobody wants it.
    assert field not in sent_back(last)[0]
    assert field not in sent_back(first, without=("thinking",))[0]


def test_thinking_of_earlier_turns_is_sent_back_only_if_they_called_tools() -> None:
    called = message_from(decode_chunks(chunk({"reasoning_content": "Look."}), chunk({"tool_calls": [CALL]})))
    talked = message_from(decode_chunks(chunk({"reasoning_content": "Talk."}), chunk({"content": "Yes."})))
    again = UserMessage((Text("And now?"),))
    request = request_messages(called)
    request = Request("", (*request.messages, talked, again, talked, again))
    body = msgspec.json.decode(encode("small", request, ()))
    found = [
        message.get("reasoning_content") for message in body["messages"] if message["role"] == "assistant"
    ]
    assert found == ["Look.", "Talk.", None]


def test_a_call_keeps_its_google_signature() -> None:
    second = {**CALL, "index": 1, "id": "t_2"}
    deltas = decode_chunks(
        chunk({"tool_calls": [{**CALL, "extra_content": SIGNATURE}]}), chunk({"tool_calls": [second]})
    )
    calls = sent_back(message_from(deltas))[0]["tool_calls"]
    assert [each.get("extra_content") for each in calls] == [SIGNATURE, None]
    assert calls[0]["function"] == {"name": "shell", "arguments": "{}"}
    assert (
        "extra_content" not in sent_back(message_from(deltas), without=("extra_content",))[0]["tool_calls"][0]
    )


def test_late_signatures_are_attached_to_their_call() -> None:
    late = {"index": 0, "extra_content": SIGNATURE}
    deltas = decode_chunks(
        chunk({"reasoning_content": "Hm."}), chunk({"tool_calls": [CALL]}), chunk({"tool_calls": [late]})
    )
    message = sent_back(message_from(deltas))[0]
    assert message["tool_calls"][0]["extra_content"] == SIGNATURE
    assert message["reasoning_content"] == "Hm."


def test_a_foreign_call_gets_the_skip_signature_if_required() -> None:
    unsigned = AssistantMessage((ToolCall("c_1", "shell", "{}"), ToolCall("c_2", "shell", "{}")))
    found = sent_back(unsigned, without=("calls without a signature",))[0]["tool_calls"]
    skipped = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert [each.get("extra_content") for each in found] == [skipped, None]


TEXT = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}


def test_reasoning_details_are_sent_back_joined_without_duplicate_text() -> None:
    deltas = decode_chunks(
        chunk(
            {
                "reasoning": "I should ",
                "reasoning_details": [{**TEXT, "text": "I should ", "signature": None}],
            }
        ),
        chunk({"reasoning": "look.", "reasoning_details": [{**TEXT, "text": "look."}]}),
        chunk({"reasoning_details": [{**TEXT, "text": None, "signature": "EqQB"}]}),
        chunk({"content": "Looking."}),
        chunk({"tool_calls": [CALL]}),
    )
    message = sent_back(message_from(deltas))[0]
    assert message["reasoning_details"] == [{**TEXT, "text": "I should look.", "signature": "EqQB"}]
    assert "reasoning" not in message
    stored = [delta.signature for delta in deltas if isinstance(delta, ReasoningDelta)]
    assert not any("I should" in signature for signature in stored)


def test_encrypted_details_refer_to_our_call_id() -> None:
    secret = {"type": "reasoning.encrypted", "data": "gAAA", "format": "google-gemini-v1", "index": 0}
    deltas = decode_chunks(
        chunk({"tool_calls": [CALL]}),
        chunk({"reasoning_details": [{**secret, "id": "t_1"}]}),
        chunk({"reasoning_details": [{**secret, "id": "rs_7", "data": "gBBB"}]}),
    )
    assert sent_back(message_from(deltas))[0]["reasoning_details"] == [
        {**secret, "id": "c_0"},
        {**secret, "id": "rs_7", "data": "gBBB"},
    ]


def test_several_texts_in_reasoning_details_stay_separate() -> None:
    first, second = {**TEXT, "text": "One."}, {**TEXT, "index": 1, "text": "Two."}
    deltas = decode_chunks(chunk({"reasoning_details": [first, second]}), chunk({"tool_calls": [CALL]}))
    assert deltas[0] == ReasoningDelta("One.Two.")
    assert sent_back(message_from(deltas))[0]["reasoning_details"] == [first, second]


def test_malformed_opaque_fields_are_ignored() -> None:
    deltas = decode_chunks(
        chunk({"reasoning_details": "odd"}),
        chunk({"reasoning_details": [1]}),
        chunk({"reasoning_details": None}),
        chunk({"tool_calls": [{**CALL, "extra_content": "odd"}]}),
        chunk({"tool_calls": [{"index": 0, "extra_content": None}]}),
    )
    assert deltas == [CallDelta(0, "shell", "{}"), StepEnd("tool_calls")]


def test_list_content_is_decoded_as_thinking_and_text() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    deltas = decode_chunks(
        chunk({"content": [thinking]}), chunk({"content": [{"type": "text", "text": "Yes."}]})
    )
    assert deltas[:-1] == [ReasoningDelta("Hm."), TextDelta("Yes.")]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 7}}, Usage(9, 5, 7)),
        ({"prompt_cache_hit_tokens": 7, "prompt_cache_miss_tokens": 2}, Usage(9, 5, 7)),
        ({"cached_tokens": 7}, Usage(9, 5, 7)),
        # OpenRouter's usage accounting; and how Google counts what was thought.
        (
            {"prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 6}},
            Usage(9, 5, 2, written_tokens=6),
        ),
        ({"total_tokens": 90}, Usage(9, 81)),
        ({"total_tokens": 14}, Usage(9, 5)),
        ({"total_tokens": 3}, Usage(9, 5)),
        ({"cost": 0.00125, "is_byok": False}, Usage(9, 5, 0, 1250)),
        ({"cost": 0.00125}, Usage(9, 5)),
        ({"cost": {"total": 1}, "is_byok": False}, Usage(9, 5)),
    ],
)
def test_cached_tokens_and_reported_cost_are_counted(usage: dict[str, Any], counted: Usage) -> None:
    used = {"prompt_tokens": 9, "completion_tokens": 5, **usage}
    assert decode_chunks(chunk({"content": "Yes."}, usage=used))[-1] == StepEnd("tool_calls", counted)


# What servers want, told by their refusals.


def send(request: Request, *answers: Answers, answer_tokens_max: int = 0) -> ReceivedRequests:
    async def ask() -> ReceivedRequests:
        async with model_server(*answers) as (url, seen):
            profile = ModelProfile("test", 100_000, answer_tokens_max=answer_tokens_max)
            model = HttpModel(Endpoint(url, "small", Secret("")), ChatWire(), profile, LONG_TIMEOUTS)
            try:
                for _ in range(2):
                    deltas, failure = await collect_deltas(model, request, [SHELL])
                    assert failure is None and deltas[-1] == StepEnd("stop")
            finally:
                await model.close()
        return seen

    return asyncio.run(ask())


YES = streaming_answer([chunk({"content": "Yes."}), chunk({}, "stop"), DONE])
THOUGHT = message_from(decode_chunks(chunk({"reasoning_content": "Hm."}), chunk({"tool_calls": [CALL]})))
UNTHOUGHT = AssistantMessage((ToolCall("c_9", "shell", "{}"),))


def reject(message: str) -> Answers:
    return error_answer(400, {"error": {"message": message, "type": "invalid_request_error"}})


def test_a_server_that_requires_thinking_with_calls_gets_it_from_then_on() -> None:
    said = "The reasoning_content in the thinking mode must be passed back to the API."
    seen = send(request_messages(THOUGHT, UNTHOUGHT), reject(said), YES)
    found = [
        [each.get("reasoning_content") for each in body["messages"] if "tool_calls" in each]
        for body in seen.bodies
    ]
    assert found == [["Hm.", None], ["Hm.", ""], ["Hm.", ""]]


def test_a_server_that_rejects_thinking_gets_none_from_then_on() -> None:
    said = "'messages.1' : property 'reasoning_content' is unsupported"
    seen = send(request_messages(THOUGHT), reject(said), YES)
    assert ["reasoning_content" in body["messages"][1] for body in seen.bodies] == [True, False, False]


def test_a_server_that_requires_signed_calls_gets_the_skip_signature() -> None:
    said = "Function call is missing a thought_signature in functionCall parts."
    seen = send(
        request_messages(UNTHOUGHT), error_answer(400, [{"error": {"code": 400, "message": said}}]), YES
    )
    found = ["extra_content" in body["messages"][1]["tool_calls"][0] for body in seen.bodies]
    assert found == [False, True, True]


def test_an_output_limit_uses_the_field_name_of_the_server() -> None:
    said = "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    seen = send(REQUEST, reject(said), YES, answer_tokens_max=900)
    names = [{name: body[name] for name in body if name.startswith("max_")} for body in seen.bodies]
    assert names == [{"max_tokens": 900}, *2 * [{"max_completion_tokens": 900}]]
    assert not any(name.startswith("max_") for name in send(REQUEST, YES).bodies[0])
