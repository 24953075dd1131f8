"""A model that stalls in the middle of what may begin a secret: the little that is held is shown then."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import pytest

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.files import SupportedFiles
from holdfast.domain.secrets import MASK, SecretMask
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import ModelDelta, ModelFailure, ReasoningDelta, StepEnd, TextDelta, ToolSpec

KEY = "sk-proj-0123456789abcdef"
ASKED = Request("", ())
END = StepEnd("stop")
SOON_S, LONG_S = 0.01, 30.0


class StallingModel:
    """A model that says what it is told to, waits until it may go on, and says the rest."""

    name = "stalling"
    profile = ModelProfile("stalling", 1_000)

    def __init__(self, before: Sequence[ModelDelta], after: Sequence[ModelDelta | ModelFailure]) -> None:
        self._before = before
        self._after = after
        self.may_go_on = asyncio.Event()
        self.waits = asyncio.Event()
        self.ended = 0

    async def supported_files(self) -> SupportedFiles:
        return SupportedFiles(frozenset({"text"}))

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
async def test_text_held_back_is_shown_when_the_stream_stalls(
    kind: type[TextDelta] | type[ReasoningDelta], after: str, whole: str
) -> None:
    model = StallingModel([kind("it is this, s")], [kind(after), END])
    async with aclosing(MaskedModel(model, SecretMask([KEY]), SOON_S).stream(ASKED, ())) as stream:
        said = await text_of(stream, ", s")
        assert said == "it is this, s" and not model.may_go_on.is_set()
        model.may_go_on.set()
        rest = [delta async for delta in stream]
    said += "".join(delta.text for delta in rest if isinstance(delta, TextDelta | ReasoningDelta))
    assert (said, rest[-1], model.ended) == (whole, END, 1)


async def test_text_that_may_reveal_a_secret_stays_held_however_long_the_stall() -> None:
    model = StallingModel([TextDelta(f"so {KEY[:9]}")], [TextDelta("."), END])
    async with aclosing(MaskedModel(model, SecretMask([KEY]), SOON_S).stream(ASKED, ())) as stream:
        assert await text_of(stream, "so ") == "so "
        coming = asyncio.ensure_future(anext(stream))
        await model.waits.wait()
        done, _ = await asyncio.wait((coming,), timeout=10 * SOON_S)
        assert not done
        model.may_go_on.set()
        assert await coming == TextDelta(f"{KEY[:9]}.")


async def test_thinking_shown_early_keeps_its_signature_unless_masked() -> None:
    for after, kept in (("o.", "signed"), (KEY[1:], "")):
        model = StallingModel(
            [ReasoningDelta("hm, s")], [ReasoningDelta(after), ReasoningDelta("", "signed"), END]
        )
        async with aclosing(MaskedModel(model, SecretMask([KEY]), SOON_S).stream(ASKED, ())) as stream:
            await text_of(stream, "s")
            model.may_go_on.set()
            signatures = {delta.signature async for delta in stream if isinstance(delta, ReasoningDelta)}
        assert signatures - {""} == ({kept} if kept else set())


async def test_cancelling_a_stalled_stream_closes_the_stream_of_the_model() -> None:
    for held_s in (SOON_S, LONG_S):
        model = StallingModel([TextDelta("this, s")], [END])
        stream = MaskedModel(model, SecretMask([KEY]), held_s).stream(ASKED, ())

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


async def test_closing_after_text_shown_early_closes_the_stream_of_the_model() -> None:
    model = StallingModel([TextDelta("this, s")], [END])
    stream = MaskedModel(model, SecretMask([KEY]), SOON_S).stream(ASKED, ())
    await text_of(stream, ", s")
    async with asyncio.timeout(LONG_S):
        await stream.aclose()
    assert model.ended == 1


async def test_a_failure_after_a_stall_follows_all_received_text() -> None:
    failure = ModelFailure(detail=f"{KEY} is refused", retryable=True)
    model = StallingModel([TextDelta("this, s")], [failure])
    stream = MaskedModel(model, SecretMask([KEY]), SOON_S).stream(ASKED, ())
    assert await text_of(stream, ", s") == "this, s"
    model.may_go_on.set()
    with pytest.raises(ModelFailure) as caught:
        await anext(stream)
    assert caught.value.retryable and KEY not in str(caught.value)
    assert model.ended == 1
