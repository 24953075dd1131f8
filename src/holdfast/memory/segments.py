"""What memory is told of a stretch of turns: the messages as people and models wrote them.

The same turns always give the same: a stretch that is told again is told word for word as before.
"""

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.domain.events.facts import Ranges
from holdfast.domain.events.parts import AnyPart, text_of
from holdfast.domain.files import files_among
from holdfast.domain.limits import SEGMENT_BYTES_MAX
from holdfast.domain.ranges import numbers_in
from holdfast.domain.transcript.transcript import Entry, Page, TranscriptFold
from holdfast.memory.ports import Said

LEFT_OUT = "\n[… {chars} characters left out …]\n"
"""Stands where a message was cut; counted with what is kept of it."""


def said_in(pages: Sequence[Page], turns: Ranges) -> tuple[Said, ...]:
    """What was said in `turns`, in order: people's words, answers, and what tools gave.

    What the server noted, what came too late to count, and thinking are not said to anyone.
    """
    fold, wanted = TranscriptFold(), frozenset(numbers_in(turns))
    fold.add_page(page for page in pages if page.row.turn in wanted)
    entries = (entry for turn in fold.transcript().turns for entry in turn.entries)
    return tuple(said for entry in entries if not entry.late and (said := _said(entry)) is not None)


def digest_of(messages: Sequence[Said]) -> str:
    """Stands for what is told, before anything of it is cut."""
    digest = hashlib.blake2b(digest_size=16)
    for said in messages:
        for field in (said.id, said.role, said.text):
            encoded = field.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big"))
            digest.update(encoded)
    return digest.hexdigest()


def fitted(messages: Sequence[Said], bytes_max: int = SEGMENT_BYTES_MAX) -> tuple[Said, ...]:
    """`messages` with the longest of them cut in their middle, so that all together are not too long."""
    sizes = [_size(said.text) for said in messages]
    if sum(sizes) <= bytes_max:
        return tuple(messages)
    most = _share(sizes, bytes_max)
    return tuple(
        said if size <= most else replace(said, text=_cut(said.text, most))
        for said, size in zip(messages, sizes, strict=True)
    )


def _said(entry: Entry) -> Said | None:
    text = _words(entry.parts)
    if entry.role == "notice" or not text:
        return None
    return Said(entry.id, entry.role, entry.at, text, entry.name)


def _words(parts: tuple[AnyPart, ...]) -> str:
    files = [f"[file: {file.name}]" for file in files_among(parts)]
    return "\n".join([text for text in (text_of(parts),) if text] + files)


def _share(sizes: Sequence[int], bytes_max: int) -> int:
    """The most that each may have, so that all have room: the short ones leave theirs to the long ones."""
    left, others = bytes_max, len(sizes)
    for size in sorted(sizes):
        if size * others > left:
            break
        left, others = left - size, others - 1
    return left // others if others else bytes_max


def _cut(text: str, bytes_max: int) -> str:
    """The beginning and the end of `text` around a note of how much is missing, in at most `bytes_max`."""
    room = bytes_max - _size(LEFT_OUT.format(chars=len(text)))
    if room <= 0:
        return ""
    raw = text.encode("utf-8", "surrogatepass")
    # A character that the cut goes through is left out as a whole.
    head = raw[: (room + 1) // 2].decode("utf-8", "ignore")
    tail = raw[len(raw) - room // 2 :].decode("utf-8", "ignore") if room > 1 else ""
    return head + LEFT_OUT.format(chars=len(text) - len(head) - len(tail)) + tail


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
