"""The lists of models that servers give, in each provider's shape; kept for a while.

The lists are constructed from the published references of OpenAI, Anthropic, OpenRouter, Mistral, Groq,
Google and vLLM.
"""

from typing import Any

import msgspec
import pytest

from holdfast.models.catalog import Price
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.listing import CACHE_S, FAILURE_CACHE_S, ListedModel, ListingCache, parse_listing
from tests.support.model_server import KEY, error_answer, model_server

ANTHROPIC = {
    "data": [
        {
            "type": "model", "id": "claude-sonnet-5-5", "display_name": "Claude Sonnet 5.5",
            "created_at": "2026-09-29T00:00:00Z", "max_input_tokens": 1_000_000, "max_tokens": 128_000,
            "capabilities": {"image_input": {"supported": True}, "pdf_input": {"supported": True}},
        },
        {
            "type": "model", "id": "claude-plain", "display_name": "Plain",
            "capabilities": {"image_input": {"supported": False}, "pdf_input": {"supported": False}},
        },
    ],
    "has_more": False, "first_id": "claude-sonnet-5-5", "last_id": "claude-plain",
}  # fmt: skip
OPENROUTER_ENTRY = {
    "id": "z-ai/glm", "context_length": 131_072, "architecture": {"input_modalities": ["text", "image"]},
    "top_provider": {"max_completion_tokens": 8_192},
    "pricing": {"prompt": "0.0000005", "completion": "0.000002", "input_cache_read": "0.00000005"},
}  # fmt: skip


def parse_one(entry: dict[str, Any]) -> ListedModel:
    listing = parse_listing(msgspec.json.encode({"object": "list", "data": [entry]}))
    assert listing is not None and listing.declares_list
    return listing.models[0]


def test_the_model_list_of_anthropic_is_parsed() -> None:
    listed = parse_listing(msgspec.json.encode(ANTHROPIC))
    assert listed is not None and listed.declares_list
    first, second = listed.models
    assert (first.name, first.window_tokens, first.answer_tokens) == ("claude-sonnet-5-5", 1_000_000, 128_000)
    assert first.takes == {"text", "image", "pdf"}
    assert second.takes == {"text"}


def test_prices_are_parsed_from_the_list_of_openrouter() -> None:
    offer = parse_one(OPENROUTER_ENTRY)
    assert (offer.window_tokens, offer.answer_tokens) == (131_072, 8_192)
    assert offer.takes == {"text", "image"}
    assert offer.price is not None
    assert [round(each, 6) for each in (offer.price.input, offer.price.output)] == [0.5, 2.0]
    for wrong in ("-1", "nan", "inf", "1e308"):
        assert parse_one({**OPENROUTER_ENTRY, "pricing": {"prompt": "0", "completion": wrong}}).price is None
    assert parse_one({**OPENROUTER_ENTRY, "pricing": {"prompt": "0", "completion": "0"}}).price == Price(0, 0)


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "mistral-medium", "max_context_length": 262_144}, 262_144),
        ({"id": "llama", "context_window": 131_072, "max_completion_tokens": 32_768}, 131_072),
        ({"id": "own", "max_model_len": 4_000}, 4_000),
        ({"id": "a.gguf", "meta": {"n_ctx_train": 131_072, "n_ctx": 8_192}}, 8_192),
        ({"id": "odd", "context_length": "many", "capabilities": 5, "pricing": [], "meta": None}, None),
    ],
)
def test_context_windows_are_parsed_in_the_shape_of_each_provider(
    entry: dict[str, Any], window: int | None
) -> None:
    assert parse_one(entry).window_tokens == window


def test_models_that_cannot_chat_are_omitted_and_google_names_are_normalised() -> None:
    ids = ("models/gemini-flash-latest", "models/text-embedding-004", "whisper-large", "tts-1")
    listed = parse_listing(msgspec.json.encode({"object": "list", "data": [{"id": each} for each in ids]}))
    assert listed is not None
    assert [each.name for each in listed.models] == ["gemini-flash-latest"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": [5]}', b'{"data": [{"name": "x"}]}', b"\xff"])
def test_a_body_that_is_no_model_list_is_rejected(body: bytes) -> None:
    assert parse_listing(body) is None


async def test_a_model_list_is_cached_until_it_expires() -> None:
    now = 0.0
    lists = ListingCache(lambda: now)
    answers = [error_answer(200, {"object": "list", "data": [{"id": name}]}) for name in ("one", "two")]
    async with model_server(*answers) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="groq")
        for _ in range(3):
            assert [each.name for each in (await lists.get(endpoint)).models] == ["one"]
        assert len(seen.bodies) == 1
        now += CACHE_S
        assert [each.name for each in (await lists.get(endpoint)).models] == ["two"]
        other = Endpoint(url, "", Secret("another-key"), provider="groq")
        await lists.get(other)
        assert len(seen.bodies) == 3, "what one key may see, another may not"


async def test_a_failed_listing_is_cached_briefly_with_its_problem() -> None:
    now = 0.0
    lists = ListingCache(lambda: now)
    good = error_answer(200, {"object": "list", "data": [{"id": "one"}]})
    async with model_server(error_answer(401), good) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="groq")
        refused = await lists.get(endpoint)
        assert "refuses the key (401)" in refused.problem and not refused.models
        assert (await lists.get(endpoint)).problem and len(seen.bodies) == 1
        now += FAILURE_CACHE_S
        assert not (await lists.get(endpoint)).problem


async def test_the_list_of_anthropic_is_requested_with_its_own_header() -> None:
    async with model_server(error_answer(200, ANTHROPIC)) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="anthropic", protocol="messages")
        listed = await ListingCache().get(endpoint)
        assert len(listed.models) == 2
        assert seen.headers[0]["x-api-key"] == KEY
        assert "Authorization" not in seen.headers[0]
