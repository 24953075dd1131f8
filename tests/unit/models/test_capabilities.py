"""Which files a model takes, by what its server says of it."""

from typing import Any

import pytest

from holdfast.domain.files import SupportedFiles
from holdfast.models.capabilities import RETRY_AFTER_S, ModelCapabilities
from holdfast.models.endpoint import OPENAI_URL, Endpoint, Secret
from tests.support.model_server import KEY, Answers, ReceivedRequests, error_answer, model_server

WORDS, PICTURES = SupportedFiles(frozenset({"text"})), SupportedFiles(frozenset({"text", "image"}))
ALL = SupportedFiles(frozenset({"text", "image", "pdf"}))
MAYBE_WORDS, MAYBE_PICTURES = (
    SupportedFiles(WORDS.kinds, guessed=True),
    SupportedFiles(PICTURES.kinds, guessed=True),
)


def model_list(model: str, **more: Any) -> Answers:
    return error_answer(200, {"object": "list", "data": [{"id": "another"}, {"id": model, **more}]})


async def query_capabilities(model: str, *answers: Answers) -> tuple[SupportedFiles, ReceivedRequests]:
    async with model_server(*answers) as (url, seen):
        abilities = ModelCapabilities(Endpoint(url, model, Secret(KEY)))
        takes = await abilities.supported_files()
        asked = len(seen.bodies)
        assert await abilities.supported_files() == takes
        assert len(seen.bodies) == asked, "what is known is not asked for again"
        return takes, seen


@pytest.mark.parametrize(
    ("more", "takes"),
    [
        ({"architecture": {"input_modalities": ["text", "image", "file"]}}, PICTURES),
        ({"architecture": {"input_modalities": ["text"]}}, WORDS),
        ({"capabilities": {"vision": True, "completion_chat": True}}, PICTURES),
        ({"capabilities": {"vision": False}}, WORDS),
        ({"capabilities": ["completion"]}, MAYBE_WORDS),
        ({}, MAYBE_WORDS),
    ],
)
async def test_capabilities_are_taken_from_the_model_list(
    more: dict[str, Any], takes: SupportedFiles
) -> None:
    found, seen = await query_capabilities("small", model_list("small", **more))
    assert found == takes
    assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_capabilities_are_taken_from_the_second_list_of_llama_cpp() -> None:
    body: dict[str, Any] = {
        "models": [{"name": "a.gguf", "model": "a.gguf", "capabilities": ["completion", "multimodal"]}],
        "data": [{"id": "a.gguf", "owned_by": "llamacpp"}],
    }
    assert (await query_capabilities("a.gguf", error_answer(200, body)))[0] == PICTURES
    body["models"][0]["capabilities"] = ["completion"]
    assert (await query_capabilities("a.gguf", error_answer(200, body)))[0] == WORDS


async def test_capabilities_are_taken_from_ollama_show() -> None:
    list_ = model_list("gemma:4b", owned_by="library")
    takes, seen = await query_capabilities(
        "gemma:4b", list_, error_answer(200, {"capabilities": ["completion", "vision"]})
    )
    assert takes == PICTURES
    assert seen.bodies[1] == {"model": "gemma:4b"}
    assert (await query_capabilities("gemma:4b", list_, error_answer(200, {"capabilities": ["completion"]})))[
        0
    ] == WORDS


@pytest.mark.parametrize(
    "answer",
    [error_answer(404), error_answer(200, b"<html>"), error_answer(200, {"data": 5}), error_answer(200, [])],
)
async def test_without_reported_capabilities_the_model_name_decides(answer: Answers) -> None:
    assert (await query_capabilities("small", answer))[0] == MAYBE_WORDS
    for name in ("Qwen2.5-VL-7B-Instruct", "gpt-4o-mini", "anthropic/claude-sonnet", "llava:13b"):
        assert (await query_capabilities(name, answer))[0] == MAYBE_PICTURES


async def test_an_unreachable_server_is_queried_again_later() -> None:
    now = 0.0
    abilities = ModelCapabilities(Endpoint("http://127.0.0.1:1/v1", "small", Secret("")), lambda: now)
    assert await abilities.supported_files() == MAYBE_WORDS
    seeing = model_list("small", architecture={"input_modalities": ["text", "image"]})
    async with model_server(error_answer(503), seeing) as (url, seen):
        abilities = ModelCapabilities(Endpoint(url, "small", Secret("")), lambda: now)
        assert await abilities.supported_files() == MAYBE_WORDS
        assert await abilities.supported_files() == MAYBE_WORDS
        assert len(seen.bodies) == 1
        now += RETRY_AFTER_S
        assert await abilities.supported_files() == PICTURES


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("gpt-5.4-mini", ALL),
        ("gpt-4o", ALL),
        ("gpt-4-turbo", ALL),
        ("gpt-4", WORDS),
        ("gpt-3.5-turbo", WORDS),
        ("o3-mini", WORDS),
    ],
)
async def test_the_capabilities_of_openai_models_are_built_in(name: str, takes: SupportedFiles) -> None:
    assert await ModelCapabilities(Endpoint(OPENAI_URL, name, Secret(KEY))).supported_files() == takes
