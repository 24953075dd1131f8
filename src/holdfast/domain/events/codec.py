"""Encode and decode events: a fact's body as JSON, with its kind and version beside it.

An event of a newer kind or version keeps its bytes: it is stored, exported and streamed unchanged, and folds
skip it.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import FACTS_BY_KIND, KINDS, AnyFact, Fact
from holdfast.domain.ids import Seq

_ENCODER = msgspec.json.Encoder()
_DECODERS: Mapping[str, tuple[int, msgspec.json.Decoder[AnyFact]]] = MappingProxyType(
    {kind: (cls.version, msgspec.json.Decoder(cls)) for kind, cls in FACTS_BY_KIND.items()}
)


class UnknownFact(Fact, frozen=True):
    """A fact from a newer program, with its bytes unchanged."""

    kind: str
    of_version: int
    body: bytes


class Event(msgspec.Struct, frozen=True):
    """A stored fact: numbered, timed and encoded. All readers share one object."""

    seq: Seq
    at: Instant
    kind: str
    version: int
    body: bytes

    @property
    def fact(self) -> AnyFact | UnknownFact:
        """Return the decoded fact; each access decodes it again."""
        return decode(self.kind, self.version, self.body)

    def to_json(self) -> bytes:
        """Return the JSON object for clients: seq, at and kind, then the fact's own fields."""
        head = b'{"seq":%d,"at":%d,"kind":"%s"' % (self.seq, self.at, self.kind.encode())
        # Left out for version 1, which readers take as the default.
        if self.version != 1:
            head += b',"version":%d' % self.version
        return head + (b"}" if self.body == b"{}" else b"," + self.body[1:])


def encode(fact: AnyFact | UnknownFact) -> tuple[str, int, bytes]:
    """Return the kind, version and body of a fact."""
    if isinstance(fact, UnknownFact):
        return fact.kind, fact.of_version, fact.body
    return KINDS[type(fact)], fact.version, _ENCODER.encode(fact)


def decode(kind: str, version: int, body: bytes) -> AnyFact | UnknownFact:
    """Decode a stored fact.

    Raises msgspec.ValidationError if a known kind and version lacks its fields or is not JSON: the store is
    damaged, and the caller must not guess.
    """
    known = _DECODERS.get(kind)
    if known is None or version > known[0]:
        return UnknownFact(kind, version, body)
    try:
        return known[1].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise msgspec.ValidationError(str(error)) from error
