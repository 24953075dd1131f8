"""An embedding server that misbehaves in any way is a failure that says so, in time, and without the key."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from holdfast.memory.embeddings import ANSWER_BYTES_MAX, EmbeddingClient
from holdfast.memory.ports import ProviderFailure

KEY = "sk-embedding-key-1234567890"
Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def embedding_server(answering: Answering) -> AsyncIterator[str]:
    """The base URL of a server that answers so."""
    app = web.Application()
    app.router.add_post("/v1/embeddings", answering)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def embedder(answer: Answering, wait_s: float = 20.0) -> AsyncIterator[EmbeddingClient]:
    async with embedding_server(answer) as url:
        embeddings = EmbeddingClient(url, "small", KEY, wait_s)
        try:
            yield embeddings
        finally:
            await embeddings.close()


def json_answer(body: Any, status: int = 200) -> Answering:
    async def answer(request: web.Request) -> web.StreamResponse:
        if isinstance(body, bytes):
            return web.Response(body=body, status=status)
        return web.json_response(body, status=status)

    return answer


def embedding_body(*numbers: list[float]) -> dict[str, Any]:
    return {"data": [{"index": n, "embedding": each} for n, each in enumerate(numbers)], "model": "small"}


async def test_a_request_names_the_model_and_carries_the_key() -> None:
    asked: list[tuple[Any, str | None]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append((await request.json(), request.headers.get("Authorization")))
        return web.json_response(embedding_body([1, 0], [0, 1.5]))

    async with embedder(answer) as embeddings:
        assert await embeddings(["a", "b"]) == [[1.0, 0.0], [0.0, 1.5]]
        assert asked == [({"model": "small", "input": ["a", "b"]}, f"Bearer {KEY}")]
        assert KEY not in repr(embeddings)


async def test_without_a_key_none_is_sent() -> None:
    asked: list[str | None] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.headers.get("Authorization"))
        return web.json_response(embedding_body([1]))

    async with embedding_server(answer) as url:
        embeddings = EmbeddingClient(url + "/", "small")
        assert await embeddings(["a"]) == [[1.0]]
        await embeddings.close()
    assert asked == [None]


async def test_vectors_are_put_in_the_order_of_their_texts() -> None:
    answer = json_answer({"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]})
    async with embedder(answer) as embeddings:
        assert await embeddings(["a", "b"]) == [[1.0], [2.0]]
    async with embedder(json_answer({"data": [{"embedding": [1.0]}, {"embedding": [2.0]}]})) as embeddings:
        assert await embeddings(["a", "b"]) == [[1.0], [2.0]]


WRONG = {
    "not JSON": b"<html>",
    "nothing": b"",
    "another shape": {"vectors": [[1.0]]},
    "no numbers": {"data": [{"index": 0, "embedding": "AAAA"}]},
    "empty": {"data": [{"index": 0, "embedding": []}]},
    "words": {"data": [{"index": 0, "embedding": ["x"]}]},
    "none": {"data": []},
    "too many": embedding_body([1.0], [2.0]),
    "nested": b'{"data": ' + b"[" * 100_000,
    "too large": b" " * (ANSWER_BYTES_MAX + 1),
    "not a number": b'{"data": [{"index": 0, "embedding": [NaN]}]}',
}


@pytest.mark.parametrize("what", sorted(WRONG))
async def test_an_answer_that_is_wrong_is_a_failure(what: str) -> None:
    async with embedder(json_answer(WRONG[what])) as embeddings:
        with pytest.raises(ProviderFailure, match=r"127\.0\.0\.1"):
            await embeddings(["a"])


async def test_vectors_of_different_lengths_are_a_failure() -> None:
    async with embedder(json_answer(embedding_body([1.0], [1.0, 2.0]))) as embeddings:
        with pytest.raises(ProviderFailure):
            await embeddings(["a", "b"])


@pytest.mark.parametrize("status", [301, 401, 404, 429, 500])
async def test_an_error_quotes_the_server_but_not_the_key(status: int) -> None:
    answer = json_answer({"error": {"message": f"the key {KEY} is not known"}}, status)
    async with embedder(answer) as embeddings:
        with pytest.raises(ProviderFailure) as failure:
            await embeddings(["a"])
    assert f"answered {status}" in str(failure.value) and "is not known" in str(failure.value)
    assert KEY not in str(failure.value)


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    followed: list[str] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        followed.append(request.path)
        return web.json_response(embedding_body([1.0]))

    async with embedding_server(elsewhere) as other:

        async def answer(request: web.Request) -> web.StreamResponse:
            raise web.HTTPTemporaryRedirect(f"{other}/embeddings")

        async with embedder(answer) as embeddings:
            with pytest.raises(ProviderFailure, match="307"):
                await embeddings(["a"])
    assert followed == []


async def test_a_silent_embedding_server_times_out() -> None:
    gone = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        await gone.wait()
        return web.Response()

    async with embedder(answer, wait_s=0.1) as embeddings:
        with pytest.raises(ProviderFailure, match=r"within 0\.1 s"):
            await embeddings(["a"])
        gone.set()


async def test_a_trickling_embedding_server_times_out() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(2_000):
            try:
                await response.write(b" ")
            except ConnectionError:
                break
            await asyncio.sleep(0.01)
        return response

    async with embedder(answer, wait_s=0.3) as embeddings:
        with pytest.raises(ProviderFailure, match="within"):
            await embeddings(["a"])


async def test_a_dropped_embedding_connection_is_a_failure() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with embedder(answer) as embeddings:
        with pytest.raises(ProviderFailure, match="cannot be asked"):
            await embeddings(["a"])


async def test_a_server_that_is_not_there_is_a_failure() -> None:
    async with embedding_server(json_answer(b"")) as url:
        pass
    embeddings = EmbeddingClient(url, "small", KEY)
    with pytest.raises(ProviderFailure, match="cannot be asked"):
        await embeddings(["a"])
    await embeddings.close()
