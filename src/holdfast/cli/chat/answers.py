"""Read the answers that people type to a question: a letter, and what goes with it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.cli.chat.wire import Asked, Question
from holdfast.domain import slash
from holdfast.domain.decisions.questions import typed
from holdfast.domain.errors import RuleRefused
from holdfast.domain.events.facts import Decision, Scope
from holdfast.domain.shell.rules import pattern_for

Next = Literal["edit", "reason", "result"]


class Answer(msgspec.Struct, frozen=True):
    """What is to be sent about a call."""

    decision: Decision | Literal["answer"]
    scope: Scope = "once"
    reason: str = ""
    result: str = ""
    arguments: str = ""
    text: str = ""
    choices: tuple[str, ...] = ()

    def body(self) -> dict[str, object]:
        """As a server takes it: only what goes with the decision."""
        told: dict[str, object] = {"decision": self.decision}
        if self.scope != "once":
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
_CHOICES: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "approval": {
        "a": "allow", "c": "allow in this conversation", "w": "always allow", "e": "edit", "d": "deny",
    },
    "in_doubt": {"r": "run it again", "i": "it finished", "s": "carry on without it"},
})  # fmt: skip
_GO_ON = MappingProxyType({"g": "go on"})
_ANSWER = MappingProxyType({"g": "answer it now"})
LETTERS = "acwedrisg"
"""Every letter that answers some question."""


def keys(question: Question) -> Mapping[str, str]:
    """Return the letters that answer a question by themselves, each with what it means."""
    if question.asked is not None:
        return {}
    offered = _CHOICES.get(question.kind, _ANSWER if question.unanswered else _GO_ON)
    if question.kind != "approval" or _can_last(question):
        return offered
    return {letter: meaning for letter, meaning in offered.items() if letter not in "cw"}


def choices(question: Question) -> str:
    """Return what may be typed: keys, or what goes before Enter."""
    if question.asked is not None:
        told = "its number, or the numbers of several" if question.asked.multiple else "its number"
        told = told if question.asked.choices else "your answer"
        return f"Type {told}, then Enter. /deny leaves it unanswered."
    told = "  ".join(f"[{letter}] {meaning}" for letter, meaning in keys(question).items())
    return f"{told}  /stop drops it" if question.unanswered else told


def meaning_of(line: str, question: Question) -> str:
    """Return what Enter would do with a line that was begun; nothing where the choices say it."""
    meant = read_answer(line, question)
    letter = line.strip()[:1].lower()
    if not line.strip() or slash.read(line) is not None or isinstance(meant, Unclear):
        return ""
    if question.asked is not None:
        return "" if meant is not None else "Enter sends this message and leaves the question unanswered."
    if meant is not None:
        return f"Enter answers: {keys(question)[letter]}"
    if question.unanswered:
        return "Enter sends this message. The one before it is answered first."
    return "Enter sends this message and denies this." if question.kind == "approval" else ""


def _can_last(question: Question) -> bool:
    """Return whether a yes can be given for more than this one call."""
    try:
        pattern_for(question.name or "", question.arguments or "", "")
    except RuleRefused:
        return False
    return not question.arguments_cut


def read_answer(line: str, question: Question) -> Typed | None:
    """What a line says about a question; None when it is a message and no answer."""
    if question.asked is not None:
        return _read_reply(line, question.asked)
    letter, _, rest = line.strip().partition(" ")
    letter, rest = letter.lower(), rest.strip()
    if len(letter) != 1 or not letter.isalpha() or (rest and letter not in ("d", "i")):
        return None
    if letter not in keys(question):
        return Unclear()
    match question.kind, letter:
        case "approval", "a":
            return Answer("approve")
        case "approval", "c":
            return Answer("approve", scope="session")
        case "approval", "w":
            return Answer("approve", scope="always")
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
    return GoOn()


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
    given = arguments_of(question)
    if question.name == "shell" and isinstance(given.get("command"), str):
        return str(given["command"])
    return question.arguments or "{}"


def edited(question: Question, text: str) -> str | None:
    """The arguments after a change, as JSON; None when that is no JSON object."""
    given = arguments_of(question)
    if question.name == "shell" and isinstance(given.get("command"), str):
        return msgspec.json.encode({**given, "command": text}).decode()
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return None
    return text


def arguments_of(question: Question) -> dict[str, object]:
    """Return a call's arguments by name; none where they cannot be read."""
    try:
        return msgspec.json.decode(question.arguments or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        return {}
