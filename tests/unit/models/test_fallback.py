"""Models asked one after the other: real servers that fail in every way, and one that answers."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest

from holdfast.domain.context.context import AssistantMessage, FileContent, Profile, Request, UserMessage
from holdfast.domain.events.parts import File, Reasoning, Text
from holdfast.domain.secrets import Mask
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.fallback import TRIES_MAX, Fallback, with_own_thinking
from holdfast.models.http_model import HttpModel
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import AskedInstead, ModelDelta, ModelFailure, TextDelta
from tests.support.model_server import (
    ASKED,
    CALM,
    DONE,
    KEY,
    Answers,
    Seen,
    chunk,
    refusing,
    serving,
    streaming,
)

GOOD = streaming([chunk({"content": "Here."}), chunk({}, "stop"), DONE])
TOO_LONG = refusing(400, {"error": {"message": "too much", "code": "context_length_exceeded"}})


class Chain:
    """Models behind servers of their own, and what each of those was sent."""

    def __init__(self, models: Sequence[HttpModel], seen: Sequence[Seen]) -> None:
        self.waited: list[float] = []
        self.model = Fallback(models, self._sleep)
        self.seen = seen

    async def _sleep(self, wait_s: float) -> None:
        self.waited.append(wait_s)

    @property
    def asked(self) -> list[int]:
        return [len(each.bodies) for each in self.seen]

    async def hear(self, request: Request = ASKED) -> tuple[list[ModelDelta], ModelFailure | None]:
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
) -> AsyncIterator[Chain]:
    async with AsyncExitStack() as stack:
        models, seen = [], []
        for place, answer in enumerate(answers):
            url, each = await stack.enter_async_context(serving(answer))
            profile = Profile(f"p{place}", windows[place], 1_000)
            models.append(HttpModel(Endpoint(url, f"m{place}", Secret("")), ChatWire(), profile, CALM))
            seen.append(each)
        made = Chain(models, seen)
        stack.push_async_callback(made.model.close)
        yield made


def words(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def instead(deltas: Sequence[ModelDelta]) -> list[tuple[str, str]]:
    return [(each.model, each.provider) for each in deltas if isinstance(each, AskedInstead)]


async def test_who_answers_first_is_the_only_one_asked() -> None:
    async with chain(GOOD, GOOD) as made:
        deltas, failure = await made.hear()
        assert (words(deltas), instead(deltas), failure) == ("Here.", [], None)
        assert made.asked == [1, 0]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_what_asking_again_does_not_mend_goes_to_the_next_at_once(status: int) -> None:
    async with chain(refusing(status), GOOD) as made:
        deltas, failure = await made.hear()
        assert (words(deltas), failure) == ("Here.", None)
        assert instead(deltas) == [("openai:m1", "p1")]
        assert isinstance(deltas[0], AskedInstead), "it is said before anything else"
        assert str(status) in str(deltas[0].failure)
        assert (made.asked, made.waited) == ([1, 1], [])


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_what_may_pass_is_tried_again_before_the_next_is_asked(status: int) -> None:
    async with chain(refusing(status), refusing(status), GOOD) as made:
        deltas, failure = await made.hear()
        assert (words(deltas), failure) == ("Here.", None)
        assert instead(deltas) == [("openai:m1", "p1"), ("openai:m2", "p2")]
        assert made.asked == [TRIES_MAX, TRIES_MAX, 1]


async def test_a_server_that_asks_for_patience_is_not_waited_for_while_there_is_another() -> None:
    async with chain(refusing(429, Retry_After="30"), GOOD) as made:
        assert words((await made.hear())[0]) == "Here."
        assert (made.asked, made.waited) == ([1, 1], [])


async def test_a_server_that_is_not_there_is_passed_over() -> None:
    async with chain(GOOD) as made:
        gone = HttpModel(
            Endpoint("http://127.0.0.1:1/v1", "gone", Secret("")), ChatWire(), Profile("g", 9), CALM
        )
        both = Chain([gone, *made.model._models], made.seen)  # type: ignore[list-item]
        deltas, failure = await both.hear()
        await gone.close()
        assert (words(deltas), failure) == ("Here.", None)


async def test_what_is_wrong_with_the_request_is_nobody_elses_to_answer() -> None:
    bad = refusing(400, {"error": {"message": "messages.1.content: must not be empty"}})
    async with chain(bad, GOOD) as made:
        deltas, failure = await made.hear()
        assert deltas == [] and failure is not None and "must not be empty" in str(failure)
        assert made.asked == [1, 0]


async def test_what_is_too_long_goes_to_a_larger_window_only() -> None:
    async with chain(TOO_LONG, GOOD, GOOD, windows=(50_000, 50_000, 90_000)) as made:
        deltas, failure = await made.hear()
        assert (words(deltas), failure) == ("Here.", None)
        assert instead(deltas) == [("openai:m2", "p2")]
        assert made.asked == [1, 0, 1]
    async with chain(TOO_LONG, GOOD, windows=(50_000, 50_000)) as made:
        deltas, failure = await made.hear()
        assert failure is not None and failure.too_long, "whoever made the request can make it shorter"
        assert made.asked == [1, 0]


async def test_a_failure_after_the_first_word_is_not_answered_by_another() -> None:
    broken = streaming([chunk({"content": "Half"})], cut=True)
    async with chain(broken, GOOD) as made:
        deltas, failure = await made.hear()
        assert words(deltas) == "Half" and failure is not None
        assert made.asked == [1, 0]


async def test_when_all_fail_each_is_told_of_and_it_may_be_tried_again() -> None:
    async with chain(refusing(401), refusing(503)) as made:
        _, failure = await made.hear()
        assert failure is not None and failure.retryable
        assert "openai:m0" in str(failure) and "401" in str(failure) and "503" in str(failure)
    async with chain(refusing(401), refusing(404)) as made:
        _, failure = await made.hear()
        assert failure is not None and not failure.retryable


async def test_no_key_is_in_what_is_said_of_who_failed() -> None:
    said = refusing(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    async with chain(said, GOOD) as made:
        masked = MaskedModel(made.model, Mask([KEY]))
        deltas = [delta async for delta in masked.stream(ASKED, ())]
        assert isinstance(deltas[0], AskedInstead)
        assert KEY not in str(deltas[0].failure)
        assert words(deltas) == "Here."


# What each of them is sent.


def thought(provider: str) -> Reasoning:
    return Reasoning(f"by {provider}", signature="s" * 20, provider=provider)


async def test_each_is_sent_only_the_thinking_that_it_signed() -> None:
    request = Request("Be.", (
        UserMessage((Text("One"),)),
        AssistantMessage((thought("p0"), Text("first"))),
        UserMessage((Text("Two"),)),
        AssistantMessage((thought("p1"), Text("second"))),
        UserMessage((Text("Three"),)),
    ))  # fmt: skip
    async with chain(GOOD, GOOD) as made:
        assert made.model.profile.reads("p0") and made.model.profile.reads("p1")
        assert not made.model.profile.reads("p9")
        for model, signer in zip(made.model._models, ("p0", "p1"), strict=True):
            fit = with_own_thinking(request, model.profile)
            parts = [part for message in fit.messages for part in message.parts]
            assert [part.provider for part in parts if isinstance(part, Reasoning)] == [signer]
            assert [part.text for part in parts if isinstance(part, Text)] == [
                "One", "first", "Two", "second", "Three",
            ]  # fmt: skip


async def test_a_smaller_window_is_sent_the_end_of_the_conversation() -> None:
    said: list[Any] = []
    for number in range(50):
        said += [
            UserMessage((Text(f"question {number} " + "word " * 200),)),
            AssistantMessage((Text("answer"),)),
        ]
    request = Request("Be.", (*said, UserMessage((Text("the last"),))))
    async with chain(refusing(401), GOOD, windows=(1_000_000, 4_000)) as made:
        deltas, failure = await made.hear(request)
        assert (words(deltas), failure) == ("Here.", None)
        first, second = (each.bodies[0]["messages"] for each in made.seen)
        assert len(first) == len(request.messages) + 1
        assert len(second) < 20
        assert second[1]["role"] == "user" and second[-1]["content"] == "the last"
        assert sum(len(each["content"]) for each in second) < 4 * 4_000


async def test_a_file_that_the_next_one_does_not_take_is_named_instead() -> None:
    picture = File("b" * 64, "cat.png", "image/png", 3)
    request = Request(
        "Be.", (UserMessage((Text("See"), picture)),), files={"b" * 64: FileContent("image", "AA==")}
    )
    async with chain(refusing(401), GOOD) as made:
        await made.hear(request)
        chat = [body for body in made.seen[1].bodies if "messages" in body]
        assert "AA==" not in str(chat)
        assert "cat.png" in str(chat)
