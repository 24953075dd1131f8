"""Anthropic Messages: what is sent for a request, with its thinking and its marks for the prompt's cache.

What is expected follows the published reference of the Messages API ("Messages", "Thinking", "Prompt
caching").
"""

from typing import Any

import msgspec
import pytest

from holdfast.domain.context.request import (
    AssistantMessage,
    FileContent,
    ModelProfile,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.models.messages.request import REDACTED
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import ToolSpec
from tests.support.messages_streams import marks
from tests.support.model_server import SHELL

PROFILE = ModelProfile("anthropic", 200_000, 16_000)
HELLO = Text("Hello?")


def encode_request(
    *messages: RequestMessage,
    model: str = "small",
    tools: tuple[ToolSpec, ...] = (),
    without: tuple[str, ...] = (),
    profile: ModelProfile = PROFILE,
    **more: Any,
) -> dict[str, Any]:
    request = Request(more.pop("system", ""), messages or (UserMessage((HELLO,)),), **more)
    return msgspec.json.decode(
        MessagesWire().encode(model, profile, request, tools, without), type=dict[str, Any]
    )


def plain(body: dict[str, Any]) -> Any:
    """The messages of a request without the marks for the cache."""
    return [
        {
            **each,
            "content": [
                {k: v for k, v in block.items() if k != "cache_control"} for block in each["content"]
            ],
        }
        for each in body["messages"]
    ]


# The request.


def test_a_request_has_a_system_field_and_max_tokens() -> None:
    assert encode_request(system="Be brief.", without=("cache_control",)) == {
        "model": "small",
        "max_tokens": 16_000,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello?"}]}],
        "stream": True,
    }


def test_tools_are_sent_with_their_schema_and_can_be_omitted() -> None:
    assert encode_request(tools=(SHELL,), without=("cache_control",))["tools"] == [
        {
            "name": "shell",
            "description": "Run a command.",
            "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}},
        }
    ]
    assert "tools" not in encode_request(tools=(SHELL,), without=("tools",))


def test_tool_results_come_first_in_the_user_message_after_their_calls() -> None:
    messages = plain(
        encode_request(
            UserMessage((Text("Look."),)),
            AssistantMessage(
                (Text("I look."), ToolCall("c_1", "shell", '{"a": 1}'), ToolCall("c_2", "é", "{}"))
            ),
            ToolMessage("c_1", (Text("one"), Text("two"))),
            ToolMessage("c_2", (Text("no such tool"),), failed=True),
            UserMessage((Text("And now?"),)),
        )
    )
    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c_1", "name": "shell", "input": {"a": 1}},
                {"type": "tool_use", "id": "c_2", "name": "_", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c_1", "content": "one\n\ntwo"},
                {"type": "tool_result", "tool_use_id": "c_2", "content": "no such tool", "is_error": True},
                {"type": "text", "text": "And now?"},
            ],
        },
    ]


def test_a_foreign_call_id_is_sanitised_in_call_and_result() -> None:
    call, result = plain(
        encode_request(
            UserMessage((HELLO,)),
            AssistantMessage((ToolCall("call:1/é", "shell", "{}"),)),
            ToolMessage("call:1/é", (Text("ok"),)),
        )
    )[1:]
    assert call["content"][0]["id"] == result["content"][0]["tool_use_id"] == "call_1__"


def test_images_and_pdf_files_are_sent_as_blocks_and_text_files_as_text() -> None:
    picture, pdf = File("b1", "a.png", "image/png", 9), File("b2", "a\nb.pdf", "application/pdf", 9)
    notes, gone = File("b3", "n.md", "text/plain", 9), File("b4", "x.png", "image/png", 9)
    files = {
        "b1": FileContent("image", "aGk="),
        "b2": FileContent("pdf", "aG8="),
        "b3": FileContent("text", "x = 1\n"),
        "b4": FileContent("note", "is no longer here"),
    }
    parts = (Text("Look."), picture, pdf, notes, gone, File("b5", "y.png", "image/png", 9))
    assert plain(encode_request(UserMessage(parts), files=files))[0]["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "aG8="},
            "title": "a b.pdf",
        },
        {"type": "text", "text": "File n.md:\n```\nx = 1\n```"},
        {"type": "text", "text": "[file x.png is no longer here]"},
        {"type": "text", "text": "[file y.png]"},
    ]


def test_a_conversation_with_calls_declares_tools_even_when_there_are_none_left() -> None:
    body = encode_request(
        UserMessage((HELLO,)),
        AssistantMessage((ToolCall("c_1", "shell", "{}"), ToolCall("c_2", "shell", "{}"))),
        ToolMessage("c_1", (Text("ok"),)),
        ToolMessage("c_2", (Text("ok"),)),
    )
    assert [tool["name"] for tool in body["tools"]] == ["shell"]
    assert body["tool_choice"] == {"type": "none"}
    assert "tool_choice" not in encode_request(tools=(SHELL,))


# Thinking that goes back.

SIGNED = Reasoning("Hm.", "c2ln", "anthropic")
HIDDEN = Reasoning("", REDACTED + "b3BhcXVl", "anthropic")
CALL = ToolCall("c_1", "shell", "{}")
RESULT = ToolMessage("c_1", (Text("ok"),))


def assistant_blocks(*parts: Text | Reasoning | ToolCall, **more: Any) -> Any:
    """What is sent of an answer that is gone on from."""
    return plain(encode_request(UserMessage((HELLO,)), AssistantMessage(parts), RESULT, **more))[1]["content"]


def test_thinking_is_sent_back_in_order_with_its_signatures() -> None:
    assert assistant_blocks(
        SIGNED, HIDDEN, Text("I look."), Reasoning("", "b21pdA==", "anthropic"), CALL
    ) == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "", "signature": "b21pdA=="},
        {"type": "tool_use", "id": "c_1", "name": "shell", "input": {}},
    ]


@pytest.mark.parametrize("other", [Reasoning("Hm.", "c2ln", "openai"), Reasoning("Hm.", "", "anthropic")])
def test_foreign_or_unsigned_thinking_is_not_sent(other: Reasoning) -> None:
    assert [block["type"] for block in assistant_blocks(other, CALL)] == ["tool_use"]


def test_a_message_never_ends_with_thinking() -> None:
    messages = plain(
        encode_request(
            UserMessage((HELLO,)),
            AssistantMessage((SIGNED, Text("Well"), SIGNED, HIDDEN)),
            UserMessage((Text("Go on."),)),
        )
    )
    assert [block["type"] for block in messages[1]["content"]] == ["thinking", "text"]


def test_thinking_can_be_omitted_from_a_conversation() -> None:
    assert [
        block["type"] for block in assistant_blocks(SIGNED, CALL, without=("conversation.thinking",))
    ] == ["tool_use"]


# Thinking that is asked for.

ADAPTIVE = {"type": "adaptive", "display": "summarized"}
ENABLED = {"type": "enabled", "budget_tokens": 8_000}


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-opus-5-5", ADAPTIVE),
        ("claude-sonnet-5", ADAPTIVE),
        ("claude-haiku-5-5", ADAPTIVE),
        ("claude-fable-5-1", ADAPTIVE),
        ("claude-mythos-preview", ADAPTIVE),
        ("claude-opus-4-8", ADAPTIVE),
        ("claude-sonnet-4-6", ADAPTIVE),
        ("claude-opus-4-5-20251101", ENABLED),
        ("claude-haiku-4-5", ENABLED),
        ("claude-sonnet-4-20250514", ENABLED),
        ("claude-3-7-sonnet-20250219", ENABLED),
        ("claude-3-5-haiku-20241022", None),
        ("claude-2.1", None),
        ("qwen3-30b", None),
    ],
)
def test_thinking_is_requested_in_the_form_of_the_model(model: str, thinking: object) -> None:
    assert encode_request(model=model).get("thinking") == thinking


def test_a_thinking_budget_requires_enough_max_tokens() -> None:
    small = ModelProfile("anthropic", 200_000, 2_000)
    assert "thinking" not in encode_request(model="claude-haiku-4-5", profile=small)
    assert encode_request(model="claude-opus-5", profile=small)["thinking"] == ADAPTIVE


def test_thinking_or_only_its_display_can_be_omitted() -> None:
    assert "thinking" not in encode_request(model="claude-opus-5", without=("thinking",))
    assert encode_request(model="claude-opus-5", without=("thinking.display",))["thinking"] == {
        "type": "adaptive"
    }


def test_between_calls_a_budget_is_set_only_if_the_answer_began_with_thinking() -> None:
    def asked(model: str, *parts: Text | Reasoning | ToolCall) -> object:
        return encode_request(UserMessage((HELLO,)), AssistantMessage(parts), RESULT, model=model).get(
            "thinking"
        )

    assert asked("claude-haiku-4-5", SIGNED, CALL) == ENABLED
    assert asked("claude-haiku-4-5", HIDDEN, CALL) == ENABLED
    assert asked("claude-haiku-4-5", Text("I look."), CALL) is None
    assert asked("claude-opus-5", CALL) == ADAPTIVE


def test_a_partial_answer_is_continued_without_thinking() -> None:
    body = encode_request(UserMessage((HELLO,)), AssistantMessage((Text("Well"),)), model="claude-opus-4-5")
    assert body["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": "Well"}]}
    assert "thinking" not in body


# The prompt's cache.


def test_a_growing_conversation_has_a_cache_mark_where_the_last_request_ended() -> None:
    tools = (SHELL, ToolSpec("other", "Another.", {"type": "object"}))
    first = (UserMessage((Text("One."), Text("More."))),)
    second = (*first, AssistantMessage((SIGNED, CALL)), RESULT)
    third = (*second, AssistantMessage((Text("Done."),)), UserMessage((Text("Two."),)))
    before = marks(encode_request(*first, tools=tools, system="Be brief."))
    assert before == ["tools.1", "system.0", "messages.0.1"]
    assert marks(encode_request(*second, tools=tools, system="Be brief.")) == [*before, "messages.2.0"]
    assert marks(encode_request(*third, tools=tools, system="Be brief.")) == [
        *before[:2],
        "messages.2.0",
        "messages.4.0",
    ]


def test_cache_marks_can_be_omitted() -> None:
    assert marks(encode_request(tools=(SHELL,), system="Be brief.", without=("cache_control",))) == []


def test_cache_marks_do_not_change_the_tool_definitions() -> None:
    encode_request(tools=(SHELL,))
    assert "cache_control" not in msgspec.to_builtins(SHELL)
