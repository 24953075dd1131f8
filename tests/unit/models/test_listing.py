"""The lists of models that servers give, in each provider's shape; kept for a while.

The lists are constructed from the published references of OpenAI, Anthropic, OpenRouter, Mistral, Groq,
Google and vLLM.
"""

from typing import Any

import msgspec
import pytest

from holdfast.models.catalog import Price
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.listing import FAILED_S, FRESH_S, Lists, Offer, listed_in
from tests.support.model_server import KEY, refusing, serving

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
ROUTED = {
    "id": "z-ai/glm", "context_length": 131_072, "architecture": {"input_modalities": ["text", "image"]},
    "top_provider": {"max_completion_tokens": 8_192},
    "pricing": {"prompt": "0.0000005", "completion": "0.000002", "input_cache_read": "0.00000005"},
}  # fmt: skip


def only(told: dict[str, Any]) -> Offer:
    listed = listed_in(msgspec.json.encode({"object": "list", "data": [told]}))
    assert listed is not None and listed.is_named
    return listed.offers[0]


def test_anthropics_list_is_read() -> None:
    listed = listed_in(msgspec.json.encode(ANTHROPIC))
    assert listed is not None and listed.is_named
    first, second = listed.offers
    assert (first.name, first.window_tokens, first.answer_tokens) == ("claude-sonnet-5-5", 1_000_000, 128_000)
    assert first.takes == {"text", "image", "pdf"}
    assert second.takes == {"text"}


def test_openrouter_says_what_a_token_costs() -> None:
    offer = only(ROUTED)
    assert (offer.window_tokens, offer.answer_tokens) == (131_072, 8_192)
    assert offer.takes == {"text", "image"}
    assert offer.price is not None
    assert [round(each, 6) for each in (offer.price.input, offer.price.output)] == [0.5, 2.0]
    for wrong in ("-1", "nan", "inf", "1e308"):
        assert only({**ROUTED, "pricing": {"prompt": "0", "completion": wrong}}).price is None
    assert only({**ROUTED, "pricing": {"prompt": "0", "completion": "0"}}).price == Price(0, 0)


@pytest.mark.parametrize(
    ("told", "window"),
    [
        ({"id": "mistral-medium", "max_context_length": 262_144}, 262_144),
        ({"id": "llama", "context_window": 131_072, "max_completion_tokens": 32_768}, 131_072),
        ({"id": "own", "max_model_len": 4_000}, 4_000),
        ({"id": "a.gguf", "meta": {"n_ctx_train": 131_072, "n_ctx": 8_192}}, 8_192),
        ({"id": "odd", "context_length": "many", "capabilities": 5, "pricing": [], "meta": None}, None),
    ],
)
def test_each_provider_says_its_windows_in_its_own_words(told: dict[str, Any], window: int | None) -> None:
    assert only(told).window_tokens == window


def test_what_cannot_be_talked_to_is_left_out_and_googles_names_are_ours() -> None:
    ids = ("models/gemini-flash-latest", "models/text-embedding-004", "whisper-large", "tts-1")
    listed = listed_in(msgspec.json.encode({"object": "list", "data": [{"id": each} for each in ids]}))
    assert listed is not None
    assert [each.name for each in listed.offers] == ["gemini-flash-latest"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": [5]}', b'{"data": [{"name": "x"}]}', b"\xff"])
def test_what_is_no_list_is_not_read_as_one(body: bytes) -> None:
    assert listed_in(body) is None


async def test_a_list_is_fetched_once_and_again_when_it_is_old() -> None:
    now = 0.0
    lists = Lists(lambda: now)
    answers = [refusing(200, {"object": "list", "data": [{"id": name}]}) for name in ("one", "two")]
    async with serving(*answers) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="groq")
        for _ in range(3):
            assert [each.name for each in (await lists.of(endpoint)).offers] == ["one"]
        assert len(seen.bodies) == 1
        now += FRESH_S
        assert [each.name for each in (await lists.of(endpoint)).offers] == ["two"]
        other = Endpoint(url, "", Secret("another-key"), provider="groq")
        await lists.of(other)
        assert len(seen.bodies) == 3, "what one key may see, another may not"


async def test_a_server_that_gave_no_list_is_asked_again_soon_and_said_why() -> None:
    now = 0.0
    lists = Lists(lambda: now)
    good = refusing(200, {"object": "list", "data": [{"id": "one"}]})
    async with serving(refusing(401), good) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="groq")
        refused = await lists.of(endpoint)
        assert "refuses the key (401)" in refused.problem and not refused.offers
        assert (await lists.of(endpoint)).problem and len(seen.bodies) == 1
        now += FAILED_S
        assert not (await lists.of(endpoint)).problem


async def test_anthropics_list_is_asked_for_with_its_own_header() -> None:
    async with serving(refusing(200, ANTHROPIC)) as (url, seen):
        endpoint = Endpoint(url, "", Secret(KEY), provider="anthropic", protocol="messages")
        listed = await Lists().of(endpoint)
        assert len(listed.offers) == 2
        assert seen.headers[0]["x-api-key"] == KEY
        assert "Authorization" not in seen.headers[0]
