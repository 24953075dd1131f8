"""Models asked one after the other: real servers that fail in every way, and one that answers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from holdfast.domain.context.context import AssistantMessage, FileContent, ModelProfile, Request, UserMessage
from holdfast.domain.events.parts import File, Reasoning, Text
from holdfast.domain.secrets import SecretMask
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.fallback import ATTEMPTS_MAX, FallbackModel, without_foreign_thinking
from holdfast.models.http_model import HttpModel
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import FallbackStarted, ModelDelta, ModelFailure, TextDelta
from tests.support.model_server import (
    DONE,
    KEY,
    LONG_TIMEOUTS,
    REQUEST,
    Answers,
    ReceivedRequests,
    chunk,
    error_answer,
    model_server,
    streaming_answer,
)

GOOD = streaming_answer([chunk({"content": "Here."}), chunk({}, "stop"), DONE])
TOO_LONG = error_answer(400, {"error": {"message": "too much", "code": "context_length_exceeded"}})


class FallbackChain:
    """Models behind servers of their own, and what each of those was sent."""

    def __init__(self, models: Sequence[HttpModel], seen: Sequence[ReceivedRequests]) -> None:
        self.waited: list[float] = []
        self.model = FallbackModel(models, self._sleep)
        self.seen = seen

    async def _sleep(self, wait_s: float) -> None:
        self.waited.append(wait_s)

    @property
    def request_counts(self) -> list[int]:
        return [len(each.bodies) for each in self.seen]

    async def collect(self, request: Request = REQUEST) -> tuple[list[ModelDelta], ModelFailure | None]:
        deltas: list[ModelDelta] = []
        try:
            async with aclosing(self.model.stream(request, ())) as stream:
                async for delta in stream:
                    deltas.append(delta)
        except ModelFailure as failure:
            return deltas, failure
        return deltas, None


@asynccontextmanager
async def chain(
    *answers: Answers, windows: Sequence[int] = (100_000, 100_000, 100_000)
) -> AsyncIterator[FallbackChain]:
    async with AsyncExitStack() as stack:
        models, seen = [], []
        for place, answer in enumerate(answers):
            url, each = await stack.enter_async_context(model_server(answer))
            profile = ModelProfile(f"p{place}", windows[place], 1_000)
            models.append(
                HttpModel(Endpoint(url, f"m{place}", Secret("")), ChatWire(), profile, LONG_TIMEOUTS)
            )
            seen.append(each)
        made = FallbackChain(models, seen)
        stack.push_async_callback(made.model.close)
        yield made


def answer_text(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def fallbacks_in(deltas: Sequence[ModelDelta]) -> list[tuple[str, str]]:
    return [(each.model, each.provider) for each in deltas if isinstance(each, FallbackStarted)]


async def test_only_the_first_model_is_called_if_it_answers() -> None:
    async with chain(GOOD, GOOD) as made:
        deltas, failure = await made.collect()
        assert (answer_text(deltas), fallbacks_in(deltas), failure) == ("Here.", [], None)
        assert made.request_counts == [1, 0]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_permanent_failure_goes_to_the_next_model_at_once(status: int) -> None:
    async with chain(error_answer(status), GOOD) as made:
        deltas, failure = await made.collect()
        assert (answer_text(deltas), failure) == ("Here.", None)
        assert fallbacks_in(deltas) == [("openai:m1", "p1")]
        assert isinstance(deltas[0], FallbackStarted), "it is said before anything else"
        assert str(status) in str(deltas[0].failure)
        assert (made.request_counts, made.waited) == ([1, 1], [])


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_transient_failure_is_retried_before_the_next_model(status: int) -> None:
    async with chain(error_answer(status), error_answer(status), GOOD) as made:
        deltas, failure = await made.collect()
        assert (answer_text(deltas), failure) == ("Here.", None)
        assert fallbacks_in(deltas) == [("openai:m1", "p1"), ("openai:m2", "p2")]
        assert made.request_counts == [ATTEMPTS_MAX, ATTEMPTS_MAX, 1]


async def test_a_long_retry_delay_goes_to_the_next_model() -> None:
    async with chain(error_answer(429, Retry_After="30"), GOOD) as made:
        assert answer_text((await made.collect())[0]) == "Here."
        assert (made.request_counts, made.waited) == ([1, 1], [])


async def test_an_unreachable_server_is_skipped() -> None:
    async with chain(GOOD) as made:
        gone = HttpModel(
            Endpoint("http://127.0.0.1:1/v1", "gone", Secret("")),
            ChatWire(),
            ModelProfile("g", 9),
            LONG_TIMEOUTS,
        )
        both = FallbackChain([gone, *made.model._models], made.seen)  # type: ignore[list-item]
        deltas, failure = await both.collect()
        await gone.close()
        assert (answer_text(deltas), failure) == ("Here.", None)


async def test_a_bad_request_is_not_sent_to_other_models() -> None:
    bad = error_answer(400, {"error": {"message": "messages.1.content: must not be empty"}})
    async with chain(bad, GOOD) as made:
        deltas, failure = await made.collect()
        assert deltas == [] and failure is not None and "must not be empty" in str(failure)
        assert made.request_counts == [1, 0]


async def test_a_too_long_request_goes_only_to_larger_windows() -> None:
    async with chain(TOO_LONG, GOOD, GOOD, windows=(50_000, 50_000, 90_000)) as made:
        deltas, failure = await made.collect()
        assert (answer_text(deltas), failure) == ("Here.", None)
        assert fallbacks_in(deltas) == [("openai:m2", "p2")]
        assert made.request_counts == [1, 0, 1]
    async with chain(TOO_LONG, GOOD, windows=(50_000, 50_000)) as made:
        deltas, failure = await made.collect()
        assert failure is not None and failure.too_long, "whoever made the request can make it shorter"
        assert made.request_counts == [1, 0]


async def test_a_failure_after_the_first_delta_has_no_fallback() -> None:
    broken = streaming_answer([chunk({"content": "Half"})], cut=True)
    async with chain(broken, GOOD) as made:
        deltas, failure = await made.collect()
        assert answer_text(deltas) == "Half" and failure is not None
        assert made.request_counts == [1, 0]


async def test_when_all_models_fail_the_failure_names_each_and_is_retryable() -> None:
    async with chain(error_answer(401), error_answer(503)) as made:
        _, failure = await made.collect()
        assert failure is not None and failure.retryable
        assert "openai:m0" in str(failure) and "401" in str(failure) and "503" in str(failure)
    async with chain(error_answer(401), error_answer(404)) as made:
        _, failure = await made.collect()
        assert failure is not None and not failure.retryable


async def test_the_combined_failure_contains_no_key() -> None:
    said = error_answer(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    async with chain(said, GOOD) as made:
        masked = MaskedModel(made.model, SecretMask([KEY]))
        deltas = [delta async for delta in masked.stream(REQUEST, ())]
        assert isinstance(deltas[0], FallbackStarted)
        assert KEY not in str(deltas[0].failure)
        assert answer_text(deltas) == "Here."


# What each of them is sent.


def signed_thinking(provider: str) -> Reasoning:
    return Reasoning(f"by {provider}", signature="s" * 20, provider=provider)


async def test_each_model_receives_only_its_own_thinking() -> None:
    request = Request("Be.", (
        UserMessage((Text("One"),)),
        AssistantMessage((signed_thinking("p0"), Text("first"))),
        UserMessage((Text("Two"),)),
        AssistantMessage((signed_thinking("p1"), Text("second"))),
        UserMessage((Text("Three"),)),
    ))  # fmt: skip
    async with chain(GOOD, GOOD) as made:
        assert made.model.profile.accepts_reasoning_from("p0") and made.model.profile.accepts_reasoning_from(
            "p1"
        )
        assert not made.model.profile.accepts_reasoning_from("p9")
        for model, signer in zip(made.model._models, ("p0", "p1"), strict=True):
            fit = without_foreign_thinking(request, model.profile)
            parts = [part for message in fit.messages for part in message.parts]
            assert [part.provider for part in parts if isinstance(part, Reasoning)] == [signer]
            assert [part.text for part in parts if isinstance(part, Text)] == [
                "One", "first", "Two", "second", "Three",
            ]  # fmt: skip


async def test_a_smaller_window_receives_the_end_of_the_conversation() -> None:
    said: list[Any] = []
    for number in range(50):
        said += [
            UserMessage((Text(f"question {number} " + "word " * 200),)),
            AssistantMessage((Text("answer"),)),
        ]
    request = Request("Be.", (*said, UserMessage((Text("the last"),))))
    async with chain(error_answer(401), GOOD, windows=(1_000_000, 4_000)) as made:
        deltas, failure = await made.collect(request)
        assert (answer_text(deltas), failure) == ("Here.", None)
        first, second = (each.bodies[0]["messages"] for each in made.seen)
        assert len(first) == len(request.messages) + 1
        assert len(second) < 20
        assert second[1]["role"] == "user" and second[-1]["content"] == "the last"
        assert sum(len(each["content"]) for each in second) < 4 * 4_000


async def test_a_file_unsupported_by_the_fallback_is_named_instead() -> None:
    picture = File("b" * 64, "cat.png", "image/png", 3)
    request = Request(
        "Be.", (UserMessage((Text("See"), picture)),), files={"b" * 64: FileContent("image", "AA==")}
    )
    async with chain(error_answer(401), GOOD) as made:
        await made.collect(request)
        chat = [body for body in made.seen[1].bodies if "messages" in body]
        assert "AA==" not in str(chat)
        assert "cat.png" in str(chat)
