"""The questions that a chat shows: their text, their choices, and what can be typed instead."""

import re

import msgspec

from holdfast.channels.button_action import Press, Verb
from holdfast.domain.chats import Button
from holdfast.domain.errors import RuleRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Seq
from holdfast.domain.shell.commands import command_of
from holdfast.domain.shell.rules import pattern_for
from holdfast.domain.transcript.labels import MAY_HAVE_RUN

_SHOWN_CHARS_MAX = 1_000
_ANSWER_CHARS_MAX = 200
_LABEL_CHARS_MAX = 40
_TYPED = "Type /approve or /deny."
SEVERAL = "It may be several: type their numbers, such as 1, 2."
IN_WORDS = "Write your answer, or /deny to leave it."
TOO_LONG = "It is too long to show here; allow it in the page."


class Question(msgspec.Struct, frozen=True):
    """`otherwise` is said of it when it is over without an answer; `going_on` in its place, where it asks
    whether to."""

    source: str
    run_id: str
    call_id: str
    text: str
    buttons: tuple[Button, ...]
    typed: str = _TYPED
    otherwise: str = "No longer asked."
    going_on: str = ""


def about_allowing(fact: f.ApprovalRequested, call: f.ToolIntended | None) -> Question:
    """May a call be made?"""
    text = _shown(_asks(call), call)
    if fact.reason:
        text += f"\n\n{fact.reason}"
    labels: list[tuple[str, Verb]] = [("Allow once", "allow"), ("Always here", "always"), ("Deny", "deny")]
    if call is not None and not _can_be_a_rule(call):
        del labels[1]
    typed = _TYPED
    if call is not None and is_too_long(call.name, call.arguments):
        # Nobody says yes to what they cannot read.
        labels, typed = [("Deny", "deny")], "Type /deny if it is not to be done."
    buttons = _of_call(fact.run_id, fact.call_id, labels)
    return Question(f"ask:{fact.run_id}:{fact.call_id}", fact.run_id, fact.call_id, text, buttons, typed)


def about_doubt(fact: f.ToolInDoubt, call: f.ToolIntended | None, seq: Seq) -> Question:
    """What became of a call? It can be asked again about the same one, so `seq` is part of its name."""
    labels: list[tuple[str, Verb]] = [
        ("Run again", "rerun"),
        ("It finished", "ran"),
        ("Carry on without it", "skip"),
    ]
    buttons = _of_call(fact.run_id, fact.call_id, labels)
    typed = "Type /approve to run it again, or /deny to carry on without it."
    if call is not None and is_too_long(call.name, call.arguments):
        buttons, typed = buttons[1:], "Type /deny to carry on without it."
    source = f"doubt:{seq}:{fact.call_id}"
    text = _shown(f"{MAY_HAVE_RUN} Did it finish?", call)
    return Question(source, fact.run_id, fact.call_id, text, buttons, typed)


def about_question(fact: f.QuestionAsked) -> Question:
    """What the agent wants to know. Its choices are numbered: they can be typed as well."""
    listed = "\n".join(f"{n}. {choice}" for n, choice in enumerate(fact.choices, 1))
    # Of several no button can tell: that they can be typed is said with and without buttons.
    hint = (SEVERAL if fact.multiple else "") if fact.choices else IN_WORDS
    text = "\n\n".join(filter(None, (fact.question, listed, hint)))
    typed = "Type its number." if fact.choices and not fact.multiple else ""
    buttons = tuple(
        Button(_label(choice), str(Press("pick", fact.run_id, fact.call_id, str(n))))
        for n, choice in enumerate(fact.choices, 1)
    )
    source = f"question:{fact.run_id}:{fact.call_id}"
    return Question(source, fact.run_id, fact.call_id, text, buttons, typed, "Not answered.")


def about_limit(fact: f.RunWaiting, seq: Seq) -> Question:
    """May it go on past what it may use?"""
    detail = f": {fact.detail}" if fact.detail else ""
    buttons = (
        Button("Continue", str(Press("go", fact.run_id))),
        Button("Stop", str(Press("stop", fact.run_id))),
    )
    typed = "Type /approve to continue, or /stop."
    text, going_on = f"Paused at its limit{detail}.", "Going on past its limit."
    return Question(f"limit:{seq}", fact.run_id, "", text, buttons, typed, going_on=going_on)


def about_restart(fact: f.RunInterrupted) -> Question:
    """Shall it go on? It is said also where that needs no answer: a moment later it says that it does."""
    buttons = (Button("Continue", str(Press("go", fact.run_id))),)
    text = "Interrupted by a server restart."
    typed, going_on = "Type /approve to continue.", "Continued after a restart."
    source = f"restart:{fact.message_id}"
    return Question(source, fact.run_id, "", text, buttons, typed, "It was left there.", going_on)


def said_of_approval(fact: f.ApprovalResolved) -> str:
    if fact.decision == "deny":
        return f"Not allowed: {fact.reason}" if fact.reason else "Not allowed."
    return {"once": "Allowed.", "session": "Always allowed here.", "always": "Always allowed."}[fact.scope]


def said_of_answer(fact: f.QuestionAnswered) -> str:
    words = " ".join((", ".join(fact.choices) or fact.text).split())
    return f"Answered: {words if len(words) <= _ANSWER_CHARS_MAX else words[:_ANSWER_CHARS_MAX] + '…'}"


def said_of_closing(fact: f.QuestionClosed) -> str:
    return f"Not answered: {fact.reason[:_ANSWER_CHARS_MAX]}" if fact.reason else "Not answered."


def said_of_doubt(fact: f.ToolResolved) -> str:
    said = {"rerun": "Run again.", "mark_done": "It finished.", "skip": "Carried on without it."}
    return said.get(fact.decision, "")


def fenced(text: str) -> str:
    """`text` as code that nothing inside it can end."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}\n{text}\n{mark}"


def _asks(call: f.ToolIntended | None) -> str:
    known = {"shell": "Run this command?", "write_file": "Write this file?", "edit_file": "Change this file?"}
    return "Allow this?" if call is None else known.get(call.name, f"Allow `{call.name}`?")


def _shown(words: str, call: f.ToolIntended | None) -> str:
    if call is None:
        return words
    code = _code(call.name, call.arguments)
    if len(code) > _SHOWN_CHARS_MAX:
        return f"{words}\n\n{fenced(code[:_SHOWN_CHARS_MAX] + '…')}\n\n{TOO_LONG}"
    return f"{words}\n\n{fenced(code)}"


def is_too_long(name: str, arguments: str) -> bool:
    """Whether a call cannot be shown whole in a chat, so that nobody can allow it there."""
    return len(_code(name, arguments)) > _SHOWN_CHARS_MAX


def _code(name: str, arguments: str) -> str:
    command = command_of(name, arguments)
    return command if command is not None else f"{name} {arguments}"


def _label(choice: str) -> str:
    return choice if len(choice) <= _LABEL_CHARS_MAX else choice[:_LABEL_CHARS_MAX] + "…"


def _of_call(run_id: str, call_id: str, labels: list[tuple[str, Verb]]) -> tuple[Button, ...]:
    return tuple(Button(label, str(Press(verb, run_id, call_id))) for label, verb in labels)


def _can_be_a_rule(call: f.ToolIntended) -> bool:
    try:
        pattern_for(call.name, call.arguments, "")
    except RuleRefused:
        return False
    return True
