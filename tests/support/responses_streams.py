"""Answers of OpenAI Responses, event by event.

Constructed from the published reference (OpenAI's API reference for Responses and its streaming events); none
is a recording.
"""

from typing import Any

from holdfast.domain.usage import Usage
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta
from holdfast.models.responses.request import ReasoningItemSignature
from tests.support.model_server import event

USAGE_FIELDS = {
    "input_tokens": 36,
    "input_tokens_details": {"cached_tokens": 32, "cache_write_tokens": 3},
    "output_tokens": 87,
    "output_tokens_details": {"reasoning_tokens": 64},
    "total_tokens": 123,
}
REASONING_ITEM = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAAAB==",
    "summary": [{"type": "summary_text", "text": "**Looking**"}, {"type": "summary_text", "text": "Found."}],
}
MESSAGE_ITEM = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Grüße, 世界 🌍", "annotations": []}],
}
LS = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "c1",
    "name": "shell",
    "arguments": '{"command":"ls"}',
}
PWD = {**LS, "id": "fc_2", "call_id": "c2", "arguments": '{"command":"pwd"}'}
SIGNED = ReasoningItemSignature("rs_1", "gAAAAB==", ("**Looking**", "Found.")).signature()


def ev(name: str, **fields: Any) -> bytes:
    return f"event: response.{name}\n".encode() + event({"type": f"response.{name}", **fields})


def item(verb: str, index: int | None, whole: dict[str, Any], **fields: Any) -> bytes:
    at = {} if index is None else {"output_index": index}
    return ev(f"output_item.{verb}", **at, item={**whole, **fields})


def completed(*output: dict[str, Any], how: str = "completed", **fields: Any) -> bytes:
    response = {
        "id": "resp_1",
        "object": "response",
        "status": how,
        "output": list(output),
        "usage": USAGE_FIELDS,
    }
    return ev(how, response={**response, **fields})


def text(delta: str, index: int = 1, item_id: str = "msg_1", **fields: Any) -> bytes:
    at = {"item_id": item_id, "output_index": index, "content_index": 0, "logprobs": [], "obfuscation": "x"}
    return ev("output_text.delta", delta=delta, **at, **fields)


def summary(delta: str, which: int) -> bytes:
    at = {"item_id": "rs_1", "output_index": 0, "summary_index": which}
    return ev("reasoning_summary_text.delta", delta=delta, **at)


def arguments(delta: str, index: int, item_id: str) -> bytes:
    return ev("function_call_arguments.delta", delta=delta, output_index=index, item_id=item_id)


OPENING = ev("created", response={"id": "resp_1", "status": "in_progress", "output": [], "error": None})
REASONING_DONE = (
    item("added", 0, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAA"})
    + ev("reasoning_summary_part.added", item_id="rs_1", output_index=0, summary_index=0, part={"text": ""})
    + summary("**Look", 0)
    + summary("ing**", 0)
    + ev("reasoning_summary_text.done", item_id="rs_1", output_index=0, summary_index=0, text="**Looking**")
    + summary("Found.", 1)
    + item("done", 0, REASONING_ITEM)
)
MESSAGE_DONE = (
    item("added", 1, MESSAGE_ITEM, content=[], status="in_progress")
    + ev("content_part.added", item_id="msg_1", output_index=1, part={"type": "output_text", "text": ""})
    + text("Grüße, ")
    + text("世界 🌍")
    + ev("output_text.done", item_id="msg_1", output_index=1, content_index=0, text="Grüße, 世界 🌍")
    + ev(
        "content_part.done", item_id="msg_1", output_index=1, content_index=0, part=MESSAGE_ITEM["content"][0]
    )
    + item("done", 1, MESSAGE_ITEM)
)
CALL_DONE = (
    item("added", 2, LS, arguments="")
    + arguments('{"comm', 2, "fc_1")
    + item("added", 3, PWD, arguments="")
    + arguments('{"command":"pwd"}', 3, "fc_2")
    + arguments('and":"ls"}', 2, "fc_1")
    + ev("function_call_arguments.done", output_index=2, item_id="fc_1", arguments=LS["arguments"])
    + item("done", 2, LS)
    + item("done", 3, PWD)
)
TEXT_STREAM = OPENING + ev("in_progress", response={}) + REASONING_DONE + MESSAGE_DONE + CALL_DONE
FULL_STREAM = (REASONING_ITEM, MESSAGE_ITEM, LS, PWD)
TEXT_STREAM += completed(*FULL_STREAM)
FULL_DELTAS: list[ModelDelta] = [
    ReasoningDelta("**Look"),
    ReasoningDelta("ing**"),
    ReasoningDelta("\n\nFound."),
    ReasoningDelta("", SIGNED),
    TextDelta("Grüße, "),
    TextDelta("世界 🌍"),
    CallDelta(0, "shell", ""),
    CallDelta(0, "shell", '{"comm'),
    CallDelta(1, "shell", ""),
    CallDelta(1, "shell", '{"command":"pwd"}'),
    CallDelta(0, "shell", 'and":"ls"}'),
    StepEnd("tool_calls", Usage(36, 87, 32, written_tokens=3)),
]
