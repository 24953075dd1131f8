"""Render a conversation as Markdown."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from holdfast.domain.clock import Instant
from holdfast.domain.events.parts import AnyPart, Change, File, Reasoning, Text, ToolCall
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import (
    EDITED_LABEL,
    REMOVED_LABEL,
    calls_by_id,
    display_title,
    entry_label,
    is_silent,
    speaker,
    strip_control_chars,
    unanswered_calls,
)
from holdfast.domain.transcript.transcript import Entry, Transcript, Turn


def to_markdown(row: SessionRow, transcript: Transcript) -> str:
    """Return the whole conversation, including removed turns, which are marked."""
    page = _EntryWriter(calls_by_id(transcript), unanswered_calls(transcript))
    blocks = [f"# {_escaped(display_title(row.title))}", _facts(row)]
    for turn in transcript.turns:
        blocks += page.turn(turn)
    return strip_control_chars("\n\n".join(blocks)) + "\n"


def _facts(row: SessionRow) -> str:
    facts = [f"- Conversation `{row.id}`", f"- Began {_timestamp(row.created_at)}"]
    if row.model:
        facts.append(f"- Model `{row.model}`")
    return "\n".join(facts)


class _EntryWriter:
    """Render entries, with all calls of the conversation at hand."""

    def __init__(self, calls: Mapping[str, ToolCall], unanswered: frozenset[str]) -> None:
        self._calls = calls
        self._unanswered = unanswered

    def turn(self, turn: Turn) -> Iterator[str]:
        for entry in turn.entries:
            if not is_silent(entry, self._unanswered):
                yield from self._entry(entry, turn.live)

    def _entry(self, entry: Entry, live: bool) -> Iterator[str]:
        label = entry_label(entry)
        if entry.role == "notice":
            yield f"*{label}*"
            return
        level = "###" if entry.role == "tool" else "##"
        yield f"{level} {_escaped(speaker(entry))}\n\n*{_timestamp(entry.at)}*"
        if not live:
            yield f"*{REMOVED_LABEL}*"
        if label:
            yield f"*{label}*"
        call = self._calls.get(entry.id) if entry.role == "tool" else None
        if call is not None and call.arguments not in ("", "{}"):
            yield _fenced(call.arguments, "json")
        if entry.arguments:
            yield f"*{EDITED_LABEL}*"
            yield _fenced(entry.arguments, "json")
        for part in entry.parts:
            yield from self._part(part, entry.role == "tool")

    def _part(self, part: AnyPart, output: bool) -> Iterator[str]:
        match part:
            case Text() if output:
                yield _fenced(part.text)
            case Text():
                yield part.text.strip("\n")
            case Reasoning():
                if part.text:
                    yield f"<details><summary>Thinking</summary>\n\n{part.text.strip()}\n\n</details>"
            case ToolCall():
                if part.call_id in self._unanswered:
                    yield f"*Began to call* `{part.name}`"
            case File():
                yield f"*File* `{part.name}` ({part.media_type}, {part.size_bytes:,} bytes)"
            case Change():
                if part.diff:
                    yield _fenced(part.diff, "diff")


def _fenced(text: str, language: str = "") -> str:
    """Return `text` in a code fence that nothing inside it can close."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", text)


def _timestamp(at: Instant) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
