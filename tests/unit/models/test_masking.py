"""Models and tools behind a mask: no secret gets through, nothing else is lost, all comes in its order."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, Reasoning, Text, ToolCall
from holdfast.domain.events.stream_fold import StreamFold
from holdfast.domain.files import SupportedFiles
from holdfast.domain.ids import CallId, MessageId, RunId
from holdfast.domain.secrets import MASK, SecretMask
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import (
    CallDelta,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)
from holdfast.tools.masking import MaskedTool
from holdfast.tools.ports import ToolResult, ToolRun

KEY = "sk-proj-0123456789abcdef"
ASKED = Request("", ())
END = StepEnd("stop")


class ScriptedDeltas:
    """A model that says what is written, then fails if it is told to."""

    name = "script"
    profile = ModelProfile("script", 1_000)

    def __init__(self, *deltas: ModelDelta, failure: ModelFailure | None = None) -> None:
        self._deltas = deltas
        self._failure = failure
        self.ended = False

    async def supported_files(self) -> SupportedFiles:
        return SupportedFiles(frozenset({"text"}))

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        try:
            for delta in self._deltas:
                yield delta
            if self._failure is not None:
                raise self._failure
        finally:
            self.ended = True

    async def close(self) -> None:
        self.ended = True


def collect(script: ScriptedDeltas) -> tuple[list[ModelDelta], ModelFailure | None]:
    async def listen() -> tuple[list[ModelDelta], ModelFailure | None]:
        deltas: list[ModelDelta] = []
        try:
            async with aclosing(MaskedModel(script, SecretMask([KEY])).stream(ASKED, ())) as stream:
                async for delta in stream:
                    deltas.append(delta)
        except ModelFailure as failure:
            return deltas, failure
        return deltas, None

    return asyncio.run(listen())


def fold_parts(deltas: Sequence[ModelDelta]) -> tuple[AnyPart, ...]:
    """The message that they add up to."""
    fold, run_id, message_id = StreamFold(), RunId("r_1"), MessageId("m_1")
    for delta in deltas:
        match delta:
            case TextDelta():
                fold.add(f.TextAppended(run_id, message_id, delta.text))
            case ReasoningDelta():
                fold.add(f.ReasoningAppended(run_id, message_id, delta.text))
                if delta.signature:
                    fold.sign(delta.signature, "script")
            case CallDelta():
                call_id = CallId(f"c_{delta.index}")
                fold.add(f.ToolArgumentsAppended(run_id, message_id, call_id, delta.name, delta.arguments))
    return fold.parts()


@pytest.mark.parametrize("cut", range(len(KEY) + 1))
def test_a_key_is_masked_however_the_stream_splits_it(cut: int) -> None:
    head, tail = KEY[:cut], KEY[cut:]
    deltas, failure = collect(
        ScriptedDeltas(
            ReasoningDelta(f"think {head}"),
            ReasoningDelta(f"{tail} so"),
            TextDelta(f"say {head}"),
            TextDelta(f"{tail} so"),
            CallDelta(0, "shell", f'{{"command":"echo {head}'),
            CallDelta(1, "list_files", f'{{"path":"{head}'),
            CallDelta(0, "", f'{tail}"}}'),
            CallDelta(1, "", f'{tail}"}}'),
            END,
        )
    )
    assert failure is None
    assert deltas[-1] == END
    assert fold_parts(deltas) == (
        Reasoning(f"think {MASK} so"),
        Text(f"say {MASK} so"),
        ToolCall("c_0", "shell", f'{{"command":"echo {MASK}"}}'),
        ToolCall("c_1", "list_files", f'{{"path":"{MASK}"}}'),
    )


def test_masked_thinking_loses_its_signature() -> None:
    deltas, _ = collect(
        ScriptedDeltas(
            ReasoningDelta("first"),
            ReasoningDelta("", "signed"),
            TextDelta("say"),
            ReasoningDelta(f"think {KEY[:7]}"),
            ReasoningDelta(KEY[7:]),
            ReasoningDelta("", "signed too"),
            TextDelta("so"),
            ReasoningDelta("last sk-pro"),
            ReasoningDelta("", "signed again"),
            END,
        )
    )
    assert fold_parts(deltas) == (
        Reasoning("first", "signed", "script"),
        Text("say"),
        Reasoning(f"think {MASK}"),
        Text("so"),
        Reasoning("last sk-pro", "signed again", "script"),
    )


deltas_of_any_kind = st.lists(
    st.one_of(
        st.text("sk-pro x", max_size=4).map(TextDelta),
        st.text("sk-pro x", max_size=4).map(ReasoningDelta),
        st.builds(ReasoningDelta, st.text("sk-"), st.just("signed")),
        st.builds(
            CallDelta, st.integers(0, 2), st.sampled_from(["shell", ""]), st.text("sk-pro x", max_size=4)
        ),
    ),
    max_size=12,
)


@given(deltas_of_any_kind, st.booleans())
def test_an_answer_without_secrets_is_unchanged(deltas: list[ModelDelta], fails: bool) -> None:
    failure = ModelFailure(detail="it broke", retryable=True, retry_after_ms=7) if fails else None
    masked, failed = collect(ScriptedDeltas(*deltas, *([] if fails else [END]), failure=failure))
    assert fold_parts(masked) == fold_parts(deltas)
    assert END not in masked if fails else masked[-1] == END
    assert (failed is not None) == fails
    if failed is not None:
        assert (str(failed), failed.retryable, failed.retry_after_ms) == (str(failure), True, 7)


def test_text_held_back_is_released_before_the_failure() -> None:
    failure = ModelFailure(detail=f"Incorrect API key provided: {KEY}. And sk-other-abcdef", retryable=False)
    deltas, failed = collect(ScriptedDeltas(TextDelta("it is sk-pro"), failure=failure))
    assert fold_parts(deltas) == (Text("it is sk-pro"),)
    assert failed is not None and not failed.retryable
    assert str(failed) == f"The model could not answer: Incorrect API key provided: {MASK}. And {MASK}."
    assert KEY not in repr(failed)


def test_a_key_in_a_tool_name_or_stop_reason_is_masked() -> None:
    deltas, _ = collect(ScriptedDeltas(CallDelta(0, f"run{KEY}", "{}"), StepEnd(f"because {KEY}")))
    assert deltas == [CallDelta(0, f"run{MASK}", "{}"), StepEnd(f"because {MASK}")]


async def test_closing_the_stream_ends_the_request() -> None:
    script = ScriptedDeltas(TextDelta("a"), TextDelta("b"))
    stream = MaskedModel(script, SecretMask([KEY])).stream(ASKED, ())
    assert await anext(stream) == TextDelta("a") and not script.ended
    await stream.aclose()
    assert script.ended


class PrintingTool:
    """A tool that prints what the test says, and then ends, fails or waits."""

    spec = ToolSpec("printer", "Prints.", {"type": "object"})
    effect: f.Effect = "pure"
    needs_approval = False

    def __init__(self, *printed: tuple[str, str], ends: str = "", result: ToolResult | None = None) -> None:
        self._printed = printed
        self._ends = ends
        self._result = result or ToolResult("done")
        self.waits = asyncio.Event()

    async def run(self, call: ToolRun) -> ToolResult:
        for text, stream in self._printed:
            call.emit(text, "stdout" if stream == "out" else "stderr")
        if self._ends == "raises":
            raise ValueError("no paper")
        if self._ends == "waits":
            self.waits.set()
            await asyncio.sleep(60)
        return self._result

    def validate(self, arguments: str) -> str:
        return ""

    async def is_finished(self, call_id: CallId) -> bool:
        return call_id != "c_busy"


async def run_printer(tool: PrintingTool) -> tuple[list[tuple[str, str]], ToolResult]:
    outputs: list[tuple[str, str]] = []
    call = ToolRun(CallId("c_1"), "{}", Path(), lambda text, stream: outputs.append((text, stream)))
    return outputs, await MaskedTool(tool, SecretMask([KEY])).run(call)


@pytest.mark.parametrize("cut", range(len(KEY) + 1))
async def test_interleaved_output_streams_are_masked_separately(cut: int) -> None:
    tool = PrintingTool(
        (f"a {KEY[:cut]}", "out"), ("noise\n", "err"), (f"{KEY[cut:]} b\n", "out"), (KEY, "err")
    )
    outputs, _ = await run_printer(tool)
    text = "".join(text for text, _ in outputs)
    out = "".join(text for text, stream in outputs if stream == "stdout")
    assert KEY not in text and "0123456789" not in text
    assert out == f"a {KEY[:cut] if cut < 4 else ''}{MASK} b\n"


async def test_output_streams_without_secrets_keep_their_order() -> None:
    outputs, _ = await run_printer(PrintingTool(("files", "err"), ("\nexit code 0\n", "out")))
    assert "".join(text for text, _ in outputs) == "files\nexit code 0\n"


@pytest.mark.parametrize("ends", ["", "raises", "waits"])
async def test_output_held_back_is_released_however_the_call_ends(ends: str) -> None:
    tool, outputs = PrintingTool(("ends in sk-proj", "out"), ends=ends), list[tuple[str, str]]()
    call = ToolRun(CallId("c_1"), "{}", Path(), lambda text, stream: outputs.append((text, stream)))
    running = asyncio.create_task(MaskedTool(tool, SecretMask([KEY])).run(call))
    if ends == "waits":
        await tool.waits.wait()
        running.cancel()
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    assert "".join(text for text, _ in outputs) == "ends in sk-proj"
    assert (
        type(outcome).__name__ == {"": "ToolResult", "raises": "ValueError", "waits": "CancelledError"}[ends]
    )


async def test_a_masked_tool_masks_results_and_is_otherwise_unchanged() -> None:
    tool = PrintingTool(result=ToolResult("failed", (Text(f"no {KEY}"), Text("more"))))
    masked = MaskedTool(tool, SecretMask([KEY]))
    _, result = await run_printer(tool)
    assert result == ToolResult("failed", (Text(f"no {MASK}"), Text("more")))
    assert (masked.spec, masked.effect) == (tool.spec, tool.effect)
    assert await masked.is_finished(CallId("c_1")) and not await masked.is_finished(CallId("c_busy"))
