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
from holdfast.models.chat.thinking import Kept
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import Answer
from holdfast.models.ports import (
    CallDelta,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)
from tests.support.answer_decoder import decoded
from tests.support.model_server import ASKED, DONE, SHELL, TALK, USAGE, USED, call, chunk, event

ROLES = ["user", "assistant", "tool", "assistant", "tool", "tool"]
ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "small", Secret(""))


def sent(request: Request, tools: tuple[ToolSpec, ...] = (), without: tuple[str, ...] = ()) -> dict[str, Any]:
    return msgspec.json.decode(encode("small", request, tools, without), type=dict[str, Any])


def answered(*chunks: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return decoded(Answer(ENDPOINT, ChatWire()), chunks)


def calls_of(*chunks: bytes) -> list[tuple[str, str]]:
    """The calls of an answer, put together as the loop does it."""
    deltas, failure = answered(*chunks, chunk({}, "tool_calls"), DONE)
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
    body = sent(ASKED)
    assert body == {
        "model": "small",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello?"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_tools_are_told_as_functions_and_can_be_left_out() -> None:
    assert sent(ASKED, (SHELL,))["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "shell",
                "description": "Run a command.",
                "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
            },
        }
    ]
    assert not {"tools", "stream_options"} & set(sent(ASKED, (SHELL,), ("tools", "stream_options")))


def test_a_conversation_is_sent_with_its_calls_and_their_results() -> None:
    messages = sent(
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


def asked_with(*files: tuple[File, FileContent]) -> Any:
    """What is sent of a person's message that has these files."""
    parts = (Text("Look."), *(file for file, _ in files))
    contents = {file.blob: content for file, content in files}
    return sent(Request("", (UserMessage(parts),), files=contents))["messages"][0]["content"]


def test_text_files_and_what_is_left_out_go_as_words() -> None:
    notes = File("b1", "a\nb.md", "text/plain", 9)
    picture = File("b2", "a.png", "image/png", 9)
    assert asked_with((notes, FileContent("text", "x = 1\n"))) == "Look.\n\nFile a b.md:\n```\nx = 1\n```"
    assert asked_with((notes, FileContent("text", "```\na\n````"))).endswith("\n`````\n```\na\n````\n`````")
    said = asked_with((picture, FileContent("note", "is no longer here")))
    assert said == "Look.\n\n[file a.png is no longer here]"


def test_images_and_pdf_files_go_as_parts_beside_the_words() -> None:
    picture, pdf = File("b1", "a.png", "image/png", 9), File("b2", "a.pdf", "application/pdf", 9)
    assert asked_with((picture, FileContent("image", "aGk=")), (pdf, FileContent("pdf", "aG8="))) == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aG8="}},
    ]


# The answer.


def test_an_answer_comes_in_its_order_with_its_usage() -> None:
    deltas, failure = answered(TALK)
    assert failure is None
    assert deltas == [
        ReasoningDelta("Héllo is a greeting. "),
        ReasoningDelta("", Kept("reasoning_content").signature()),
        TextDelta("Grüße, "),
        TextDelta("世界 🌍"),
        TextDelta("!\n"),
        CallDelta(0, "shell", ""),
        CallDelta(0, "shell", '{"comm'),
        CallDelta(1, "shell", '{"command":"pwd"}'),
        CallDelta(0, "shell", 'and":"ls"}'),
        StepEnd("tool_calls", Usage(19, 10, 16)),
    ]


@given(st.lists(st.integers(0, len(TALK)), max_size=12))
def test_any_split_of_the_bytes_gives_the_same_deltas(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(TALK)]
    assert answered(*(TALK[a:b] for a, b in pairwise(edges))) == answered(TALK)


def test_a_stream_cut_at_any_byte_gives_all_that_came_before_and_then_fails() -> None:
    whole, _ = answered(TALK)
    finish = TALK.index(b'"finish_reason":"tool_calls"')
    finished = TALK.index(b"}\n\n", finish) + 1
    before = 0
    for at in range(len(TALK)):
        deltas, failure = answered(TALK[:at])
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
def test_no_bytes_whatsoever_lose_what_came_before(chunks: list[bytes]) -> None:
    deltas, failure = answered(chunk({"content": "a"}), *(b"data: " + each + b"\n\n" for each in chunks))
    assert deltas[0] == TextDelta("a")
    assert isinstance(deltas[-1], StepEnd) is (failure is None)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thinking_is_found_in_either_field(field: str) -> None:
    deltas, _ = answered(chunk({field: "Hm.", "content": None}), chunk({}, "stop"), DONE)
    assert deltas == [ReasoningDelta("Hm."), StepEnd("stop")]


def test_thinking_in_both_fields_is_one_thought() -> None:
    deltas, _ = answered(chunk({"reasoning_content": "Hm.", "reasoning": "Hm."}), chunk({}, "stop"))
    assert deltas == [ReasoningDelta("Hm."), StepEnd("stop")]


def test_a_refusal_is_what_the_model_says() -> None:
    assert answered(chunk({"refusal": "No."}), chunk({}, "stop"))[0][0] == TextDelta("No.")


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
def test_two_calls_are_two_calls_however_a_server_writes_them(chunks: list[dict[str, Any]]) -> None:
    assert calls_of(*map(chunk, chunks)) == [("shell", A), ("shell", B)]


def test_a_call_without_arguments_takes_none() -> None:
    assert calls_of(chunk(call("", index=0, id="1", name="now"))) == [("now", "{}")]
    assert calls_of(chunk(call(None, index=0, id="1", name="now"))) == [("now", "{}")]


def test_a_call_that_is_cut_off_is_not_made_whole() -> None:
    deltas, failure = answered(chunk(call("", index=0, name="now")))
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
def test_why_a_model_stopped_is_said_in_one_vocabulary(
    finish: str, delta: dict[str, Any], reason: str
) -> None:
    end = answered(chunk(delta), chunk({}, finish), DONE)[0][-1]
    assert isinstance(end, StepEnd) and end.stop_reason == reason


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (USED, Usage(19, 10, 16)),
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_cache_hit_tokens": 3}, Usage(5, 2, 3)),
        ({"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}, Usage(5)),
        ({"prompt_tokens": "many"}, Usage()),
        ([], Usage()),
        (None, Usage()),
    ],
)
def test_usage_is_counted_and_an_odd_one_costs_nothing(usage: object, counted: Usage) -> None:
    deltas, failure = answered(
        chunk({"content": "a"}, usage=None), chunk({}, "stop"), event({"choices": [], "usage": usage}), DONE
    )
    assert failure is None
    assert deltas == [TextDelta("a"), StepEnd("stop", counted)]


@pytest.mark.parametrize("end", [b"", DONE, b"data: [DONE]", USAGE, b"data: [DONE]\n"])
def test_an_answer_with_a_finish_reason_is_whole_however_its_stream_ends(end: bytes) -> None:
    deltas, failure = answered(chunk({"content": "a"}), chunk({}, "stop"), end)
    assert failure is None
    assert isinstance(deltas[-1], StepEnd)


def test_an_end_mark_alone_ends_an_answer_too() -> None:
    assert answered(chunk({"content": "a"}), DONE) == ([TextDelta("a"), StepEnd("stop")], None)


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
def test_an_error_in_the_stream_ends_it_after_what_came_before(
    error: object, retryable: bool, words: str
) -> None:
    deltas, failure = answered(chunk({"content": "kept"}) + event(error) + chunk({"content": "never"}))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable is retryable
    assert words in str(failure)


def test_a_null_error_is_none() -> None:
    assert answered(chunk({"content": "a"}, error=None), chunk({}, "stop"))[1] is None


@pytest.mark.parametrize(
    "bad", [b"data: {oops\n\n", b'data: {"choices":7}\n\n', b'data: "\xff"\n\n', b"data: 1\n\n"]
)
def test_a_chunk_that_cannot_be_read_ends_the_stream_after_what_came_before(bad: bytes) -> None:
    deltas, failure = answered(chunk({"content": "kept"}) + bad + chunk({"content": "never"}, "stop"))
    assert deltas == [TextDelta("kept")]
    assert failure is not None and failure.retryable
