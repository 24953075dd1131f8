"""The model of the memory tests says only what it was given to read."""

import msgspec

from holdfast.domain.context.context import MEMORIES, MEMORIES_END
from holdfast.memory.extraction import conversation_chunks, format_prompt, parse_facts
from holdfast.memory.ports import SegmentMessage
from tests.support.memory_model_server import answer_from_facts, extract_facts
from tests.support.model_server import chunk

REMEMBER = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}


def extracted_facts(
    *said: tuple[str, str], known: dict[str, str] | None = None
) -> list[tuple[str, tuple[str, ...]]]:
    messages = [SegmentMessage(f"m_{n}", role, n, text) for n, (role, text) in enumerate(said)]  # type: ignore[arg-type]
    (go,) = conversation_chunks(messages)
    return [(fact.text, fact.replaces) for fact in parse_facts(extract_facts(format_prompt(known or {}, go)))]


def answer_to(*said: str) -> str:
    messages = [{"role": "user", "content": text} for text in said]
    body = {"messages": messages, "tools": [{"function": {"name": "remember", "parameters": REMEMBER}}]}
    pieces = answer_from_facts(body)
    assert pieces is not None
    events = [msgspec.json.decode(piece.removeprefix(b"data: ")) for piece in pieces]
    return "".join(each["choices"][0]["delta"].get("content", "") for each in events)


def test_it_finds_what_a_person_tells_of_themselves_and_nothing_else() -> None:
    found = extracted_facts(
        ("user", "Hello. My dog is called Rex, and I live in Lisbon, Portugal."),
        ("assistant", "I live in a computer. What is your cat called?"),
        ("user", "What is my cat called? I like green tea."),
    )
    assert [text for text, _ in found] == [
        "The user's dog is called Rex.",
        "The user lives in Lisbon, Portugal.",
        "The user likes green tea.",
    ]


def test_what_is_said_later_replaces_what_was_said_or_known() -> None:
    known = {"3": "The user's dog is called Bo.", "4": "The user lives in Lisbon."}
    found = extracted_facts(
        ("user", "My dog is called Rex. I live in Lisbon."), ("user", "My dog is Max."), known=known
    )
    assert found == [("The user's dog is Max.", ("3",))]


def test_it_knows_earlier_messages_and_recalled_memories() -> None:
    assert answer_to("My dog is called Rex.", "What is my dog called?") == (
        "You told me that your dog is called Rex."
    )
    reminded = f"{MEMORIES}\n- The user lives in Lisbon.{MEMORIES_END}\n\nWhere do I live?"
    assert answer_to(reminded) == "You told me that you live in Lisbon."


def test_it_does_not_know_what_it_was_not_given() -> None:
    assert answer_to("My dog is called Rex.", "What is my cat called?") == "I do not know your cat."


def test_it_calls_the_tool_that_it_is_given() -> None:
    body = {
        "messages": [{"role": "user", "content": "Remember that my dog is called Rex."}],
        "tools": [{"function": {"name": "remember", "parameters": REMEMBER}}],
    }
    first, last = answer_from_facts(body) or ()
    assert b"remember" in first
    assert b"my dog is called Rex." in first
    assert last == chunk({}, "tool_calls")
