"""Format questions for a chat: their text, their buttons, and what can be typed instead."""

import re

import msgspec

from holdfast.channels.button_action import ActionVerb, ButtonAction
from holdfast.domain.chats import Button
from holdfast.domain.errors import RuleRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Seq
from holdfast.domain.shell.commands import call_command
from holdfast.domain.shell.rules import pattern_for
from holdfast.domain.transcript.labels import IN_DOUBT_LABEL

_CODE_CHARS_MAX = 1_000
_ANSWER_CHARS_MAX = 200
_LABEL_CHARS_MAX = 40
_DEFAULT_TYPING_HINT = "Type /approve or /deny."
TYPE_SEVERAL_NUMBERS = "It may be several: type their numbers, such as 1, 2."
TYPE_ANSWER = "Write your answer, or /deny to leave it."
TOO_LONG = "It is too long to show here; allow it in the page."


class ChatQuestion(msgspec.Struct, frozen=True):
    """A question in a chat.

    `closed_text` is added if it closes without an answer. `resumed_text` replaces a question whether to
    resume.
    """

    source: str
    run_id: str
    call_id: str
    text: str
    buttons: tuple[Button, ...]
    typing_hint: str = _DEFAULT_TYPING_HINT
    closed_text: str = "No longer asked."
    resumed_text: str = ""


def approval_question(fact: f.ApprovalRequested, call: f.ToolIntended | None) -> ChatQuestion:
    """Return the question whether to allow a call."""
    text = _with_code(_approval_title(call), call)
    if fact.reason:
        text += f"\n\n{fact.reason}"
    labels: list[tuple[str, ActionVerb]] = [
        ("Allow once", "allow"),
        ("Always here", "always"),
        ("Deny", "deny"),
    ]
    if call is not None and not _can_become_rule(call):
        del labels[1]
    typing_hint = _DEFAULT_TYPING_HINT
    if call is not None and is_too_long(call.name, call.arguments):
        # Nobody should approve what they cannot read.
        labels, typing_hint = [("Deny", "deny")], "Type /deny if it is not to be done."
    buttons = _call_buttons(fact.run_id, fact.call_id, labels)
    return ChatQuestion(
        f"ask:{fact.run_id}:{fact.call_id}", fact.run_id, fact.call_id, text, buttons, typing_hint
    )


def doubt_question(fact: f.ToolInDoubt, call: f.ToolIntended | None, seq: Seq) -> ChatQuestion:
    """Return the question about a call in doubt. A call may be in doubt repeatedly, so its name has `seq`."""
    labels: list[tuple[str, ActionVerb]] = [
        ("Run again", "rerun"),
        ("It finished", "ran"),
        ("Carry on without it", "skip"),
    ]
    buttons = _call_buttons(fact.run_id, fact.call_id, labels)
    typing_hint = "Type /approve to run it again, or /deny to carry on without it."
    if call is not None and is_too_long(call.name, call.arguments):
        buttons, typing_hint = buttons[1:], "Type /deny to carry on without it."
    source = f"doubt:{seq}:{fact.call_id}"
    text = _with_code(f"{IN_DOUBT_LABEL} Did it finish?", call)
    return ChatQuestion(source, fact.run_id, fact.call_id, text, buttons, typing_hint)


def agent_question(fact: f.QuestionAsked) -> ChatQuestion:
    """Return the agent's question. Its choices are numbered, so that the numbers can be typed."""
    listed = "\n".join(f"{n}. {choice}" for n, choice in enumerate(fact.choices, 1))
    # Buttons cannot select several choices, so this hint is shown with and without buttons.
    hint = (TYPE_SEVERAL_NUMBERS if fact.multiple else "") if fact.choices else TYPE_ANSWER
    text = "\n\n".join(filter(None, (fact.question, listed, hint)))
    typing_hint = "Type its number." if fact.choices and not fact.multiple else ""
    buttons = tuple(
        Button(_label(choice), str(ButtonAction("pick", fact.run_id, fact.call_id, str(n))))
        for n, choice in enumerate(fact.choices, 1)
    )
    source = f"question:{fact.run_id}:{fact.call_id}"
    return ChatQuestion(source, fact.run_id, fact.call_id, text, buttons, typing_hint, "Not answered.")


def limit_question(fact: f.RunWaiting, seq: Seq) -> ChatQuestion:
    """Return the question whether to continue past a limit."""
    detail = f": {fact.detail}" if fact.detail else ""
    buttons = (
        Button("Continue", str(ButtonAction("go", fact.run_id))),
        Button("Stop", str(ButtonAction("stop", fact.run_id))),
    )
    typing_hint = "Type /approve to continue, or /stop."
    text, resumed_text = f"Paused at its limit{detail}.", "Going on past its limit."
    return ChatQuestion(
        f"limit:{seq}", fact.run_id, "", text, buttons, typing_hint, resumed_text=resumed_text
    )


def restart_question(fact: f.RunInterrupted) -> ChatQuestion:
    """Return the question whether to resume after a restart.

    If the run resumes by itself, `resumed_text` replaces the question a moment later.
    """
    buttons = (Button("Continue", str(ButtonAction("go", fact.run_id))),)
    text = "Interrupted by a server restart."
    typing_hint, resumed_text = "Type /approve to continue.", "Continued after a restart."
    source = f"restart:{fact.message_id}"
    return ChatQuestion(
        source, fact.run_id, "", text, buttons, typing_hint, "It was left there.", resumed_text
    )


def approval_outcome_text(fact: f.ApprovalResolved) -> str:
    if fact.decision == "deny":
        return f"Not allowed: {fact.reason}" if fact.reason else "Not allowed."
    return {"once": "Allowed.", "session": "Always allowed here.", "always": "Always allowed."}[fact.scope]


def answer_outcome_text(fact: f.QuestionAnswered) -> str:
    text = " ".join((", ".join(fact.choices) or fact.text).split())
    return f"Answered: {text if len(text) <= _ANSWER_CHARS_MAX else text[:_ANSWER_CHARS_MAX] + '…'}"


def closed_outcome_text(fact: f.QuestionClosed) -> str:
    return f"Not answered: {fact.reason[:_ANSWER_CHARS_MAX]}" if fact.reason else "Not answered."


def doubt_outcome_text(fact: f.ToolResolved) -> str:
    outcomes = {"rerun": "Run again.", "mark_done": "It finished.", "skip": "Carried on without it."}
    return outcomes.get(fact.decision, "")


def fenced(text: str) -> str:
    """Return `text` as a code block with a fence longer than any inside it."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}\n{text}\n{mark}"


def _approval_title(call: f.ToolIntended | None) -> str:
    known = {"shell": "Run this command?", "write_file": "Write this file?", "edit_file": "Change this file?"}
    return "Allow this?" if call is None else known.get(call.name, f"Allow `{call.name}`?")


def _with_code(title: str, call: f.ToolIntended | None) -> str:
    if call is None:
        return title
    code = _code(call.name, call.arguments)
    if len(code) > _CODE_CHARS_MAX:
        return f"{title}\n\n{fenced(code[:_CODE_CHARS_MAX] + '…')}\n\n{TOO_LONG}"
    return f"{title}\n\n{fenced(code)}"


def is_too_long(name: str, arguments: str) -> bool:
    """Return whether a call is too long to show whole in a chat, and so to approve there."""
    return len(_code(name, arguments)) > _CODE_CHARS_MAX


def _code(name: str, arguments: str) -> str:
    command = call_command(name, arguments)
    return command if command is not None else f"{name} {arguments}"


def _label(choice: str) -> str:
    return choice if len(choice) <= _LABEL_CHARS_MAX else choice[:_LABEL_CHARS_MAX] + "…"


def _call_buttons(run_id: str, call_id: str, labels: list[tuple[str, ActionVerb]]) -> tuple[Button, ...]:
    return tuple(Button(label, str(ButtonAction(verb, run_id, call_id))) for label, verb in labels)


def _can_become_rule(call: f.ToolIntended) -> bool:
    try:
        pattern_for(call.name, call.arguments, "")
    except RuleRefused:
        return False
    return True
