"""Memory behind a webhook: what is sent, how it is signed, and what a receiver that misbehaves comes to."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Awaitable
from typing import Any

import pytest
from aiohttp import web

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import BadCursor, NoSuchMemory, TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX, RECEIPT_CHARS_MAX, WEBHOOK_ANSWER_BYTES_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.conformance import segment
from holdfast.memory.ports import Health, ProviderCannot, ProviderFailure
from holdfast.memory.providers.webhook import MemoryWebhookTimeouts, WebhookProvider
from tests.support.example_receiver_process import SECRET
from tests.support.fake_webhook_memory import AT, PASSWORD, TOKEN, json_answer, webhook_provider
from tests.support.free_ports import own_port

SHORT = MemoryWebhookTimeouts(commit_s=0.5, ask_s=0.5, health_s=0.5)


def proof_of(secret: str, message_id: str, stamp: str, body: bytes) -> str:
    """The signature by the convention's own words, and by the definition of HMAC instead of a library."""
    key = base64.b64decode(secret.split("_", 1)[1]).ljust(64, b"\0")
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in key) + f"{message_id}.{stamp}.".encode() + body).digest()
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in key) + inner).digest()
    return "v1," + base64.b64encode(outer).decode()


async def failure_of(asked: Awaitable[object]) -> str:
    """How it failed, in words; they hold no secret."""
    with pytest.raises(ProviderFailure) as caught:
        await asked
    said = str(caught.value)
    for secret in (SECRET, SECRET.removeprefix("whsec_"), PASSWORD, TOKEN):
        assert secret not in said + repr(caught.value.fields), said
    assert caught.value.__cause__ is None, "a traceback would show the address"
    return said.removeprefix("Memory failed: 127.0.0.1:")


# What is sent.


async def test_a_signature_matches_an_independent_implementation() -> None:
    async with webhook_provider(json_answer({"receipt": "r"})) as (it, seen):
        await it.commit(segment("o_key1", "ß and 🧑‍🔬"))
    [(body, headers)] = seen.requests
    assert headers["webhook-id"] == "o_key1"
    assert headers["webhook-timestamp"] == str(AT // 1_000)
    expected = proof_of(SECRET, "o_key1", headers["webhook-timestamp"], body)
    assert hmac.compare_digest(headers["webhook-signature"], expected)
    assert headers["content-type"] == "application/json"


def test_the_signature_is_that_of_the_conventions_own_example() -> None:
    secret, message_id, stamp = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "1614265330",
    )
    body = b'{"test": 2432232314}'
    assert proof_of(secret, message_id, stamp, body) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_the_password_of_an_address_is_sent_as_such() -> None:
    async with webhook_provider(json_answer({}, 200)) as (it, seen):
        assert await it.health() == Health(True)
    assert base64.b64decode(seen.header("authorization").removeprefix("Basic ")).decode() == f"ada:{PASSWORD}"


async def test_a_segment_is_sent_verbatim() -> None:
    async with webhook_provider(json_answer({"receipt": "mine"})) as (it, seen):
        assert await it.commit(segment("o_key1", "The jar is blue.", "gardener", 3)) == "mine"
    assert seen.body() == {
        "type": "memory.commit",
        "key": "o_key1",
        "session_id": "s_0123456789abcdef",
        "title": "A conversation",
        "scope": "gardener",
        "turns": [[3, 3]],
        "messages": [
            {
                "id": "m_0000000000000001",
                "role": "user",
                "at": 1_700_000_000_000,
                "text": "The jar is blue.",
                "name": "",
            },
            {
                "id": "m_0000000000000002",
                "role": "assistant",
                "at": 1_700_000_001_000,
                "text": "Noted.",
                "name": "",
            },
        ],
    }


async def test_a_repeated_commit_keeps_its_id_and_a_retract_has_its_own() -> None:
    async with webhook_provider(json_answer({"receipt": "r"})) as (it, seen):
        await it.commit(segment("o_key1", "a"))
        await it.commit(segment("o_key1", "a"))
        await it.retract("o_key1", "r")
        await it.retract("o_key1", "r")
    ids = [seen.header("webhook-id", n) for n in range(4)]
    assert ids == ["o_key1", "o_key1", "retract_o_key1", "retract_o_key1"]
    assert seen.body() == {"type": "memory.retract", "key": "o_key1", "receipt": "r"}


async def test_each_recall_has_a_new_id() -> None:
    async with webhook_provider(json_answer({"memories": []})) as (it, seen):
        await it.recall("jar?", "", 5)
        await it.recall("jar?", "", 5)
        assert seen.body() == {"type": "memory.recall", "query": "jar?", "scope": "", "limit": 5}
    assert [seen.header("webhook-id", n) for n in range(2)] == ["fresh_1", "fresh_2"]


@pytest.mark.parametrize("key", ["a.1700000000.{}", "a\r\nx-evil: 1", "ключ", "", "k" * 300, "\ud800"])
async def test_an_unsafe_key_is_hashed_for_the_webhook_id(key: str) -> None:
    async with webhook_provider(json_answer({"receipt": "r"})) as (it, seen):
        try:
            await it.commit(segment(key, "a"))
        except ProviderFailure:
            assert key == "\ud800" and not seen.requests
            return
        await it.commit(segment(key, "a"))
    first, second = seen.header("webhook-id", 0), seen.header("webhook-id", 1)
    assert first == second and first.startswith("x_") and first[2:].isalnum()
    assert seen.body()["key"] == key


async def test_every_request_type_has_its_body() -> None:
    memory = {"id": "n1", "text": "jar"}
    async with webhook_provider(json_answer({**memory, "memories": [memory]})) as (it, seen):
        made = await it.remember("jar", "g", Origin("model", SessionId("s_1"), 2, 2), "c_7")
        assert made == Memory("n1", "jar", Origin("model"))
        assert seen.body() == {
            "type": "memory.remember", "key": "c_7", "text": "jar", "scope": "g",
            "origin": {"by": "model", "session_id": "s_1", "from_turn": 2, "through_turn": 2},
        }  # fmt: skip
        assert seen.header("webhook-id") == "c_7"
        await it.list_("g", "blue", "next", 7)
        assert seen.body() == {
            "type": "memory.list",
            "scope": "g",
            "words": "blue",
            "cursor": "next",
            "limit": 7,
        }
        await it.edit("n1", "jug")
        assert seen.body() == {"type": "memory.edit", "memory_id": "n1", "text": "jug"}
        await it.forget("n1")
        assert seen.body() == {"type": "memory.forget", "memory_id": "n1"}
        await it.health()
        assert seen.body() == {"type": "memory.health"}


# What is answered.


async def test_a_memory_may_say_where_it_comes_from() -> None:
    memory = {
        "id": "n1", "text": "jar", "key": "o_1", "made_at": 5, "changed_at": 6, "anything": "else",
        "origin": {"by": "user", "session_id": "s_1", "from_turn": 1, "through_turn": 3},
    }  # fmt: skip
    async with webhook_provider(
        json_answer({"memories": [memory, {"id": "n2", "text": "jug"}], "cursor": "n"})
    ) as (it, _):
        first = Memory("n1", "jar", Origin("user", SessionId("s_1"), 1, 3), 5, 6, "o_1")
        assert await it.list_("", "", None, 5) == MemoryPage(
            (first, Memory("n2", "jug", Origin("model"))), "n"
        )


async def test_no_more_is_recalled_than_was_asked_for_and_none_at_any_length() -> None:
    answer = {"memories": [{"id": str(n), "text": "x" * 10_000} for n in range(9)]}
    async with webhook_provider(json_answer(answer)) as (it, _):
        found = await it.recall("x", "", 3)
        assert [len(each.text) for each in found] == [MEMORY_CHARS_MAX] * 3
        said = await failure_of(it.list_("", "", None, 3))
        assert said.endswith("gave 9 memories where 3 were asked for.")


@pytest.mark.parametrize("status, body", [(501, b""), (501, b"<html>"), (404, {"code": "no_such_verb"})])
async def test_an_unsupported_request_raises_provider_cannot(status: int, body: Any) -> None:
    async with webhook_provider(json_answer(body, status)) as (it, _):
        for asked in (
            it.recall("", "", 1), it.commit(segment("k", "a")), it.retract("k", ""), it.forget("n"),
            it.remember("a", "", Origin("user"), "k"), it.list_("", "", None, 1), it.edit("n", "a"),
        ):  # fmt: skip
            with pytest.raises(ProviderCannot):
                await asked
        assert await it.health() == Health(True)


async def test_an_unknown_memory_raises_its_own_error_where_one_was_named() -> None:
    async with webhook_provider(json_answer({"code": "no_such_memory"}, 404)) as (it, _):
        with pytest.raises(NoSuchMemory, match="n_7"):
            await it.edit("n_7", "a")
        with pytest.raises(NoSuchMemory, match="n_8"):
            await it.forget("n_8")
        assert "answered with status 404" in await failure_of(it.commit(segment("k", "a")))


async def test_a_path_that_is_not_there_is_a_failure_and_not_a_verb_that_is_not() -> None:
    async with webhook_provider(json_answer(b"<h1>Not Found</h1>", 404)) as (it, _):
        for asked in (it.commit(segment("k", "a")), it.retract("k", ""), it.forget("n")):
            assert (await failure_of(asked)).endswith("answered with status 404.")
        assert not (await it.health()).ok


async def test_a_bad_cursor_raises_its_own_error() -> None:
    async with webhook_provider(json_answer({"code": "bad_cursor"}, 400)) as (it, _):
        with pytest.raises(BadCursor):
            await it.list_("", "", "x", 1)
        assert "status 400" in await failure_of(it.list_("", "", None, 1))


async def test_what_is_too_long_for_a_memory_is_not_sent() -> None:
    async with webhook_provider(json_answer({})) as (it, seen):
        for asked in (it.edit("n", "x" * 2_001), it.remember("x" * 2_001, "", Origin("user"), "k")):
            with pytest.raises(TooLarge):
                await asked
        assert seen.requests == []


# An other side that misbehaves.


@pytest.mark.parametrize("status", [400, 401, 403, 409, 410, 429, 500, 502, 503])
async def test_any_other_status_is_a_failure_with_the_receivers_words(status: int) -> None:
    async with webhook_provider(json_answer({"detail": "The  disk\nis full."}, status)) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.endswith(f"answered with status {status}: The disk is full.")


async def test_secrets_echoed_by_a_receiver_are_masked() -> None:
    words = f"bad {SECRET} {SECRET.removeprefix('whsec_')} {PASSWORD} {TOKEN} " + "x" * 5_000
    async with webhook_provider(json_answer({"detail": words}, 500)) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert "[secret]" in said and len(said) < 300
    async with webhook_provider(json_answer({"receipt": {SECRET: 1}})) as (it, _):
        assert "wrong shape" in await failure_of(it.commit(segment("k", "a")))


async def test_a_redirect_is_not_followed() -> None:
    async with webhook_provider(json_answer({}, 307, Location="/hook?elsewhere")) as (it, seen):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.endswith("sends elsewhere (status 307), where nothing is sent.")
        assert len(seen.requests) == 1


async def test_an_answer_that_is_too_long_is_not_read_to_its_end() -> None:
    stopped = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b'{"receipt": "' + b"x" * 100_000)
        except (ConnectionError, asyncio.CancelledError):
            stopped.set()
            raise

    async with webhook_provider(endless) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.endswith(f"answered with more than {WEBHOOK_ANSWER_BYTES_MAX} bytes.")
        await asyncio.wait_for(stopped.wait(), 30)


async def test_a_compressed_answer_is_not_decompressed() -> None:
    packed = base64.b64decode("H4sIAAAAAAAC/6tWSipWslIyVNJRSiotUbICMoyUagHJeIpEFgAAAA==")
    async with webhook_provider(json_answer(packed, 200, **{"Content-Encoding": "gzip"})) as (it, _):
        assert (await failure_of(it.commit(segment("k", "a")))).endswith("gave an answer that is not JSON.")


RUBBISH = [
    b"",
    b"ok",
    b"<html></html>",
    b"\xff\xfe",
    b'{"receipt": "\\ud800"}',
    b'{"receipt": "x"',
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", RUBBISH)
async def test_what_is_not_json_is_a_failure(body: bytes) -> None:
    async with webhook_provider(json_answer(body)) as (it, _):
        for asked in (it.commit(segment("k", "a")), it.recall("", "", 1), it.edit("n", "a")):
            assert "gave an answer" in await failure_of(asked)


@pytest.mark.parametrize(
    "body",
    [{}, [], None, 7, {"receipt": None}, {"receipt": 7}, {"receipt": "x" * (RECEIPT_CHARS_MAX + 1)}],
)
async def test_a_receipt_of_the_wrong_shape_is_a_failure(body: Any) -> None:
    async with webhook_provider(json_answer(body)) as (it, _):
        assert "wrong shape" in await failure_of(it.commit(segment("k", "a")))


@pytest.mark.parametrize(
    "wrong",
    [
        {"id": "", "text": "a"}, {"id": "n"}, {"id": 7, "text": "a"}, {"id": "n", "text": None},
        {"id": "n", "text": "a", "made_at": -1}, {"id": "n", "text": "a", "made_at": 1e30},
        {"id": "n", "text": "a", "origin": {"by": "nobody"}}, {"id": "n" * 201, "text": "a"}, [],
    ],
)  # fmt: skip
async def test_memories_of_the_wrong_shape_are_a_failure(wrong: Any) -> None:
    async with webhook_provider(json_answer({"memories": [wrong]})) as (it, _):
        assert "wrong shape" in await failure_of(it.recall("", "", 5))
        assert "wrong shape" in await failure_of(it.list_("", "", None, 5))
    async with webhook_provider(json_answer(wrong)) as (it, _):
        assert "wrong shape" in await failure_of(it.edit("n", "a"))


async def test_a_silent_memory_webhook_times_out() -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with webhook_provider(hang, SHORT) as (it, _):
        for asked in (
            it.commit(segment("k", "a")),
            it.retract("k", ""),
            it.recall("", "", 1),
            it.forget("n"),
        ):
            assert (await failure_of(asked)).endswith("gave no whole answer within 0.5 s.")
        assert await it.health() == Health(False, f"{it._host} gave no whole answer within 0.5 s")


async def test_a_trickling_memory_webhook_times_out() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    async with webhook_provider(drip, SHORT) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.endswith("gave no whole answer within 0.5 s.")


async def test_an_answer_that_breaks_off_is_a_failure() -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"receipt": "r"}')
        assert request.transport is not None
        request.transport.close()
        return response

    async with webhook_provider(cut) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.endswith("broke off in the middle of its answer.")


async def test_a_connection_that_is_closed_instead_of_answered_is_a_failure() -> None:
    async def leave(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with webhook_provider(leave) as (it, _):
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.startswith("Memory failed: no answer from 127.0.0.1:")
        assert said.endswith("it closed the connection.")


async def test_what_is_not_http_is_a_failure() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        it = WebhookProvider(
            f"http://ada:{PASSWORD}@127.0.0.1:{port}/?{TOKEN}", SECRET, FakeClock(AT), lambda: "f"
        )
        said = await failure_of(it.commit(segment("k", "a")))
        assert said.startswith(f"Memory failed: no answer from 127.0.0.1:{port}: ")
        await it.close()


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:{port}", "no-such-host.invalid:{port}", "[::1]:99999", "%zz", "a b:1", "127.0.0.1:x"],
)
async def test_an_unreachable_memory_webhook_is_a_failure(address: str) -> None:
    url = f"http://ada:{PASSWORD}@{address.format(port=own_port())}/hook?token={TOKEN}"
    it = WebhookProvider(url, SECRET, FakeClock(AT), lambda: "f", MemoryWebhookTimeouts(5, 5, 5))
    said = await failure_of(it.commit(segment("k", "a")))
    assert said.startswith("Memory failed: ")
    health = await it.health()
    assert not health.ok and health.detail and PASSWORD not in health.detail
    await it.close()


async def test_closing_ends_what_is_under_way_and_what_comes_later() -> None:
    begun = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with webhook_provider(hang) as (it, seen):
        waiting = asyncio.create_task(failure_of(it.commit(segment("k", "a"))))
        await asyncio.wait_for(begun.wait(), 30)
        await it.close()
        assert "no answer from" in await asyncio.wait_for(waiting, 30)
        assert (await failure_of(it.commit(segment("k", "a")))).endswith("was closed.")
        assert len(seen.requests) == 1


async def test_a_caller_who_gives_up_ends_the_request() -> None:
    begun, gone = asyncio.Event(), asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        while await reader.read(10_000):
            pass
        gone.set()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        it = WebhookProvider(f"http://127.0.0.1:{port}/", SECRET, FakeClock(AT), lambda: "f")
        waiting = asyncio.create_task(it.recall("", "", 1))
        await asyncio.wait_for(begun.wait(), 30)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(gone.wait(), 30)
        await it.close()


async def test_a_lone_surrogate_raises_a_provider_failure() -> None:
    async with webhook_provider(json_answer({})) as (it, seen):
        assert "half a character" in await failure_of(it.recall("\ud800", "", 1))
        assert seen.requests == []
