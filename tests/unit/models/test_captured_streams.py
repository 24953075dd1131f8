"""The wire protocols against what a real llama.cpp streamed: recorded, see `tests/captures/llama_cpp`."""

from pathlib import Path

import pytest

from holdfast.domain.usage import Usage
from holdfast.models import failures
from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import AnswerDecoder
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import CallDelta, ModelDelta, StepEnd, TextDelta
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol

FOLDER = Path(__file__).parents[2] / "captures" / "llama_cpp"
ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "smollm2-135m", Secret(""))
WIRES: dict[str, WireProtocol] = {
    "chat": ChatWire(),
    "responses": ResponsesWire(),
    "messages": MessagesWire(),
}
EMOJI = "🌟🌱🌍️🌈🌳🌠🌞🌐\n\n# The Most Beautiful Person Ever\n🌍🌍🌍🌍🌍🌍🌍🌍"
ANSWERS = [
    ("chat_talk", "Hello, Hello!", StepEnd("stop", Usage(24, 5, 0))),
    ("chat_cut", "That's a great", StepEnd("length", Usage(25, 4, 13))),
    ("responses_talk", EMOJI, StepEnd("stop", Usage(24, 60, 23))),
    (
        "responses_cut",
        "I'm sorry for the misunderstanding. I'm here to help you with your math",
        StepEnd("stop", Usage(25, 16, 24)),
    ),
    ("messages_talk", "Hello to the world of words.", StepEnd("stop", Usage(24, 8, 13))),
    ("messages_cut", "I'm not an", StepEnd("length", Usage(25, 4, 24))),
]
CALLS = [("chat_call", 0), ("responses_call", 241), ("messages_call", 241)]


def replay(name: str, step: int) -> list[ModelDelta]:
    """What the adapter makes of a recorded stream that comes in pieces of `step` bytes."""
    stream = (FOLDER / f"{name}.sse").read_bytes()
    answer = AnswerDecoder(ENDPOINT, WIRES[name.partition("_")[0]])
    deltas: list[ModelDelta] = []
    for at in range(0, len(stream), step):
        deltas += answer.feed(stream[at : at + step])
    return [*deltas, *answer.end()]


@pytest.mark.parametrize("step", [1, 7, 1_000_000])
@pytest.mark.parametrize(("name", "text", "end"), ANSWERS, ids=[name for name, _, _ in ANSWERS])
def test_a_captured_answer_decodes_the_same_for_any_chunk_size(
    name: str, text: str, end: StepEnd, step: int
) -> None:
    *deltas, last = replay(name, step)
    assert len(deltas) > 1, "it streams"
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == text
    assert all(isinstance(delta, TextDelta) for delta in deltas)
    assert last == end


@pytest.mark.parametrize("step", [1, 7, 1_000_000])
@pytest.mark.parametrize(("name", "cached"), CALLS, ids=[name for name, _ in CALLS])
def test_a_captured_call_decodes_the_same_for_any_chunk_size(name: str, cached: int, step: int) -> None:
    *deltas, last = replay(name, step)
    calls = [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert calls == deltas
    assert {(call.index, call.name) for call in calls} == {(0, "get_weather")}
    assert "".join(call.arguments for call in calls) == '{"city": "Paris"}'
    assert last == StepEnd("tool_calls", Usage(242, 31, cached))


@pytest.mark.parametrize("protocol", WIRES)
def test_a_captured_overflow_error_is_recognised_as_too_long(protocol: str) -> None:
    body = (FOLDER / f"{protocol}_too_long.400.json").read_bytes()
    failure = failures.from_status(ENDPOINT, 400, {}, body)
    assert failure.too_long
    assert not failure.retryable
    assert "9020 tokens" in str(failure)


def test_every_recorded_stream_is_replayed() -> None:
    there = {path.name.partition(".")[0] for path in FOLDER.glob("*.sse")}
    assert there == {name for name, _, _ in ANSWERS} | {name for name, _ in CALLS}
