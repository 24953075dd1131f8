"""Trying what somebody typed in: each thing that can be wrong is said in its own words."""

import asyncio
import socket

import pytest
from aiohttp import web

from holdfast.models.connection_check import Trial, tried
from holdfast.models.endpoint import Endpoint, Secret
from tests.support.model_server import KEY, TALK, Answers, refusing, serving, streaming

MODELS = {"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "llama3"}, {"id": "nomic-embed"}]}


def server(chat: Answers, models: Answers | None = None, at: str = "/v1") -> Answers:
    """A list of models at one path, answers at another, nothing elsewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == f"{at}/models":
            return await (models or refusing(200, MODELS))(request)
        if request.path == f"{at}/chat/completions":
            return await chat(request)
        return web.Response(status=404, text="404 page not found")

    return answer


async def trial(answer: Answers, model: str = "llama3", path: str = "/v1", **limits: float) -> Trial:
    async with serving(answer) as (url, _):
        base = url.removesuffix("/v1") + path
        told = await tried(Endpoint(base, model, Secret(KEY)), **limits)
    assert KEY not in repr(told)
    return told


async def test_a_model_that_answers_is_fine_and_the_others_are_told() -> None:
    told = await trial(server(streaming([TALK])))
    assert told.ok
    assert told.models == ("qwen3:8b", "llama3")
    assert told.detail.startswith("llama3 at 127.0.0.1:")


async def test_without_a_name_only_the_list_is_asked_for() -> None:
    told = await trial(server(refusing(500, {})), model="")
    assert told.ok
    assert "has 2 models" in told.detail
    one = {"object": "list", "data": [{"id": "llama3"}]}
    told = await trial(server(refusing(500, {}), refusing(200, one)), model="")
    assert told.detail.endswith(" answers, and has one model.")


async def test_a_wrong_key_is_said_to_be_wrong() -> None:
    refused = refusing(401, {"error": {"message": "Incorrect API key provided"}})
    told = await trial(server(refused, refused))
    assert not told.ok
    assert "refused the key" in told.detail
    assert "Incorrect API key provided" in told.detail


async def test_a_base_url_without_its_end_is_told_with_the_right_one() -> None:
    told = await trial(server(streaming([TALK])), path="")
    assert not told.ok
    assert told.detail.endswith("/v1.")
    told = await trial(server(streaming([TALK]), at="/elsewhere"), path="/api", model="")
    assert not told.ok
    assert "is it the right base URL?" in told.detail


async def test_a_server_without_a_list_is_asked_all_the_same() -> None:
    told = await trial(server(streaming([TALK]), refusing(404, {})))
    assert (told.ok, told.models) == (True, ())


async def test_a_model_that_is_not_there_is_told_with_those_of_like_name() -> None:
    missing = refusing(404, {"error": {"message": "model 'lama3' not found"}})
    told = await trial(server(missing), model="lama3")
    assert not told.ok
    assert "does not list a model lama3; it has llama3" in told.detail


async def test_nobody_who_listens_is_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        told = await tried(Endpoint(url, "x", Secret("")))
    assert not told.ok
    assert "Connection refused" in told.detail


async def test_a_name_that_nobody_has_is_told() -> None:
    told = await tried(Endpoint("http://nobody.invalid/v1", "x", Secret("")))
    assert not told.ok
    assert told.detail == "There is no server named nobody.invalid."


async def test_a_server_without_encryption_is_not_asked_with_it() -> None:
    async with serving(server(streaming([TALK]))) as (url, _):
        told = await tried(Endpoint(url.replace("http:", "https:"), "x", Secret("")))
    assert not told.ok
    assert "certificate" in told.detail or "SSL" in told.detail


@pytest.mark.parametrize("model", ["", "llama3"])
async def test_silence_is_told_after_a_while(model: str) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await request.content.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": wait\n\n")
        await asyncio.sleep(5)
        return response

    told = await trial(server(silent, silent if not model else None), model, list_s=0.3, answer_s=0.3)
    assert not told.ok
    assert "was silent" in told.detail
