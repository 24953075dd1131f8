"""A conversation's events without the secrets that are known now, and still a conversation that adds up.

What is written is masked when it is written; this is for what was stored before a value was known to be
secret, and now leaves the house. A body that changes gets the digest of what it then says, and its deltas,
which would tell another story, are left out as if they had been pruned.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, Unknown
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.events.stream_fold import digest_of_parts
from holdfast.domain.secrets import Mask, masked

_Stream = tuple[str, str]
"""Whose text it is (a message or a call), and which of its texts."""
_PARTS = tuple[AnyPart, ...]


class Redaction:
    """Is shown all events of a conversation first (`look`), then gives each of them as it may be told."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._streamed: dict[str, dict[_Stream, list[str]]] = {}
        self._left_out: set[str] = set()
        self._instead: dict[_Stream, str] = {}
        self.changed = 0
        """Events that had to be changed or left out."""

    @property
    def is_needed(self) -> bool:
        return self._mask.longest_chars > 0

    def look(self, events: Iterable[Event]) -> None:
        """Take in the next events, in order."""
        for event in events:
            stream = _stream_of(event)
            if stream is not None:
                texts = self._streamed.setdefault(stream[0], {})
                texts.setdefault(stream, []).append(_text_of(event))
            elif owner := _owner_of(event):
                streamed = self._streamed.pop(owner, {})
                if self._is_touched(event) or any(self._holds(texts) for texts in streamed.values()):
                    self._left_out.add(owner)

    def told(self, event: Event) -> Event | None:
        """The event without secrets; None where it is left out. To be asked of every event, in order."""
        stream = _stream_of(event)
        if stream is not None and stream[0] in self._left_out:
            self.changed += 1
            return None
        if stream is not None and stream[0] in self._streamed:
            return self._told_of_open(event, stream)
        if not self._is_touched(event):
            return event
        self.changed += 1
        try:
            fields = masked(msgspec.json.decode(event.body), self._mask.whole)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Damaged: it is passed on as it is, but for the secret.
            text = event.body.decode("utf-8", "surrogateescape")
            return replace(event, body=self._mask.whole(text).encode("utf-8", "surrogateescape"))
        if _owner_of(event):
            fields["digest"] = digest_of_parts(msgspec.convert(fields["parts"], _PARTS))
        return replace(event, body=msgspec.json.encode(fields))

    def _told_of_open(self, event: Event, stream: _Stream) -> Event:
        """A piece of text that has no body yet: where all of it holds a secret, its first piece says all."""
        pieces = self._streamed[stream[0]][stream]
        if stream not in self._instead and not self._holds(pieces):
            return event
        text = "" if stream in self._instead else self._mask.whole("".join(pieces))
        self._instead[stream] = ""
        self.changed += 1
        fields = {**msgspec.json.decode(event.body), "text": text}
        return replace(event, body=msgspec.json.encode(fields))

    def _is_touched(self, event: Event) -> bool:
        return not self._mask.holds_none(event.body.decode("utf-8", "replace"))

    def _holds(self, pieces: list[str]) -> bool:
        pieces[:] = ["".join(pieces)]
        return not self._mask.holds_none(pieces[0])


def _stream_of(event: Event) -> _Stream | None:
    match _fact_of(event) if event.kind in f.DELTA_KINDS else None:
        case f.ToolOutputAppended() as fact:
            # Both its streams are read as one text.
            return fact.call_id, event.kind
        case f.ToolArgumentsAppended() as fact:
            return fact.message_id, fact.call_id
        case f.TextAppended() | f.ReasoningAppended() as fact:
            return fact.message_id, event.kind
    return None


def _text_of(event: Event) -> str:
    fact = _fact_of(event)
    return fact.text if isinstance(fact, f.Delta) else ""


def _owner_of(event: Event) -> str:
    """The message or call whose whole body the event is."""
    match _fact_of(event) if event.kind in f.BODY_KINDS else None:
        case f.MessageSettled() as fact:
            return fact.message_id
        case f.ToolSettled() as fact:
            return fact.call_id
    return ""


def _fact_of(event: Event) -> f.AnyFact | Unknown | None:
    """None for one that cannot be read."""
    try:
        return event.fact
    except msgspec.DecodeError:
        return None
