"""The demo: it works from the request alone, calls real tools, goes on where it stopped, says what it is."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.context.context import (
    GO_ON,
    MEMORIES,
    NOT_RUN,
    AssistantMessage,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import File, Text, ToolCall
from holdfast.models.demo import Demo
from holdfast.models.ports import CallDelta, Model, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec

TOOLS = [ToolSpec(name, "", {}) for name in ("shell", "read_file", "write_file", "list_files")]
WHAT_IT_IS = "scripted demo, not an AI"


def said(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def streamed(messages: Sequence[RequestMessage], tools: Sequence[ToolSpec] = TOOLS) -> list[ModelDelta]:
    async def ask() -> list[ModelDelta]:
        async with aclosing(Demo(delay_s=0).stream(Request("", tuple(messages)), tools)) as stream:
            return [delta async for delta in stream]

    return asyncio.run(ask())


def text_in(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def call_in(deltas: Sequence[ModelDelta]) -> ToolCall | None:
    pieces = [delta for delta in deltas if isinstance(delta, CallDelta)]
    arguments = "".join(piece.arguments for piece in pieces)
    return ToolCall("c", pieces[0].name, arguments) if pieces else None


def carried_out(asked: str, results: Sequence[str], tools: Sequence[ToolSpec] = TOOLS) -> list[ModelDelta]:
    """The last step of a turn whose calls give `results`."""
    messages: list[RequestMessage] = [said(asked)]
    for i, result in enumerate(results):
        deltas = streamed(messages, tools)
        call = call_in(deltas)
        assert call is not None
        call = ToolCall(f"c_{i}", call.name, call.arguments)
        messages += [
            AssistantMessage((Text(text_in(deltas)), call)),
            ToolMessage(call.call_id, (Text(result),)),
        ]
    return streamed(messages, tools)


def test_it_is_a_model() -> None:
    model: Model = Demo()
    assert model.name == "demo"
    assert model.profile.provider == "demo"


def test_without_a_wish_it_gives_a_tour_that_thinks_and_streams() -> None:
    deltas = streamed([said("Hello there")])
    assert isinstance(deltas[0], ReasoningDelta)
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 30
    assert deltas[-1] == StepEnd("stop")
    assert WHAT_IT_IS in text_in(deltas)
    assert all(word in text_in(deltas) for word in ("Streaming", "Thinking", "Tools", "OPENAI_API_KEY"))


def test_a_conversation_is_advised_once_to_connect_a_model() -> None:
    first = text_in(streamed([said("Hello there")]))
    assert first.count("For real answers") == 1
    later = [said("Hello there"), AssistantMessage((Text(first),)), said("Hello again")]
    second = text_in(streamed(later))
    assert WHAT_IT_IS in second and "For real answers" not in second
    # An answer that had begun with that advice still ends with it.
    begun = AssistantMessage((Text(first[:-20]),))
    assert text_in(streamed([said("Hello there"), begun, said(GO_ON)])) == first[-20:]


@pytest.mark.parametrize(
    ("asked", "name", "arguments"),
    [
        ("run `ls -la`", "shell", {"command": "ls -la"}),
        ("Please run the command `sleep 3; date` now", "shell", {"command": "sleep 3; date"}),
        ("Run ls -la.", "shell", {"command": "ls -la"}),
        ("$ uname -a", "shell", {"command": "uname -a"}),
        ("write hello to notes.txt", "write_file", {"path": "notes.txt", "content": "hello"}),
        ('Write "two words" into the file a/b.md!', "write_file", {"path": "a/b.md", "content": "two words"}),
        ("read notes.txt", "read_file", {"path": "notes.txt"}),
        ("Show me the contents of the file `a/b.md`, please", "read_file", {"path": "a/b.md"}),
        ("list files", "list_files", {}),
        ("Which files are in this folder?", "list_files", {}),
        ("list the files in src/app", "list_files", {"path": "src/app"}),
        ("List all files in the folder", "list_files", {}),
    ],
)
def test_it_calls_the_tool_that_is_asked_for(asked: str, name: str, arguments: dict[str, str]) -> None:
    deltas = streamed([said(asked)])
    call = call_in(deltas)
    assert call is not None and call.name == name
    assert msgspec.json.decode(call.arguments) == arguments
    assert deltas[-1] == StepEnd("tool_calls")


@pytest.mark.parametrize(
    "asked", ["I want to run a marathon", "what is this?", "read me a poem", "", "count to 5"]
)
def test_it_does_not_call_tools_that_nobody_asked_for(asked: str) -> None:
    assert call_in(streamed([said(asked)])) is None


def test_several_wishes_are_met_one_after_the_other_in_their_order() -> None:
    asked = "write hello to notes.txt, then read notes.txt and run `ls`"
    names = [call_in(carried_out(asked, ["ok"] * done)) for done in range(3)]
    assert [call.name for call in names if call] == ["write_file", "read_file", "shell"]
    last = carried_out(asked, ["ok", "hello", "notes.txt"])
    assert call_in(last) is None
    assert WHAT_IT_IS in text_in(last)


def test_it_shows_what_a_tool_answered() -> None:
    deltas = carried_out("list files", ["notes.txt\nsrc/"])
    assert "notes.txt\nsrc/" in text_in(deltas)
    assert WHAT_IT_IS in text_in(deltas)
    assert len(text_in(carried_out("list files", ["x" * 100_000]))) < 2_000


def test_it_says_when_a_tool_failed_or_is_missing() -> None:
    messages: list[RequestMessage] = [
        said("list files"),
        AssistantMessage((ToolCall("c", "list_files", "{}"),)),
    ]
    answer = ToolMessage("c", (Text(NOT_RUN),), failed=True)
    assert "did not work" in text_in(streamed([*messages, answer]))
    without = streamed([said("run `ls`")], TOOLS[1:])
    assert call_in(without) is None
    assert "`shell`" in text_in(without) and WHAT_IT_IS in text_in(without)


@given(st.sampled_from(["hi", "list files", "count to 40"]), st.lists(st.integers(1, 60), max_size=3))
def test_it_goes_on_exactly_where_it_stopped(asked: str, stops: list[int]) -> None:
    whole = streamed([said(asked)])
    messages: list[RequestMessage] = [said(asked)]
    text = ""
    deltas = whole
    for stop in stops:
        part = text_in([delta for delta in deltas if isinstance(delta, TextDelta)][:stop])
        if part:
            messages += [AssistantMessage((Text(part),)), said(GO_ON)]
            text += part
        deltas = streamed(messages)
    if text:
        assert not any(isinstance(delta, ReasoningDelta) for delta in deltas)
    assert text + text_in(deltas) == text_in(whole)
    assert call_in(deltas) == call_in(whole)
    assert deltas[-1] == whole[-1]


def test_it_goes_on_after_its_tools_too() -> None:
    call = ToolCall("c", "list_files", "{}")
    turn: list[RequestMessage] = [
        said("list files"),
        AssistantMessage((Text("I call"), call)),
        ToolMessage("c", (Text("a.txt"),)),
    ]
    whole = text_in(streamed(turn))
    rest = text_in(streamed([*turn, AssistantMessage((Text(whole[:25]),)), said(GO_ON)]))
    assert whole[:25] + rest == whole


def test_every_piece_has_a_word_in_it() -> None:
    for delta in streamed([said("hello")]):
        assert not isinstance(delta, TextDelta | ReasoningDelta) or delta.text.strip()


def test_an_answer_that_someone_else_began_is_ended_openly() -> None:
    messages: list[RequestMessage] = [said("hello"), AssistantMessage((Text("As a large"),)), said(GO_ON)]
    assert WHAT_IT_IS in text_in(streamed(messages))


def test_only_the_last_words_count() -> None:
    remembered = UserMessage(
        (Text(MEMORIES + "run `ls`"), Text("hello"), File("b", "run.txt", "text/plain", 1))
    )
    assert call_in(streamed([remembered])) is None
    earlier: list[RequestMessage] = [said("run `ls`"), AssistantMessage((Text("Done."),)), said("thanks")]
    assert call_in(streamed(earlier)) is None
    assert text_in(streamed([UserMessage((File("b", "a.png", "image/png", 1),))]))


def test_long_and_odd_messages_are_answered_quickly() -> None:
    for asked in ("write " * 50_000, "run `" * 50_000, "list " * 50_000, "\ud800 \x00 run `"):
        assert text_in(streamed([said(asked)]))


def test_it_takes_its_time_between_words() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask() -> int:
        demo = Demo(delay_s=0.5, sleep=sleep)
        async with aclosing(demo.stream(Request("", (said("hi"),)), TOOLS)) as stream:
            count = len([delta async for delta in stream])
        await demo.close()
        return count

    assert asyncio.run(ask()) == len(slept) + 1
    assert set(slept) == {0.5}


def test_it_says_which_files_it_was_given() -> None:
    asked = UserMessage((Text("Hello"), File("b", "notes.txt", "text/plain", 1_234)))
    whole = text_in(streamed([asked]))
    assert whole.startswith("I was given `notes.txt` (1,234 bytes).")
    assert WHAT_IT_IS in whole
    begun = whole[: len(whole) // 2]
    rest = text_in(streamed([asked, AssistantMessage((Text(begun),)), said(GO_ON)]))
    assert begun + rest == whole
    assert text_in(streamed([UserMessage(asked.parts[1:])])) == whole
