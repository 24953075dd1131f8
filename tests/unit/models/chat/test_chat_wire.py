"""Chat Completions: what is sent for a request, and what an answer's chunks mean, odd servers included."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.context.context import AssistantMessage, FileContent, Request, ToolMessage, UserMessage
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.domain.usage import Usage
from holdfast.models.chat.request import encode
from holdfast.models.chat.thinking import ThinkingSignature
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import AnswerDecoder
from holdfast.models.ports import (
    CallDelta,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)
from tests.support.answer_decoder import decode_answer
from tests.support.model_server import (
    DONE,
    REQUEST,
    SHELL,
    TEXT_STREAM,
    USAGE,
    USAGE_FIELDS,
    call,
    chunk,
    event,
)

ROLES = ["user", "assistant", "tool", "assistant", "tool", "tool"]
ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "small", Secret(""))


def encoded(
    request: Request, tools: tuple[ToolSpec, ...] = (), without: tuple[str, ...] = ()
) -> dict[str, Any]:
    return msgspec.json.decode(encode("small", request, tools, without), type=dict[str, Any])


def decode(*chunks: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return decode_answer(AnswerDecoder(ENDPOINT, ChatWire()), chunks)


def calls_of(*chunks: bytes) -> list[tuple[str, str]]:
    """The calls of an answer, put together as the loop does it."""
    deltas, failure = decode(*chunks, chunk({}, "tool_calls"), DONE)
    assert failure is None
    found: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            name, arguments = found.get(delta.index, (delta.name, ""))
            found[delta.index] = (name, arguments + delta.arguments)
    assert list(found) == list(range(len(found)))
    return list(found.values())


# The request.


def test_a_request_streams_and_asks_for_usage() -> None:
    body = encoded(REQUEST)
    assert body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_sent_as_functions_and_can_be_omitted() -> None:
    assert encoded(REQUEST, (SHELL,))["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "shell",
                "description": "Run a command.",
                "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
            },
        }
    ]
    assert not {"tools", "stream_options"} & set(encoded(REQUEST, (SHELL,), ("tools", "stream_options")))


def test_a_conversation_is_sent_with_its_calls_and_their_results() -> None:
    messages = encoded(
        Request(
            "",
            (
                UserMessage((Text("Look."), File("b", "a\ncat.png", "image/png", 9))),
                AssistantMessage(
                    (Reasoning("Hm.", "signed", "test"), Text("I look."), ToolCall("c_1", "shell", '{"a":1}'))
                ),
                ToolMessage("c_1", (Text("one"), Text("two")), failed=True),
                AssistantMessage((ToolCall("c_2", "no such/tool é", "{}"), ToolCall("c_3", "", "{}"))),
                ToolMessage("c_2", (Text("no"),)),
                ToolMessage("c_3", (Text("no"),)),
            ),
        )
    )["messages"]
    assert [message["role"] for message in messages] == ROLES
    assert messages[0]["content"] == "Look.\n\n[file a cat.png]"
    function = {"name": "shell", "arguments": '{"a":1}'}
    assert messages[1] == {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [{"id": "c_1", "type": "function", "function": function}],
    }
    assert messages[2] == {"role": "tool", "tool_call_id": "c_1", "content": "one\n\ntwo"}
    assert messages[3]["content"] is None
    names = [each["function"]["name"] for each in messages[3]["tool_calls"]]
    assert names == ["no_such_tool__", "unknown"]


def encode_files(*files: tuple[File, FileContent]) -> Any:
    """What is sent of a person's message that has these files."""
    parts = (Text("Look."), *(file for file, _ in files))
    contents = {file.blob: content for file, content in files}
    return encoded(Request("", (UserMessage(parts),), files=contents))["messages"][0]["content"]


def test_text_files_and_omitted_files_are_sent_as_text() -> None:
    notes = File("b1", "a\nb.md", "text/plain", 9)
    picture = File("b2", "a.png", "image/png", 9)
    assert encode_files((notes, FileContent("text", "x = 1\n"))) == "Look.\n\nFile a b.md:\n```\nx = 1\n```"
    assert encode_files((notes, FileContent("text", "```\na\n````"))).endswith("\n`````\n```\na\n````\n`````")
    said = encode_files((picture, FileContent("note", "is no longer here")))
    assert said == "Look.\n\n[file a.png is no longer here]"


def test_images_and_pdf_files_are_sent_as_parts_beside_the_text() -> None:
    picture, pdf = File("b1", "a.png", "image/png", 9), File("b2", "a.pdf", "application/pdf", 9)
    assert encode_files((picture, FileContent("image", "aGk=")), (pdf, FileContent("pdf", "aG8="))) == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aG8="}},
    ]


# The answer.


def test_an_answer_is_decoded_in_order_with_its_usage() -> None:
    deltas, failure = decode(TEXT_STREAM)
    assert failure is None
    assert deltas == [
        ReasoningDelta("Héllo is a greeting. "),
        ReasoningDelta("", ThinkingSignature("reasoning_content").signature()),
        TextDelta("Grüße, "),
        TextDelta("世界 🌍"),
        TextDelta("!\n"),
        CallDelta(0, "shell", ""),
        CallDelta(0, "shell", '{"comm'),
        CallDelta(1, "shell", '{"command":"pwd"}'),
        CallDelta(0, "shell", 'and":"ls"}'),
        StepEnd("tool_calls", Usage(19, 10, 16)),
    ]


@given(st.lists(st.integers(0, len(TEXT_STREAM)), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_deltas(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TEXT_STREAM)]
    assert decode(*(TEXT_STREAM[a:b] for a, b in pairwise(edges))) == decode(TEXT_STREAM)


def test_a_stream_cut_at_any_byte_keeps_the_deltas_before_the_cut_and_fails() -> None:
    whole, _ = decode(TEXT_STREAM)
    finish = TEXT_STREAM.index(b'"finish_reason":"tool_calls"')
    finished = TEXT_STREAM.index(b"}\n\n", finish) + 1
    before = 0
    for at in range(len(TEXT_STREAM)):
        deltas, failure = decode(TEXT_STREAM[:at])
        if at < finished:
            assert failure is not None and failure.retryable
            assert deltas == whole[: len(deltas)]
        else:
            assert failure is None
            assert deltas[:-1] == whole[:-1]
            assert isinstance(deltas[-1], StepEnd) and deltas[-1].stop_reason == "tool_calls"
        assert len(deltas) >= before, "more bytes never give less"
        before = len(deltas)


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_arbitrary_bytes_never_lose_earlier_deltas(chunks: list[bytes]) -> None:
    deltas, failure = decode(chunk({"content": "a"}), *(b"data: " + each + b"\n\n" for each in chunks))
    assert deltas[0] == TextDelta("a")
    assert isinstance(deltas[-1], StepEnd) is (failure is None)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_found_in_either_field(field: str) -> None:
    deltas, _ = decode(chunk({field: "Hm.", "content": None}), chunk({}, "stop"), DONE)
    assert deltas == [ReasoningDelta("Hm."), StepEnd("stop")]


def test_thinking_in_both_fields_is_one_thought() -> None:
    deltas, _ = decode(chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}), chunk({}, "stop"))
    assert deltas == [ReasoningDelta("Hm."), StepEnd("stop")]


def test_a_refusal_field_becomes_the_answer_text() -> None:
    assert decode(chunk({"refusal": "No."}), chunk({}, "stop"))[0][0] == TextDelta("No.")


A, B = '{"command":"a"}', '{"command":"b"}'


@pytest.mark.parametrize(
    "chunks",
    [
        [call(A, index=0, id="1", name="shell"), call(B, index=1, id="2", name="shell")],
        [call(A, id="1", name="shell"), call(B, id="2", name="shell")],
        [call(A, name="shell"), call(B, name="shell")],
        [call(A, index=0, id="1", name="shell"), call(B, index=0, id="2", name="shell")],
        [call({"command": "a"}, index=0, name="shell"), call({"command": "b"}, index=1, name="shell")],
        [{"tool_calls": call(A, id="1", name="shell")["tool_calls"] + call(B, name="shell")["tool_calls"]}],
        [call(A[:4], index=0, id="1", name="shell"), call(A[4:], index=0, id="1", name="shell"),
         call(B[:4], index=1, id="2", name="shell"), call(B[4:], index=1, id="2", name="shell")],
        [call(A[:4], index=0, id="1", name="shell"), call(A[4:], index=0, id="9", name="shell"),
         call(B, index=1, id="2", name="shell")],
        [call(A[:4], name="shell"), call(A[4:]), call(B[:4], name="shell"), call(B[4:])],
        [call(A[:4], index=3, id="1"), call(A[4:], index=3, name="shell"), call(B, index=7, name="shell")],
        [call(A, index=0, id="1", name="shell"), call("", index=0, id="1", name="shell"),
         call(B, index=1, id="2", name="shell")],
    ],
    ids=["as documented", "no index", "no index, no id", "all numbered 0", "arguments as objects",
         "in one chunk", "names repeated", "new ids with each piece", "pieces without index",
         "name comes late", "empty repeat"],
)  # fmt: skip
def test_two_calls_are_decoded_in_the_form_of_any_server(chunks: list[dict[str, Any]]) -> None:
    assert calls_of(*map(chunk, chunks)) == [("shell", A), ("shell", B)]


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    assert calls_of(chunk(call("", index=0, id="1", name="now"))) == [("now", "{}")]
    assert calls_of(chunk(call(None, index=0, id="1", name="now"))) == [("now", "{}")]


def test_a_truncated_call_is_not_completed() -> None:
    deltas, failure = decode(chunk(call("", index=0, name="now")))
    assert failure is not None
    assert deltas == [CallDelta(0, "now", "")]


@pytest.mark.parametrize(
    ("finish", "delta", "reason"),
    [
        ("stop", {"content": "a"}, "stop"),
        ("length", {"content": "a"}, "length"),
        ("content_filter", {"content": "a"}, "content_filter"),
        ("function_call", call(A, name="shell"), "tool_calls"),
        ("stop", call(A, name="shell"), "tool_calls"),
        ("length", call(A, name="shell"), "length"),
        ("max_tokens", {"content": "a"}, "length"),
    ],
)
def test_stop_reasons_are_normalised(finish: str, delta: dict[str, Any], reason: str) -> None:
    end = decode(chunk(delta), chunk({}, finish), DONE)[0][-1]
    assert isinstance(end, StepEnd) and end.stop_reason == reason


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (USAGE_FIELDS, Usage(19, 10, 16)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}, Usage(5, 2, 3)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}, Usage(5)),
        ({"prompt_tokens": "many"}, Usage()),
        ([], Usage()),
        (None, Usage()),
    ],
)
def test_usage_is_counted_and_malformed_usage_is_ignored(usage: object, counted: Usage) -> None:
    deltas, failure = decode(
        chunk({"content": "a"}, usage=None), chunk({}, "stop"), event({"choices": [], "usage": usage}), DONE
    )
    assert failure is None
    assert deltas == [TextDelta("a"), StepEnd("stop", counted)]


@pytest.mark.parametrize("end", [b"", DONE, b"data: [DONE]", USAGE, b"data: [DONE]\n"])
def test_an_answer_with_a_finish_reason_is_complete_however_its_stream_ends(end: bytes) -> None:
    deltas, failure = decode(chunk({"content": "a"}), chunk({}, "stop"), end)
    assert failure is None
    assert isinstance(deltas[-1], StepEnd)


def test_an_end_mark_alone_completes_an_answer() -> None:
    assert decode(chunk({"content": "a"}), DONE) == ([TextDelta("a"), StepEnd("stop")], None)


@pytest.mark.parametrize(
    ("error", "retryable", "words"),
    [
        ({"error": {"message": "Overloaded", "code": 502}}, True, "Overloaded"),
        ({"error": {"message": "Overloaded", "type": "server_error", "code": None}}, True, "Overloaded"),
        ({"error": "out of memory"}, True, "out of memory"),
        ({"error": {"message": "bad", "code": "400"}}, False, "bad"),
        ({"error": {"message": "slow down", "code": 429}}, True, "slow down"),
        ({"error": {"message": "bad", "type": "invalid_request_error"}}, False, "bad"),
        ({"error": {"message": "pay", "code": "insufficient_quota"}}, False, "pay"),
        ({"object": "error", "message": "bad", "code": 400}, False, "bad"),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, False, "too long for this model"),
        ({"error": {}}, True, "without saying why"),
        ({"error": {"message": "gone", "code": 502}, "choices": [{"finish_reason": "error"}]}, True, "gone"),
    ],
)  # fmt: skip
def test_an_error_in_the_stream_ends_it_after_the_received_deltas(
    error: object, retryable: bool, words: str
) -> None:
    deltas, failure = decode(chunk({"content": "kept"}) + event(error) + chunk({"content": "never"}))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable is retryable
    assert words in str(failure)


def test_a_null_error_is_ignored() -> None:
    assert decode(chunk({"content": "a"}, error=None), chunk({}, "stop"))[1] is None


@pytest.mark.parametrize(
    "bad", [b"data: {oops\n\n", b'data: {"choices":7}\n\n', b'data: "\xff"\n\n', b"data: 1\n\n"]
)
def test_an_unreadable_chunk_ends_the_stream_after_the_received_deltas(bad: bytes) -> None:
    deltas, failure = decode(chunk({"content": "kept"}) + bad + chunk({"content": "never"}, "stop"))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable
