"""Streams of Anthropic Messages for tests, constructed from the published reference; none is a recording."""

from typing import Any

import msgspec

from holdfast.domain.usage import Usage
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import AnswerDecoder
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, ReasoningDelta, StepEnd, TextDelta
from tests.support.answer_decoder import decode_answer

ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "claude-opus-5", Secret(""), protocol="messages")
MARK = {"type": "ephemeral"}


def event(body: Any) -> bytes:
    """Return one event, with its name outside its data as well as inside."""
    kind = body.get("type", "message") if isinstance(body, dict) else "message"
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode(body) + b"\n\n"


def block_start(index: int, **block: Any) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def block_delta(index: int, kind: str, **delta: Any) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}})


def text_delta(text: str, index: int) -> bytes:
    return block_delta(index, "text_delta", text=text)


def block_stop(index: int) -> bytes:
    return event({"type": "content_block_stop", "index": index})


def message_delta(reason: str, **more: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 15}})


START = event(
    {
        "type": "message_start",
        "message": {
            "id": "msg_01",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "claude-opus-5",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": 7,
                "cache_creation_input_tokens": 3,
                "cache_read_input_tokens": 16,
                "output_tokens": 1,
            },
        },
    }
)
STOP = event({"type": "message_stop"})
EVENTS = (
    START,
    block_start(0, type="thinking", thinking="", signature=""),
    event({"type": "ping"}),
    block_delta(0, "thinking_delta", thinking="Héllo is "),
    block_delta(0, "thinking_delta", thinking="a greeting."),
    block_delta(0, "signature_delta", signature="EqQBCgIYAhIM"),
    block_stop(0),
    block_start(1, type="redacted_thinking", data="EmwKAhgBEgy3"),
    block_stop(1),
    block_start(2, type="text", text=""),
    text_delta("Grüße, ", 2),
    text_delta("世界 🌍", 2),
    block_stop(2),
    block_start(3, type="tool_use", id="toolu_01", name="shell", input={}),
    block_delta(3, "input_json_delta", partial_json=""),
    block_delta(3, "input_json_delta", partial_json='{"comm'),
    block_delta(3, "input_json_delta", partial_json='and":"ls"}'),
    block_stop(3),
    block_start(4, type="tool_use", id="toolu_02", name="now", input={}),
    block_stop(4),
    message_delta("tool_use"),
    STOP,
)
"""An answer with every kind of content."""
TEXT_STREAM = b"".join(EVENTS)
TEXT_DELTAS: list[ModelDelta] = [
    ReasoningDelta("Héllo is "),
    ReasoningDelta("a greeting."),
    ReasoningDelta("", "EqQBCgIYAhIM"),
    ReasoningDelta("", "redacted_thinking:EmwKAhgBEgy3"),
    TextDelta("Grüße, "),
    TextDelta("世界 🌍"),
    CallDelta(0, "shell", ""),
    CallDelta(0, "shell", '{"comm'),
    CallDelta(0, "shell", 'and":"ls"}'),
    CallDelta(1, "now", ""),
    CallDelta(1, "now", "{}"),
    StepEnd("tool_calls", Usage(26, 15, 16, written_tokens=3)),
]
"""The decoded deltas of that answer."""


def decode_stream(*chunks: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    """Return the content of an answer in these chunks, and its failure if it failed."""
    return decode_answer(AnswerDecoder(ENDPOINT, MessagesWire()), chunks)


def marks(body: dict[str, Any]) -> list[str]:
    """Return the paths of the blocks with cache marks in a request."""
    groups = {"tools": body.get("tools", []), "system": body.get("system", [])}
    groups |= {f"messages.{i}": message["content"] for i, message in enumerate(body["messages"])}
    return [
        f"{where}.{i}"
        for where, blocks in groups.items()
        for i, block in enumerate(blocks)
        if block.get("cache_control") == MARK
    ]
