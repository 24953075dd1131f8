"""A run over Anthropic Messages from end to end: its thinking goes back signed, in its place, at every step.

The server's answers are constructed from the published reference of the Messages API; none is a recording.
"""

from pathlib import Path
from typing import Any

from holdfast.domain.context.context import CONTINUE_PROMPT
from holdfast.domain.ids import SessionId
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.transport import ModelTimeouts
from tests.support.in_process_app import AppHarness, FakeTool, running_app
from tests.support.messages_streams import (
    START,
    STOP,
    block_delta,
    block_start,
    block_stop,
    message_delta,
    text_delta,
)
from tests.support.model_server import LONG_TIMEOUTS, http_model, model_server, streaming_answer


def thinking_block(index: int, text: str, signature: str) -> bytes:
    words = block_delta(index, "thinking_delta", thinking=text) if text else b""
    signed = block_delta(index, "signature_delta", signature=signature)
    return block_start(index, type="thinking", thinking="", signature="") + words + signed + block_stop(index)


def tool_use_block(index: int) -> bytes:
    call = block_start(index, type="tool_use", id=f"toolu_{index}", name="look", input={})
    return call + block_delta(index, "input_json_delta", partial_json='{"at": 1}') + block_stop(index)


def text_block(index: int, text: str) -> bytes:
    return block_start(index, type="text", text="") + text_delta(text, index) + block_stop(index)


HIDDEN = block_start(1, type="redacted_thinking", data="b3BhcXVl") + block_stop(1)
LOOKS = (
    START
    + thinking_block(0, "Hm.", "c2lnMQ==")
    + HIDDEN
    + text_block(2, "I look.")
    + tool_use_block(3)
    + tool_use_block(4)
)
LOOKS_AGAIN = START + thinking_block(0, "", "c2lnMg==") + tool_use_block(1)
ANSWERS = START + thinking_block(0, "Aha.", "c2lnMw==") + text_block(1, "Done.")


def plain(body: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """What a request says: thinking and its signatures as they are, of all else the kind, or the words."""
    shown = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",), "text": ("text",)}
    return [
        (
            each["role"],
            [tuple(block[name] for name in shown.get(block["type"], ("type",))) for block in each["content"]],
        )
        for each in body["messages"]
    ]


async def run_conversation(
    folder: Path, answers: list[bytes], questions: int, timeouts: ModelTimeouts = LONG_TIMEOUTS
) -> list[Any]:
    """What the server was sent, of a conversation with so many questions."""

    async def ask(app: AppHarness, session_id: SessionId, text: str) -> None:
        accepted = await app.send(session_id, text)
        await app.wait_for_run(accepted.run_id, "completed")

    async with (
        model_server(*(streaming_answer([answer], cut=not answer.endswith(STOP)) for answer in answers)) as (
            url,
            seen,
        ),
        http_model(url, timeouts, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        running_app(folder, FakeTool("look", "pure")) as app,
    ):
        app.model.stream = model.stream  # type: ignore[method-assign]
        app.model.profile = model.profile
        session_id = await app.create_session()
        for number in range(questions):
            await ask(app, session_id, f"Question {number}")
    return [plain(body) for body in seen.bodies]


async def test_thinking_stays_before_its_calls_through_a_run_and_the_next(tmp_path: Path) -> None:
    calls = message_delta("tool_use") + STOP
    answers = [LOOKS + calls, LOOKS_AGAIN + calls, ANSWERS + message_delta("end_turn") + STOP]
    sent = await run_conversation(tmp_path, answers, questions=2)
    looked = ("assistant", [("Hm.", "c2lnMQ=="), ("b3BhcXVl",), ("I look.",), ("tool_use",), ("tool_use",)])
    conversation = [
        ("user", [("Question 0",)]),
        looked,
        ("user", [("tool_result",), ("tool_result",)]),
        ("assistant", [("", "c2lnMg=="), ("tool_use",)]),
        ("user", [("tool_result",)]),
        ("assistant", [("Aha.", "c2lnMw=="), ("Done.",)]),
        ("user", [("Question 1",)]),
    ]
    assert [len(each) for each in sent] == [1, 3, 5, 7]
    assert all(each == conversation[: len(each)] for each in sent), "what was sent before is never changed"


async def test_an_interrupted_answer_is_sent_back_without_trailing_thinking(
    tmp_path: Path,
) -> None:
    broken = (
        START
        + thinking_block(0, "Hm.", "c2lnMQ==")
        + text_block(1, "Roses are")
        + thinking_block(2, "And?", "c2lnMg==")
    )
    answers = [broken, ANSWERS + message_delta("end_turn") + STOP]
    sent = await run_conversation(tmp_path, answers, questions=1)
    assert sent[1] == [
        ("user", [("Question 0",)]),
        ("assistant", [("Hm.", "c2lnMQ=="), ("Roses are",)]),
        ("user", [(CONTINUE_PROMPT,)]),
    ]
