"""Which files a model takes, by what its server says of it."""

from typing import Any

import pytest

from holdfast.domain.files import Takes
from holdfast.models.abilities import AGAIN_S, Abilities
from holdfast.models.endpoint import OPENAI_URL, Endpoint, Secret
from tests.support.model_server import KEY, Answers, Seen, refusing, serving

WORDS, PICTURES = Takes(frozenset({"text"})), Takes(frozenset({"text", "image"}))
ALL = Takes(frozenset({"text", "image", "pdf"}))
MAYBE_WORDS, MAYBE_PICTURES = Takes(WORDS.kinds, guessed=True), Takes(PICTURES.kinds, guessed=True)


def listing(model: str, **more: Any) -> Answers:
    return refusing(200, {"object": "list", "data": [{"id": "another"}, {"id": model, **more}]})


async def learnt(model: str, *answers: Answers) -> tuple[Takes, Seen]:
    async with serving(*answers) as (url, seen):
        abilities = Abilities(Endpoint(url, model, Secret(KEY)))
        takes = await abilities.takes()
        asked = len(seen.bodies)
        assert await abilities.takes() == takes
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
async def test_a_list_of_models_is_believed(more: dict[str, Any], takes: Takes) -> None:
    found, seen = await learnt("small", listing("small", **more))
    assert found == takes
    assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_llama_cpp_says_it_beside_its_list() -> None:
    body: dict[str, Any] = {
        "models": [{"name": "a.gguf", "model": "a.gguf", "capabilities": ["completion", "multimodal"]}],
        "data": [{"id": "a.gguf", "owned_by": "llamacpp"}],
    }
    assert (await learnt("a.gguf", refusing(200, body)))[0] == PICTURES
    body["models"][0]["capabilities"] = ["completion"]
    assert (await learnt("a.gguf", refusing(200, body)))[0] == WORDS


async def test_ollama_is_asked_for_the_model() -> None:
    list_ = listing("gemma:4b", owned_by="library")
    takes, seen = await learnt("gemma:4b", list_, refusing(200, {"capabilities": ["completion", "vision"]}))
    assert takes == PICTURES
    assert seen.bodies[1] == {"model": "gemma:4b"}
    assert (await learnt("gemma:4b", list_, refusing(200, {"capabilities": ["completion"]})))[0] == WORDS


@pytest.mark.parametrize(
    "answer", [refusing(404), refusing(200, b"<html>"), refusing(200, {"data": 5}), refusing(200, [])]
)
async def test_where_nothing_is_said_the_name_is_looked_at(answer: Answers) -> None:
    assert (await learnt("small", answer))[0] == MAYBE_WORDS
    for name in ("Qwen2.5-VL-7B-Instruct", "gpt-4o-mini", "anthropic/claude-sonnet", "llava:13b"):
        assert (await learnt(name, answer))[0] == MAYBE_PICTURES


async def test_a_server_that_is_not_there_yet_is_asked_again_later() -> None:
    now = 0.0
    abilities = Abilities(Endpoint("http://127.0.0.1:1/v1", "small", Secret("")), lambda: now)
    assert await abilities.takes() == MAYBE_WORDS
    seeing = listing("small", architecture={"input_modalities": ["text", "image"]})
    async with serving(refusing(503), seeing) as (url, seen):
        abilities = Abilities(Endpoint(url, "small", Secret("")), lambda: now)
        assert await abilities.takes() == MAYBE_WORDS
        assert await abilities.takes() == MAYBE_WORDS
        assert len(seen.bodies) == 1
        now += AGAIN_S
        assert await abilities.takes() == PICTURES


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
async def test_of_openais_own_models_it_is_known(name: str, takes: Takes) -> None:
    assert await Abilities(Endpoint(OPENAI_URL, name, Secret(KEY))).takes() == takes
