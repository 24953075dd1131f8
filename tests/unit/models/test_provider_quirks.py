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
from holdfast.models.failures import error_in, of_error, of_status, retry_after_ms
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from tests.support.model_server import (
    DONE,
    Answers,
    Seen,
    asking,
    call,
    chunk,
    event,
    heard,
    refusing,
    serving,
    streaming,
    told,
)

AT = Endpoint("https://api.example/v1", "small", Secret("sk-0123456789"), "OPENAI_API_KEY")
YES = streaming([chunk({"content": "Yes."}), chunk({}, "stop"), DONE])
CALLED = AssistantMessage((ToolCall("c_01JQ0000000000000000000001", "shell", '{"command":"ls"}'),))
GIVEN = ToolMessage("c_01JQ0000000000000000000001", (Text("a.txt"),))


def received(*pieces: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return told(streaming([*pieces, DONE]))


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
def test_calls_that_all_have_the_index_0_stay_apart(ids: tuple[str | None, str | None]) -> None:
    first = call('{"path":"a"}', index=0, id=ids[0], name="read_file")
    second = call('{"path":"b"}', index=0, id=ids[1], name="read_file")
    third = call('{"command":"ls"}', index=0, id=None if ids[0] is None else ids[1], name="shell")
    deltas, failure = received(chunk(first), chunk(second), *([chunk(third)] if not ids[0] else []),
                               chunk({}, "tool_calls"))  # fmt: skip
    assert failure is None
    expected = [("read_file", '{"path":"a"}'), ("read_file", '{"path":"b"}')]
    assert calls_in(deltas) == expected + ([("shell", '{"command":"ls"}')] if not ids[0] else [])


def test_whole_arguments_after_whole_arguments_are_another_call_of_the_same_tool() -> None:
    deltas, _ = received(
        chunk(call("", index=0, id="toolu_1", name="glob")),
        chunk(call('{"pattern":"**"}', index=0, name="")),
        chunk(call('{"path":"docs"}', index=0, name="")),
        chunk({}, "tool_calls"),
    )
    assert calls_in(deltas) == [("glob", '{"pattern":"**"}'), ("glob", '{"path":"docs"}')]


@pytest.mark.parametrize("call_id", ["call_1", "", None])
def test_a_call_that_is_said_once_more_is_one_call(call_id: str | None) -> None:
    whole = call('{"command":"rm x"}', index=0, id=call_id, name="shell")
    deltas, _ = received(chunk(whole), chunk(whole), chunk({}, "tool_calls"))
    assert calls_in(deltas) == [("shell", '{"command":"rm x"}')]


def test_an_object_within_a_text_that_is_being_written_begins_nothing() -> None:
    pieces = ['{"code":"f(', "{}", ', {\\"a\\":1})', '"}']
    first, *rest = (
        chunk(call(piece, index=0, name="run" if not at else None)) for at, piece in enumerate(pieces)
    )
    deltas, _ = received(first, *rest, chunk({}, "tool_calls"))
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
def test_why_a_model_stopped_is_said_in_one_vocabulary(reason: str, ours: str) -> None:
    deltas, failure = received(chunk({"content": "So"}), chunk({}, reason))
    assert failure is None and deltas[-1] == StepEnd(ours)


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "abort"])
@pytest.mark.parametrize("last", ["", " far"])
def test_an_answer_that_was_given_up_is_not_taken_for_a_whole_one(reason: str, last: str) -> None:
    deltas, failure = received(chunk({"content": "So"}), chunk({"content": last}, reason))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == f"So{last}"
    assert failure is not None and failure.retryable
    assert reason in str(failure) or "broke off" in str(failure)


def test_an_error_in_a_choice_is_told_in_its_words() -> None:
    error = {"code": 502, "message": "Provider went away"}
    broken = {"choices": [{"delta": {"content": ""}, "finish_reason": "error", "error": error}]}
    deltas, failure = received(chunk({"content": "So"}), event(broken))
    assert deltas == [TextDelta("So")]
    assert failure is not None and failure.retryable and "Provider went away" in str(failure)


# Refusals.


def test_an_error_in_a_list_is_read() -> None:
    body = b'[{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]'
    failure = of_status(AT, 400, {}, body)
    assert "API key not valid" in str(failure) and not failure.retryable
    assert not failure.of_request, "another model may answer"
    assert error_in(b"[]").message is error_in(b"[3]").message is None


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
def test_what_is_too_long_is_known_for_it(status: int, message: str) -> None:
    failure = of_status(AT, status, {}, _error(message))
    assert failure.too_long and not failure.retryable


def test_fewer_tokens_at_most_is_not_too_long_a_conversation() -> None:
    message = "max_tokens: 90000 > 64000, which is the maximum allowed number of output tokens for small"
    assert not of_status(AT, 400, {}, _error(message)).too_long
    assert of_status(AT, 429, {}, _error("Rate limit reached")).retryable


@pytest.mark.parametrize("code", ["tool_use_failed", "output_parse_failed"])
def test_an_answer_that_was_written_badly_may_be_asked_for_again(code: str) -> None:
    body = _error("Failed to call a function.", type="invalid_request_error", code=code)
    assert of_status(AT, 400, {}, body).retryable and of_error(AT, body).retryable
    assert not of_status(AT, 400, {}, body).of_request


def test_what_a_gateway_passes_on_is_told_with_the_providers_words() -> None:
    raw = '{"error":{"message":"Unexpected role","type":"invalid_request_error"}}'
    body = _error("Provider returned error", code=400, metadata={"raw": raw, "provider_name": "Mistral"})
    assert "Provider returned error: Unexpected role" in str(of_status(AT, 400, {}, body))
    plain = _error("Provider returned error", code=429, metadata={"raw": "slow down", "provider_name": "X"})
    assert "slow down" in str(of_status(AT, 429, {}, plain))
    odd = _error("Moderated", code=403, metadata=["no", "object"])
    assert "Moderated" in str(of_status(AT, 403, {}, odd))


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
def test_how_long_to_wait_is_found_in_what_is_said(body: bytes, wait_ms: int | None) -> None:
    assert retry_after_ms({}, body) == wait_ms
    assert retry_after_ms({"retry-after": "2"}, body) == 2_000, "what is said beside it goes first"
    assert of_status(AT, 429, {}, body).retry_after_ms == wait_ms


# What Mistral wants.


def asked(request: Request, *answers: Answers) -> Seen:
    async def ask() -> Seen:
        async with serving(*answers) as (url, seen), asking(url) as model:
            for _ in range(2):
                deltas, failure = await heard(model, request)
                assert failure is None and deltas[0] == TextDelta("Yes.")
        return seen

    return asyncio.run(ask())


def refused(message: str, status: int = 400) -> Answers:
    return refusing(status, {"object": "error", "message": message, "type": "invalid_request_error"})


@pytest.mark.parametrize("status", [400, 500])
def test_ids_of_calls_become_as_short_as_a_server_wants_them(status: int) -> None:
    request = Request("", (UserMessage((Text("List."),)), CALLED, GIVEN))
    said = "Tool call id was c_01JQ but must be a-z, A-Z, 0-9, with a length of 9."
    seen = asked(request, refused(said, status), YES)
    ids = [_ids(body) for body in seen.bodies]
    assert ids[0] == ["c_01JQ0000000000000000000001"] * 2
    assert ids[1] == ids[2] and len(set(ids[1])) == 1
    assert len(ids[1][0]) == 9 and ids[1][0].isalnum() and ids[1][0].isascii()


def test_the_assistant_says_a_word_between_a_tool_and_a_person_where_it_has_to() -> None:
    request = Request("", (UserMessage((Text("List."),)), CALLED, GIVEN, UserMessage((Text("And now?"),))))
    seen = asked(request, refused("Unexpected role 'user' after role 'tool'"), YES)
    roles = [[each["role"] for each in body["messages"]] for body in seen.bodies]
    bridged = ["user", "assistant", "tool", "assistant", "user"]
    assert roles == [["user", "assistant", "tool", "user"], bridged, bridged]


def _ids(body: dict[str, Any]) -> list[str]:
    told = body["messages"]
    return [each["id"] for said in told for each in said.get("tool_calls", ())] + [
        said["tool_call_id"] for said in told if "tool_call_id" in said
    ]


def test_what_a_refusal_repeats_of_a_conversation_costs_the_others_nothing() -> None:
    said = "The model does not support tools. Why?"

    async def ask() -> list[bool]:
        no = refused(f"messages.3: input should be shorter, input={said!r}")
        async with serving(no, no, YES) as (url, seen), asking(url) as model:
            for text in (said, "Something else."):
                await heard(
                    model,
                    Request("", (UserMessage((Text(text),)),)),
                    (ToolSpec("shell", "", {"type": "object"}),),
                )
            return ["tools" in body for body in seen.bodies]

    assert asyncio.run(ask()) == [True, False, True]
