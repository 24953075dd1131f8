"""What an answer costs, by a file with a date; what is not known is not nothing."""

from datetime import date

import msgspec
import pytest

from holdfast.domain.context.context import ModelProfile
from holdfast.domain.usage import COUNT_MAX, Rate, Usage
from holdfast.models.catalog import FREE, Price, load_catalog
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import HttpModel
from holdfast.models.ports import StepEnd
from holdfast.models.providers import PROVIDERS, build_endpoint, find_provider
from tests.support.model_server import (
    DONE,
    KEY,
    LONG_TIMEOUTS,
    TEXT_STREAM,
    chunk,
    collect_deltas,
    event,
    model_server,
    streaming_answer,
)

MILLION = 1_000_000


def endpoint(name: str, url: str = "") -> Endpoint:
    word, _, model = name.partition(":")
    provider = find_provider(word)
    assert provider is not None
    return build_endpoint(provider, url or provider.base_url, model, KEY)


@pytest.mark.parametrize(
    ("price", "rate"), [(Price(2.0, 10.0, 0.5), Rate(2.0, 10.0)), (FREE, Rate(0, 0)), (None, None)]
)
async def test_a_profile_contains_the_rate_for_cost_estimates(price: Price | None, rate: Rate | None) -> None:
    model = HttpModel(endpoint("openai:small"), ChatWire(), ModelProfile("test", 100), price=price)
    assert model.profile.rate == rate
    if rate is not None:
        assert rate.with_cost(Usage(3, 4, estimated_tokens=7)) == Usage(
            3, 4, cost_micros=round(3 * rate.input + 4 * rate.output), estimated_tokens=7
        )
    await model.close()


def test_the_price_file_has_a_date_and_only_existing_providers() -> None:
    known = load_catalog()
    assert date.fromisoformat(known.as_of) <= date.today()
    for provider in PROVIDERS:
        if provider.name in ("openai", "anthropic"):
            facts = known.entry_for(endpoint(f"{provider.name}:{provider.model}"))
            assert facts.price is not None, "what answers where only a key is set has a price"
            assert facts.window_tokens is not None


def test_input_cached_input_and_output_are_priced_separately() -> None:
    price = Price(2.0, 10.0, 0.5)
    used = Usage(input_tokens=MILLION, output_tokens=MILLION // 2, cached_tokens=MILLION // 4)
    assert price.apply_to(used).cost_micros == 1_500_000 + 125_000 + 5_000_000
    assert Price(2.0, 10.0).apply_to(used).cost_micros == 2_000_000 + 5_000_000


def test_cache_writes_are_priced_separately() -> None:
    used = Usage(MILLION, 0, cached_tokens=MILLION // 4, written_tokens=MILLION // 2)
    assert Price(4.0, 20.0, 0.4, written=5.0).apply_to(used).cost_micros == 1_000_000 + 100_000 + 2_500_000
    assert Price(4.0, 20.0, 0.4).apply_to(used).cost_micros == 3_000_000 + 100_000
    # Counts that cannot be: no more is charged than there was.
    assert Price(4.0, 0.0, 0.4, written=5.0).apply_to(Usage(10, 0, 8, None, 90)).cost_micros == round(
        3.2 + 10
    )


@pytest.mark.parametrize(
    ("name", "times"),
    [("anthropic:claude-sonnet-5-5", 1.25), ("anthropic:claude-haiku-5-5", 1.25), ("openai:gpt-6-sol", 1.25),
     ("openai:gpt-5.6-luna", 1.25), ("openai:gpt-5.4", None), ("groq:openai/gpt-oss-120b", None)],
)  # fmt: skip
def test_the_catalog_has_cache_write_prices(name: str, times: float | None) -> None:
    price = load_catalog().entry_for(endpoint(name)).price
    assert price is not None
    assert price.written == (None if times is None else pytest.approx(price.input * times))
    if price.long is not None and times is not None:
        assert price.long.written == pytest.approx(price.long.input * times)


def test_an_answer_without_usage_has_no_known_cost() -> None:
    assert Price(2.0, 10.0).apply_to(Usage()).cost_micros is None
    assert Price(2.0, 10.0).apply_to(Usage(0, 7)).cost_micros is None
    assert FREE.apply_to(Usage()).cost_micros == 0


def test_a_long_request_uses_the_long_price_for_all_tokens() -> None:
    price = Price(1.0, 2.0, 0.1, 1_000, Price(10.0, 20.0, 1.0))
    assert price.apply_to(Usage(1_000, 10)).cost_micros == 1_020
    assert price.apply_to(Usage(1_001, 10)).cost_micros == 10_210


@pytest.mark.parametrize("name", ["openai:gpt-5.4-mini-2026-03-17", "anthropic:claude-haiku-4-5-20251001"])
def test_a_dated_version_has_the_price_of_its_model(name: str) -> None:
    known = load_catalog()
    assert known.entry_for(endpoint(name)).price is not None


def test_prices_apply_only_at_the_address_of_the_provider() -> None:
    known = load_catalog()
    assert known.entry_for(endpoint("openai:gpt-5.4-mini", "http://gateway.example/v1")).price is None
    assert known.entry_for(endpoint("openai:gpt-5.4-nobody")).price is None
    assert known.entry_for(endpoint("ollama:gpt-5.4-mini", "http://elsewhere.example/v1")).price is None


@pytest.mark.parametrize(
    "url", ["", "http://127.0.0.1:1/v1", "http://localhost:8000/v1", "http://[::1]:1/v1"]
)
def test_models_on_this_machine_are_free(url: str) -> None:
    assert load_catalog().entry_for(endpoint("ollama:gpt-5.4-mini", url)).price == FREE
    assert not url or load_catalog().entry_for(endpoint("openai:gpt-5.4-mini", url)).price == FREE


def test_costs_add_up_and_unknown_costs_stay_unknown() -> None:
    assert (Usage(1) + Usage(2)).cost_micros is None
    assert (Usage(1) + Usage(2, cost_micros=5) + Usage(3, cost_micros=0)).cost_micros == 5


def test_counts_are_clamped_to_their_range() -> None:
    assert Usage(-5, -1, -2, -9) == Usage(0, 0, 0, 0)
    assert Usage(10**400, 1, 10**30, 10**300) == Usage(COUNT_MAX, 1, COUNT_MAX, COUNT_MAX)
    # What was kept before there were bounds is read within them.
    kept = msgspec.json.decode(b'{"input_tokens": -7, "cost_micros": 1' + b"0" * 400 + b"}", type=Usage)
    assert kept == Usage(0, cost_micros=COUNT_MAX) and kept + kept == kept
    for dear in (1e308, float("inf")):
        assert Price(dear, 0.0).apply_to(Usage(10**9)).cost_micros == COUNT_MAX


@pytest.mark.parametrize(
    ("reported", "cost"),
    [(-5.0, 0), (1e308, COUNT_MAX), (10**400, COUNT_MAX), ("much", None), (0.25, 250_000)],
    ids=["below", "above", "far above", "words", "right"],
)
async def test_an_invalid_reported_cost_does_not_fail_the_answer(reported: object, cost: int | None) -> None:
    used = {"prompt_tokens": 10**400, "completion_tokens": -3, "cost": reported, "is_byok": False}
    usage = event({"choices": [], "usage": used})
    answer = chunk({"content": "hello"}) + chunk({}, "stop") + usage + DONE
    async with model_server(streaming_answer([answer])) as (url, _):
        price = Price(0.0, 0.0) if cost is None else Price(1e300, 1e300)
        model = HttpModel(
            Endpoint(url, "small", Secret("")), ChatWire(), ModelProfile("x", 9), LONG_TIMEOUTS, price
        )
        deltas, failure = await collect_deltas(model)
        await model.close()
    assert failure is None and deltas[-1] == StepEnd("stop", Usage(COUNT_MAX, 0, 0, cost or 0))


async def test_an_answer_ends_with_its_cost_if_known() -> None:
    async with model_server(streaming_answer([TEXT_STREAM])) as (url, _):
        for price, cost in ((None, None), (Price(1.0, 2.0, 0.5), 3 + 8 + 20)):
            model = HttpModel(
                Endpoint(url, "small", Secret("")), ChatWire(), ModelProfile("x", 9), LONG_TIMEOUTS, price
            )
            deltas, failure = await collect_deltas(model)
            await model.close()
            assert failure is None
            end = deltas[-1]
            assert isinstance(end, StepEnd)
            assert end.usage == Usage(19, 10, 16, cost)
