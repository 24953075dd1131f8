"""A run over Anthropic Messages from end to end: its thinking goes back signed, in its place, at every step.

The server's answers are constructed from the published reference of the Messages API; none is a recording.
"""

from pathlib import Path
from typing import Any

from holdfast.domain.context.context import GO_ON
from holdfast.domain.ids import SessionId
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.transport import Patience
from tests.support.in_process_app import House, Lever, house
from tests.support.messages_streams import START, STOP, begun, ended, grown, over, said
from tests.support.model_server import CALM, asking, serving, streaming


def thinking(index: int, text: str, signature: str) -> bytes:
    words = grown(index, "thinking_delta", thinking=text) if text else b""
    signed = grown(index, "signature_delta", signature=signature)
    return begun(index, type="thinking", thinking="", signature="") + words + signed + over(index)


def calling(index: int) -> bytes:
    call = begun(index, type="tool_use", id=f"toolu_{index}", name="look", input={})
    return call + grown(index, "input_json_delta", partial_json='{"at": 1}') + over(index)


def talking(index: int, text: str) -> bytes:
    return begun(index, type="text", text="") + said(text, index) + over(index)


HIDDEN = begun(1, type="redacted_thinking", data="b3BhcXVl") + over(1)
LOOKS = START + thinking(0, "Hm.", "c2lnMQ==") + HIDDEN + talking(2, "I look.") + calling(3) + calling(4)
LOOKS_AGAIN = START + thinking(0, "", "c2lnMg==") + calling(1)
ANSWERS = START + thinking(0, "Aha.", "c2lnMw==") + talking(1, "Done.")


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


async def talk(folder: Path, answers: list[bytes], questions: int, patience: Patience = CALM) -> list[Any]:
    """What the server was sent, of a conversation with so many questions."""

    async def ask(here: House, session_id: SessionId, text: str) -> None:
        accepted = await here.say(session_id, text)
        await here.until_run(accepted.run_id, "completed")

    async with (
        serving(*(streaming([answer], cut=not answer.endswith(STOP)) for answer in answers)) as (url, seen),
        asking(url, patience, wire=MessagesWire(), protocol="messages", name="claude-opus-5") as model,
        house(folder, Lever("look", "pure")) as here,
    ):
        here.model.stream = model.stream  # type: ignore[method-assign]
        here.model.profile = model.profile
        session_id = await here.begin()
        for number in range(questions):
            await ask(here, session_id, f"Question {number}")
    return [plain(body) for body in seen.bodies]


async def test_thinking_stays_before_its_calls_through_a_run_and_the_next(tmp_path: Path) -> None:
    calls = ended("tool_use") + STOP
    answers = [LOOKS + calls, LOOKS_AGAIN + calls, ANSWERS + ended("end_turn") + STOP]
    sent = await talk(tmp_path, answers, questions=2)
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


async def test_an_answer_that_broke_off_goes_back_with_its_thinking_and_without_a_thought_that_led_nowhere(
    tmp_path: Path,
) -> None:
    broken = (
        START + thinking(0, "Hm.", "c2lnMQ==") + talking(1, "Roses are") + thinking(2, "And?", "c2lnMg==")
    )
    answers = [broken, ANSWERS + ended("end_turn") + STOP]
    sent = await talk(tmp_path, answers, questions=1)
    assert sent[1] == [
        ("user", [("Question 0",)]),
        ("assistant", [("Hm.", "c2lnMQ=="), ("Roses are",)]),
        ("user", [(GO_ON,)]),
    ]
