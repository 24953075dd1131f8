"""Ask a person a question, validate the answer, and settle the call.

A question is a tool call that only a person can carry out: it is intended like any other, shown to a person
while its run waits, and settled with the answer. These are decisions, as in `tools`.
"""

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from holdfast.domain.decisions import tools
from holdfast.domain.errors import AnswerRefused, TooLarge, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTION_CHARS_MAX, TEXT_BYTES_MAX
from holdfast.domain.shell.commands import UnreadableArguments, validate_arguments
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import SessionStateView

ASK_TOOL = "ask_user"
"""The tool whose calls are questions."""
DECLINED = "Not answered: the user chose not to answer."
MOVED_ON = "Not answered: the user moved on."
ENDED = "Not answered: the work ended before."
_CHOICES_MIN = 2
_SHOWN_CHARS_MAX = 80
_SEPARATOR = re.compile(r"\s*[,;\n]\s*")


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question to a person, as the model writes it."""

    question: Annotated[str, Meta(description="One question, complete in itself.")]
    choices: Annotated[
        tuple[str, ...] | None,
        Meta(description="Short answers to choose from. Left out, the user answers in their own words."),
    ] = None
    multiple: Annotated[bool, Meta(description="Whether several of the choices may be chosen.")] = False


class Reply(msgspec.Struct, frozen=True):
    """A person's answer: text, or some of the choices."""

    text: str = ""
    choices: tuple[str, ...] = ()


def validation_error(question: Question) -> str:
    """Return why the question is invalid, as a sentence for its author; an empty string if it is valid."""
    if not _visible_text(question.question):
        return "question: there is nothing in it"
    if len(question.question) > QUESTION_CHARS_MAX:
        return f"question: it is too long, at most {QUESTION_CHARS_MAX} characters"
    if question.choices is None:
        return "multiple: there are no choices of which several could be chosen" if question.multiple else ""
    if not _CHOICES_MIN <= len(question.choices) <= CHOICES_MAX:
        return f"choices: there must be {_CHOICES_MIN} to {CHOICES_MAX} of them, or none at all: leave it out"
    choices = [_one_line(choice) for choice in question.choices]
    if not all(map(_visible_text, choices)):
        return "choices: one of them is empty"
    if any(len(choice) > CHOICE_CHARS_MAX for choice in choices):
        return f"choices: one of them is too long, at most {CHOICE_CHARS_MAX} characters"
    if len({_visible_text(choice) for choice in choices}) < len(choices):
        return "choices: two of them are the same"
    return ""


def parse_question(arguments: str) -> Question | None:
    """Return the question in a call's arguments, as people see it; None if it is invalid."""
    try:
        question = msgspec.json.decode(validate_arguments(arguments), type=Question, strict=False)
    except (UnreadableArguments, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    if validation_error(question):
        return None
    return replace(
        question,
        question=question.question.strip(),
        choices=tuple(map(_one_line, question.choices)) if question.choices is not None else None,
    )


def ask(run: RunRow, tool: ToolRow, question: Question) -> list[f.AnyFact]:
    """Ask a person."""
    if tool.state != "intended" or tool.approval:
        raise ToolRefused(call_id=tool.id, state=tool.state, verb="be asked")
    return [f.QuestionAsked(run.id, tool.id, question.question, question.choices or (), question.multiple)]


def answer(
    view: SessionStateView, run: RunRow, tool: ToolRow, reply: Reply, key: str = ""
) -> list[f.AnyFact]:
    """Settle the call with a person's answer. Raises ToolRefused, AnswerRefused, TooLarge."""
    _check_open(tool, "be answered")
    question = parse_question(tools.call_arguments(tools.call_events(view, tool))) or Question("")
    reply = _validated(question, reply)
    answered = f.QuestionAnswered(run.id, tool.id, reply.text, reply.choices, key=key)
    return [answered, _settle(view, tool, "done", "\n".join(reply.choices) or reply.text)]


def decline(view: SessionStateView, run: RunRow, tool: ToolRow, reason: str = "") -> list[f.AnyFact]:
    """Settle the call as declined, with the reason for the model. Raises ToolRefused."""
    _check_open(tool, "be answered")
    text = f"{DECLINED} {reason}".rstrip()
    return [f.QuestionClosed(run.id, tool.id, "user", reason), _settle(view, tool, "not_run", text)]


def close(view: SessionStateView, run: RunRow, tool: ToolRow, by: f.Actor, settles: bool) -> list[f.AnyFact]:
    """Close a question whose run ends. `settles`: also settle the call, with an explanation."""
    closed: list[f.AnyFact] = [f.QuestionClosed(run.id, tool.id, by)]
    text = MOVED_ON if by == "user" else ENDED
    return [*closed, _settle(view, tool, "not_run", text)] if settles else closed


def is_open(tool: ToolRow) -> bool:
    """Return whether the call is a question that waits for its answer."""
    return tool.state == "intended" and tool.approval == "asked"


def parse_reply(choices: tuple[str, ...], multiple: bool, line: str) -> Reply | None:
    """Parse a typed line as an answer; return None if it is none.

    Without choices, any text is an answer. A line names a choice by its text or by its number in the list;
    text takes precedence.
    """
    line = line.strip()
    if not choices:
        return Reply(line) if line else None
    by_words = {choice.casefold(): choice for choice in choices}
    by_number = {str(number): choice for number, choice in enumerate(choices, 1)}
    folded_line = _one_line(line).casefold()
    if folded_line in by_words:
        return Reply(choices=(by_words[folded_line],))
    pieces = (
        folded_line.split() if folded_line.replace(" ", "").isdecimal() else _SEPARATOR.split(line.casefold())
    )
    named = [by_words.get(_one_line(piece), by_number.get(piece.strip().rstrip("."))) for piece in pieces]
    found = tuple(choice for choice in named if choice is not None)
    if len(found) < len(named) or not found or (len(set(found)) > 1 and not multiple):
        return None
    return Reply(choices=tuple(dict.fromkeys(found)))


def _validated(question: Question, reply: Reply) -> Reply:
    """Return the answer to store: choices in the order in which they are offered, without repeats."""
    size = len(reply.text.encode("utf-8", "surrogatepass"))
    if size > TEXT_BYTES_MAX:
        raise TooLarge(what="The answer", size=size, limit=TEXT_BYTES_MAX)
    if question.choices is None:
        if reply.choices:
            raise AnswerRefused(why="it offers no choices")
        if not reply.text.strip():
            raise AnswerRefused(why="there is nothing in the answer")
        return reply
    if reply.text.strip():
        raise AnswerRefused(why="it is answered by its choices")
    for choice in reply.choices:
        if choice not in question.choices:
            raise AnswerRefused(why=f"“{choice[:_SHOWN_CHARS_MAX]}” is not among its choices")
    chosen = tuple(choice for choice in question.choices if choice in reply.choices)
    if not chosen or (len(chosen) > 1 and not question.multiple):
        many = "at least one choice is" if question.multiple else "exactly one choice is"
        raise AnswerRefused(why=f"{many} wanted")
    return Reply("", chosen)


def _check_open(tool: ToolRow, verb: str) -> None:
    if not is_open(tool):
        raise ToolRefused(call_id=tool.id, state=tool.state, verb=verb)


def _settle(
    view: SessionStateView, tool: ToolRow, outcome: Literal["done", "not_run"], text: str
) -> f.ToolSettled:
    # Asking has no effect, whatever an imported journal says.
    return tools.settle(view, replace(tool, effect="pure"), outcome, parts=(Text(text),))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _visible_text(text: str) -> str:
    """Return a text as people compare it: case-folded, without outer white space or invisible characters."""
    return "".join(c for c in text.casefold() if c.isprintable()).strip()
