"""OpenAI Responses: what is sent for a request, as the published reference has it."""

from typing import Any

import msgspec

from holdfast.domain.context.request import (
    AssistantMessage,
    FileContent,
    ModelProfile,
    Request,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.models.ports import ToolSpec
from holdfast.models.responses.request import ReasoningItemSignature, encode
from tests.support.model_server import REQUEST, SHELL
from tests.support.responses_streams import REASONING_ITEM, SIGNED


def encode_request(
    request: Request,
    tools: tuple[ToolSpec, ...] = (),
    without: tuple[str, ...] = (),
    answer_tokens_max: int = 0,
) -> dict[str, Any]:
    profile = ModelProfile("test", 100_000, answer_tokens_max=answer_tokens_max)
    return msgspec.json.decode(encode("small", profile, request, tools, without), type=dict[str, Any])


def test_a_request_streams_and_keeps_nothing_at_the_server() -> None:
    body = encode_request(REQUEST)
    assert len(body.pop("prompt_cache_key")) == 32
    assert body == {
        "model": "small",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hello?"}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"summary": "auto"},
    }


def test_the_prompt_cache_key_depends_only_on_the_instructions() -> None:
    longer = Request(REQUEST.system, (*REQUEST.messages, AssistantMessage((Text("Hi."),)), *REQUEST.messages))
    keys = [
        encode_request(asked)["prompt_cache_key"]
        for asked in (REQUEST, longer, Request("", REQUEST.messages))
    ]
    assert keys[0] == keys[1] != keys[2]
    assert "instructions" not in encode_request(Request("", REQUEST.messages))


def test_tools_are_sent_as_flat_functions() -> None:
    body = encode_request(REQUEST, (SHELL,))
    assert body["parallel_tool_calls"] is True
    assert body["tools"] == [
        {
            "type": "function",
            "name": "shell",
            "description": "Run a command.",
            "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
            "strict": False,
        }
    ]
    assert not {"tools", "parallel_tool_calls"} & set(encode_request(REQUEST, (SHELL,), ("tools",)))


def test_an_output_limit_is_sent_only_if_set() -> None:
    assert "max_output_tokens" not in encode_request(REQUEST)
    assert encode_request(REQUEST, answer_tokens_max=5_000)["max_output_tokens"] == 5_000
    assert encode_request(REQUEST, answer_tokens_max=5)["max_output_tokens"] == 16
    assert "max_output_tokens" not in encode_request(REQUEST, (), ("max_output_tokens",), answer_tokens_max=5)


def test_a_conversation_is_sent_as_items_with_reasoning_before_its_answer() -> None:
    request = Request(
        "",
        (
            UserMessage((Text("Look."), File("b", "a\ncat.png", "image/png", 9))),
            AssistantMessage(
                (
                    Reasoning("**Looking**\n\nFound.", SIGNED, "test"),
                    Text("I look."),
                    ToolCall("c_1", "shell", '{"a":1}'),
                    ToolCall("c_2", "no such/tool é", "{}"),
                )
            ),
            ToolMessage("c_1", (Text("one"), Text("two")), failed=True),
            ToolMessage("c_2", (Text("no"),)),
        ),
    )
    asked, thought, said, *calls = encode_request(request)["input"]
    assert asked["content"] == "Look.\n\n[file a cat.png]"
    assert thought == REASONING_ITEM
    assert said == {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
    }
    assert calls == [
        {"type": "function_call", "call_id": "c_1", "name": "shell", "arguments": '{"a":1}'},
        {"type": "function_call", "call_id": "c_2", "name": "no_such_tool__", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c_1", "output": "one\n\ntwo"},
        {"type": "function_call_output", "call_id": "c_2", "output": "no"},
    ]
    kinds = [each["type"] for each in encode_request(request, (), ("conversation.thinking",))["input"]]
    assert "reasoning" not in kinds and len(kinds) == 6


def kinds_sent(*parts: Text | Reasoning | ToolCall) -> list[str]:
    request = Request("", (*REQUEST.messages, AssistantMessage(parts), *REQUEST.messages))
    return [each["type"] for each in encode_request(request)["input"][1:-1]]


def test_trailing_or_foreign_thinking_is_not_sent() -> None:
    mine, said = Reasoning("", SIGNED, "test"), Text("Yes.")
    assert kinds_sent(mine, said, mine) == ["reasoning", "message"]
    for other in (
        "EqQBCgIYAhIM",
        '{"type":"chat","field":"reasoning"}',
        "[1]",
        "null",
        '{"type":"reasoning"}',
    ):
        assert kinds_sent(Reasoning("Hm.", other, "test"), said) == ["message"], other


def test_unencrypted_thinking_is_sent_back_as_text() -> None:
    raw = Reasoning("Hm.", ReasoningItemSignature("rs_2", is_raw=True).signature(), "test")
    request = Request("", (*REQUEST.messages, AssistantMessage((raw, Text("Yes."))), *REQUEST.messages))
    assert encode_request(request)["input"][1] == {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }


def test_images_and_files_are_sent_beside_the_text() -> None:
    files = {
        "b1": (File("b1", "a.png", "image/png", 9), FileContent("image", "aGk=")),
        "b2": (File("b2", "a.pdf", "application/pdf", 9), FileContent("pdf", "aG8=")),
        "b3": (File("b3", "a.md", "text/plain", 9), FileContent("text", "x = 1\n")),
        "b4": (File("b4", "a.bin", "x/y", 9), FileContent("note", "is no longer here")),
    }
    parts: tuple[Text | File, ...] = (Text("Look."), *(file for file, _ in files.values()))
    contents = {blob: content for blob, (_, content) in files.items()}
    assert encode_request(Request("", (UserMessage(parts),), files=contents))["input"][0]["content"] == [
        {"type": "input_text", "text": "Look."},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aG8="},
        {"type": "input_text", "text": "File a.md:\n```\nx = 1\n```"},
        {"type": "input_text", "text": "[file a.bin is no longer here]"},
    ]
