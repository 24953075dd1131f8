"""The adapter against a real server that misbehaves: what arrived is kept, each failure says what to do."""

import asyncio
import logging
import socket
import traceback
from contextlib import aclosing
from itertools import pairwise

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.context.context import ModelProfile
from holdfast.domain.usage import Usage
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.failures import TOO_LONG
from holdfast.models.http_model import HttpModel
from holdfast.models.ports import CallDelta, ModelDelta, ModelFailure, StepEnd, TextDelta
from holdfast.models.transport import ModelTimeouts
from tests.support.model_server import (
    DONE,
    KEY,
    REQUEST,
    SHELL,
    SHORT_TIMEOUTS,
    TEXT_STREAM,
    USAGE,
    VERY_SHORT_TIMEOUTS,
    ask_once,
    call,
    chunk,
    collect_deltas,
    error_answer,
    http_model,
    model_server,
    streaming_answer,
)

HELLO = chunk({"content": "Hello"})
STOP = chunk({}, "stop")


def failure_of(answer: tuple[list[ModelDelta], ModelFailure | None]) -> ModelFailure:
    assert answer[1] is not None
    return answer[1]


# Answers.


def test_an_answer_streams_and_its_connection_is_reused() -> None:
    async def ask() -> None:
        answer = streaming_answer([HELLO, STOP, USAGE, DONE])
        async with model_server(answer) as (url, seen), http_model(url) as model:
            for _ in range(3):
                deltas, failure = await collect_deltas(model, tools=[SHELL])
                assert failure is None
                assert deltas == [TextDelta("Hello"), StepEnd("stop", Usage(19, 10, 16))]
        assert len(seen.peers) == 1
        assert seen.bodies[0]["tools"][0]["function"]["name"] == "shell"
        assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"
        assert seen.headers[0]["Accept-Encoding"] == "identity"

    asyncio.run(ask())


def test_deltas_arrive_while_the_answer_streams() -> None:
    async def ask() -> None:
        goes_on = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(HELLO)
            await asyncio.wait_for(goes_on.wait(), 30)
            await response.write(STOP + DONE)
            return response

        async with (
            model_server(answer) as (url, _),
            http_model(url) as model,
            aclosing(model.stream(REQUEST, [])) as stream,
        ):
            assert await anext(stream) == TextDelta("Hello")
            goes_on.set()
            assert await anext(stream) == StepEnd("stop")

    asyncio.run(ask())


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, len(TEXT_STREAM)), max_size=5))
def test_any_split_on_the_wire_gives_the_same_deltas(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts) - {0, len(TEXT_STREAM)}), len(TEXT_STREAM)]
    pieces = [TEXT_STREAM[a:b] for a, b in pairwise(edges)]
    assert ask_once(streaming_answer(pieces)) == ask_once(streaming_answer([TEXT_STREAM]))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, TEXT_STREAM.index(b'"tool_calls"}')))
def test_a_connection_cut_at_any_byte_keeps_the_deltas_before_the_cut(at: int) -> None:
    whole, _ = ask_once(streaming_answer([TEXT_STREAM]))
    deltas, failure = ask_once(streaming_answer([TEXT_STREAM[:at]], cut=True))
    assert failure is not None and failure.retryable
    assert deltas == whole[: len(deltas)]
    complete = TEXT_STREAM[:at].count(b"\n\ndata: {")
    assert len(deltas) >= complete - 2, "each whole event but the comment and the empty first one is a delta"


def test_a_slow_reader_receives_what_arrived_before_the_connection_broke() -> None:
    async def ask() -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        pieces = [chunk({"content": f"{i} "}) for i in range(20)]
        async with model_server(streaming_answer(pieces, cut=True)) as (url, _), http_model(url) as model:
            with pytest.raises(ModelFailure):
                async with aclosing(model.stream(REQUEST, [])) as stream:
                    async for delta in stream:
                        deltas.append(delta)
                        await asyncio.sleep(0.1 if len(deltas) == 1 else 0)
        return deltas

    assert asyncio.run(ask()) == [TextDelta(f"{i} ") for i in range(20)]


def test_closing_the_iterator_ends_the_request() -> None:
    async def ask() -> None:
        gone = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            try:
                while True:
                    await response.write(HELLO)
                    await asyncio.sleep(0.01)
            except ConnectionError:
                gone.set()
            return response

        async with model_server(answer) as (url, _), http_model(url) as model:
            async with aclosing(model.stream(REQUEST, [])) as stream:
                assert await anext(stream) == TextDelta("Hello")
            await asyncio.wait_for(gone.wait(), 30)

    asyncio.run(ask())


def test_cancelling_the_reader_is_not_a_model_failure() -> None:
    async def ask() -> None:
        answer = streaming_answer([HELLO, b""], pause_s=0.1)
        async with model_server(answer) as (url, _), http_model(url) as model:
            task = asyncio.create_task(collect_deltas(model))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())


def test_a_server_that_does_not_stream_is_supported() -> None:
    message = {"role": "assistant", "content": "Hello", **call('{"command":"ls"}', id="1", name="shell")}
    body = {"object": "chat.completion", "choices": [{"message": message, "finish_reason": "tool_calls"}]}
    deltas, failure = ask_once(error_answer(200, body))
    assert failure is None
    made_call = CallDelta(0, "shell", '{"command":"ls"}')
    assert deltas == [TextDelta("Hello"), made_call, StepEnd("tool_calls")]


def test_concurrent_answers_do_not_wait_for_each_other() -> None:
    async def ask() -> None:
        arrived: list[int] = []
        everyone = asyncio.Event()

        async def answer(request: web.Request) -> web.StreamResponse:
            arrived.append(1)
            if len(arrived) == 120:
                everyone.set()
            await asyncio.wait_for(everyone.wait(), 30)
            return await streaming_answer([HELLO, STOP, DONE])(request)

        async with model_server(answer) as (url, _), http_model(url) as model:
            answers = await asyncio.gather(*(collect_deltas(model) for _ in range(120)))
        assert all(failure is None for _, failure in answers)

    asyncio.run(ask())


# Servers that do not take everything.


def test_rejected_chat_fields_are_omitted_from_later_requests() -> None:
    no_usage = error_answer(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs"}]})
    no_tools = error_answer(400, {"error": {"message": "library/small:latest does not support tools"}})

    async def ask() -> list[set[str]]:
        hello = streaming_answer([HELLO, STOP, DONE])
        async with model_server(no_usage, no_tools, hello) as (url, seen), http_model(url) as model:
            for _ in range(2):
                _, failure = await collect_deltas(model, tools=[SHELL])
                assert failure is None
        return [{"tools", "stream_options"} & set(body) for body in seen.bodies]

    assert asyncio.run(ask()) == [{"tools", "stream_options"}, {"tools"}, set(), set()]


def test_retries_with_fewer_fields_are_bounded() -> None:
    assert not failure_of(ask_once(error_answer(400, {"error": "stream_options"}))).retryable


# Refusals.


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (402, False), (403, False), (404, False), (408, True), (409, True),
     (413, False), (422, False), (425, True), (429, True), (500, True), (501, False), (502, True),
     (503, True), (504, True), (529, True), (302, False), (204, False)],
)  # fmt: skip
def test_an_error_response_keeps_the_server_message_and_says_whether_to_retry(
    status: int, retryable: bool
) -> None:
    failure = failure_of(ask_once(error_answer(status, {"error": {"message": "Because of the moon."}})))
    assert failure.retryable is retryable
    assert str(status) in str(failure)
    if status != 204:
        assert str(failure).endswith("Because of the moon.")


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Because of the moon"}},
        {"error": "Because of the moon"},
        {"message": "Because of the moon"},
        {"detail": "Because of the moon"},
        {"detail": [{"msg": "Because of the moon"}]},
        b"Because   of\nthe moon.",
    ],
)
def test_the_server_message_is_found_in_every_error_shape(body: object) -> None:
    assert "Because of the moon" in str(failure_of(ask_once(error_answer(400, body))))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, ["refused the key from OPENAI_API_KEY"]),
        (403, ["OPENAI_API_KEY"]),
        (404, ["no model small", "/v1 is not its base URL"]),
        (302, ["is not its base URL"]),
    ],
)
def test_an_error_response_names_what_to_check(status: int, words: list[str]) -> None:
    failure = str(failure_of(ask_once(error_answer(status, b""))))
    assert all(word in failure for word in words), failure


def test_a_base_url_with_the_endpoint_path_is_reported() -> None:
    async def ask() -> ModelFailure:
        answer = error_answer(404, b"")
        async with model_server(answer) as (url, _), http_model(f"{url}/chat/completions") as model:
            return failure_of(await collect_deltas(model))

    assert "more than a base URL" in str(asyncio.run(ask()))


def test_a_missing_key_is_not_reported_as_wrong() -> None:
    async def ask() -> ModelFailure:
        async with model_server(error_answer(401, b"")) as (url, seen), http_model(url, key="") as model:
            failure = failure_of(await collect_deltas(model))
        assert "Authorization" not in seen.headers[0]
        return failure

    assert "wants a key, and none is set" in str(asyncio.run(ask()))


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({}, None),
        ({"Retry_After": "7"}, 7_000),
        ({"Retry_After": "0.5"}, 500),
        ({"retry_after_ms": "250", "Retry_After": "7"}, 250),
        ({"retry_after_ms": "soon", "Retry_After": "7"}, 7_000),
        ({"Retry_After": "Fri, 14 Nov 2025 12:00:30 GMT", "Date": "Fri, 14 Nov 2025 12:00:00 GMT"}, 30_000),
        ({"Retry_After": "Fri, 14 Nov 2025 11:00:00 GMT", "Date": "Fri, 14 Nov 2025 12:00:00 GMT"}, 0),
        ({"Retry_After": "later"}, None),
        ({"Retry_After": "-1"}, None),
        ({"Retry_After": "nan"}, None),
        ({"Retry_After": "1e300"}, 86_400_000),
    ],
)
def test_the_retry_delay_is_taken_from_the_response_headers(
    headers: dict[str, str], wait_ms: int | None
) -> None:
    failure = failure_of(ask_once(error_answer(429, {"error": {"message": "slow down"}}, **headers)))
    assert failure.retryable and failure.retry_after_ms == wait_ms


def test_a_billing_error_is_not_retryable() -> None:
    error = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    assert not failure_of(ask_once(error_answer(429, error))).retryable


def test_the_should_retry_header_decides() -> None:
    assert not failure_of(ask_once(error_answer(500, b"", x_should_retry="false"))).retryable
    assert failure_of(ask_once(error_answer(400, b"", x_should_retry="true"))).retryable


@pytest.mark.parametrize(
    "error",
    [
        {"message": "This model's maximum context length is 8192 tokens.", "code": "context_length_exceeded"},
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
        {"message": "prompt is too long: 9000 tokens > 8192 maximum"},
    ],
)
def test_a_too_long_conversation_is_a_distinct_failure(error: dict[str, str]) -> None:
    failure = failure_of(ask_once(error_answer(400, {"error": error})))
    assert not failure.retryable
    assert str(failure.fields["detail"]).startswith(TOO_LONG)


@pytest.mark.parametrize(("status", "retryable"), [(200, False), (404, False), (502, True)])
def test_an_html_page_is_not_accepted_as_an_answer(status: int, retryable: bool) -> None:
    failure = failure_of(ask_once(error_answer(status, b"<html><body>Welcome</body></html>", "text/html")))
    assert failure.retryable is retryable
    assert "base URL" in str(failure) or status == 502
    assert "<" not in str(failure)


@pytest.mark.parametrize("body", [{"status": "ok"}, [], b"not JSON", {"choices": []}])
def test_json_without_an_answer_is_a_failure(body: object) -> None:
    failure = failure_of(ask_once(error_answer(200, body)))
    assert not failure.retryable and "base URL" in str(failure)


def test_an_error_with_status_200_is_an_error() -> None:
    failure = failure_of(ask_once(error_answer(200, {"error": {"message": "no such luck", "code": 503}})))
    assert failure.retryable and "no such luck" in str(failure)


# Streams that break.


def test_a_stream_that_ends_too_early_is_a_failure() -> None:
    for cut in (True, False):
        deltas, failure = ask_once(streaming_answer([HELLO], cut=cut))
        assert deltas == [TextDelta("Hello")]
        assert failure is not None and failure.retryable and "broke off" in str(failure)


def test_a_stream_cut_after_a_complete_answer_is_not_a_failure() -> None:
    deltas, failure = ask_once(streaming_answer([HELLO, STOP], cut=True))
    assert failure is None
    assert deltas == [TextDelta("Hello"), StepEnd("stop")]


def test_a_stream_kept_open_after_the_answer_does_not_delay_it() -> None:
    lingering = streaming_answer([HELLO + STOP, b": ping\n\n"], pause_s=30)
    assert ask_once(lingering, timeouts=SHORT_TIMEOUTS) == ([TextDelta("Hello"), StepEnd("stop")], None)


@pytest.mark.parametrize(
    ("pieces", "kept", "timeouts", "awaited"),
    [
        ([], [], VERY_SHORT_TIMEOUTS, "first byte within 0.3 s"),
        ([HELLO], [TextDelta("Hello")], SHORT_TIMEOUTS, "next chunk within 0.2 s"),
    ],
)
def test_a_silent_server_times_out(
    pieces: list[bytes], kept: list[ModelDelta], timeouts: ModelTimeouts, awaited: str
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        await asyncio.sleep(30)
        return response

    deltas, failure = ask_once(answer, timeouts=timeouts)
    assert deltas == kept
    assert failure is not None and failure.retryable and awaited in str(failure)


def test_a_server_that_never_answers_times_out() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    failure = failure_of(ask_once(answer, timeouts=VERY_SHORT_TIMEOUTS))
    assert failure.retryable and "first byte within 0.3 s" in str(failure)


def test_an_error_with_an_unfinished_body_is_still_reported() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500)
        await response.prepare(request)
        await response.write(b"it hangs")
        await asyncio.sleep(30)
        return response

    failure = failure_of(ask_once(answer, timeouts=SHORT_TIMEOUTS))
    assert failure.retryable and "it hangs" in str(failure)


async def raw_server(answer: bytes) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    return await asyncio.start_server(connected, "127.0.0.1", 0)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200",
        b"220 smtp.example.org ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\n" + HELLO[:50],
    ],
)
def test_a_malformed_http_response_is_retryable(answer: bytes) -> None:
    async def ask() -> ModelFailure:
        async with await raw_server(answer) as server:
            port = server.sockets[0].getsockname()[1]
            async with http_model(f"http://127.0.0.1:{port}/v1") as model:
                return failure_of(await collect_deltas(model))

    assert asyncio.run(ask()).retryable


def test_a_refused_connection_is_retryable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: nobody else can answer here.
        port = taken.getsockname()[1]

        async def ask() -> ModelFailure:
            async with http_model(f"http://127.0.0.1:{port}/v1") as model:
                return failure_of(await collect_deltas(model))

        failure = asyncio.run(ask())
    assert failure.retryable
    reason = f"no connection to 127.0.0.1:{port}: Connection refused."
    assert str(failure) == f"The model could not answer: {reason}"


# Keys.


@pytest.mark.parametrize(
    "answer",
    [
        error_answer(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}),
        error_answer(401, {"error": {"message": "Incorrect API key provided: sk-te**********cdef."}}),
        error_answer(500, f"header was Authorization: Bearer {KEY}".encode(), "text/plain"),
        streaming_answer([b'data: {"error":{"message":"key ' + KEY.encode() + b' expired"}}\n\n']),
    ],
)
def test_a_key_never_appears_in_failures_or_logs(answer: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    failure = failure_of(ask_once(answer))  # type: ignore[arg-type]
    shown = "".join(traceback.format_exception(failure)) + str(failure) + repr(failure) + caplog.text
    assert KEY not in shown and "sk-te" not in shown
    assert "***" in str(failure)


def test_the_repr_of_a_model_contains_no_secrets() -> None:
    endpoint = Endpoint("http://ada:pass@127.0.0.1:1/v1?token=hush", "small", Secret(KEY), "OPENAI_API_KEY")
    model = HttpModel(endpoint, ChatWire(), ModelProfile("test", 1_000), SHORT_TIMEOUTS)

    async def ask() -> ModelFailure:
        try:
            return failure_of(await collect_deltas(model))
        finally:
            await model.close()

    shown = repr(model) + repr(endpoint.key) + str(asyncio.run(ask()))
    assert not any(secret in shown for secret in (KEY, "pass@", "hush"))
    assert str(endpoint.url("models")) == "http://127.0.0.1:1/v1/models?token=hush"


def test_a_key_is_not_sent_to_a_redirect_target() -> None:
    async def ask() -> int:
        async with model_server(streaming_answer([HELLO, STOP, DONE])) as (elsewhere, seen):
            pointing = error_answer(307, b"", Location=f"{elsewhere}/chat/completions")
            async with model_server(pointing) as (url, _), http_model(url) as model:
                assert not failure_of(await collect_deltas(model)).retryable
            return len(seen.headers)

    assert asyncio.run(ask()) == 0
