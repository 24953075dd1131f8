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
    Profile,
    Request,
)
from holdfast.domain.events.parts import Reasoning, Text
from holdfast.domain.usage import Usage
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.failures import TOO_LONG
from holdfast.models.http_model import Answer, HttpModel
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, ReasoningDelta, StepEnd, TextDelta
from holdfast.models.responses.request import Thought
from holdfast.models.responses.wire import ResponsesWire
from tests.support.answer_decoder import decoded
from tests.support.model_server import (
    ASKED,
    CALM,
    KEY,
    SHELL,
    Answers,
    Seen,
    event,
    heard,
    refusing,
    serving,
    streaming,
)
from tests.support.responses_streams import (
    CALLED,
    LS,
    OPENING,
    PWD,
    SAID,
    SAYING,
    SIGNED,
    TALK,
    THINKING,
    THOUGHT,
    TOLD,
    USED,
    WHOLE,
    arguments,
    completed,
    ev,
    item,
    summary,
    text,
)

PROFILE = Profile("test", 100_000)
ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "small", Secret(""), protocol="responses")


def answered(*chunks: bytes) -> tuple[list[ModelDelta], ModelFailure | None]:
    return decoded(Answer(ENDPOINT, ResponsesWire()), chunks)


def told(*chunks: bytes) -> list[ModelDelta]:
    deltas, failure = answered(*chunks)
    assert failure is None
    return deltas


def failed(*chunks: bytes) -> ModelFailure:
    failure = answered(*chunks)[1]
    assert failure is not None
    return failure


def joined(deltas: list[ModelDelta]) -> tuple[str, str, dict[int, tuple[str, str]]]:
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


def test_an_answer_streams_thinking_words_and_parallel_calls() -> None:
    assert told(TALK) == TOLD


@pytest.mark.parametrize("at", range(len(TALK.split(b"\n\n"))))
def test_an_answer_cut_after_any_event_keeps_all_that_came_before(at: int) -> None:
    events = [piece + b"\n\n" for piece in TALK.split(b"\n\n") if piece]
    deltas, failure = answered(*events[:at])
    assert deltas == TOLD[: len(deltas)]
    assert (failure is None) == (at >= len(events))
    if failure is not None:
        assert failure.retryable
    # Each delta comes with its own event: an answer that grew by one event lost nothing.
    assert len(deltas) >= len(answered(*events[: max(at - 1, 0)])[0])


def test_what_no_delta_brought_comes_with_the_item_and_once() -> None:
    for whole in (
        item("done", 0, THINKING) + item("done", 1, SAYING) + item("done", 2, LS) + item("done", 3, PWD),
        b"",
        OPENING + THOUGHT,
        OPENING + THOUGHT + SAID,
        item("added", 0, THINKING) + summary("**Loo", 0) + item("added", 1, SAYING) + text("Grü"),
        ev("output_text.done", item_id="msg_1", output_index=1, content_index=0, text="Grüße, 世界 🌍"),
    ):
        deltas = told(whole, completed(*WHOLE))
        assert joined(deltas)[1:] == ("Grüße, 世界 🌍", CALLS)
        assert sorted(joined(deltas)[0]) == sorted("**Looking**\n\nFound.")
        assert [each.signature for each in deltas if isinstance(each, ReasoningDelta) and each.signature] == [
            SIGNED
        ]


def test_what_comes_after_an_items_end_is_not_said_again() -> None:
    assert told(item("done", 1, SAYING), SAID, completed(*WHOLE[1:2]))[:1] == [TextDelta("Grüße, 世界 🌍")]
    assert joined(told(item("done", 2, LS), CALLED, CALLED, completed(LS, PWD)))[2] == CALLS


def test_a_final_text_that_contradicts_what_came_changes_nothing() -> None:
    other = {**SAYING, "content": [{"type": "output_text", "text": "Hello."}]}
    assert joined(told(SAID, completed(other)))[1] == "Grüße, 世界 🌍"


def test_items_without_index_and_with_late_ends_are_told_apart_by_id() -> None:
    """As llama.cpp's server streams: no index anywhere, every end at the end, thinking as plain text."""
    thinking = {"id": "rs_x", "type": "reasoning", "summary": [], "content": [], "encrypted_content": ""}
    stream = (
        OPENING
        + item("added", None, thinking)
        + ev("reasoning_text.delta", item_id="rs_x", delta="Let me ")
        + ev("reasoning_text.delta", item_id="rs_x", delta="look.")
        + item("added", None, SAYING, content=[])
        + ev("content_part.added", item_id="msg_1", part={"type": "output_text", "text": ""})
        + ev("output_text.delta", item_id="msg_1", delta="Well.")
        + item("added", None, LS, arguments="")
        + ev("function_call_arguments.delta", item_id="fc_1", delta='{"command":')
        + ev("function_call_arguments.delta", item_id="fc_1", delta='"ls"}')
        + item("added", None, PWD, arguments="")
        + ev("function_call_arguments.delta", item_id="fc_2", delta='{"command":"pwd"}')
    )
    whole = {**thinking, "content": [{"type": "reasoning_text", "text": "Let me look."}]}
    said = {**SAYING, "content": [{"type": "output_text", "text": "Well."}]}
    ends = (
        item("done", None, whole)
        + ev("output_text.done", item_id="msg_1", text="Well.")
        + ev("content_part.done", item_id="msg_1", part={"type": "output_text", "text": "Well."})
        + item("done", None, said)
        + item("done", None, LS)
        + item("done", None, PWD)
    )
    deltas = told(stream, ends, completed(whole, said, LS, PWD))
    assert deltas[:4] == [
        ReasoningDelta("Let me "),
        ReasoningDelta("look."),
        ReasoningDelta("", Thought("rs_x", is_raw=True).signature()),
        TextDelta("Well."),
    ]
    assert joined(deltas) == ("Let me look.", "Well.", CALLS)


@pytest.mark.parametrize(("first", "second"), [(0, 0), (None, None), (4, 7)])
def test_calls_are_told_apart_whatever_their_indexes_are(first: int | None, second: int | None) -> None:
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
    assert joined(told(stream, completed(LS, PWD)))[2] == CALLS


def test_an_item_that_ends_under_another_id_is_still_one() -> None:
    stream = SAID[: SAID.rindex(b"event: response.output_item.done")] + item(
        "done", 1, SAYING, id="msg_other"
    )
    assert joined(told(stream, completed({**SAYING, "id": "msg_third"})))[1] == "Grüße, 世界 🌍"


def test_two_messages_are_two_paragraphs() -> None:
    second = {**SAYING, "id": "msg_2", "content": [{"type": "output_text", "text": "Done."}]}
    deltas = told(
        SAID, item("added", 2, second, content=[]), text("Done.", 2, "msg_2"), completed(SAYING, second)
    )
    assert joined(deltas)[1] == "Grüße, 世界 🌍\n\nDone."


def test_a_call_that_is_named_late_or_takes_nothing_is_whole() -> None:
    nothing = {**LS, "arguments": ""}
    assert joined(told(item("added", 0, nothing), item("done", 0, nothing), completed(nothing)))[2] == {
        0: ("shell", "{}")
    }
    late = arguments('{"command":', 0, "fc_1") + arguments('"ls"}', 0, "fc_1") + item("done", 0, LS)
    assert told(late, completed(LS))[0] == CallDelta(0, "shell", '{"command":"ls"}')
    unnamed = {**LS, "name": ""}
    assert (
        told(late[: late.index(b"event: response.output_item")], completed(unnamed))[0].__class__ is CallDelta
    )
    as_object = {**LS, "arguments": {"command": "ls"}}
    assert joined(told(completed(as_object)))[2] == {0: CALLS[0]}


def test_a_refusal_is_what_the_model_said() -> None:
    said = {**SAYING, "content": [{"type": "refusal", "refusal": "I will not."}]}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    stream = (
        ev("refusal.delta", delta="I will", **at),
        ev("refusal.done", refusal="I will not.", **at),
        completed(said),
    )
    assert told(*stream) == [
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
def test_an_incomplete_answer_says_why(why: dict[str, str] | None, reason: str) -> None:
    end = completed(SAYING, how="incomplete", incomplete_details=why)
    assert told(SAID, end)[-1] == StepEnd(reason, Usage(36, 87, 32, written_tokens=3))


def test_events_and_items_that_are_not_known_are_passed_over() -> None:
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
    assert told(OPENING, noise, SAID, noise, completed(odd, SAYING))[:-1] == TOLD[4:6]


def test_usage_that_is_odd_or_missing_costs_nothing() -> None:
    for usage in (None, "many", {"input_tokens": "x"}, {}):
        assert told(SAID, completed(SAYING, usage=usage))[-1] == StepEnd("stop", Usage())


def test_a_failed_answer_says_why_after_all_that_came() -> None:
    error = {"code": "server_error", "message": "The server had an error."}
    deltas, failure = answered(OPENING, SAID, completed(how="failed", error=error))
    assert deltas == TOLD[4:6]
    assert failure is not None and failure.retryable and "had an error" in str(failure)
    assert not failed(completed(how="failed", error={"code": "invalid_prompt", "message": "No."})).retryable
    assert failed(completed(how="failed", error=None)).retryable
    long = {"code": "context_length_exceeded", "message": "Your input exceeds the context window."}
    assert TOO_LONG in str(failed(completed(how="failed", error=long)))


@pytest.mark.parametrize(
    "body",
    [
        {"type": "error", "code": "rate_limit_exceeded", "message": "Slow down.", "param": None},
        {"type": "error", "error": {"type": "too_many_requests", "code": "x", "message": "Slow down."}},
        {"error": {"message": "Slow down.", "code": 429}},
        {"object": "error", "message": "Slow down."},
    ],
)
def test_an_error_in_the_stream_is_told(body: dict[str, Any]) -> None:
    deltas, failure = answered(SAID, event(body))
    assert deltas == TOLD[4:6]
    assert failure is not None and failure.retryable and "Slow down" in str(failure)


def test_what_cannot_be_read_is_a_failure_after_all_that_came() -> None:
    for rubbish in (b"data: {\n\n", b"data: 3\n\n", b"data: \xff\n\n", ev("output_text.delta", delta=3)):
        deltas, failure = answered(SAID, rubbish)
        assert deltas == TOLD[4:6]
        assert failure is not None and failure.retryable


# Through HTTP.


def asked(
    *answers: Answers, times: int = 1, request: Request = ASKED
) -> tuple[list[tuple[list[ModelDelta], ModelFailure | None]], Seen]:
    async def ask() -> tuple[list[tuple[list[ModelDelta], ModelFailure | None]], Seen]:
        async with serving(*answers) as (url, seen):
            endpoint = Endpoint(url, "small", Secret(KEY), "OPENAI_API_KEY", protocol="responses")
            model = HttpModel(endpoint, ResponsesWire(), PROFILE, CALM)
            try:
                return [await heard(model, request, [SHELL]) for _ in range(times)], seen
            finally:
                await model.close()

    return asyncio.run(ask())


def test_a_model_is_asked_over_http_with_its_key() -> None:
    [(deltas, failure)], seen = asked(streaming([TALK]))
    assert failure is None
    assert deltas == TOLD
    assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert seen.bodies[0]["store"] is False


def test_an_answer_that_comes_whole_is_read_too() -> None:
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": WHOLE, "usage": USED}
    [(deltas, failure)], _ = asked(refusing(200, {**whole, "error": None}))
    assert failure is None
    assert joined(deltas) == ("**Looking**\n\nFound.", "Grüße, 世界 🌍", CALLS)
    assert deltas[-1] == TOLD[-1]
    error = {"code": "server_error", "message": "Broken."}
    [(_, failure)], _ = asked(refusing(200, {**whole, "status": "failed", "error": error}))
    assert failure is not None and "Broken" in str(failure)
    [(_, failure)], _ = asked(refusing(200, {**whole, "status": "in_progress"}))
    assert failure is not None


def refusal(message: str, code: str | None = None) -> Answers:
    return refusing(400, {"error": {"message": message, "type": "invalid_request_error", "code": code}})


def test_what_a_server_refuses_is_left_out_from_then_on() -> None:
    answers, seen = asked(
        refusal("Unsupported parameter: 'reasoning.summary' is not supported with the 'small' model."),
        refusal("Encrypted content is not supported with this model."),
        refusal("Unknown parameter: 'prompt_cache_key'."),
        refusal("This model does not support parallel_tool_calls."),
        refusal("Unsupported parameter: 'store'."),
        streaming([TALK]),
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
def test_thinking_that_is_refused_stays_out_of_that_request_alone(message: str, code: str | None) -> None:
    thought = AssistantMessage((Reasoning("", SIGNED, "test"), Text("Yes.")))
    request = Request("", (*ASKED.messages, thought, *ASKED.messages))
    answers, seen = asked(refusal(message, code), streaming([TALK]), times=2, request=request)
    assert all(failure is None for _, failure in answers)
    kinds = [[each["type"] for each in body["input"]] for body in seen.bodies]
    assert ["reasoning" in each for each in kinds] == [True, False, True]
    assert all("include" in body for body in seen.bodies)


def test_a_conversation_that_is_too_long_says_so() -> None:
    said = "Your input exceeds the context window of this model."
    [(_, failure)], _ = asked(refusal(said, "context_length_exceeded"))
    assert failure is not None and TOO_LONG in str(failure) and not failure.retryable
