"""Anthropic Messages: what an answer's events mean, and an answer that came whole.

The streams are constructed from the published reference of the Messages API ("Streaming messages",
"Thinking", "Errors", "Stop reasons"); none is a recording.
"""

from typing import Any

import msgspec
import pytest

from holdfast.domain.usage import Usage
from holdfast.models.failures import TOO_LONG
from holdfast.models.http_model import Answer
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta
from tests.support.messages_streams import (
    ENDPOINT,
    START,
    STOP,
    TALK,
    TALKED,
    answered,
    begun,
    ended,
    event,
    grown,
    over,
    said,
)

HIDDEN = ReasoningDelta("", "redacted_thinking:b3BhcXVl")


def whole(**fields: Any) -> list[ModelDelta]:
    body = {"id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn", **fields}
    return Answer(ENDPOINT, MessagesWire()).whole(msgspec.json.encode(body))


def test_an_answer_comes_in_its_order_with_its_usage() -> None:
    assert answered(TALK) == (TALKED, None)


def test_hidden_thinking_is_kept_to_be_sent_back() -> None:
    hidden = begun(0, type="redacted_thinking", data="b3BhcXVl") + over(0)
    deltas, _ = answered(START, hidden, said("Hi.", 1), ended("end_turn"), STOP)
    assert deltas[0] == HIDDEN


def test_thinking_that_is_not_shown_is_signed_all_the_same() -> None:
    block = begun(0, type="thinking", thinking="", signature="") + grown(
        0, "signature_delta", signature="c2ln"
    )
    deltas, _ = answered(START, block, over(0), said("Hi.", 1), ended("end_turn"), STOP)
    assert deltas[:2] == [ReasoningDelta("", "c2ln"), TextDelta("Hi.")]


def test_a_signature_closes_its_own_thinking_when_the_end_of_its_block_is_not_told() -> None:
    thinking = begun(0, type="thinking", thinking="") + grown(0, "thinking_delta", thinking="Hm.")
    signed = thinking + grown(0, "signature_delta", signature="c2ln") + event({"type": "ping"})
    deltas, _ = answered(START, signed, said("Hi.", 1), ended("end_turn"), STOP)
    assert deltas[:3] == [ReasoningDelta("Hm."), ReasoningDelta("", "c2ln"), TextDelta("Hi.")]


def test_parallel_calls_stay_apart_however_their_pieces_come() -> None:
    one, two = (begun(i, type="tool_use", id=f"toolu_{i}", name="shell", input={}) for i in (1, 2))
    pieces = [
        grown(i, "input_json_delta", partial_json=p)
        for i, p in ((1, '{"a"'), (2, '{"b"'), (1, ":1}"), (2, ":2}"))
    ]
    deltas, _ = answered(START, one, two, *pieces, over(1), over(2), ended("tool_use"), STOP)
    assert deltas == [
        CallDelta(0, "shell", ""),
        CallDelta(1, "shell", ""),
        CallDelta(0, "shell", '{"a"'),
        CallDelta(1, "shell", '{"b"'),
        CallDelta(0, "shell", ":1}"),
        CallDelta(1, "shell", ":2}"),
        StepEnd("tool_calls", Usage(26, 15, 16, written_tokens=3)),
    ]


def test_a_call_that_begins_twice_is_one_call_and_another_in_its_place_is_another() -> None:
    one, two = (begun(0, type="tool_use", id=f"toolu_{i}", name="now", input={}) for i in (1, 2))
    deltas, _ = answered(START, one, one, two, ended("tool_use"), STOP)
    assert deltas[:-1] == [
        CallDelta(0, "now", ""),
        CallDelta(0, "now", "{}"),
        CallDelta(1, "now", ""),
        CallDelta(1, "now", "{}"),
    ]


def test_pieces_of_a_call_that_come_before_its_name_are_not_lost() -> None:
    piece = grown(0, "input_json_delta", partial_json="{}")
    named = begun(0, type="tool_use", id="toolu_1", name="now", input={})
    assert answered(START, piece, named, ended("tool_use"), STOP)[0][:-1] == [CallDelta(0, "now", "{}")]
    assert answered(START, piece, ended("tool_use"), STOP)[0][:-1] == [CallDelta(0, "", "{}")]


@pytest.mark.parametrize(
    ("given", "arguments"), [({}, "{}"), (None, "{}"), ({"a": [1]}, '{"a":[1]}'), ("", "{}")]
)
def test_a_call_whose_arguments_do_not_come_in_pieces_has_those_it_began_with(
    given: object, arguments: str
) -> None:
    call = begun(0, type="tool_use", id="toolu_1", name="now", input=given)
    expected = [CallDelta(0, "now", ""), CallDelta(0, "now", arguments)]
    assert answered(START, call, over(0), ended("tool_use"), STOP)[0][:-1] == expected
    assert answered(START, call, ended("tool_use"), STOP)[0][:-1] == expected, "its end need not be told"


def test_what_the_servers_own_tools_do_is_passed_over_without_loss() -> None:
    search = [
        begun(1, type="server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        grown(1, "input_json_delta", partial_json='{"query":"x"}'),
        over(1),
        begun(2, type="web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"url": "x"}], data=[7]),
        over(2),
        grown(3, "citations_delta", citation={"type": "char_location"}),
    ]
    deltas, failure = answered(START, said("One, ", 0), *search, said("two.", 3), ended("end_turn"), STOP)
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
def test_events_that_are_not_known_are_passed_over(odd: object) -> None:
    deltas, failure = answered(START, said("a", 0), event(odd), said("b", 0), ended("end_turn"), STOP)
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
def test_why_a_model_stopped_is_said_in_one_vocabulary(reason: str, ours: str) -> None:
    deltas, failure = answered(START, said("a", 0), ended(reason), STOP)
    assert failure is None
    assert deltas[-1] == StepEnd(ours, Usage(26, 15, 16, written_tokens=3))


def test_a_model_that_declines_without_a_word_fails_and_says_why() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "It could do harm."}
    deltas, failure = answered(START, ended("refusal", stop_details=details), STOP)
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
def test_all_of_the_input_is_counted_and_what_the_cache_gave_apart(
    start: object, end: object, counted: Usage
) -> None:
    first = event({"type": "message_start", "message": {"content": [], "usage": start}})
    last = event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": end})
    assert answered(first, said("a", 0), last, STOP) == ([TextDelta("a"), StepEnd("stop", counted)], None)


@pytest.mark.parametrize("end", [b"", STOP, STOP.rstrip(), event({"type": "ping"})])
def test_an_answer_with_a_stop_reason_is_whole_however_its_stream_ends(end: bytes) -> None:
    deltas, failure = answered(START, said("a", 0), ended("end_turn"), end)
    assert failure is None and isinstance(deltas[-1], StepEnd)


def test_an_end_alone_ends_an_answer_too() -> None:
    assert answered(said("a", 0), STOP) == ([TextDelta("a"), StepEnd("stop")], None)


def test_what_comes_after_the_end_is_not_looked_at() -> None:
    for chunks in ((TALK + b"data: {oops\n\n",), (TALK, b"data: {oops\n\n")):
        answer = Answer(ENDPOINT, MessagesWire())
        deltas = list(answer.feed(chunks[0]))
        assert answer.is_done and [*deltas, *answer.end()] == TALKED


def test_a_call_that_is_cut_off_is_not_made_whole() -> None:
    deltas, failure = answered(START, begun(0, type="tool_use", id="toolu_1", name="now", input={}))
    assert failure is not None and failure.retryable
    assert deltas == [CallDelta(0, "now", "")]


def test_an_answer_that_came_whole_is_read_too() -> None:
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
def test_an_error_in_the_stream_ends_it_after_what_came_before(
    error: dict[str, str], retryable: bool, words: str
) -> None:
    broken = event({"type": "error", "error": error, "request_id": "req_1"})
    deltas, failure = answered(START, said("kept", 0) + broken + said("never", 0))
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
def test_what_cannot_be_read_ends_the_stream_after_what_came_before(bad: bytes) -> None:
    deltas, failure = answered(START, said("kept", 0) + bad + said("never", 0))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable
