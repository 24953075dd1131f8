"""Deltas fold to the same parts and digest however they were split, and keep their pace."""

import time

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.domain.events.stream_fold import (
    OutputFold,
    PaceSampler,
    StreamFold,
    message_digest,
    output_digest,
    parts_digest,
    settle_message,
    settle_tool,
)
from holdfast.domain.ids import CallId, MessageId, RunId
from holdfast.domain.limits import PACE_SAMPLES_MAX
from holdfast.domain.state.rows import ToolRow

RUN, MESSAGE, OTHER, CALL = RunId("r"), MessageId("m"), MessageId("m2"), CallId("c")
STARTED = f.ModelStepStarted(RUN, 1, 1, MESSAGE, "demo")
TOOL = ToolRow(CALL, RUN, 1, 2, "shell", "unsafe", "started")


def text_delta(text: str) -> f.TextAppended:
    return f.TextAppended(RUN, MESSAGE, text)


def reasoning_delta(text: str) -> f.ReasoningAppended:
    return f.ReasoningAppended(RUN, MESSAGE, text)


def arguments_delta(call_id: str, text: str) -> f.ToolArgumentsAppended:
    return f.ToolArgumentsAppended(RUN, MESSAGE, CallId(call_id), "shell", text)


def output_delta(text: str, stream: str = "stdout") -> f.ToolOutputAppended:
    return f.ToolOutputAppended(RUN, CALL, text, "stderr" if stream == "stderr" else "stdout")


def fold_deltas(deltas: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended]) -> StreamFold:
    fold = StreamFold()
    for delta in deltas:
        fold.add(delta)
    return fold


PIECES = st.lists(
    st.one_of(
        st.builds(text_delta, st.text(max_size=6)),
        st.builds(reasoning_delta, st.text(max_size=6)),
        st.builds(arguments_delta, st.sampled_from(["a", "b"]), st.text(max_size=6)),
    ),
    max_size=12,
)


@given(PIECES, st.data())
def test_any_split_gives_the_same_parts_and_digest(
    deltas: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended], data: st.DataObject
) -> None:
    split: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended] = []
    for delta in deltas:
        cut = data.draw(st.integers(0, len(delta.text)))
        for text in (delta.text[:cut], delta.text[cut:]):
            split.append(type(delta)(**{**as_fields(delta), "text": text}))  # type: ignore[arg-type]
    assert fold_deltas(split).parts() == fold_deltas(deltas).parts()
    assert message_digest(split, MESSAGE) == message_digest(deltas, MESSAGE) == fold_deltas(deltas).digest()


def as_fields(delta: f.Fact) -> dict[str, object]:
    return {name: getattr(delta, name) for name in delta.__struct_fields__}


@given(PIECES)
def test_joining_neighbours_of_one_kind_changes_nothing(
    deltas: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended],
) -> None:
    joined: list[f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended] = []
    for delta in deltas:
        before = joined[-1] if joined else None
        same_call = getattr(before, "call_id", None) == getattr(delta, "call_id", None)
        if before is not None and type(before) is type(delta) and same_call:
            joined[-1] = type(delta)(**{**as_fields(before), "text": before.text + delta.text})  # type: ignore[arg-type]
        else:
            joined.append(delta)
    assert fold_deltas(joined).parts() == fold_deltas(deltas).parts()
    assert fold_deltas(joined).digest() == fold_deltas(deltas).digest()


def test_order_across_kinds_is_kept_and_arguments_go_to_their_call() -> None:
    fold = fold_deltas([
        reasoning_delta("hm"), text_delta("Let me "), text_delta("look."),
        arguments_delta("a", '{"x"'), arguments_delta("b", "{"),
        arguments_delta("a", ":1}"), arguments_delta("b", "}"), text_delta("Done."),
    ])  # fmt: skip
    assert fold.parts() == (
        Reasoning("hm"),
        Text("Let me look."),
        ToolCall("a", "shell", '{"x":1}'),
        ToolCall("b", "shell", "{}"),
        Text("Done."),
    )


def test_a_different_order_has_a_different_digest() -> None:
    assert (
        fold_deltas([text_delta("a"), reasoning_delta("b")]).digest()
        != fold_deltas([reasoning_delta("b"), text_delta("a")]).digest()
    )
    assert (
        fold_deltas([text_delta("a"), reasoning_delta("b")]).digest()
        != fold_deltas([text_delta("ab")]).digest()
    )


def test_signatures_never_stream_so_they_do_not_count() -> None:
    deltas: list[f.Delta] = [reasoning_delta("one"), reasoning_delta("two"), text_delta("answer")]
    signed = StreamFold()
    signed.add(reasoning_delta("one"))
    signed.sign("sig1", "anthropic")
    signed.add(reasoning_delta("two"))
    signed.sign("sig2", "anthropic")
    signed.add(text_delta("ans"))
    signed.sign("hidden", "anthropic")
    signed.add(text_delta("wer"))
    assert signed.parts()[:2] == (
        Reasoning("one", "sig1", "anthropic"),
        Reasoning("two", "sig2", "anthropic"),
    )
    assert signed.digest() == message_digest(deltas, MESSAGE)


def test_deltas_of_others_are_passed_over() -> None:
    mixed: list[f.Delta] = [
        text_delta("a"),
        f.TextAppended(RUN, OTHER, "x"),
        output_delta("p"),
        text_delta("b"),
    ]
    assert message_digest(mixed, MESSAGE) == message_digest([text_delta("ab")], MESSAGE)
    assert output_digest([*mixed, output_delta("q", "stderr")], CALL) == output_digest(
        [output_delta("pq")], CALL
    )


def test_reading_the_parts_in_the_middle_changes_nothing() -> None:
    fold = StreamFold()
    for text in ("a", "b", "c"):
        fold.add(text_delta(text))
        fold.parts()
    assert fold.parts() == (Text("abc"),)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 50)), max_size=400))
def test_pace_is_bounded_and_adds_up(steps: list[tuple[int, int]]) -> None:
    pace, at = PaceSampler(1000), 1000
    for ms, chars in steps:
        at += ms
        pace.add(at, chars)
    flat = pace.steps()
    times, chars_written = flat[::2], flat[1::2]
    assert sum(chars_written) == sum(chars for _, chars in steps)
    assert len(times) <= PACE_SAMPLES_MAX
    assert all(step >= 100 for step in times[1:])
    assert all(step >= 0 for step in times)


def test_pace_survives_a_clock_that_is_set_back() -> None:
    pace = PaceSampler(1000)
    for at in (1500, 900, 1501):
        pace.add(at, 1)
    assert pace.steps() == (500, 3)


def test_a_settled_message_holds_all_that_was_streamed() -> None:
    fold = StreamFold(1000)
    fold.add(text_delta("Hello, "), 1100)
    fold.add(text_delta("world"), 1900)
    settled = settle_message(STARTED, fold)
    assert settled.parts == (Text("Hello, world"),)
    assert settled.pace == (100, 7, 800, 5)
    assert settled.began_at == 1000
    assert (
        settled.digest == message_digest([text_delta("Hello, world")], MESSAGE) == parts_digest(settled.parts)
    )


def test_output_moved_to_a_blob_keeps_the_digest_of_the_whole() -> None:
    fold = OutputFold()
    fold.add(output_delta("a lot"), 5)
    blob = (Text("a"), File("b" * 64, "output.txt", "text/plain", 5))
    settled = settle_tool(TOOL, MESSAGE, "done", fold, blob)
    assert settled.parts == blob
    assert settled.digest == output_digest([output_delta("a "), output_delta("lot")], CALL)


def test_a_result_that_never_streamed_has_the_digest_of_its_parts() -> None:
    settled = settle_tool(TOOL, MESSAGE, "done", OutputFold(), (Text("42"),))
    assert settled.digest == parts_digest((Text("42"),))
    assert settled.pace == ()


def test_a_long_stream_is_folded_in_time_that_grows_with_it_alone() -> None:
    fold = StreamFold()
    delta = text_delta("word ")
    begun = time.process_time()
    for at in range(200_000):
        fold.add(delta, at)
    assert len(fold.parts()[0].text) == 1_000_000  # type: ignore[union-attr]
    # Not a timing: folding with the square of the length would take minutes.
    assert time.process_time() - begun < 20
