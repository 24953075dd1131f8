"""Anthropic Messages: what an answer's events mean, and an answer that came whole.

The streams are constructed from the published reference of the Messages API ("Streaming messages",
"Thinking", "Errors", "Stop reasons"); none is a recording.
"""

from typing import Any

import msgspec
import pytest

from holdfast.domain.usage import Usage
from holdfast.models.failures import TOO_LONG
from holdfast.models.http_model import AnswerDecoder
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta
from tests.support.messages_streams import (
    ENDPOINT,
    START,
    STOP,
    TEXT_DELTAS,
    TEXT_STREAM,
    block_delta,
    block_start,
    block_stop,
    decode_stream,
    event,
    message_delta,
    text_delta,
)

HIDDEN = ReasoningDelta("", "redacted_thinking:b3BhcXVl")


def whole(**fields: Any) -> list[ModelDelta]:
    body = {"id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn", **fields}
    return AnswerDecoder(ENDPOINT, MessagesWire()).decode_whole(msgspec.json.encode(body))


def test_an_answer_is_decoded_in_order_with_its_usage() -> None:
    assert decode_stream(TEXT_STREAM) == (TEXT_DELTAS, None)


def test_redacted_thinking_is_kept_to_be_sent_back() -> None:
    hidden = block_start(0, type="redacted_thinking", data="b3BhcXVl") + block_stop(0)
    deltas, _ = decode_stream(START, hidden, text_delta("Hi.", 1), message_delta("end_turn"), STOP)
    assert deltas[0] == HIDDEN


def test_thinking_without_text_keeps_its_signature() -> None:
    block = block_start(0, type="thinking", thinking="", signature="") + block_delta(
        0, "signature_delta", signature="c2ln"
    )
    deltas, _ = decode_stream(
        START, block, block_stop(0), text_delta("Hi.", 1), message_delta("end_turn"), STOP
    )
    assert deltas[:2] == [ReasoningDelta("", "c2ln"), TextDelta("Hi.")]


def test_a_signature_closes_its_thinking_without_a_block_stop() -> None:
    thinking = block_start(0, type="thinking", thinking="") + block_delta(0, "thinking_delta", thinking="Hm.")
    signed = thinking + block_delta(0, "signature_delta", signature="c2ln") + event({"type": "ping"})
    deltas, _ = decode_stream(START, signed, text_delta("Hi.", 1), message_delta("end_turn"), STOP)
    assert deltas[:3] == [ReasoningDelta("Hm."), ReasoningDelta("", "c2ln"), TextDelta("Hi.")]


def test_interleaved_parallel_calls_stay_separate() -> None:
    one, two = (block_start(i, type="tool_use", id=f"toolu_{i}", name="shell", input={}) for i in (1, 2))
    pieces = [
        block_delta(i, "input_json_delta", partial_json=p)
        for i, p in ((1, '{"a"'), (2, '{"b"'), (1, ":1}"), (2, ":2}"))
    ]
    deltas, _ = decode_stream(
        START, one, two, *pieces, block_stop(1), block_stop(2), message_delta("tool_use"), STOP
    )
    assert deltas == [
        CallDelta(0, "shell", ""),
        CallDelta(1, "shell", ""),
        CallDelta(0, "shell", '{"a"'),
        CallDelta(1, "shell", '{"b"'),
        CallDelta(0, "shell", ":1}"),
        CallDelta(1, "shell", ":2}"),
        StepEnd("tool_calls", Usage(26, 15, 16, written_tokens=3)),
    ]


def test_a_call_started_twice_is_one_call_unless_its_id_differs() -> None:
    one, two = (block_start(0, type="tool_use", id=f"toolu_{i}", name="now", input={}) for i in (1, 2))
    deltas, _ = decode_stream(START, one, one, two, message_delta("tool_use"), STOP)
    assert deltas[:-1] == [
        CallDelta(0, "now", ""),
        CallDelta(0, "now", "{}"),
        CallDelta(1, "now", ""),
        CallDelta(1, "now", "{}"),
    ]


def test_call_arguments_before_the_name_are_not_lost() -> None:
    piece = block_delta(0, "input_json_delta", partial_json="{}")
    named = block_start(0, type="tool_use", id="toolu_1", name="now", input={})
    assert decode_stream(START, piece, named, message_delta("tool_use"), STOP)[0][:-1] == [
        CallDelta(0, "now", "{}")
    ]
    assert decode_stream(START, piece, message_delta("tool_use"), STOP)[0][:-1] == [CallDelta(0, "", "{}")]


@pytest.mark.parametrize(
    ("given", "arguments"), [({}, "{}"), (None, "{}"), ({"a": [1]}, '{"a":[1]}'), ("", "{}")]
)
def test_a_call_without_argument_deltas_uses_its_initial_arguments(given: object, arguments: str) -> None:
    call = block_start(0, type="tool_use", id="toolu_1", name="now", input=given)
    expected = [CallDelta(0, "now", ""), CallDelta(0, "now", arguments)]
    assert decode_stream(START, call, block_stop(0), message_delta("tool_use"), STOP)[0][:-1] == expected
    assert decode_stream(START, call, message_delta("tool_use"), STOP)[0][:-1] == expected, (
        "its end need not be told"
    )


def test_server_side_tool_blocks_are_ignored() -> None:
    search = [
        block_start(1, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        block_delta(1, "input_json_delta", partial_json='{"query":"x"}'),
        block_stop(1),
        block_start(
            2, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"url": "x"}], data=[7]
        ),
        block_stop(2),
        block_delta(3, "citations_delta", citation={"type": "char_location"}),
    ]
    deltas, failure = decode_stream(
        START, text_delta("One, ", 0), *search, text_delta("two.", 3), message_delta("end_turn"), STOP
    )
    assert failure is None
    assert deltas == [
        TextDelta("One, "),
        TextDelta("two."),
        StepEnd("stop", Usage(26, 15, 16, written_tokens=3)),
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "ping"},
        {"type": "not_known_yet", "delta": 7, "index": "a"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "not_known_yet", "text": ["x"]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "not_known_yet", "text": "x"}},
        {"type": "content_block_start", "index": 9, "content_block": {"type": "not_known_yet", "data": {}}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": "many"}},
        {"type": "content_block_stop", "index": 77},
        {},
    ],
)
def test_unknown_messages_events_are_ignored(odd: object) -> None:
    deltas, failure = decode_stream(
        START, text_delta("a", 0), event(odd), text_delta("b", 0), message_delta("end_turn"), STOP
    )
    assert failure is None
    assert deltas == [TextDelta("a"), TextDelta("b"), StepEnd("stop", Usage(26, 15, 16, written_tokens=3))]


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
    ],
)
def test_stop_reasons_are_normalised(reason: str, ours: str) -> None:
    deltas, failure = decode_stream(START, text_delta("a", 0), message_delta(reason), STOP)
    assert failure is None
    assert deltas[-1] == StepEnd(ours, Usage(26, 15, 16, written_tokens=3))


def test_a_refusal_without_text_fails_with_its_explanation() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    deltas, failure = decode_stream(START, message_delta("refusal", stop_details=details), STOP)
    assert deltas == []
    assert failure is not None and not failure.retryable
    assert "declined to answer: It could do harm" in str(failure)


@pytest.mark.parametrize(
    ("start", "end", "counted"),
    [
        ({"input_tokens": 5, "output_tokens": 1}, {"output_tokens": 9}, Usage(5, 9)),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20},
            {"output_tokens": 9},
            Usage(125, 9, 100, written_tokens=20),
        ),
        (
            {"input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1},
            {"input_tokens": 8, "cache_read_input_tokens": None, "output_tokens": 9},
            Usage(108, 9, 100),
        ),
        ({"input_tokens": "many"}, {"output_tokens": 9}, Usage(0, 9)),
        (None, None, Usage()),
        ([], {"output_tokens": -3}, Usage()),
    ],
)
def test_input_tokens_include_cached_tokens_which_are_also_counted_separately(
    start: object, end: object, counted: Usage
) -> None:
    first = event({"type": "message_start", "message": {"content": [], "usage": start}})
    last = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end})
    assert decode_stream(first, text_delta("a", 0), last, STOP) == (
        [TextDelta("a"), StepEnd("stop", counted)],
        None,
    )


@pytest.mark.parametrize("end", [b"", STOP, STOP.rstrip(), event({"type": "ping"})])
def test_an_answer_with_a_stop_reason_is_complete_however_its_stream_ends(end: bytes) -> None:
    deltas, failure = decode_stream(START, text_delta("a", 0), message_delta("end_turn"), end)
    assert failure is None and isinstance(deltas[-1], StepEnd)


def test_a_message_stop_alone_completes_an_answer() -> None:
    assert decode_stream(text_delta("a", 0), STOP) == ([TextDelta("a"), StepEnd("stop")], None)


def test_events_after_the_end_are_ignored() -> None:
    for chunks in ((TEXT_STREAM + b"data: {oops\n\n",), (TEXT_STREAM, b"data: {oops\n\n")):
        answer = AnswerDecoder(ENDPOINT, MessagesWire())
        deltas = list(answer.feed(chunks[0]))
        assert answer.has_stream_ended and [*deltas, *answer.end()] == TEXT_DELTAS


def test_a_truncated_call_is_not_completed() -> None:
    deltas, failure = decode_stream(
        START, block_start(0, type="tool_use", id="toolu_1", name="now", input={})
    )
    assert failure is not None and failure.retryable
    assert deltas == [CallDelta(0, "now", "")]


def test_a_whole_messages_answer_is_decoded() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "I look.", "citations": None},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "text": 7},
        {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 5}
    assert whole(content=content, stop_reason="tool_use", usage=usage) == [
        ReasoningDelta("Hm."),
        ReasoningDelta("", "c2ln"),
        HIDDEN,
        TextDelta("I look."),
        CallDelta(0, "shell", ""),
        CallDelta(0, "shell", '{"command":"ls"}'),
        CallDelta(1, "now", ""),
        CallDelta(1, "now", "{}"),
        StepEnd("tool_calls", Usage(8, 4, 5)),
    ]


@pytest.mark.parametrize(
    ("error", "retryable", "words"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, True, "Overloaded"),
        ({"type": "rate_limit_error", "message": "slow down"}, True, "slow down"),
        ({"type": "api_error", "message": "Internal server error"}, True, "Internal"),
        ({"type": "timeout_error", "message": "Request timeout"}, True, "timeout"),
        ({"type": "invalid_request_error", "message": "bad"}, False, "bad"),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, False, "x-api-key"),
        ({"type": "billing_error", "message": "pay"}, False, "pay"),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}, False, TOO_LONG),
    ],
)
def test_an_error_in_the_stream_ends_it_after_the_received_deltas(
    error: dict[str, str], retryable: bool, words: str
) -> None:
    broken = event({"type": "error", "error": error, "request_id": "req_1"})
    deltas, failure = decode_stream(START, text_delta("kept", 0) + broken + text_delta("never", 0))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable is retryable
    assert words in str(failure)


@pytest.mark.parametrize(
    "bad",
    [
        b"data: {oops\n\n",
        b"data: 1\n\n",
        b'data: "\xff"\n\n',
        b'data: {"type":7}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": 7}}),
    ],
)
def test_unreadable_events_end_the_stream_after_the_received_deltas(bad: bytes) -> None:
    deltas, failure = decode_stream(START, text_delta("kept", 0) + bad + text_delta("never", 0))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable
