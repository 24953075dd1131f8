"""Anthropic Messages through the model that asks over HTTP, against a real server on loopback.

Its answers and errors are constructed from the published reference of the Messages API; none is a recording.
"""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.domain.context.request import AssistantMessage, ModelProfile, Request, ToolMessage, UserMessage
from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.models.failures import TOO_LONG
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from holdfast.models.transport import ModelTimeouts
from tests.support.messages_streams import START, TEXT_DELTAS, TEXT_STREAM, marks, text_delta
from tests.support.model_server import (
    KEY,
    LONG_TIMEOUTS,
    PROFILE,
    REQUEST,
    SHELL,
    SHORT_TIMEOUTS,
    Answers,
    ReceivedRequests,
    collect_deltas,
    error_answer,
    http_model,
    model_server,
    streaming_answer,
)

ADAPTIVE = {"type": "adaptive", "display": "summarized"}
CALL = ToolCall("c_1", "shell", "{}")
RESULT = ToolMessage("c_1", (Text("ok"),))


def send(
    *answers: Answers,
    name: str = "claude-opus-5",
    request: Request = REQUEST,
    timeouts: ModelTimeouts = LONG_TIMEOUTS,
    tools: Sequence[ToolSpec] = (),
    profile: ModelProfile = PROFILE,
) -> tuple[list[ModelDelta], ModelFailure | None, ReceivedRequests]:
    async def ask() -> tuple[list[ModelDelta], ModelFailure | None, ReceivedRequests]:
        async with (
            model_server(*answers) as (url, seen),
            http_model(
                url, timeouts, wire=MessagesWire(), protocol="messages", name=name, profile=profile
            ) as model,
        ):
            return (*await collect_deltas(model, request, tools), seen)

    return asyncio.run(ask())


def reject(status: int, kind: str, message: str, **headers: str) -> Answers:
    """An error as the reference has it."""
    error = {"type": kind, "message": message}
    return error_answer(status, {"type": "error", "error": error, "request_id": "req_1"}, **headers)


TALKING = streaming_answer([TEXT_STREAM])


def test_a_messages_request_has_its_own_headers_and_gets_an_answer() -> None:
    deltas, failure, seen = send(
        streaming_answer([TEXT_STREAM[:100], TEXT_STREAM[100:300], TEXT_STREAM[300:]]), tools=(SHELL,)
    )
    assert failure is None
    assert deltas == TEXT_DELTAS
    headers = {name.lower(): value for name, value in seen.headers[0].items()}
    assert headers["x-api-key"] == KEY and headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in headers
    assert seen.bodies[0]["model"] == "claude-opus-5" and seen.bodies[0]["stream"] is True


def test_an_answer_that_does_not_stream_is_returned() -> None:
    body = {"type": "message", "content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn"}
    assert send(error_answer(200, body))[:2] == ([TextDelta("Hi."), StepEnd("stop")], None)


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
def test_an_error_response_reports_the_problem_and_whether_to_retry(
    status: int, kind: str, message: str, retryable: bool, words: str
) -> None:
    deltas, failure, _ = send(reject(status, kind, message))
    assert deltas == []
    assert failure is not None and failure.retryable is retryable
    assert words in str(failure)


def test_the_retry_delay_is_taken_from_the_response_headers() -> None:
    failure = send(reject(429, "rate_limit_error", "slow down", Retry_After="7"))[1]
    assert failure is not None and failure.retry_after_ms == 7_000


def test_a_server_that_stops_sending_times_out_after_the_received_deltas() -> None:
    deltas, failure, _ = send(
        streaming_answer([START + text_delta("a", 0)], pause_s=30), timeouts=SHORT_TIMEOUTS
    )
    assert deltas == [TextDelta("a")]
    assert failure is not None and failure.retryable and "next chunk within 0.2 s" in str(failure)


def test_a_broken_stream_fails_after_the_received_deltas() -> None:
    deltas, failure, _ = send(streaming_answer([START + text_delta("a", 0)], cut=True))
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
def test_rejected_thinking_is_omitted_from_later_requests(message: str, left: object) -> None:
    async def ask() -> list[object]:
        no = reject(400, "invalid_request_error", message)
        async with (
            model_server(no, TALKING) as (url, seen),
            http_model(url, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        ):
            for _ in range(2):
                deltas, failure = await collect_deltas(model)
                assert failure is None and deltas == TEXT_DELTAS
        return [body.get("thinking") for body in seen.bodies]

    assert asyncio.run(ask()) == [ADAPTIVE, left, left]


def test_rejected_cache_marks_are_omitted_from_later_requests() -> None:
    no = reject(400, "invalid_request_error", "system.0.cache_control: Extra inputs are not permitted")
    _, failure, seen = send(no, TALKING)
    assert failure is None
    assert [bool(marks(body)) for body in seen.bodies] == [True, False]


def test_a_rejected_max_tokens_is_lowered_for_later_requests() -> None:
    why = "max_tokens: 16000 > 8192, which is the maximum allowed number of output tokens for claude-opus-5"
    _, failure, seen = send(
        reject(400, "invalid_request_error", why), TALKING, profile=ModelProfile("test", 100_000, 16_000)
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
def test_unrecognised_thinking_is_omitted_from_that_conversation_only(message: str) -> None:
    reasoning = Reasoning("Hm.", "c2ln", "test")
    request = Request("", (UserMessage((Text("Hello?"),)), AssistantMessage((reasoning, CALL)), RESULT))

    async def ask() -> list[tuple[str, object]]:
        async with (
            model_server(reject(400, "invalid_request_error", message), TALKING) as (url, seen),
            http_model(url, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        ):
            for _ in range(2):
                deltas, failure = await collect_deltas(model, request)
                assert failure is None and deltas == TEXT_DELTAS
        return [(body["messages"][1]["content"][0]["type"], body.get("thinking")) for body in seen.bodies]

    assert asyncio.run(ask()) == [("thinking", ADAPTIVE), ("tool_use", ADAPTIVE), ("thinking", ADAPTIVE)]


def test_a_key_never_appears_in_failures_or_logs() -> None:
    failure = send(reject(401, "authentication_error", f"invalid x-api-key {KEY}"))[1]
    assert failure is not None and KEY not in str(failure) and "***" in str(failure)
