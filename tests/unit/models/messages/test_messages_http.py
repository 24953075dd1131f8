"""Anthropic Messages through the model that asks over HTTP, against a real server on loopback.

Its answers and errors are constructed from the published reference of the Messages API; none is a recording.
"""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.domain.context.request import AssistantMessage, Profile, Request, ToolMessage, UserMessage
from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.models.failures import TOO_LONG
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from holdfast.models.transport import Patience
from tests.support.messages_streams import START, TALK, TALKED, marks, said
from tests.support.model_server import (
    ASKED,
    CALM,
    KEY,
    PROFILE,
    SHELL,
    SHORT,
    Answers,
    Seen,
    asking,
    heard,
    refusing,
    serving,
    streaming,
)

ADAPTIVE = {"type": "adaptive", "display": "summarized"}
CALL = ToolCall("c_1", "shell", "{}")
RESULT = ToolMessage("c_1", (Text("ok"),))


def told(
    *answers: Answers,
    name: str = "claude-opus-5",
    request: Request = ASKED,
    patience: Patience = CALM,
    tools: Sequence[ToolSpec] = (),
    profile: Profile = PROFILE,
) -> tuple[list[ModelDelta], ModelFailure | None, Seen]:
    async def ask() -> tuple[list[ModelDelta], ModelFailure | None, Seen]:
        async with (
            serving(*answers) as (url, seen),
            asking(
                url, patience, wire=MessagesWire(), protocol="messages", name=name, profile=profile
            ) as model,
        ):
            return (*await heard(model, request, tools), seen)

    return asyncio.run(ask())


def refused(status: int, kind: str, message: str, **headers: str) -> Answers:
    """An error as the reference has it."""
    error = {"type": kind, "message": message}
    return refusing(status, {"type": "error", "error": error, "request_id": "req_1"}, **headers)


TALKING = streaming([TALK])


def test_a_server_is_asked_with_its_own_headers_and_its_answer_comes_through() -> None:
    deltas, failure, seen = told(streaming([TALK[:100], TALK[100:300], TALK[300:]]), tools=(SHELL,))
    assert failure is None
    assert deltas == TALKED
    headers = {name.lower(): value for name, value in seen.headers[0].items()}
    assert headers["x-api-key"] == KEY and headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers
    assert seen.bodies[0]["model"] == "claude-opus-5" and seen.bodies[0]["stream"] is True


def test_an_answer_that_came_whole_comes_through() -> None:
    body = {"type": "message", "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn"}
    assert told(refusing(200, body))[:2] == ([TextDelta("Hi."), StepEnd("stop")], None)


@pytest.mark.parametrize(
    ("status", "kind", "message", "retryable", "words"),
    [
        (529, "overloaded_error", "Overloaded", True, "(529): Overloaded"),
        (429, "rate_limit_error", "This would exceed your rate limit", True, "fewer requests"),
        (500, "api_error", "Internal server error", True, "failed (500)"),
        (401, "authentication_error", "invalid x-api-key", False, "refused the key"),
        (402, "billing_error", "Your credit balance is too low", False, "credit balance"),
        (404, "not_found_error", "model: claude-opus-5", False, "no model claude-opus-5"),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", False, TOO_LONG),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 9 + 9 > 10",
         False, TOO_LONG),
        (413, "request_too_large", "Request exceeds the maximum size", False, TOO_LONG),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_wrong_and_whether_to_ask_again(
    status: int, kind: str, message: str, retryable: bool, words: str
) -> None:
    deltas, failure, _ = told(refused(status, kind, message))
    assert deltas == []
    assert failure is not None and failure.retryable is retryable
    assert words in str(failure)


def test_how_long_to_wait_is_taken_from_the_server() -> None:
    failure = told(refused(429, "rate_limit_error", "slow down", Retry_After="7"))[1]
    assert failure is not None and failure.retry_after_ms == 7_000


def test_a_server_that_stops_talking_is_given_up_on_after_what_came_before() -> None:
    deltas, failure, _ = told(streaming([START + said("a", 0)], pause_s=30), patience=SHORT)
    assert deltas == [TextDelta("a")]
    assert failure is not None and failure.retryable and "next chunk within 0.2 s" in str(failure)


def test_a_stream_that_breaks_off_is_told_after_what_came_before() -> None:
    deltas, failure, _ = told(streaming([START + said("a", 0)], cut=True))
    assert deltas == [TextDelta("a")]
    assert failure is not None and failure.retryable


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("adaptive thinking is not supported on this model", None),
        ('"thinking.type.adaptive" is not supported for this model.', None),
        ("thinking: Extra inputs are not permitted", None),
        ("thinking.adaptive.display: Extra inputs are not permitted", {"type": "adaptive"}),
    ],
)
def test_thinking_that_is_refused_is_left_out_from_then_on(message: str, left: object) -> None:
    async def ask() -> list[object]:
        no = refused(400, "invalid_request_error", message)
        async with (
            serving(no, TALKING) as (url, seen),
            asking(url, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        ):
            for _ in range(2):
                deltas, failure = await heard(model)
                assert failure is None and deltas == TALKED
        return [body.get("thinking") for body in seen.bodies]

    assert asyncio.run(ask()) == [ADAPTIVE, left, left]


def test_marks_that_are_refused_are_left_out_from_then_on() -> None:
    no = refused(400, "invalid_request_error", "system.0.cache_control: Extra inputs are not permitted")
    _, failure, seen = told(no, TALKING)
    assert failure is None
    assert [bool(marks(body)) for body in seen.bodies] == [True, False]


def test_more_room_than_the_model_has_for_an_answer_is_not_asked_for_again() -> None:
    why = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-opus-5"
    _, failure, seen = told(
        refused(400, "invalid_request_error", why), TALKING, profile=Profile("test", 100_000, 16_000)
    )
    assert failure is None
    assert [body["max_tokens"] for body in seen.bodies] == [16_000, 4_096]


@pytest.mark.parametrize(
    "message",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0.thinking: each thinking block must contain thinking",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message "
        "cannot be modified. These blocks must remain as they were in the original response.",
    ],
)
def test_thinking_that_is_not_known_again_is_left_out_of_that_conversation_alone(message: str) -> None:
    reasoning = Reasoning("Hm.", "c2ln", "test")
    request = Request("", (UserMessage((Text("Hello?"),)), AssistantMessage((reasoning, CALL)), RESULT))

    async def ask() -> list[tuple[str, object]]:
        async with (
            serving(refused(400, "invalid_request_error", message), TALKING) as (url, seen),
            asking(url, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        ):
            for _ in range(2):
                deltas, failure = await heard(model, request)
                assert failure is None and deltas == TALKED
        return [(body["messages"][1]["content"][0]["type"], body.get("thinking")) for body in seen.bodies]

    assert asyncio.run(ask()) == [("thinking", ADAPTIVE), ("tool_use", ADAPTIVE), ("thinking", ADAPTIVE)]


def test_a_key_shows_nowhere() -> None:
    failure = told(refused(401, "authentication_error", f"invalid x-api-key {KEY}"))[1]
    assert failure is not None and KEY not in str(failure) and "***" in str(failure)
