"""What an answer costs, by a file with a date; what is not known is not nothing."""

from datetime import date

import msgspec
import pytest

from holdfast.domain.context.context import Profile
from holdfast.domain.usage import COUNT_MAX, Rate, Usage
from holdfast.models.catalog import FREE, Price, read_known
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import HttpModel
from holdfast.models.ports import StepEnd
from holdfast.models.providers import PROVIDERS, endpoint_at, provider_named
from tests.support.model_server import CALM, DONE, KEY, TALK, chunk, event, heard, serving, streaming

MILLION = 1_000_000


def endpoint(name: str, url: str = "") -> Endpoint:
    word, _, model = name.partition(":")
    provider = provider_named(word)
    assert provider is not None
    return endpoint_at(provider, url or provider.base_url, model, KEY)


@pytest.mark.parametrize(
    ("price", "rate"), [(Price(2.0, 10.0, 0.5), Rate(2.0, 10.0)), (FREE, Rate(0, 0)), (None, None)]
)
async def test_a_model_says_at_which_rate_what_it_leaves_uncounted_is_estimated(
    price: Price | None, rate: Rate | None
) -> None:
    model = HttpModel(endpoint("openai:small"), ChatWire(), Profile("test", 100), price=price)
    assert model.profile.rate == rate
    if rate is not None:
        assert rate.of(Usage(3, 4, estimated_tokens=7)) == Usage(
            3, 4, cost_micros=round(3 * rate.input + 4 * rate.output), estimated_tokens=7
        )
    await model.close()


def test_the_file_says_as_of_when_and_is_about_providers_that_there_are() -> None:
    known = read_known()
    assert date.fromisoformat(known.as_of) <= date.today()
    for provider in PROVIDERS:
        if provider.name in ("openai", "anthropic"):
            facts = known.facts(endpoint(f"{provider.name}:{provider.model}"))
            assert facts.price is not None, "what answers where only a key is set has a price"
            assert facts.window_tokens is not None


def test_input_kept_input_and_output_each_have_their_price() -> None:
    price = Price(2.0, 10.0, 0.5)
    used = Usage(input_tokens=MILLION, output_tokens=MILLION // 2, cached_tokens=MILLION // 4)
    assert price.of(used).cost_micros == 1_500_000 + 125_000 + 5_000_000
    assert Price(2.0, 10.0).of(used).cost_micros == 2_000_000 + 5_000_000


def test_what_is_put_into_the_cache_has_its_own_price() -> None:
    used = Usage(MILLION, 0, cached_tokens=MILLION // 4, written_tokens=MILLION // 2)
    assert Price(4.0, 20.0, 0.4, written=5.0).of(used).cost_micros == 1_000_000 + 100_000 + 2_500_000
    assert Price(4.0, 20.0, 0.4).of(used).cost_micros == 3_000_000 + 100_000
    # Counts that cannot be: no more is charged than there was.
    assert Price(4.0, 0.0, 0.4, written=5.0).of(Usage(10, 0, 8, None, 90)).cost_micros == round(3.2 + 10)


@pytest.mark.parametrize(
    ("name", "times"),
    [("anthropic:claude-sonnet-5-5", 1.25), ("anthropic:claude-haiku-5-5", 1.25), ("openai:gpt-6-sol", 1.25),
     ("openai:gpt-5.6-luna", 1.25), ("openai:gpt-5.4", None), ("groq:openai/gpt-oss-120b", None)],
)  # fmt: skip
def test_providers_that_charge_for_keeping_input_are_known(name: str, times: float | None) -> None:
    price = read_known().facts(endpoint(name)).price
    assert price is not None
    assert price.written == (None if times is None else pytest.approx(price.input * times))
    if price.long is not None and times is not None:
        assert price.long.written == pytest.approx(price.long.input * times)


def test_an_answer_that_nobody_counted_costs_what_nobody_knows() -> None:
    assert Price(2.0, 10.0).of(Usage()).cost_micros is None
    assert Price(2.0, 10.0).of(Usage(0, 7)).cost_micros is None
    assert FREE.of(Usage()).cost_micros == 0


def test_a_long_request_costs_its_long_price_throughout() -> None:
    price = Price(1.0, 2.0, 0.1, 1_000, Price(10.0, 20.0, 1.0))
    assert price.of(Usage(1_000, 10)).cost_micros == 1_020
    assert price.of(Usage(1_001, 10)).cost_micros == 10_210


@pytest.mark.parametrize("name", ["openai:gpt-5.4-mini-2026-03-17", "anthropic:claude-haiku-4-5-20251001"])
def test_a_dated_version_costs_what_its_model_costs(name: str) -> None:
    known = read_known()
    assert known.facts(endpoint(name)).price is not None


def test_a_price_is_that_of_the_providers_own_address() -> None:
    known = read_known()
    assert known.facts(endpoint("openai:gpt-5.4-mini", "http://gateway.example/v1")).price is None
    assert known.facts(endpoint("openai:gpt-5.4-nobody")).price is None
    assert known.facts(endpoint("ollama:gpt-5.4-mini", "http://elsewhere.example/v1")).price is None


@pytest.mark.parametrize(
    "url", ["", "http://127.0.0.1:1/v1", "http://localhost:8000/v1", "http://[::1]:1/v1"]
)
def test_what_is_asked_on_this_machine_is_free(url: str) -> None:
    assert read_known().facts(endpoint("ollama:gpt-5.4-mini", url)).price == FREE
    assert not url or read_known().facts(endpoint("openai:gpt-5.4-mini", url)).price == FREE


def test_what_is_known_of_a_sum_is_told_and_nothing_known_is_nothing_told() -> None:
    assert (Usage(1) + Usage(2)).cost_micros is None
    assert (Usage(1) + Usage(2, cost_micros=5) + Usage(3, cost_micros=0)).cost_micros == 5


def test_no_count_is_below_nothing_or_above_what_can_be() -> None:
    assert Usage(-5, -1, -2, -9) == Usage(0, 0, 0, 0)
    assert Usage(10**400, 1, 10**30, 10**300) == Usage(COUNT_MAX, 1, COUNT_MAX, COUNT_MAX)
    # What was kept before there were bounds is read within them.
    kept = msgspec.json.decode(b'{"input_tokens": -7, "cost_micros": 1' + b"0" * 400 + b"}", type=Usage)
    assert kept == Usage(0, cost_micros=COUNT_MAX) and kept + kept == kept
    for dear in (1e308, float("inf")):
        assert Price(dear, 0.0).of(Usage(10**9)).cost_micros == COUNT_MAX


@pytest.mark.parametrize(
    ("told", "cost"),
    [(-5.0, 0), (1e308, COUNT_MAX), (10**400, COUNT_MAX), ("much", None), (0.25, 250_000)],
    ids=["below", "above", "far above", "words", "right"],
)
async def test_a_cost_that_cannot_be_costs_no_answer(told: object, cost: int | None) -> None:
    used = {"prompt_tokens": 10**400, "completion_tokens": -3, "cost": told, "is_byok": False}
    usage = event({"choices": [], "usage": used})
    answer = chunk({"content": "hello"}) + chunk({}, "stop") + usage + DONE
    async with serving(streaming([answer])) as (url, _):
        price = Price(0.0, 0.0) if cost is None else Price(1e300, 1e300)
        model = HttpModel(Endpoint(url, "small", Secret("")), ChatWire(), Profile("x", 9), CALM, price)
        deltas, failure = await heard(model)
        await model.close()
    assert failure is None and deltas[-1] == StepEnd("stop", Usage(COUNT_MAX, 0, 0, cost or 0))


async def test_an_answer_ends_with_what_it_costs_where_that_is_known() -> None:
    async with serving(streaming([TALK])) as (url, _):
        for price, cost in ((None, None), (Price(1.0, 2.0, 0.5), 3 + 8 + 20)):
            model = HttpModel(Endpoint(url, "small", Secret("")), ChatWire(), Profile("x", 9), CALM, price)
            deltas, failure = await heard(model)
            await model.close()
            assert failure is None
            end = deltas[-1]
            assert isinstance(end, StepEnd)
            assert end.usage == Usage(19, 10, 16, cost)
