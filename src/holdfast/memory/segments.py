"""Build a segment's messages from its turns.

The same turns always give the same messages, so a retried segment equals the first one.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.domain.events.facts import Ranges
from holdfast.domain.events.parts import AnyPart, message_text
from holdfast.domain.files import file_parts
from holdfast.domain.limits import SEGMENT_BYTES_MAX
from holdfast.domain.ranges import expand_ranges
from holdfast.domain.transcript.transcript import Entry, MessageWithEvents, TranscriptFold
from holdfast.memory.ports import SegmentMessage

OMISSION_NOTE = "\n[… {chars} characters left out …]\n"
"""The text in place of what was cut out of a message; it counts towards the size."""


def messages_in(pages: Sequence[MessageWithEvents], turns: Ranges) -> tuple[SegmentMessage, ...]:
    """Return the messages of `turns` in order: user messages, answers and tool output.

    Notices, late messages and reasoning are left out.
    """
    fold, wanted = TranscriptFold(), frozenset(expand_ranges(turns))
    fold.add_messages(page for page in pages if page.row.turn in wanted)
    entries = (entry for turn in fold.transcript().turns for entry in turn.entries)
    return tuple(
        message for entry in entries if not entry.late and (message := _to_message(entry)) is not None
    )


def messages_digest(messages: Sequence[SegmentMessage]) -> str:
    """Return a digest of the uncut messages."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        for field in (message.id, message.role, message.text):
            encoded = field.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
    return digest.hexdigest()


def fit_messages(
    messages: Sequence[SegmentMessage], bytes_max: int = SEGMENT_BYTES_MAX
) -> tuple[SegmentMessage, ...]:
    """Return `messages` with the longest cut in their middle, so that together they fit `bytes_max`."""
    sizes = [_size(message.text) for message in messages]
    if sum(sizes) <= bytes_max:
        return tuple(messages)
    limit = _bytes_per_message(sizes, bytes_max)
    return tuple(
        message if size <= limit else replace(message, text=_truncate_middle(message.text, limit))
        for message, size in zip(messages, sizes, strict=True)
    )


def _to_message(entry: Entry) -> SegmentMessage | None:
    text = _entry_text(entry.parts)
    if entry.role == "notice" or not text:
        return None
    return SegmentMessage(entry.id, entry.role, entry.at, text, entry.name)


def _entry_text(parts: tuple[AnyPart, ...]) -> str:
    files = [f"[file: {file.name}]" for file in file_parts(parts)]
    return "\n".join([text for text in (message_text(parts),) if text] + files)


def _bytes_per_message(sizes: Sequence[int], bytes_max: int) -> int:
    """Return the largest size per message at which all fit; short messages leave room to long ones."""
    left, others = bytes_max, len(sizes)
    for size in sorted(sizes):
        if size * others > left:
            break
        left, others = left - size, others - 1
    return left // others if others else bytes_max


def _truncate_middle(text: str, bytes_max: int) -> str:
    """Return the start and the end of `text` around an omission note, in at most `bytes_max`."""
    room = bytes_max - _size(OMISSION_NOTE.format(chars=len(text)))
    if room <= 0:
        return ""
    raw = text.encode("utf-8", "surrogatepass")
    # A character at the cut is left out whole.
    head = raw[: (room + 1) // 2].decode("utf-8", "ignore")
    tail = raw[len(raw) - room // 2 :].decode("utf-8", "ignore") if room > 1 else ""
    return head + OMISSION_NOTE.format(chars=len(text) - len(head) - len(tail)) + tail


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
