"""OpenAI Responses: what an answer's events mean, odd servers included, and asking over HTTP.

The streams are constructed from the published reference (OpenAI's API reference for Responses and its
streaming events, the source of llama.cpp's server where it differs); none is a recording. More of them are in
`tests/support/responses_streams.py`.
"""

import asyncio
from typing import Any

import pytest

from holdfast.domain.context.request import (
    AssistantMessage,
    ModelProfile,
    Request,
)
from holdfast.domain.events.parts import Reasoning, Text
from holdfast.domain.usage import Usage
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.failures import TOO_LONG
from holdfast.models.http_model import AnswerDecoder, HttpModel
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, ReasoningDelta, StepEnd, TextDelta
from holdfast.models.responses.request import ReasoningItemSignature
from holdfast.models.responses.wire import ResponsesWire
from tests.support.answer_decoder import decode_answer
from tests.support.model_server import (
    KEY,
    LONG_TIMEOUTS,
    REQUEST,
    SHELL,
    Answers,
    ReceivedRequests,
    collect_deltas,
    error_answer,
    event,
    model_server,
    streaming_answer,
)
from tests.support.responses_streams import (
    CALL_DONE,
    FULL_DELTAS,
    FULL_STREAM,
    LS,
    MESSAGE_DONE,
    MESSAGE_ITEM,
    OPENING,
    PWD,
    REASONING_DONE,
    REASONING_ITEM,
    SIGNED,
    TEXT_STREAM,
    USAGE_FIELDS,
    arguments,
    completed,
    ev,
    item,
    summary,
    text,
)

PROFILE = ModelProfile("test", 100_000)
ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "small", Secret(""), protocol="responses")


def decode(*chunks: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return decode_answer(AnswerDecoder(ENDPOINT, ResponsesWire()), chunks)


def deltas_of(*chunks: bytes) -> list[ModelDelta]:
    deltas, failure = decode(*chunks)
    assert failure is None
    return deltas


def failure_of(*chunks: bytes) -> ModelFailure:
    failure = decode(*chunks)[1]
    assert failure is not None
    return failure


def join_answer(deltas: list[ModelDelta]) -> tuple[str, str, dict[int, tuple[str, str]]]:
    """The thinking, the words and the calls of an answer."""
    thought = "".join(each.text for each in deltas if isinstance(each, ReasoningDelta))
    said = "".join(each.text for each in deltas if isinstance(each, TextDelta))
    calls: dict[int, tuple[str, str]] = {}
    for each in deltas:
        if isinstance(each, CallDelta):
            name, before = calls.get(each.index, (each.name, ""))
            calls[each.index] = (name, before + each.arguments)
    return thought, said, calls


CALLS = {0: ("shell", '{"command":"ls"}'), 1: ("shell", '{"command":"pwd"}')}


# The answer.


def test_an_answer_streams_thinking_text_and_parallel_calls() -> None:
    assert deltas_of(TEXT_STREAM) == FULL_DELTAS


@pytest.mark.parametrize("at", range(len(TEXT_STREAM.split(b"\n\n"))))
def test_an_answer_cut_after_any_event_keeps_everything_before_the_cut(at: int) -> None:
    events = [piece + b"\n\n" for piece in TEXT_STREAM.split(b"\n\n") if piece]
    deltas, failure = decode(*events[:at])
    assert deltas == FULL_DELTAS[: len(deltas)]
    assert (failure is None) == (at >= len(events))
    if failure is not None:
        assert failure.retryable
    # Each delta comes with its own event: an answer that grew by one event lost nothing.
    assert len(deltas) >= len(decode(*events[: max(at - 1, 0)])[0])


def test_text_missing_from_the_deltas_is_taken_once_from_the_final_item() -> None:
    for whole in (
        item("done", 0, REASONING_ITEM)
        + item("done", 1, MESSAGE_ITEM)
        + item("done", 2, LS)
        + item("done", 3, PWD),
        b"",
        OPENING + REASONING_DONE,
        OPENING + REASONING_DONE + MESSAGE_DONE,
        item("added", 0, REASONING_ITEM) + summary("**Loo", 0) + item("added", 1, MESSAGE_ITEM) + text("Grü"),
        ev("output_text.done", item_id="msg_1", output_index=1, content_index=0, text="Grüße, 世界 🌍"),
    ):
        deltas = deltas_of(whole, completed(*FULL_STREAM))
        assert join_answer(deltas)[1:] == ("Grüße, 世界 🌍", CALLS)
        assert sorted(join_answer(deltas)[0]) == sorted("**Looking**\n\nFound.")
        assert [each.signature for each in deltas if isinstance(each, ReasoningDelta) and each.signature] == [
            SIGNED
        ]


def test_deltas_after_an_item_has_ended_are_ignored() -> None:
    assert deltas_of(item("done", 1, MESSAGE_ITEM), MESSAGE_DONE, completed(*FULL_STREAM[1:2]))[:1] == [
        TextDelta("Grüße, 世界 🌍")
    ]
    assert join_answer(deltas_of(item("done", 2, LS), CALL_DONE, CALL_DONE, completed(LS, PWD)))[2] == CALLS


def test_a_final_text_that_contradicts_the_deltas_is_ignored() -> None:
    other = {**MESSAGE_ITEM, "content": [{"type": "output_text", "text": "Hello."}]}
    assert join_answer(deltas_of(MESSAGE_DONE, completed(other)))[1] == "Grüße, 世界 🌍"


def test_items_without_an_index_are_distinguished_by_id() -> None:
    """As llama.cpp's server streams: no index anywhere, every end at the end, thinking as plain text."""
    thinking = {"id": "rs_x", "type": "reasoning", "summary": [], "content": [], "encrypted_content": ""}
    stream = (
        OPENING
        + item("added", None, thinking)
        + ev("reasoning_text.delta", item_id="rs_x", delta="Let me ")
        + ev("reasoning_text.delta", item_id="rs_x", delta="look.")
        + item("added", None, MESSAGE_ITEM, content=[])
        + ev("content_part.added", item_id="msg_1", part={"type": "output_text", "text": ""})
        + ev("output_text.delta", item_id="msg_1", delta="Well.")
        + item("added", None, LS, arguments="")
        + ev("function_call_arguments.delta", item_id="fc_1", delta='{"command":')
        + ev("function_call_arguments.delta", item_id="fc_1", delta='"ls"}')
        + item("added", None, PWD, arguments="")
        + ev("function_call_arguments.delta", item_id="fc_2", delta='{"command":"pwd"}')
    )
    whole = {**thinking, "content": [{"type": "reasoning_text", "text": "Let me look."}]}
    said = {**MESSAGE_ITEM, "content": [{"type": "output_text", "text": "Well."}]}
    ends = (
        item("done", None, whole)
        + ev("output_text.done", item_id="msg_1", text="Well.")
        + ev("content_part.done", item_id="msg_1", part={"type": "output_text", "text": "Well."})
        + item("done", None, said)
        + item("done", None, LS)
        + item("done", None, PWD)
    )
    deltas = deltas_of(stream, ends, completed(whole, said, LS, PWD))
    assert deltas[:4] == [
        ReasoningDelta("Let me "),
        ReasoningDelta("look."),
        ReasoningDelta("", ReasoningItemSignature("rs_x", is_raw=True).signature()),
        TextDelta("Well."),
    ]
    assert join_answer(deltas) == ("Let me look.", "Well.", CALLS)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (None, None), (4, 7)])
def test_parallel_calls_are_distinguished_whatever_their_indexes(
    first: int | None, second: int | None
) -> None:
    def part(delta: str, index: int | None, item_id: str) -> bytes:
        at = {} if index is None else {"output_index": index}
        return ev("function_call_arguments.delta", delta=delta, item_id=item_id, **at)

    stream = (
        item("added", first, LS, arguments="")
        + part('{"command":"ls"}', first, "fc_1")
        + item("done", first, LS)
        + item("added", second, PWD, arguments="")
        + part('{"command":"pwd"}', second, "fc_2")
        + item("done", second, PWD)
    )
    assert join_answer(deltas_of(stream, completed(LS, PWD)))[2] == CALLS


def test_an_item_whose_final_id_differs_stays_one_item() -> None:
    stream = MESSAGE_DONE[: MESSAGE_DONE.rindex(b"event: response.output_item.done")] + item(
        "done", 1, MESSAGE_ITEM, id="msg_other"
    )
    assert (
        join_answer(deltas_of(stream, completed({**MESSAGE_ITEM, "id": "msg_third"})))[1] == "Grüße, 世界 🌍"
    )


def test_two_messages_become_two_paragraphs() -> None:
    second = {**MESSAGE_ITEM, "id": "msg_2", "content": [{"type": "output_text", "text": "Done."}]}
    deltas = deltas_of(
        MESSAGE_DONE,
        item("added", 2, second, content=[]),
        text("Done.", 2, "msg_2"),
        completed(MESSAGE_ITEM, second),
    )
    assert join_answer(deltas)[1] == "Grüße, 世界 🌍\n\nDone."


def test_a_call_with_a_late_name_or_no_arguments_is_complete() -> None:
    nothing = {**LS, "arguments": ""}
    assert join_answer(deltas_of(item("added", 0, nothing), item("done", 0, nothing), completed(nothing)))[
        2
    ] == {0: ("shell", "{}")}
    late = arguments('{"command":', 0, "fc_1") + arguments('"ls"}', 0, "fc_1") + item("done", 0, LS)
    assert deltas_of(late, completed(LS))[0] == CallDelta(0, "shell", '{"command":"ls"}')
    unnamed = {**LS, "name": ""}
    assert (
        deltas_of(late[: late.index(b"event: response.output_item")], completed(unnamed))[0].__class__
        is CallDelta
    )
    as_object = {**LS, "arguments": {"command": "ls"}}
    assert join_answer(deltas_of(completed(as_object)))[2] == {0: CALLS[0]}


def test_a_refusal_item_becomes_the_answer_text() -> None:
    said = {**MESSAGE_ITEM, "content": [{"type": "refusal", "refusal": "I will not."}]}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    stream = (
        ev("refusal.delta", delta="I will", **at),
        ev("refusal.done", refusal="I will not.", **at),
        completed(said),
    )
    assert deltas_of(*stream) == [
        TextDelta("I will"),
        TextDelta(" not."),
        StepEnd("stop", Usage(36, 87, 32, written_tokens=3)),
    ]


@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ({"reason": "max_output_tokens"}, "length"),
        ({"reason": "content_filter"}, "content_filter"),
        (None, "length"),
    ],
)
def test_an_incomplete_answer_reports_its_reason(why: dict[str, str] | None, reason: str) -> None:
    end = completed(MESSAGE_ITEM, how="incomplete", incomplete_details=why)
    assert deltas_of(MESSAGE_DONE, end)[-1] == StepEnd(reason, Usage(36, 87, 32, written_tokens=3))


def test_unknown_events_and_items_are_ignored() -> None:
    noise = (
        ev("queued", response={})
        + ev("audio.delta", delta=b"x".hex())
        + ev("shell_call_output_content.delta", delta={"stdout": "x"}, output_index="one")
        + ev("output_text.annotation.added", item_id="msg_1", annotation={"type": "url_citation"})
        + item("added", 9, {"id": "ws_1", "type": "web_search_call", "status": "in_progress"})
        + ev("web_search_call.searching", item_id="ws_1", output_index=9)
        + item("done", 9, {"id": "ws_1", "type": "web_search_call", "content": "odd", "action": {}})
        + event({"type": "keepalive", "sequence_number": 3})
        + event({})
    )
    odd = {"id": "ws_1", "type": "web_search_call", "content": "odd"}
    assert (
        deltas_of(OPENING, noise, MESSAGE_DONE, noise, completed(odd, MESSAGE_ITEM))[:-1] == FULL_DELTAS[4:6]
    )


def test_malformed_or_missing_usage_does_not_fail_the_answer() -> None:
    for usage in (None, "many", {"input_tokens": "x"}, {}):
        assert deltas_of(MESSAGE_DONE, completed(MESSAGE_ITEM, usage=usage))[-1] == StepEnd("stop", Usage())


def test_a_failed_answer_reports_its_error_after_the_received_deltas() -> None:
    error = {"code": "server_error", "message": "The server had an error."}
    deltas, failure = decode(OPENING, MESSAGE_DONE, completed(how="failed", error=error))
    assert deltas == FULL_DELTAS[4:6]
    assert failure is not None and failure.retryable and "had an error" in str(failure)
    assert not failure_of(
        completed(how="failed", error={"code": "invalid_prompt", "message": "No."})
    ).retryable
    assert failure_of(completed(how="failed", error=None)).retryable
    long = {"code": "context_length_exceeded", "message": "Your input exceeds the context window."}
    assert TOO_LONG in str(failure_of(completed(how="failed", error=long)))


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None},
        {"type": "error", "error": {"type": "too_many_requests", "code": "x", "message": "Slow down."}},
        {"error": {"message": "Slow down.", "code": 429}},
        {"object": "error", "message": "Slow down."},
    ],
)
def test_an_error_event_in_the_stream_fails_the_answer(body: dict[str, Any]) -> None:
    deltas, failure = decode(MESSAGE_DONE, event(body))
    assert deltas == FULL_DELTAS[4:6]
    assert failure is not None and failure.retryable and "Slow down" in str(failure)


def test_unreadable_data_fails_after_the_received_deltas() -> None:
    for rubbish in (b"data: {\n\n", b"data: 3\n\n", b"data: \xff\n\n", ev("output_text.delta", delta=3)):
        deltas, failure = decode(MESSAGE_DONE, rubbish)
        assert deltas == FULL_DELTAS[4:6]
        assert failure is not None and failure.retryable


# Through HTTP.


def send(
    *answers: Answers, times: int = 1, request: Request = REQUEST
) -> tuple[list[tuple[list[ModelDelta], ModelFailure | None]], ReceivedRequests]:
    async def ask() -> tuple[list[tuple[list[ModelDelta], ModelFailure | None]], ReceivedRequests]:
        async with model_server(*answers) as (url, seen):
            endpoint = Endpoint(url, "small", Secret(KEY), "OPENAI_API_KEY", protocol="responses")
            model = HttpModel(endpoint, ResponsesWire(), PROFILE, LONG_TIMEOUTS)
            try:
                return [await collect_deltas(model, request, [SHELL]) for _ in range(times)], seen
            finally:
                await model.close()

    return asyncio.run(ask())


def test_an_http_request_carries_the_key() -> None:
    [(deltas, failure)], seen = send(streaming_answer([TEXT_STREAM]))
    assert failure is None
    assert deltas == FULL_DELTAS
    assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert seen.bodies[0]["store"] is False


def test_a_response_that_does_not_stream_is_decoded() -> None:
    whole = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": FULL_STREAM,
        "usage": USAGE_FIELDS,
    }
    [(deltas, failure)], _ = send(error_answer(200, {**whole, "error": None}))
    assert failure is None
    assert join_answer(deltas) == ("**Looking**\n\nFound.", "Grüße, 世界 🌍", CALLS)
    assert deltas[-1] == FULL_DELTAS[-1]
    error = {"code": "server_error", "message": "Broken."}
    [(_, failure)], _ = send(error_answer(200, {**whole, "status": "failed", "error": error}))
    assert failure is not None and "Broken" in str(failure)
    [(_, failure)], _ = send(error_answer(200, {**whole, "status": "in_progress"}))
    assert failure is not None


def reject(message: str, code: str | None = None) -> Answers:
    return error_answer(400, {"error": {"message": message, "type": "invalid_request_error", "code": code}})


def test_rejected_request_fields_are_omitted_from_later_requests() -> None:
    answers, seen = send(
        reject("Unsupported parameter: 'reasoning.summary' is not supported with the 'small' model."),
        reject("Encrypted content is not supported with this model."),
        reject("Unknown parameter: 'prompt_cache_key'."),
        reject("This model does not support parallel_tool_calls."),
        reject("Unsupported parameter: 'store'."),
        streaming_answer([TEXT_STREAM]),
        times=2,
    )
    assert all(failure is None for _, failure in answers)
    optional = {"reasoning", "include", "prompt_cache_key", "parallel_tool_calls", "store"}
    assert optional <= set(seen.bodies[0])
    assert len(seen.bodies) == 7
    assert all(not optional & set(body) for body in seen.bodies[5:])


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("The encrypted content for item rs_1 could not be verified.", "invalid_encrypted_content"),
        ("Item 'rs_1' of type 'reasoning' was provided without its required following item.", None),
    ],
)
def test_rejected_thinking_is_omitted_from_that_request_only(message: str, code: str | None) -> None:
    thought = AssistantMessage((Reasoning("", SIGNED, "test"), Text("Yes.")))
    request = Request("", (*REQUEST.messages, thought, *REQUEST.messages))
    answers, seen = send(reject(message, code), streaming_answer([TEXT_STREAM]), times=2, request=request)
    assert all(failure is None for _, failure in answers)
    kinds = [[each["type"] for each in body["input"]] for body in seen.bodies]
    assert ["reasoning" in each for each in kinds] == [True, False, True]
    assert all("include" in body for body in seen.bodies)


def test_a_conversation_too_long_for_the_window_fails_as_too_long() -> None:
    said = "Your input exceeds the context window of this model."
    [(_, failure)], _ = send(reject(said, "context_length_exceeded"))
    assert failure is not None and TOO_LONG in str(failure) and not failure.retryable
