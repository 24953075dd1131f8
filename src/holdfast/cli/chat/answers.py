"""Parse the answers that people type to a question: a letter, and text that goes with it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.cli.chat.response_data import AgentQuestionData, QuestionData
from holdfast.domain import slash
from holdfast.domain.decisions.questions import parse_reply
from holdfast.domain.errors import RuleRefused
from holdfast.domain.events.facts import ApprovalScope, ToolDecision
from holdfast.domain.shell.rules import pattern_for

FollowUp = Literal["edit", "reason", "result"]


class QuestionAnswer(msgspec.Struct, frozen=True):
    """A decision about a tool call, to be sent to the server."""

    decision: ToolDecision | Literal["answer"]
    scope: ApprovalScope = "once"
    reason: str = ""
    result: str = ""
    arguments: str = ""
    text: str = ""
    choices: tuple[str, ...] = ()

    def body(self) -> dict[str, object]:
        """Return the request body: only the fields that go with the decision."""
        fields: dict[str, object] = {"decision": self.decision}
        if self.scope != "once":
            fields["scope"] = self.scope
        for name in ("reason", "result", "arguments", "text", "choices"):
            if value := getattr(self, name):
                fields[name] = value
        return fields


class ResumeRun(msgspec.Struct, frozen=True):
    """An answer that resumes the run."""


class NeedsFollowUp(msgspec.Struct, frozen=True):
    """An answer that needs more input first."""

    what: FollowUp


class UnclearAnswer(msgspec.Struct, frozen=True):
    """An answer that is none of the choices; nothing is sent."""


ParsedAnswer = QuestionAnswer | ResumeRun | NeedsFollowUp | UnclearAnswer
_KEYS_BY_KIND: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "approval": {
        "a": "allow", "c": "allow in this conversation", "w": "always allow", "e": "edit", "d": "deny",
    },
    "in_doubt": {"r": "run it again", "i": "it finished", "s": "carry on without it"},
})  # fmt: skip
_RESUME_KEYS = MappingProxyType({"g": "go on"})
_ANSWER_NOW_KEYS = MappingProxyType({"g": "answer it now"})
ANSWER_LETTERS = "acwedrisg"
"""The letters that answer any question."""


def answer_keys(question: QuestionData) -> Mapping[str, str]:
    """Return the letters that answer a question, each with its meaning."""
    if question.asked is not None:
        return {}
    available = _KEYS_BY_KIND.get(question.kind, _ANSWER_NOW_KEYS if question.unanswered else _RESUME_KEYS)
    if question.kind != "approval" or _can_allow_permanently(question):
        return available
    return {letter: meaning for letter, meaning in available.items() if letter not in "cw"}


def answer_hint(question: QuestionData) -> str:
    """Return the hint that says how to answer a question."""
    if question.asked is not None:
        hint = "its number, or the numbers of several" if question.asked.multiple else "its number"
        hint = hint if question.asked.choices else "your answer"
        return f"Type {hint}, then Enter. /deny leaves it unanswered."
    hint = "  ".join(f"[{letter}] {meaning}" for letter, meaning in answer_keys(question).items())
    return f"{hint}  /stop drops it" if question.unanswered else hint


def enter_hint(line: str, question: QuestionData) -> str:
    """Return the hint that says what Enter does with `line`; empty if the choices already say it."""
    answer = parse_answer(line, question)
    letter = line.strip()[:1].lower()
    if not line.strip() or slash.parse_command(line) is not None or isinstance(answer, UnclearAnswer):
        return ""
    if question.asked is not None:
        return "" if answer is not None else "Enter sends this message and leaves the question unanswered."
    if answer is not None:
        return f"Enter answers: {answer_keys(question)[letter]}"
    if question.unanswered:
        return "Enter sends this message. The one before it is answered first."
    return "Enter sends this message and denies this." if question.kind == "approval" else ""


def _can_allow_permanently(question: QuestionData) -> bool:
    """Return whether an approval can also cover later calls."""
    try:
        pattern_for(question.name or "", question.arguments or "", "")
    except RuleRefused:
        return False
    return not question.arguments_cut


def parse_answer(line: str, question: QuestionData) -> ParsedAnswer | None:
    """Return the answer that a line gives to a question; None if the line is a message."""
    if question.asked is not None:
        return _parse_reply(line, question.asked)
    letter, _, rest = line.strip().partition(" ")
    letter, rest = letter.lower(), rest.strip()
    if len(letter) != 1 or not letter.isalpha() or (rest and letter not in ("d", "i")):
        return None
    if letter not in answer_keys(question):
        return UnclearAnswer()
    match question.kind, letter:
        case "approval", "a":
            return QuestionAnswer("approve")
        case "approval", "c":
            return QuestionAnswer("approve", scope="session")
        case "approval", "w":
            return QuestionAnswer("approve", scope="always")
        case "approval", "e":
            return NeedsFollowUp("edit")
        case "approval", "d":
            return QuestionAnswer("deny", reason=rest) if rest else NeedsFollowUp("reason")
        case "in_doubt", "r":
            return QuestionAnswer("rerun")
        case "in_doubt", "i":
            return QuestionAnswer("mark_done", result=rest)
        case "in_doubt", "s":
            return QuestionAnswer("skip")
    return ResumeRun()


def _parse_reply(line: str, question: AgentQuestionData) -> ParsedAnswer | None:
    if slash.parse_command(line) is not None:
        return None
    reply = parse_reply(question.choices, question.multiple, line)
    if reply is not None:
        return QuestionAnswer("answer", text=reply.text, choices=reply.choices)
    # Numbers that are not in the list are a typing mistake; other words are a message.
    is_mistyped = bool(line.strip()) and all(char.isdecimal() or char in " ,;." for char in line.strip())
    return UnclearAnswer() if is_mistyped else None


def editable_text(question: QuestionData) -> str:
    """Return the text to edit: a shell's command, else the arguments as JSON."""
    arguments = parse_arguments(question)
    if question.name == "shell" and isinstance(arguments.get("command"), str):
        return str(arguments["command"])
    return question.arguments or "{}"


def edited_arguments(question: QuestionData, text: str) -> str | None:
    """Return the edited arguments as JSON; None if `text` is no JSON object."""
    arguments = parse_arguments(question)
    if question.name == "shell" and isinstance(arguments.get("command"), str):
        return msgspec.json.encode({**arguments, "command": text}).decode()
    try:
        msgspec.json.decode(text, type=dict[str, object])
    except msgspec.DecodeError:
        return None
    return text


def parse_arguments(question: QuestionData) -> dict[str, object]:
    """Return a call's arguments by name; none if they are not valid JSON."""
    try:
        return msgspec.json.decode(question.arguments or "{}", type=dict[str, object])
    except msgspec.DecodeError:
        return {}
