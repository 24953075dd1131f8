"""Render the conversation: printed items with rich, and the live area below as styled pieces.

All text of a conversation passes through `safe_text` and the secret mask here.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from types import MappingProxyType

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text as Styled

from holdfast.cli.chat.answers import answer_hint, parse_arguments
from holdfast.cli.chat.response_data import AgentQuestionData, QuestionData
from holdfast.cli.chat.safe_text import one_line, safe
from holdfast.cli.chat.view_model import (
    ConversationViewModel,
    FinishedToolCall,
    MarkdownBlock,
    Notice,
    OpenToolCall,
    PrintedItem,
    ThinkingText,
    UserMessageItem,
    format_message_count,
)
from holdfast.cli.format import format_count
from holdfast.cli.markdown_rendering import render_markdown
from holdfast.domain.agents import MAIN_AGENT
from holdfast.domain.secrets import MaskFunction
from holdfast.domain.transcript.labels import IN_DOUBT_LABEL, STATUS_LABELS, display_title

StyledPieces = list[tuple[str, str]]
"""Pairs of a style and a text, as prompt_toolkit expects them."""
ARGUMENTS_CHARS_MAX = 60
THOUGHT_CHARS_MAX = 100
OUTPUT_LINES_MAX = 3
LIVE_LINES_MAX = 10
QUESTION_LINES_MAX = 12
PATH_CHARS_MAX = 200
WAITING_MESSAGES_MAX = 3
AGENT_CHARS_MAX = 40
TITLE_CHARS_MIN = 8
"""With less room, the toolbar omits the title."""
DEFAULT_COLUMNS = 200
_OUTCOME_MARKS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "denied": ("⊘", "yellow"),
    "not_run": ("-", "dim"),
})  # fmt: skip
_DIFF_SIGNS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "write_file": {"content": "+"},
    "edit_file": {"old_text": "-", "new_text": "+"},
})  # fmt: skip
"""The arguments that are shown as added and removed lines."""
_FAILED_OUTCOMES = frozenset({"failed", "unknown"})


class Renderer:
    """A renderer for a terminal of any width, which removes the secrets that `mask` knows."""

    def __init__(self, mask: MaskFunction) -> None:
        self._mask = mask

    def render_items(self, items: Sequence[PrintedItem], columns: int) -> str:
        """Return the items as text with terminal escape codes."""
        out = StringIO()
        console = Console(
            file=out,
            force_terminal=True,
            color_system="standard",
            width=columns,
            highlight=False,
            legacy_windows=False,
        )
        for item in items:
            for part in self._render_item(item, columns):
                console.print(part)
        return out.getvalue()

    def _render_item(self, item: PrintedItem, columns: int) -> Iterator[RenderableType]:
        match item:
            case UserMessageItem():
                yield Styled()
                yield self._render_user_message(item, columns)
            case MarkdownBlock():
                yield Styled()
                yield render_markdown(self._safe(item.text), columns)
            case ThinkingText():
                line = one_line(self._mask(item.text), min(THOUGHT_CHARS_MAX, columns - 4))
                yield Styled(f"  ∴ {line}", style="dim italic")
            case FinishedToolCall():
                yield self._render_tool_call(item, columns)
            case Notice(plain=True):
                yield Styled(f"  {_hanging_indent(self._safe(item.text), columns, 2)}", style="dim")
            case Notice():
                when = datetime.fromtimestamp(item.at / 1000).strftime(", %H:%M") if item.at else ""
                text = _hanging_indent(f"— {self._safe(item.text)}{when} —", columns, 2, 4)
                yield Styled(f"  {text}", style="red" if item.bad else "yellow")

    def _render_user_message(self, message: UserMessageItem, columns: int) -> Styled:
        text = Styled()
        text.append("> ", style="bold cyan")
        text.append(_hanging_indent(self._safe(message.text).rstrip("\n"), columns, 2), style="bold")
        for name in message.files:
            text.append(f"\n  + {one_line(self._mask(name), ARGUMENTS_CHARS_MAX)}", style="cyan")
        return text

    def _render_tool_call(self, call: FinishedToolCall, columns: int) -> Styled:
        mark, colour = _OUTCOME_MARKS.get(call.outcome, ("?", "yellow"))
        line = Styled()
        line.append(f"  {mark} ", style=colour)
        line.append(tool_line(self._mask(call.name), self._mask(call.arguments), columns - 20))
        if call.ms:
            line.append(f" · {format_duration(call.ms)}", style="dim")
        if call.outcome == "unknown":
            line.append(f"\n    {IN_DOUBT_LABEL}", style="yellow")
        output_lines = [each for each in self._safe(call.output).split("\n") if each.strip()]
        for each in output_lines[-OUTPUT_LINES_MAX:]:
            style = "red" if call.outcome in _FAILED_OUTCOMES else "dim"
            line.append(f"\n    {one_line(each, max(10, columns - 6))}", style=style)
        return line

    def render_live(
        self,
        conversation: ConversationViewModel,
        columns: int,
        rows: int,
        now_ms: int,
        keys: str | None = None,
    ) -> StyledPieces:
        """Return the live area from the top down: the end of streamed text, open calls, the question.

        `keys` replaces the question's hint.
        """
        lines_max = max(2, min(LIVE_LINES_MAX, rows // 3))
        pieces: StyledPieces = []
        for message in conversation.streaming.values():
            if message.thinking and not message.text:
                line = one_line(self._mask(message.thinking)[-4 * columns :], 4 * columns)
                pieces.append(("class:thinking", f"  ∴ {line[-(columns - 6) :]}\n"))
            ends = _wrap(self._safe(message.rest).rstrip("\n"), max(10, columns - 4))[-lines_max:]
            pieces += [("", f"  {line}\n") for line in ends if message.rest.strip()]
        for stopped in conversation.interruption_notices:
            pieces.append(("class:notice", f"  {_hanging_indent(f'— {stopped} —', columns, 2, 4)}\n"))
        for call in conversation.open_calls.values():
            pieces += self._render_open_call(call, columns, now_ms)
        if conversation.pending_questions:
            pieces += self._render_questions(conversation.pending_questions, columns, rows, keys)
        return pieces

    def _render_open_call(self, call: OpenToolCall, columns: int, now_ms: int) -> StyledPieces:
        if call.is_asked or not call.started_at:
            return []
        elapsed = format_duration(max(0, now_ms - call.started_at) // 1000 * 1000)
        line = tool_line(self._mask(call.name), self._mask(call.arguments), columns - 20)
        ends = [each for each in self._safe(call.output).split("\n") if each.strip()][-OUTPUT_LINES_MAX:]
        return [
            ("class:tool", f"  … {line} · {elapsed}\n"),
            *(("class:dim", f"    {one_line(each, max(10, columns - 6))}\n") for each in ends),
        ]

    def _render_questions(
        self, questions: tuple[QuestionData, ...], columns: int, rows: int, keys: str | None
    ) -> StyledPieces:
        """Render the first question in full, so that people see what they allow."""
        first = questions[0]
        pieces: StyledPieces = [
            ("class:question", f"  {_hanging_indent(question_text(first, self._mask), columns, 2)}\n")
        ]
        lines_max = max(3, min(QUESTION_LINES_MAX, rows // 2))
        if first.asked is not None:
            pieces += [
                ("class:command", f"    {line}\n")
                for each in numbered_choices(first.asked)
                for line in _wrap(self._safe(each), max(10, columns - 6))
            ]
        elif first.arguments is not None:
            pieces += _fit_rows(format_proposed_call(first, self._mask), max(10, columns - 6), lines_max)
            if first.arguments_cut:
                pieces.append(("class:dim", "    … and more that is too long to show here\n"))
        if first.reason and first.kind == "approval":
            pieces += [
                ("class:dim", f"    {line}\n") for line in _wrap(self._safe(first.reason), columns - 6)
            ]
        more = f"  ({len(questions) - 1} more)" if len(questions) > 1 else ""
        # Never shortened: the hint must always include the key that denies.
        hint = answer_hint(first) if keys is None else keys
        pieces.append(("class:choices", f"  {_hanging_indent(hint + more, columns, 2)}\n"))
        return pieces

    def render_waiting(self, texts: Sequence[str], columns: int) -> StyledPieces:
        """Render messages that are queued or not sent yet."""
        lines = [one_line(self._mask(text), max(10, columns - 10)) for text in texts[-WAITING_MESSAGES_MAX:]]
        return [("class:dim", f"  ⧖ {line}\n") for line in lines]

    def render_toolbar(
        self,
        conversation: ConversationViewModel,
        is_connected: bool,
        unsent: int,
        agents: int = 1,
        columns: int = DEFAULT_COLUMNS,
    ) -> str:
        """Return the toolbar: the title, the agent if there are several, the model and the state.

        If there is not enough room, only the state remains.
        """
        state = (
            STATUS_LABELS[conversation.status].lower()
            if is_connected
            else "the server has gone; looking for it"
        )
        if is_connected and conversation.unanswered:
            state += f": {format_message_count(len(conversation.unanswered)).lower()} not answered yet"
        unsent_text = f" · {unsent} to be sent" if unsent else ""
        agent = conversation.agent or MAIN_AGENT
        answering = (
            [one_line(self._mask(agent), AGENT_CHARS_MAX)] if agents > 1 or agent != MAIN_AGENT else []
        )
        answering += [one_line(self._mask(conversation.model), 40)] if conversation.model else []
        title = self._mask(display_title(conversation.title, conversation.opening))
        parts = [*answering, state + unsent_text]
        while len(parts) > 1 and columns - _toolbar_width(parts) < TITLE_CHARS_MIN:
            parts.pop(0)
        room = columns - _toolbar_width(parts)
        return " " + " · ".join(
            [one_line(title, min(50, room)), *parts] if room >= TITLE_CHARS_MIN else parts
        )

    def _safe(self, text: str) -> str:
        return safe(self._mask(text))


def tool_line(name: str, arguments: str, chars_max: int) -> str:
    """Return a call on one line: its name and its arguments."""
    about = one_line(format_arguments(name, arguments), max(10, min(ARGUMENTS_CHARS_MAX, chars_max)))
    return f"{one_line(name, 30)}  {about}".rstrip()


def format_arguments(name: str, arguments: str) -> str:
    """Return the arguments for people: a shell command as it is, else names and values."""
    try:
        decoded = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments
    if not isinstance(decoded, dict):
        return arguments
    if name == "shell" and list(decoded) == ["command"]:
        return str(decoded["command"])
    if len(decoded) == 1:
        return _format_value(next(iter(decoded.values())))
    return "\n".join(f"{key}: {_format_value(value)}" for key, value in decoded.items())


def _format_value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def format_proposed_call(question: QuestionData, mask: MaskFunction) -> StyledPieces:
    """Return the styled lines that show what a call would do; a file change as a diff."""
    arguments, name = parse_arguments(question), question.name or ""
    signs = _DIFF_SIGNS.get(name, {})
    texts = [(sign, arguments.pop(key)) for key, sign in signs.items() if isinstance(arguments.get(key), str)]
    if not signs or len(texts) < len(signs):
        argument_text = mask(format_arguments(name, question.arguments or ""))
        return [("class:command", line) for line in safe(argument_text).split("\n")]
    path = arguments.get("path")
    if isinstance(path, str) and path.strip() and _short_path(path) == path:
        del arguments["path"]  # The question already shows it.
    argument_text = mask("\n".join(f"{key}: {_format_value(value)}" for key, value in arguments.items()))
    pieces: StyledPieces = [
        ("class:command", line) for line in safe(argument_text).split("\n") if argument_text
    ]
    for sign, text in texts:
        pieces += _diff_lines(sign, mask(str(text)))
    return pieces or [("class:dim", "(an empty file)")]


def _diff_lines(sign: str, text: str) -> StyledPieces:
    style = "class:added" if sign == "+" else "class:removed"
    lines = safe(text).removesuffix("\n").split("\n") if text else []
    return [(style, f"{sign} {line}") for line in lines]


def _short_path(path: str) -> str:
    return one_line(path, PATH_CHARS_MAX)


def _fit_rows(lines: StyledPieces, columns: int, rows_max: int) -> StyledPieces:
    """Return the wrapped lines that fit, and a line that counts the rest."""
    pieces: StyledPieces = []
    for at, (style, text) in enumerate(lines):
        parts, room = _wrap(text, columns) or [""], rows_max - len(pieces)
        pieces += [(style, f"    {part}\n") for part in parts[:room]]
        if len(parts) > room:
            more = format_count(len(lines) - at, "more line")
            return [*pieces, ("class:dim", f"    … {more}; /status shows all\n")]
    return pieces


def numbered_choices(question: AgentQuestionData) -> list[str]:
    """Return the agent's question and its numbered choices."""
    return [question.question, *(f"{n}. {choice}" for n, choice in enumerate(question.choices, 1))]


def question_text(question: QuestionData, mask: MaskFunction) -> str:
    """Return the question as a sentence."""
    if question.asked is not None:
        return "It asks you:"
    name = one_line(mask(question.name or ""), 30)
    match question.kind:
        case "approval":
            return _approval_text(question, name, mask)
        case "in_doubt":
            return f"{name}: the server stopped while this was running. Did it finish?"
        case "limit":
            return f"It has reached its limit: {one_line(mask(question.reason), 60)}. Go on?"
        case _:
            return one_line(mask(question.reason), 60) or "It waits for you."


def _approval_text(question: QuestionData, name: str, mask: MaskFunction) -> str:
    path = parse_arguments(question).get("path")
    if name in ("write_file", "edit_file") and isinstance(path, str) and path.strip():
        return f"{'Write' if name == 'write_file' else 'Change'} {_short_path(mask(path))}?"
    return "Run this command?" if name == "shell" else f"Allow {name}?"


def format_duration(ms: int) -> str:
    """Return a duration such as `0.3 s`, `14 s` or `2 min 5 s`."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    seconds = ms // 1000
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


def _toolbar_width(parts: Sequence[str]) -> int:
    """Return the width of the toolbar without the title."""
    return sum(len(each) + len(" · ") for each in parts) + 2


def _hanging_indent(text: str, columns: int, indent: int, further: int = 0) -> str:
    """Return `text` wrapped, with later lines indented by `further` columns, or else by `indent`."""
    lines = [part for line in text.split("\n") for part in _wrap(line, columns - (further or indent)) or [""]]
    return ("\n" + " " * (further or indent)).join(lines)


def _wrap(text: str, columns: int) -> list[str]:
    """Return `text` in lines that fit; wide characters count as two columns."""
    console = Console(width=max(2, columns), file=StringIO(), legacy_windows=False)
    return [line.plain for line in Styled(text).wrap(console, max(2, columns))] if text else []
