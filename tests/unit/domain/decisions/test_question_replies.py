"""What can be asked, what a typed line answers; nothing that anybody writes is an exception."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.decisions.questions import Question, Reply, parse_question, parse_reply, validation_error
from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import CallId
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTION_CHARS_MAX
from holdfast.tools.ask_user import AskUserTool
from holdfast.tools.ports import ToolRun

COLOURS = ("Red", "Green", "Dark blue")


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("2", ("Green",)),
        (" 2. ", ("Green",)),
        ("green", ("Green",)),
        ("dark  BLUE", ("Dark blue",)),
        ("0", None),
        ("4", None),
        ("22", None),
        ("1 2", None),
        ("red, green", None),
        ("red please", None),
        ("", None),
        ("2, 2", ("Green",)),
    ],
)
def test_a_choice_is_named_by_number_or_text(line: str, chosen: tuple[str, ...] | None) -> None:
    assert parse_reply(COLOURS, False, line) == (Reply(choices=chosen) if chosen else None)


@pytest.mark.parametrize(
    ("line", "chosen"),
    [
        ("1 3", ("Red", "Dark blue")),
        ("1,3", ("Red", "Dark blue")),
        ("3; red", ("Dark blue", "Red")),
        ("red\ngreen", ("Red", "Green")),
        ("1, pink", None),
        ("13", None),
        (",", None),
    ],
)
def test_several_choices_are_named_at_once(line: str, chosen: tuple[str, ...] | None) -> None:
    assert parse_reply(COLOURS, True, line) == (Reply(choices=chosen) if chosen else None)


def test_a_choice_that_is_a_number_is_meant_by_it() -> None:
    assert parse_reply(("2", "1"), False, "1") == Reply(choices=("1",))


@pytest.mark.parametrize(
    ("question", "choices", "said"),
    [
        ("\u200b\u2060", None, "there is nothing in it"),
        ("Which?", ("\u200b", "Red"), "one of them is empty"),
        ("Which?", ("Red", "R\u200bed"), "two of them are the same"),
        ("Which?", ("Red", "\u202ered\u202c"), "two of them are the same"),
    ],
)
def test_invisible_characters_do_not_distinguish_choices(
    question: str, choices: tuple[str, ...] | None, said: str
) -> None:
    assert said in validation_error(Question(question, choices))


def test_any_text_answers_a_question_without_choices() -> None:
    assert parse_reply((), False, " 2 ") == Reply("2") and parse_reply((), False, " \n") is None


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=25) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=30,
)
_ARGUMENTS = st.one_of(
    st.text(),
    _ANYTHING.map(lambda each: msgspec.json.encode(each).decode()),
    st.fixed_dictionaries(
        {"question": _ANYTHING | st.text(min_size=1)},
        optional={"choices": _ANYTHING | st.lists(st.text(), max_size=30), "multiple": _ANYTHING},
    ).map(lambda each: msgspec.json.encode(each).decode()),
)


@given(_ARGUMENTS)
def test_any_model_arguments_give_a_question_or_a_failed_result(arguments: str) -> None:
    question = parse_question(arguments)
    if question is not None:
        assert not validation_error(question) and 0 < len(question.question) <= QUESTION_CHARS_MAX
        choices = question.choices or ()
        assert len(choices) <= CHOICES_MAX and all(0 < len(each) <= CHOICE_CHARS_MAX for each in choices)
        for number, choice in enumerate(choices, 1):
            assert parse_reply(choices, False, choice) == Reply(choices=(choice,))
            by_number = parse_reply(choices, False, str(number))
            assert by_number is not None and len(by_number.choices) == 1
        return
    call = ToolRun(CallId("c"), arguments, Path("/"), lambda text, stream: None)
    result = asyncio.run(AskUserTool().run(call))
    assert result.outcome == "failed" and result.parts is not None and message_text(result.parts)


@given(
    st.lists(st.text(min_size=1).map(lambda text: " ".join(text.split())).filter(bool), max_size=6), st.text()
)
def test_a_typed_reply_only_names_offered_choices(choices: list[str], line: str) -> None:
    for multiple in (False, True):
        reply = parse_reply(tuple(choices), multiple, line)
        assert reply is None or set(reply.choices) <= set(choices)


def test_a_question_is_shown_without_extra_whitespace() -> None:
    arguments = msgspec.json.encode({"question": " Which?\n", "choices": [" a\tb ", "c"]}).decode()
    assert parse_question(arguments) == Question("Which?", ("a b", "c"))
