"""Labels for people: speakers, titles, and the states of entries."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from holdfast.domain.events.parts import ToolCall
from holdfast.domain.state.rows import SessionStatus
from holdfast.domain.transcript.transcript import Entry, Transcript

UNTITLED = "Untitled"
_FIRST_WORDS_CHARS = 60
REMOVED_LABEL = "Removed."
LATE_LABEL = "Arrived after the answer had gone on without it; not part of the conversation."
CONTINUED_LABEL = "Continued after restart"
EDITED_LABEL = "Changed before it was allowed:"
IN_DOUBT_LABEL = "The server stopped while this was running."

STATUS_LABELS: Mapping[SessionStatus, str] = MappingProxyType({
    "idle": "Ready",
    "working": "Working",
    "needs_you": "Needs you",
    "failed": "Failed",
    "interrupted": "Stopped",
})  # fmt: skip
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SPEAKERS = MappingProxyType({"user": "You", "assistant": "Assistant", "tool": "Tool", "notice": ""})
NOTICES = MappingProxyType({
    "interrupted": "Interrupted by a server restart.",
    "pending": "Looking for the rest…",
    "recovered": "Saved text restored",
    "final": "No further output found",
})  # fmt: skip
_OUTCOMES = MappingProxyType({
    "done": "",
    "failed": "Failed.",
    "denied": "Not allowed.",
    "not_run": "Not run.",
    "unknown": IN_DOUBT_LABEL,
})  # fmt: skip
_STATES = MappingProxyType({
    "intended": "Not run yet.",
    "started": "Running.",
    "in_doubt": IN_DOUBT_LABEL,
    "resolved": "",
    "settled": "",
})  # fmt: skip


def strip_control_chars(text: str) -> str:
    """Return `text` without terminal control characters: a conversation may contain anything."""
    return _CONTROL_CHARS.sub("�", text.replace("\r\n", "\n"))


def display_title(title: str, opening: str = "") -> str:
    """Return a title on one line, or else the opening of the conversation, or a default."""
    return (
        strip_control_chars(" ".join(title.split()))
        or strip_control_chars(" ".join(opening.split()))
        or UNTITLED
    )


def first_words(text: str) -> str:
    """Return the beginning of the first message, by which people know an untitled conversation."""
    return truncate_line(text, _FIRST_WORDS_CHARS)


def truncate_line(text: str, chars: int) -> str:
    """Return the first line, cut at the end of a word if there is one."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= chars:
        return line
    cut = line[: chars - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut).rstrip() + "…"


def speaker(entry: Entry) -> str:
    """Return the speaker of an entry: a tool's name, or nothing for a notice."""
    return entry.name or _SPEAKERS[entry.role]


def entry_label(entry: Entry) -> str:
    """Return a label for the state of an entry; an empty string for a complete one."""
    if entry.late:
        return LATE_LABEL
    if entry.role == "notice":
        return NOTICES.get(entry.status, "")
    if entry.role == "tool":
        return _OUTCOMES[entry.outcome] if entry.outcome is not None else _STATES[entry.state or "settled"]
    labels = {
        "streaming": "Being written.",
        "interrupted": "Not finished.",
        "recovered": "Saved text restored",
    }
    return labels.get(entry.status, CONTINUED_LABEL if entry.continues else "")


def calls_by_id(transcript: Transcript) -> Mapping[str, ToolCall]:
    """Return the calls of messages by call id, which is the id of a tool's entry."""
    entries = (entry for turn in transcript.turns for entry in turn.entries)
    return {part.call_id: part for entry in entries for part in entry.parts if isinstance(part, ToolCall)}


def unanswered_calls(transcript: Transcript) -> frozenset[str]:
    """Return the calls without an entry: their arguments were never complete."""
    entry_ids = {entry.id for turn in transcript.turns for entry in turn.entries if entry.role == "tool"}
    return frozenset(calls_by_id(transcript).keys() - entry_ids)


def is_silent(entry: Entry, unanswered: frozenset[str]) -> bool:
    """Return whether a message shows nothing: it only made calls, which have their own entries."""
    answered = (isinstance(part, ToolCall) and part.call_id not in unanswered for part in entry.parts)
    return entry.role == "assistant" and bool(entry.parts) and all(answered) and not entry_label(entry)
