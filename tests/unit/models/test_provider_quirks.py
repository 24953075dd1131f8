"""What providers do that no reference says: streams and refusals as each of them is known to send them.

Constructed, not captured. Google: its OpenAI compatibility page and reports of its errors, which come in a
list, and of calls that all have the index 0. Mistral: the codes 3230 and 3280 of its API. Groq: its errors
page (`tool_use_failed`, `output_parse_failed`). OpenRouter: "Errors and Debugging". DeepSeek: the reasons for
which its reference says that a completion ends. vLLM: what its server says of too long a prompt.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.domain.context.context import AssistantMessage, Request, ToolMessage, UserMessage
from holdfast.domain.events.parts import Text, ToolCall
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.failures import from_error_body, from_status, parse_error, retry_after_ms
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from tests.support.model_server import (
    DONE,
    Answers,
    ReceivedRequests,
    ask_once,
    call,
    chunk,
    collect_deltas,
    error_answer,
    event,
    http_model,
    model_server,
    streaming_answer,
)

ENDPOINT = Endpoint("https://api.example/v1", "small", Secret("sk-0123456789"), "OPENAI_API_KEY")
YES_ANSWER = streaming_answer([chunk({"content": "Yes."}), chunk({}, "stop"), DONE])
TOOL_CALL_MESSAGE = AssistantMessage((ToolCall("c_01JQ0000000000000000000001", "shell", '{"command":"ls"}'),))
TOOL_RESULT_MESSAGE = ToolMessage("c_01JQ0000000000000000000001", (Text("a.txt"),))


def receive(*pieces: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return ask_once(streaming_answer([*pieces, DONE]))


def calls_in(deltas: list[ModelDelta]) -> list[tuple[str, str]]:
    """Each call's name and arguments, in order."""
    found: dict[int, tuple[str, str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            name, written = found.get(delta.index, ("", ""))
            found[delta.index] = (name or delta.name, written + delta.arguments)
    return list(found.values())


def _error(message: str, **fields: Any) -> bytes:
    return msgspec.json.encode({"error": {"message": message, **fields}})


# Calls.


@pytest.mark.parametrize("ids", [("", ""), (None, None), ("call_1", "call_2")], ids=["empty", "none", "own"])
def test_parallel_calls_that_all_have_index_0_are_separate_calls(ids: tuple[str | None, str | None]) -> None:
    first = call('{"path":"a"}', index=0, id=ids[0], name="read_file")
    second = call('{"path":"b"}', index=0, id=ids[1], name="read_file")
    third = call('{"command":"ls"}', index=0, id=None if ids[0] is None else ids[1], name="shell")
    deltas, failure = receive(chunk(first), chunk(second), *([chunk(third)] if not ids[0] else []),
                               chunk({}, "tool_calls"))  # fmt: skip
    assert failure is None
    expected = [("read_file", '{"path":"a"}'), ("read_file", '{"path":"b"}')]
    assert calls_in(deltas) == expected + ([("shell", '{"command":"ls"}')] if not ids[0] else [])


def test_complete_arguments_after_complete_arguments_start_another_call() -> None:
    deltas, _ = receive(
        chunk(call("", index=0, id="toolu_1", name="glob")),
        chunk(call('{"pattern":"**"}', index=0, name="")),
        chunk(call('{"path":"docs"}', index=0, name="")),
        chunk({}, "tool_calls"),
    )
    assert calls_in(deltas) == [("glob", '{"pattern":"**"}'), ("glob", '{"path":"docs"}')]


@pytest.mark.parametrize("call_id", ["call_1", "", None])
def test_a_repeated_call_counts_once(call_id: str | None) -> None:
    whole = call('{"command":"rm x"}', index=0, id=call_id, name="shell")
    deltas, _ = receive(chunk(whole), chunk(whole), chunk({}, "tool_calls"))
    assert calls_in(deltas) == [("shell", '{"command":"rm x"}')]


def test_a_nested_object_in_partial_arguments_does_not_start_a_call() -> None:
    pieces = ['{"code":"f(', "{}", ', {\\"a\\":1})', '"}']
    first, *rest = (
        chunk(call(piece, index=0, name="run" if not at else None)) for at, piece in enumerate(pieces)
    )
    deltas, _ = receive(first, *rest, chunk({}, "tool_calls"))
    assert calls_in(deltas) == [("run", "".join(pieces))]


# Ends.


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("STOP", "stop"),
        ("content_filter", "content_filter"),
    ],
)
def test_stop_reasons_are_normalised(reason: str, ours: str) -> None:
    deltas, failure = receive(chunk({"content": "So"}), chunk({}, reason))
    assert failure is None and deltas[-1] == StepEnd(ours)


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "abort"])
@pytest.mark.parametrize("last", ["", " far"])
def test_an_aborted_answer_is_not_treated_as_complete(reason: str, last: str) -> None:
    deltas, failure = receive(chunk({"content": "So"}), chunk({"content": last}, reason))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == f"So{last}"
    assert failure is not None and failure.retryable
    assert reason in str(failure) or "broke off" in str(failure)


def test_an_error_inside_a_choice_keeps_its_message() -> None:
    error = {"code": 502, "message": "Provider went away"}
    broken = {"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": error}]}
    deltas, failure = receive(chunk({"content": "So"}), event(broken))
    assert deltas == [TextDelta("So")]
    assert failure is not None and failure.retryable and "Provider went away" in str(failure)


# Refusals.


def test_an_error_inside_a_list_is_parsed() -> None:
    body = b'[{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]'
    failure = from_status(ENDPOINT, 400, {}, body)
    assert "API key not valid" in str(failure) and not failure.retryable
    assert not failure.bad_request, "another model may answer"
    assert parse_error(b"[]").message is parse_error(b"[3]").message is None


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        (400, "The decoder prompt (length 9001) is longer than the maximum model length of 8192."),
        (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000"),
        (429, "Request too large for gpt-x on tokens per min (TPM): Limit 30000, Requested 40000."),
    ],
    ids=["google", "vllm", "groq", "openai"],
)
def test_errors_of_too_long_requests_are_recognised(status: int, message: str) -> None:
    failure = from_status(ENDPOINT, status, {}, _error(message))
    assert failure.too_long and not failure.retryable


def test_an_output_limit_error_is_not_reported_as_too_long() -> None:
    message = "max_tokens: 90000 > 64000, which is the maximum allowed number of output tokens for small"
    assert not from_status(ENDPOINT, 400, {}, _error(message)).too_long
    assert from_status(ENDPOINT, 429, {}, _error("Rate limit reached")).retryable


@pytest.mark.parametrize("code", ["tool_use_failed", "output_parse_failed"])
def test_a_malformed_model_answer_is_retryable(code: str) -> None:
    body = _error("Failed to call a function.", type="invalid_request_error", code=code)
    assert from_status(ENDPOINT, 400, {}, body).retryable and from_error_body(ENDPOINT, body).retryable
    assert not from_status(ENDPOINT, 400, {}, body).bad_request


def test_a_gateway_error_includes_the_message_of_the_provider() -> None:
    raw = '{"error":{"message":"Unexpected role","type":"invalid_request_error"}}'
    body = _error("Provider returned error", code=400, metadata={"raw": raw, "provider_name": "Mistral"})
    assert "Provider returned error: Unexpected role" in str(from_status(ENDPOINT, 400, {}, body))
    plain = _error("Provider returned error", code=429, metadata={"raw": "slow down", "provider_name": "X"})
    assert "slow down" in str(from_status(ENDPOINT, 429, {}, plain))
    odd = _error("Moderated", code=403, metadata=["no", "object"])
    assert "Moderated" in str(from_status(ENDPOINT, 403, {}, odd))


@pytest.mark.parametrize(
    ("body", "wait_ms"),
    [
        (b'[{"error":{"message":"Quota.","details":[{"retryDelay": "36s"}]}}]', 36_000),
        (b'{"error":{"message":"Please retry in 36.5s."}}', 36_500),
        (b'{"error":{"message":"Rate limit reached. Please try again in 7.66s. Need more?"}}', 7_660),
        (b'{"error":{"message":"Please try again in 20ms."}}', 20),
        (b'{"error":{"message":"Please try again in 6m0s."}}', 360_000),
        (b'{"error":{"message":"Try again later."}}', None),
    ],
)
def test_the_retry_delay_is_parsed_from_the_error_body(body: bytes, wait_ms: int | None) -> None:
    assert retry_after_ms({}, body) == wait_ms
    assert retry_after_ms({"retry-after": "2"}, body) == 2_000, "what is said beside it goes first"
    assert from_status(ENDPOINT, 429, {}, body).retry_after_ms == wait_ms


# What Mistral wants.


def send(request: Request, *answers: Answers) -> ReceivedRequests:
    async def ask() -> ReceivedRequests:
        async with model_server(*answers) as (url, seen), http_model(url) as model:
            for _ in range(2):
                deltas, failure = await collect_deltas(model, request)
                assert failure is None and deltas[0] == TextDelta("Yes.")
        return seen

    return asyncio.run(ask())


def reject(message: str, status: int = 400) -> Answers:
    return error_answer(status, {"object": "error", "message": message, "type": "invalid_request_error"})


@pytest.mark.parametrize("status", [400, 500])
def test_call_ids_are_shortened_for_servers_that_require_it(status: int) -> None:
    request = Request("", (UserMessage((Text("List."),)), TOOL_CALL_MESSAGE, TOOL_RESULT_MESSAGE))
    said = "Tool call id was c_01JQ but must be a-z, A-Z, 0-9, with a length of 9."
    seen = send(request, reject(said, status), YES_ANSWER)
    ids = [_ids(body) for body in seen.bodies]
    assert ids[0] == ["c_01JQ0000000000000000000001"] * 2
    assert ids[1] == ids[2] and len(set(ids[1])) == 1
    assert len(ids[1][0]) == 9 and ids[1][0].isalnum() and ids[1][0].isascii()


def test_an_assistant_message_is_inserted_between_tool_and_user_if_required() -> None:
    request = Request(
        "",
        (
            UserMessage((Text("List."),)),
            TOOL_CALL_MESSAGE,
            TOOL_RESULT_MESSAGE,
            UserMessage((Text("And now?"),)),
        ),
    )
    seen = send(request, reject("Unexpected role 'user' after role 'tool'"), YES_ANSWER)
    roles = [[each["role"] for each in body["messages"]] for body in seen.bodies]
    bridged = ["user", "assistant", "tool", "assistant", "user"]
    assert roles == [["user", "assistant", "tool", "user"], bridged, bridged]


def _ids(body: dict[str, Any]) -> list[str]:
    messages = body["messages"]
    return [each["id"] for said in messages for each in said.get("tool_calls", ())] + [
        said["tool_call_id"] for said in messages if "tool_call_id" in said
    ]


def test_conversation_text_quoted_in_an_error_does_not_disable_fields() -> None:
    said = "The model does not support tools. Why?"

    async def ask() -> list[bool]:
        no = reject(f"messages.3: input should be shorter, input={said!r}")
        async with model_server(no, no, YES_ANSWER) as (url, seen), http_model(url) as model:
            for text in (said, "Something else."):
                await collect_deltas(
                    model,
                    Request("", (UserMessage((Text(text),)),)),
                    (ToolSpec("shell", "", {"type": "object"}),),
                )
            return ["tools" in body for body in seen.bodies]

    assert asyncio.run(ask()) == [True, False, True]
