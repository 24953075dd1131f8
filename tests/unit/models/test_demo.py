"""The demo: it works from the request alone, calls real tools, goes on where it stopped, says what it is."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.context.context import (
    CONTINUE_PROMPT,
    MEMORIES,
    NOT_RUN,
    AssistantMessage,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import File, Text, ToolCall
from holdfast.models.demo import DemoModel
from holdfast.models.ports import CallDelta, Model, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec

TOOLS = [ToolSpec(name, "", {}) for name in ("shell", "read_file", "write_file", "list_files")]
WHAT_IT_IS = "scripted demo, not an AI"


def user_message(text: str) -> UserMessage:
    return UserMessage((Text(text),))


def stream_demo(messages: Sequence[RequestMessage], tools: Sequence[ToolSpec] = TOOLS) -> list[ModelDelta]:
    async def ask() -> list[ModelDelta]:
        async with aclosing(DemoModel(delay_s=0).stream(Request("", tuple(messages)), tools)) as stream:
            return [delta async for delta in stream]

    return asyncio.run(ask())


def text_in(deltas: Sequence[ModelDelta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def call_in(deltas: Sequence[ModelDelta]) -> ToolCall | None:
    pieces = [delta for delta in deltas if isinstance(delta, CallDelta)]
    arguments = "".join(piece.arguments for piece in pieces)
    return ToolCall("c", pieces[0].name, arguments) if pieces else None


def run_script(prompt: str, results: Sequence[str], tools: Sequence[ToolSpec] = TOOLS) -> list[ModelDelta]:
    """The last step of a turn whose calls give `results`."""
    messages: list[RequestMessage] = [user_message(prompt)]
    for i, result in enumerate(results):
        deltas = stream_demo(messages, tools)
        call = call_in(deltas)
        assert call is not None
        call = ToolCall(f"c_{i}", call.name, call.arguments)
        messages += [
            AssistantMessage((Text(text_in(deltas)), call)),
            ToolMessage(call.call_id, (Text(result),)),
        ]
    return stream_demo(messages, tools)


def test_the_demo_implements_the_model_port() -> None:
    model: Model = DemoModel()
    assert model.name == "demo"
    assert model.profile.provider == "demo"


def test_a_message_without_a_request_gets_the_tour_with_thinking() -> None:
    deltas = stream_demo([user_message("Hello there")])
    assert isinstance(deltas[0], ReasoningDelta)
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 30
    assert deltas[-1] == StepEnd("stop")
    assert WHAT_IT_IS in text_in(deltas)
    assert all(word in text_in(deltas) for word in ("Streaming", "Thinking", "Tools", "OPENAI_API_KEY"))


def test_the_advice_to_connect_a_model_is_given_once_per_conversation() -> None:
    first = text_in(stream_demo([user_message("Hello there")]))
    assert first.count("For real answers") == 1
    later = [user_message("Hello there"), AssistantMessage((Text(first),)), user_message("Hello again")]
    second = text_in(stream_demo(later))
    assert WHAT_IT_IS in second and "For real answers" not in second
    # An answer that had begun with that advice still ends with it.
    begun = AssistantMessage((Text(first[:-20]),))
    assert (
        text_in(stream_demo([user_message("Hello there"), begun, user_message(CONTINUE_PROMPT)]))
        == first[-20:]
    )


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
def test_the_demo_calls_the_requested_tool(asked: str, name: str, arguments: dict[str, str]) -> None:
    deltas = stream_demo([user_message(asked)])
    call = call_in(deltas)
    assert call is not None and call.name == name
    assert msgspec.json.decode(call.arguments) == arguments
    assert deltas[-1] == StepEnd("tool_calls")


@pytest.mark.parametrize(
    "asked", ["I want to run a marathon", "what is this?", "read me a poem", "", "count to 5"]
)
def test_the_demo_does_not_call_tools_without_a_request(asked: str) -> None:
    assert call_in(stream_demo([user_message(asked)])) is None


def test_several_requested_calls_run_in_order() -> None:
    asked = "write hello to notes.txt, then read notes.txt and run `ls`"
    names = [call_in(run_script(asked, ["ok"] * done)) for done in range(3)]
    assert [call.name for call in names if call] == ["write_file", "read_file", "shell"]
    last = run_script(asked, ["ok", "hello", "notes.txt"])
    assert call_in(last) is None
    assert WHAT_IT_IS in text_in(last)


def test_the_demo_shows_the_result_of_a_tool() -> None:
    deltas = run_script("list files", ["notes.txt\nsrc/"])
    assert "notes.txt\nsrc/" in text_in(deltas)
    assert WHAT_IT_IS in text_in(deltas)
    assert len(text_in(run_script("list files", ["x" * 100_000]))) < 2_000


def test_the_demo_reports_a_failed_or_missing_tool() -> None:
    messages: list[RequestMessage] = [
        user_message("list files"),
        AssistantMessage((ToolCall("c", "list_files", "{}"),)),
    ]
    answer = ToolMessage("c", (Text(NOT_RUN),), failed=True)
    assert "did not work" in text_in(stream_demo([*messages, answer]))
    without = stream_demo([user_message("run `ls`")], TOOLS[1:])
    assert call_in(without) is None
    assert "`shell`" in text_in(without) and WHAT_IT_IS in text_in(without)


@given(st.sampled_from(["hi", "list files", "count to 40"]), st.lists(st.integers(1, 60), max_size=3))
def test_an_interrupted_demo_answer_continues_exactly_where_it_stopped(asked: str, stops: list[int]) -> None:
    whole = stream_demo([user_message(asked)])
    messages: list[RequestMessage] = [user_message(asked)]
    text = ""
    deltas = whole
    for stop in stops:
        part = text_in([delta for delta in deltas if isinstance(delta, TextDelta)][:stop])
        if part:
            messages += [AssistantMessage((Text(part),)), user_message(CONTINUE_PROMPT)]
            text += part
        deltas = stream_demo(messages)
    if text:
        assert not any(isinstance(delta, ReasoningDelta) for delta in deltas)
    assert text + text_in(deltas) == text_in(whole)
    assert call_in(deltas) == call_in(whole)
    assert deltas[-1] == whole[-1]


def test_an_interrupted_demo_answer_continues_after_tool_calls() -> None:
    call = ToolCall("c", "list_files", "{}")
    turn: list[RequestMessage] = [
        user_message("list files"),
        AssistantMessage((Text("I call"), call)),
        ToolMessage("c", (Text("a.txt"),)),
    ]
    whole = text_in(stream_demo(turn))
    rest = text_in(stream_demo([*turn, AssistantMessage((Text(whole[:25]),)), user_message(CONTINUE_PROMPT)]))
    assert whole[:25] + rest == whole


def test_no_demo_delta_is_only_white_space() -> None:
    for delta in stream_demo([user_message("hello")]):
        assert not isinstance(delta, TextDelta | ReasoningDelta) or delta.text.strip()


def test_the_demo_says_so_when_it_finishes_the_answer_of_another_model() -> None:
    messages: list[RequestMessage] = [
        user_message("hello"),
        AssistantMessage((Text("As a large"),)),
        user_message(CONTINUE_PROMPT),
    ]
    assert WHAT_IT_IS in text_in(stream_demo(messages))


def test_only_the_last_user_message_counts() -> None:
    remembered = UserMessage(
        (Text(MEMORIES + "run `ls`"), Text("hello"), File("b", "run.txt", "text/plain", 1))
    )
    assert call_in(stream_demo([remembered])) is None
    earlier: list[RequestMessage] = [
        user_message("run `ls`"),
        AssistantMessage((Text("Done."),)),
        user_message("thanks"),
    ]
    assert call_in(stream_demo(earlier)) is None
    assert text_in(stream_demo([UserMessage((File("b", "a.png", "image/png", 1),))]))


def test_long_and_unusual_messages_are_answered_quickly() -> None:
    for asked in ("write " * 50_000, "run `" * 50_000, "list " * 50_000, "\ud800 \x00 run `"):
        assert text_in(stream_demo([user_message(asked)]))


def test_the_demo_waits_between_words() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask() -> int:
        demo = DemoModel(delay_s=0.5, sleep=sleep)
        async with aclosing(demo.stream(Request("", (user_message("hi"),)), TOOLS)) as stream:
            count = len([delta async for delta in stream])
        await demo.close()
        return count

    assert asyncio.run(ask()) == len(slept) + 1
    assert set(slept) == {0.5}


def test_the_demo_names_the_attached_files() -> None:
    asked = UserMessage((Text("Hello"), File("b", "notes.txt", "text/plain", 1_234)))
    whole = text_in(stream_demo([asked]))
    assert whole.startswith("I was given `notes.txt` (1,234 bytes).")
    assert WHAT_IT_IS in whole
    begun = whole[: len(whole) // 2]
    rest = text_in(stream_demo([asked, AssistantMessage((Text(begun),)), user_message(CONTINUE_PROMPT)]))
    assert begun + rest == whole
    assert text_in(stream_demo([UserMessage(asked.parts[1:])])) == whole
