"""Trying what somebody typed in: each thing that can be wrong is said in its own words."""

import asyncio
import socket

import pytest
from aiohttp import web

from holdfast.models.connection_check import ConnectionCheck, check_connection
from holdfast.models.endpoint import Endpoint, Secret
from tests.support.model_server import KEY, TEXT_STREAM, Answers, error_answer, model_server, streaming_answer

MODELS = {"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "llama3"}, {"id": "nomic-embed"}]}


def server(chat: Answers, models: Answers | None = None, at: str = "/v1") -> Answers:
    """A list of models at one path, answers at another, nothing elsewhere."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path == f"{at}/models":
            return await (models or error_answer(200, MODELS))(request)
        if request.path == f"{at}/chat/completions":
            return await chat(request)
        return web.Response(status=404, text="404 page not found")

    return answer


async def check(
    answer: Answers, model: str = "llama3", path: str = "/v1", **limits: float
) -> ConnectionCheck:
    async with model_server(answer) as (url, _):
        base = url.removesuffix("/v1") + path
        result = await check_connection(Endpoint(base, model, Secret(KEY)), **limits)
    assert KEY not in repr(result)
    return result


async def test_a_working_model_passes_the_check_and_the_others_are_listed() -> None:
    result = await check(server(streaming_answer([TEXT_STREAM])))
    assert result.ok
    assert result.models == ("qwen3:8b", "llama3")
    assert result.detail.startswith("llama3 at 127.0.0.1:")


async def test_without_a_model_name_only_the_list_is_requested() -> None:
    result = await check(server(error_answer(500, {})), model="")
    assert result.ok
    assert "has 2 models" in result.detail
    one = {"object": "list", "data": [{"id": "llama3"}]}
    result = await check(server(error_answer(500, {}), error_answer(200, one)), model="")
    assert result.detail.endswith(" answers, and has one model.")


async def test_a_wrong_key_is_reported() -> None:
    refused = error_answer(401, {"error": {"message": "Incorrect API key provided"}})
    result = await check(server(refused, refused))
    assert not result.ok
    assert "refused the key" in result.detail
    assert "Incorrect API key provided" in result.detail


async def test_an_incomplete_base_url_is_reported_with_the_right_one() -> None:
    result = await check(server(streaming_answer([TEXT_STREAM])), path="")
    assert not result.ok
    assert result.detail.endswith("/v1.")
    result = await check(server(streaming_answer([TEXT_STREAM]), at="/elsewhere"), path="/api", model="")
    assert not result.ok
    assert "is it the right base URL?" in result.detail


async def test_a_server_without_a_model_list_is_still_checked() -> None:
    result = await check(server(streaming_answer([TEXT_STREAM]), error_answer(404, {})))
    assert (result.ok, result.models) == (True, ())


async def test_a_missing_model_is_reported_with_similar_names() -> None:
    missing = error_answer(404, {"error": {"message": "model 'lama3' not found"}})
    result = await check(server(missing), model="lama3")
    assert not result.ok
    assert "does not list a model lama3; it has llama3" in result.detail


async def test_a_closed_port_is_reported_as_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = await check_connection(Endpoint(url, "x", Secret("")))
    assert not result.ok
    assert "Connection refused" in result.detail


async def test_an_unknown_host_name_is_reported() -> None:
    result = await check_connection(Endpoint("http://nobody.invalid/v1", "x", Secret("")))
    assert not result.ok
    assert result.detail == "There is no server named nobody.invalid."


async def test_a_plain_http_server_at_an_https_url_is_reported() -> None:
    async with model_server(server(streaming_answer([TEXT_STREAM]))) as (url, _):
        result = await check_connection(Endpoint(url.replace("http:", "https:"), "x", Secret("")))
    assert not result.ok
    assert "certificate" in result.detail or "SSL" in result.detail


@pytest.mark.parametrize("model", ["", "llama3"])
async def test_a_silent_server_is_reported_after_a_timeout(model: str) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await request.content.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": wait\n\n")
        await asyncio.sleep(5)
        return response

    result = await check(server(silent, silent if not model else None), model, list_s=0.3, answer_s=0.3)
    assert not result.ok
    assert "was silent" in result.detail
