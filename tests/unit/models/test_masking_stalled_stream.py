"""A model that stalls in the middle of what may begin a secret: the little that is held is shown then."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from holdfast.domain.context.context import Profile, Request
from holdfast.domain.files import Takes
from holdfast.domain.secrets import MASK, Mask
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import ModelDelta, ModelFailure, ReasoningDelta, StepEnd, TextDelta, ToolSpec

KEY = "sk-proj-0123456789abcdef"
ASKED = Request("", ())
END = StepEnd("stop")
SOON_S, LONG_S = 0.01, 30.0


class Stalling:
    """A model that says what it is told to, waits until it may go on, and says the rest."""

    name = "stalling"
    profile = Profile("stalling", 1_000)

    def __init__(self, before: Sequence[ModelDelta], after: Sequence[ModelDelta | ModelFailure]) -> None:
        self._before = before
        self._after = after
        self.may_go_on = asyncio.Event()
        self.waits = asyncio.Event()
        self.ended = 0

    async def takes(self) -> Takes:
        return Takes(frozenset({"text"}))

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        try:
            for delta in self._before:
                yield delta
            self.waits.set()
            await self.may_go_on.wait()
            for more in self._after:
                if isinstance(more, ModelFailure):
                    raise more
                yield more
        finally:
            self.ended += 1

    async def close(self) -> None:
        return


async def text_of(stream: AsyncGenerator[ModelDelta, None], until: str) -> str:
    """What has been said once it ends as `until` says; bounded."""
    said = ""
    async with asyncio.timeout(LONG_S):
        while not said.endswith(until):
            delta = await anext(stream)
            assert isinstance(delta, TextDelta | ReasoningDelta)
            said += delta.text
    return said


@pytest.mark.parametrize("kind", [TextDelta, ReasoningDelta])
@pytest.mark.parametrize(
    ("after", "whole"),
    [(" it is", "it is this, s it is"), (KEY[1:], f"it is this, s{MASK}"), ("k-", "it is this, sk-")],
    ids=["a word", "a secret", "neither"],
)
async def test_what_is_held_is_shown_when_nothing_comes(
    kind: type[TextDelta] | type[ReasoningDelta], after: str, whole: str
) -> None:
    model = Stalling([kind("it is this, s")], [kind(after), END])
    async with aclosing(MaskedModel(model, Mask([KEY]), SOON_S).stream(ASKED, ())) as stream:
        said = await text_of(stream, ", s")
        assert said == "it is this, s" and not model.may_go_on.is_set()
        model.may_go_on.set()
        rest = [delta async for delta in stream]
    said += "".join(delta.text for delta in rest if isinstance(delta, TextDelta | ReasoningDelta))
    assert (said, rest[-1], model.ended) == (whole, END, 1)


async def test_more_than_tells_nothing_stays_held_however_long_it_takes() -> None:
    model = Stalling([TextDelta(f"so {KEY[:9]}")], [TextDelta("."), END])
    async with aclosing(MaskedModel(model, Mask([KEY]), SOON_S).stream(ASKED, ())) as stream:
        assert await text_of(stream, "so ") == "so "
        coming = asyncio.ensure_future(anext(stream))
        await model.waits.wait()
        done, _ = await asyncio.wait((coming,), timeout=10 * SOON_S)
        assert not done
        model.may_go_on.set()
        assert await coming == TextDelta(f"{KEY[:9]}.")


async def test_thinking_that_was_shown_early_keeps_its_signature_unless_it_was_masked() -> None:
    for after, kept in (("o.", "signed"), (KEY[1:], "")):
        model = Stalling(
            [ReasoningDelta("hm, s")], [ReasoningDelta(after), ReasoningDelta("", "signed"), END]
        )
        async with aclosing(MaskedModel(model, Mask([KEY]), SOON_S).stream(ASKED, ())) as stream:
            await text_of(stream, "s")
            model.may_go_on.set()
            signatures = {delta.signature async for delta in stream if isinstance(delta, ReasoningDelta)}
        assert signatures - {""} == ({kept} if kept else set())


async def test_cancelling_while_it_stalls_is_not_lost_and_ends_the_models_own_stream() -> None:
    for held_s in (SOON_S, LONG_S):
        model = Stalling([TextDelta("this, s")], [END])
        stream = MaskedModel(model, Mask([KEY]), held_s).stream(ASKED, ())

        async def listen(stream: AsyncGenerator[ModelDelta, None] = stream) -> None:
            async with aclosing(stream):
                async for _ in stream:
                    pass

        listening = asyncio.create_task(listen())
        await model.waits.wait()
        listening.cancel()
        async with asyncio.timeout(LONG_S):
            with pytest.raises(asyncio.CancelledError):
                await listening
        assert model.ended == 1


async def test_leaving_at_what_was_shown_early_ends_the_models_own_stream() -> None:
    model = Stalling([TextDelta("this, s")], [END])
    stream = MaskedModel(model, Mask([KEY]), SOON_S).stream(ASKED, ())
    await text_of(stream, ", s")
    async with asyncio.timeout(LONG_S):
        await stream.aclose()
    assert model.ended == 1


async def test_a_failure_after_a_stall_comes_after_all_that_was_said() -> None:
    failure = ModelFailure(detail=f"{KEY} is refused", retryable=True)
    model = Stalling([TextDelta("this, s")], [failure])
    stream = MaskedModel(model, Mask([KEY]), SOON_S).stream(ASKED, ())
    assert await text_of(stream, ", s") == "this, s"
    model.may_go_on.set()
    with pytest.raises(ModelFailure) as told:
        await anext(stream)
    assert told.value.retryable and KEY not in str(told.value)
    assert model.ended == 1
