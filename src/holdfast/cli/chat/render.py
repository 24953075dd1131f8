"""How things look: what is printed for good, by rich, and what changes below it, as pieces with a style.

Everything that comes from a conversation goes through `safe_text` and through the mask here.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import StringIO
from types import MappingProxyType

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text as Styled

from holdfast.cli.chat.answers import arguments_of, choices
from holdfast.cli.chat.safe_text import one_line, safe
from holdfast.cli.chat.view_model import Block, Call, Notice, Said, Scene, Shown, Thought, Tool, messages
from holdfast.cli.chat.wire import Asked, Question
from holdfast.cli.format import counted
from holdfast.cli.rendering import rendered
from holdfast.domain.agents import MAIN
from holdfast.domain.secrets import Masking
from holdfast.domain.transcript.labels import MAY_HAVE_RUN, STATUS, title_of

Pieces = list[tuple[str, str]]
"""Styles and texts, as prompt_toolkit takes them."""
ARGUMENTS_CHARS_MAX = 60
THOUGHT_CHARS_MAX = 100
OUTPUT_LINES_MAX = 3
LIVE_LINES_MAX = 10
QUESTION_LINES_MAX = 12
PATH_CHARS_MAX = 200
WAITING_MAX = 3
AGENT_CHARS_MAX = 40
TITLE_CHARS_MIN = 8
"""With less of a title, none is shown."""
COLUMNS = 200
_MARKS: Mapping[str, tuple[str, str]] = MappingProxyType({
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
    "denied": ("⊘", "yellow"),
    "not_run": ("-", "dim"),
})  # fmt: skip
_SIGNS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "write_file": {"content": "+"},
    "edit_file": {"old_text": "-", "new_text": "+"},
})  # fmt: skip
"""The arguments that read as lines that come and go."""
_BAD_ENDS = frozenset({"failed", "unknown"})


class Drawing:
    """Draws for a screen of so many columns, without the secrets that `mask` knows."""

    def __init__(self, mask: Masking) -> None:
        self._mask = mask

    def printed(self, shown: Sequence[Shown], columns: int) -> str:
        """What to print, with the terminal's own codes for its style."""
        out = StringIO()
        console = Console(
            file=out,
            force_terminal=True,
            color_system="standard",
            width=columns,
            highlight=False,
            legacy_windows=False,
        )
        for each in shown:
            for part in self._parts(each, columns):
                console.print(part)
        return out.getvalue()

    def _parts(self, shown: Shown, columns: int) -> Iterator[RenderableType]:
        match shown:
            case Said():
                yield Styled()
                yield self._said(shown, columns)
            case Block():
                yield Styled()
                yield rendered(self._safe(shown.text), columns)
            case Thought():
                line = one_line(self._mask(shown.text), min(THOUGHT_CHARS_MAX, columns - 4))
                yield Styled(f"  ∴ {line}", style="dim italic")
            case Tool():
                yield self._tool(shown, columns)
            case Notice(plain=True):
                yield Styled(f"  {_hanging(self._safe(shown.text), columns, 2)}", style="dim")
            case Notice():
                when = datetime.fromtimestamp(shown.at / 1000).strftime(", %H:%M") if shown.at else ""
                text = _hanging(f"— {self._safe(shown.text)}{when} —", columns, 2, 4)
                yield Styled(f"  {text}", style="red" if shown.bad else "yellow")

    def _said(self, said: Said, columns: int) -> Styled:
        text = Styled()
        text.append("> ", style="bold cyan")
        text.append(_hanging(self._safe(said.text).rstrip("\n"), columns, 2), style="bold")
        for name in said.files:
            text.append(f"\n  + {one_line(self._mask(name), ARGUMENTS_CHARS_MAX)}", style="cyan")
        return text

    def _tool(self, tool: Tool, columns: int) -> Styled:
        mark, colour = _MARKS.get(tool.outcome, ("?", "yellow"))
        line = Styled()
        line.append(f"  {mark} ", style=colour)
        line.append(tool_line(self._mask(tool.name), self._mask(tool.arguments), columns - 20))
        if tool.ms:
            line.append(f" · {duration(tool.ms)}", style="dim")
        if tool.outcome == "unknown":
            line.append(f"\n    {MAY_HAVE_RUN}", style="yellow")
        told = [each for each in self._safe(tool.output).split("\n") if each.strip()]
        for each in told[-OUTPUT_LINES_MAX:]:
            style = "red" if tool.outcome in _BAD_ENDS else "dim"
            line.append(f"\n    {one_line(each, max(10, columns - 6))}", style=style)
        return line

    def live(self, scene: Scene, columns: int, rows: int, now_ms: int, keys: str | None = None) -> Pieces:
        """Draw what is under way, from the top down: the end of what is written, the calls, the question.

        `keys` stands in place of the question's choices.
        """
        lines_max = max(2, min(LIVE_LINES_MAX, rows // 3))
        pieces: Pieces = []
        for message in scene.writing.values():
            if message.thinking and not message.text:
                line = one_line(self._mask(message.thinking)[-4 * columns :], 4 * columns)
                pieces.append(("class:thinking", f"  ∴ {line[-(columns - 6) :]}\n"))
            ends = _wrapped(self._safe(message.rest).rstrip("\n"), max(10, columns - 4))[-lines_max:]
            pieces += [("", f"  {line}\n") for line in ends if message.rest.strip()]
        for stopped in scene.stopped:
            pieces.append(("class:notice", f"  {_hanging(f'— {stopped} —', columns, 2, 4)}\n"))
        for call in scene.calls.values():
            pieces += self._running(call, columns, now_ms)
        if scene.asked:
            pieces += self._asked(scene.asked, columns, rows, keys)
        return pieces

    def _running(self, call: Call, columns: int, now_ms: int) -> Pieces:
        if call.is_asked or not call.started_at:
            return []
        passed = duration(max(0, now_ms - call.started_at) // 1000 * 1000)
        line = tool_line(self._mask(call.name), self._mask(call.arguments), columns - 20)
        ends = [each for each in self._safe(call.output).split("\n") if each.strip()][-OUTPUT_LINES_MAX:]
        return [
            ("class:tool", f"  … {line} · {passed}\n"),
            *(("class:dim", f"    {one_line(each, max(10, columns - 6))}\n") for each in ends),
        ]

    def _asked(self, questions: tuple[Question, ...], columns: int, rows: int, keys: str | None) -> Pieces:
        """The first question in full: what is allowed must be seen before it is."""
        first = questions[0]
        pieces: Pieces = [("class:question", f"  {_hanging(asked(first, self._mask), columns, 2)}\n")]
        lines_max = max(3, min(QUESTION_LINES_MAX, rows // 2))
        if first.asked is not None:
            pieces += [
                ("class:command", f"    {line}\n")
                for each in numbered(first.asked)
                for line in _wrapped(self._safe(each), max(10, columns - 6))
            ]
        elif first.arguments is not None:
            pieces += _bounded(proposed(first, self._mask), max(10, columns - 6), lines_max)
            if first.arguments_cut:
                pieces.append(("class:dim", "    … and more that is too long to show here\n"))
        if first.reason and first.kind == "approval":
            pieces += [
                ("class:dim", f"    {line}\n") for line in _wrapped(self._safe(first.reason), columns - 6)
            ]
        more = f"  ({len(questions) - 1} more)" if len(questions) > 1 else ""
        # All of them: nobody is to be left without the one that says no.
        told = choices(first) if keys is None else keys
        pieces.append(("class:choices", f"  {_hanging(told + more, columns, 2)}\n"))
        return pieces

    def waiting(self, texts: Sequence[str], columns: int) -> Pieces:
        """Messages whose turn it is not yet, or that the server does not have."""
        lines = [one_line(self._mask(text), max(10, columns - 10)) for text in texts[-WAITING_MAX:]]
        return [("class:dim", f"  ⧖ {line}\n") for line in lines]

    def toolbar(
        self, scene: Scene, is_here: bool, unsent: int, agents: int = 1, columns: int = COLUMNS
    ) -> str:
        """The title, who answers and the state; the agent by name unless it is the usual and only one.

        Where there is no room for all of it, the state is what stays.
        """
        state = STATUS[scene.status].lower() if is_here else "the server has gone; looking for it"
        if is_here and scene.unanswered:
            state += f": {messages(len(scene.unanswered)).lower()} not answered yet"
        waiting = f" · {unsent} to be sent" if unsent else ""
        agent = scene.agent or MAIN
        who = [one_line(self._mask(agent), AGENT_CHARS_MAX)] if agents > 1 or agent != MAIN else []
        who += [one_line(self._mask(scene.model), 40)] if scene.model else []
        title = self._mask(title_of(scene.title, scene.opening))
        told = [*who, state + waiting]
        while len(told) > 1 and columns - _width(told) < TITLE_CHARS_MIN:
            told.pop(0)
        room = columns - _width(told)
        return " " + " · ".join([one_line(title, min(50, room)), *told] if room >= TITLE_CHARS_MIN else told)

    def _safe(self, text: str) -> str:
        return safe(self._mask(text))


def tool_line(name: str, arguments: str, chars_max: int) -> str:
    """A call on one line: its name, and what it is about."""
    about = one_line(readable(name, arguments), max(10, min(ARGUMENTS_CHARS_MAX, chars_max)))
    return f"{one_line(name, 30)}  {about}".rstrip()


def readable(name: str, arguments: str) -> str:
    """The arguments as people read them: a command as it stands, else names and values."""
    try:
        given = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return arguments
    if not isinstance(given, dict):
        return arguments
    if name == "shell" and list(given) == ["command"]:
        return str(given["command"])
    if len(given) == 1:
        return _value(next(iter(given.values())))
    return "\n".join(f"{key}: {_value(value)}" for key, value in given.items())


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def proposed(question: Question, mask: Masking) -> Pieces:
    """Return the lines that say what a call would do, each with a style; a change of a file as a diff."""
    given, name = arguments_of(question), question.name or ""
    signs = _SIGNS.get(name, {})
    texts = [(sign, given.pop(key)) for key, sign in signs.items() if isinstance(given.get(key), str)]
    if not signs or len(texts) < len(signs):
        told = mask(readable(name, question.arguments or ""))
        return [("class:command", line) for line in safe(told).split("\n")]
    path = given.get("path")
    if isinstance(path, str) and path.strip() and _short(path) == path:
        del given["path"]  # The question says it.
    told = mask("\n".join(f"{key}: {_value(value)}" for key, value in given.items()))
    pieces: Pieces = [("class:command", line) for line in safe(told).split("\n") if told]
    for sign, text in texts:
        pieces += _signed(sign, mask(str(text)))
    return pieces or [("class:dim", "(an empty file)")]


def _signed(sign: str, text: str) -> Pieces:
    style = "class:added" if sign == "+" else "class:removed"
    lines = safe(text).removesuffix("\n").split("\n") if text else []
    return [(style, f"{sign} {line}") for line in lines]


def _short(path: str) -> str:
    return one_line(path, PATH_CHARS_MAX)


def _bounded(lines: Pieces, columns: int, rows_max: int) -> Pieces:
    """As many of `lines` as fit, wrapped, and how many do not."""
    pieces: Pieces = []
    for at, (style, text) in enumerate(lines):
        parts, room = _wrapped(text, columns) or [""], rows_max - len(pieces)
        pieces += [(style, f"    {part}\n") for part in parts[:room]]
        if len(parts) > room:
            more = counted(len(lines) - at, "more line")
            return [*pieces, ("class:dim", f"    … {more}; /status shows all\n")]
    return pieces


def numbered(asked: Asked) -> list[str]:
    """What the agent wants to know, and the choices by the numbers that can be typed."""
    return [asked.question, *(f"{n}. {choice}" for n, choice in enumerate(asked.choices, 1))]


def asked(question: Question, mask: Masking) -> str:
    """What a question asks, in a sentence."""
    if question.asked is not None:
        return "It asks you:"
    name = one_line(mask(question.name or ""), 30)
    match question.kind:
        case "approval":
            return _approval(question, name, mask)
        case "in_doubt":
            return f"{name}: the server stopped while this was running. Did it finish?"
        case "limit":
            return f"It has reached its limit: {one_line(mask(question.reason), 60)}. Go on?"
        case _:
            return one_line(mask(question.reason), 60) or "It waits for you."


def _approval(question: Question, name: str, mask: Masking) -> str:
    path = arguments_of(question).get("path")
    if name in ("write_file", "edit_file") and isinstance(path, str) and path.strip():
        return f"{'Write' if name == 'write_file' else 'Change'} {_short(mask(path))}?"
    return "Run this command?" if name == "shell" else f"Allow {name}?"


def duration(ms: int) -> str:
    """`0.3 s`, `14 s`, `2 min 5 s`."""
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    seconds = ms // 1000
    return f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"


def _width(told: Sequence[str]) -> int:
    """What the foot takes beside the title."""
    return sum(len(each) + len(" · ") for each in told) + 2


def _hanging(text: str, columns: int, indent: int, further: int = 0) -> str:
    """`text` in lines that fit after `indent` columns; those after the first are set in, `further` or so."""
    lines = [
        part for line in text.split("\n") for part in _wrapped(line, columns - (further or indent)) or [""]
    ]
    return ("\n" + " " * (further or indent)).join(lines)


def _wrapped(text: str, columns: int) -> list[str]:
    """`text` in lines that fit; wide characters count as two."""
    console = Console(width=max(2, columns), file=StringIO(), legacy_windows=False)
    return [line.plain for line in Styled(text).wrap(console, max(2, columns))] if text else []
