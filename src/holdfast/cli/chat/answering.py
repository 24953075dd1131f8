"""Answers to what the agent asks, as they are typed: a letter, and what goes with it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.cli.chat.wire import Asked, Question
from holdfast.domain import slash
from holdfast.domain.facts import Decision
from holdfast.domain.questions import typed

Next = Literal["edit", "reason", "result"]


class Answer(msgspec.Struct, frozen=True):
    """What is to be sent about a call."""

    decision: Decision | Literal["answer"]
    scope: Literal["once", "session"] = "once"
    reason: str = ""
    result: str = ""
    arguments: str = ""
    text: str = ""
    choices: tuple[str, ...] = ()

    def body(self) -> dict[str, object]:
        """As a server takes it: only what goes with the decision."""
        told: dict[str, object] = {"decision": self.decision}
        if self.scope == "session":
            told["scope"] = self.scope
        for name in ("reason", "result", "arguments", "text", "choices"):
            if value := getattr(self, name):
                told[name] = value
        return told


class GoOn(msgspec.Struct, frozen=True):
    """The run is to go on."""


class AskMore(msgspec.Struct, frozen=True):
    """Something more is to be typed first."""

    what: Next


class Unclear(msgspec.Struct, frozen=True):
    """A letter that is none of the choices: nothing is sent."""


Typed = Answer | GoOn | AskMore | Unclear
_CHOICES: Mapping[str, str] = MappingProxyType({
    "approval": "a allow once · c allow in this conversation · e edit · d deny",
    "in_doubt": "r run it again · i it ran · s skip it",
    "limit": "g go on",
})  # fmt: skip


def choices(question: Question) -> str:
    """What may be typed, followed by Enter."""
    if question.asked is not None:
        told = "its number, or the numbers of several" if question.asked.multiple else "its number"
        return f"type {told if question.asked.choices else 'your answer'} · /deny leaves it unanswered"
    return _CHOICES.get(question.kind, "g go on")


def read_answer(line: str, question: Question) -> Typed | None:
    """What a line says about a question; None when it is a message and no answer."""
    if question.asked is not None:
        return _read_reply(line, question.asked)
    letter, _, rest = line.strip().partition(" ")
    letter, rest = letter.lower(), rest.strip()
    if len(letter) != 1 or not letter.isalpha() or (rest and letter not in ("d", "i")):
        return None
    match question.kind, letter:
        case "approval", "a":
            return Answer("approve")
        case "approval", "c":
            return Answer("approve", scope="session")
        case "approval", "e":
            return AskMore("edit")
        case "approval", "d":
            return Answer("deny", reason=rest) if rest else AskMore("reason")
        case "in_doubt", "r":
            return Answer("rerun")
        case "in_doubt", "i":
            return Answer("mark_done", result=rest)
        case "in_doubt", "s":
            return Answer("skip")
        case (("limit" | "question" | "client_tool"), "g"):
            return GoOn()
    return Unclear()


def _read_reply(line: str, asked: Asked) -> Typed | None:
    if slash.read(line) is not None:
        return None
    meant = typed(asked.choices, asked.multiple, line)
    if meant is not None:
        return Answer("answer", text=meant.text, choices=meant.choices)
    # Numbers that are not in the list are a slip; words that are not are a message.
    is_slip = bool(line.strip()) and all(each.isdecimal() or each in " ,;." for each in line.strip())
    return Unclear() if is_slip else None


def editable(question: Question) -> str:
    """What is offered to be changed: a shell's command as it stands, else the arguments."""
    given = _given(question)
    if question.name == "shell" and isinstance(given.get("command"), str):
        return str(given["command"])
    return question.arguments or "{}"


def edited(question: Question, text: str) -> str | None:
    """The arguments after a change, as JSON; None when that is no JSON object."""
    given = _given(question)
    if question.name == "shell" and isinstance(given.get("command"), str):
        return msgspec.json.encode({**given, "command": text}).decode()
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return None
    return text


def _given(question: Question) -> dict[str, object]:
    try:
        return msgspec.json.decode(question.arguments or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        return {}
