"""Remove the secrets that are known now from a conversation's events, and keep the events consistent.

New text is masked as it is written. An export also needs this for text that was stored before a value was
known to be secret. A changed body gets the digest of its new content, and its deltas, which would contradict
it, are left out as if pruned.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.events.stream_fold import parts_digest
from holdfast.domain.secrets import SecretMask, mask_value

_Stream = tuple[str, str]
"""The message or call of a text, and which of its texts."""
_PARTS = tuple[AnyPart, ...]


class Redactor:
    """Redact a conversation in two passes: `scan` all events, then `redact` each."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._streamed: dict[str, dict[_Stream, list[str]]] = {}
        self._omitted: set[str] = set()
        self._replacements: dict[_Stream, str] = {}
        self.changed = 0
        """The number of events that were changed or left out."""

    @property
    def is_needed(self) -> bool:
        return self._mask.longest_chars > 0

    def scan(self, events: Iterable[Event]) -> None:
        """Scan the next events, in order."""
        for event in events:
            stream = _stream_of(event)
            if stream is not None:
                texts = self._streamed.setdefault(stream[0], {})
                texts.setdefault(stream, []).append(_text_of(event))
            elif owner := _owner_of(event):
                streamed = self._streamed.pop(owner, {})
                if self._contains_secret(event) or any(
                    self._pieces_contain_secret(texts) for texts in streamed.values()
                ):
                    self._omitted.add(owner)

    def redact(self, event: Event) -> Event | None:
        """Return the event without secrets, or None to leave it out. Call it for every event, in order."""
        stream = _stream_of(event)
        if stream is not None and stream[0] in self._omitted:
            self.changed += 1
            return None
        if stream is not None and stream[0] in self._streamed:
            return self._redact_delta(event, stream)
        if not self._contains_secret(event):
            return event
        self.changed += 1
        try:
            fields = mask_value(msgspec.json.decode(event.body), self._mask.mask)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # A damaged event is passed on as it is, without the secret.
            text = event.body.decode("utf-8", "surrogateescape")
            return replace(event, body=self._mask.mask(text).encode("utf-8", "surrogateescape"))
        if _owner_of(event):
            fields["digest"] = parts_digest(msgspec.convert(fields["parts"], _PARTS))
        return replace(event, body=msgspec.json.encode(fields))

    def _redact_delta(self, event: Event, stream: _Stream) -> Event:
        """Redact a delta without a body: if the whole text holds a secret, the first piece takes it all."""
        pieces = self._streamed[stream[0]][stream]
        if stream not in self._replacements and not self._pieces_contain_secret(pieces):
            return event
        text = "" if stream in self._replacements else self._mask.mask("".join(pieces))
        self._replacements[stream] = ""
        self.changed += 1
        fields = {**msgspec.json.decode(event.body), "text": text}
        return replace(event, body=msgspec.json.encode(fields))

    def _contains_secret(self, event: Event) -> bool:
        return not self._mask.is_clean(event.body.decode("utf-8", "replace"))

    def _pieces_contain_secret(self, pieces: list[str]) -> bool:
        pieces[:] = ["".join(pieces)]
        return not self._mask.is_clean(pieces[0])


def _stream_of(event: Event) -> _Stream | None:
    match _fact_of(event) if event.kind in f.DELTA_KINDS else None:
        case f.ToolOutputAppended() as fact:
            # Both output streams are read as one text.
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
    """Return the message or call whose whole body the event is."""
    match _fact_of(event) if event.kind in f.BODY_KINDS else None:
        case f.MessageSettled() as fact:
            return fact.message_id
        case f.ToolSettled() as fact:
            return fact.call_id
    return ""


def _fact_of(event: Event) -> f.AnyFact | UnknownFact | None:
    """Return the event's fact, or None if it cannot be decoded."""
    try:
        return event.fact
    except msgspec.DecodeError:
        return None
