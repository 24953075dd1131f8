"""Events on disk and on the wire: a fact's body as JSON, its kind and version beside it.

An event that this program does not know (a newer kind, or a newer version of a known one) keeps its bytes:
it is stored, exported and streamed untouched, and folds pass it over.
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
    """A fact from a newer program, kept as it came."""

    kind: str
    of_version: int
    body: bytes


class Event(msgspec.Struct, frozen=True):
    """A fact as it is stored: numbered, timed, encoded. Shared by reference between all its readers."""

    seq: Seq
    at: Instant
    kind: str
    version: int
    body: bytes

    @property
    def fact(self) -> AnyFact | UnknownFact:
        """The fact, decoded anew at each call; keep it if it is needed twice."""
        return decode(self.kind, self.version, self.body)

    def to_json(self) -> bytes:
        """The JSON object that clients read: seq, at and kind, then the fact's own fields."""
        head = b'{"seq":%d,"at":%d,"kind":"%s"' % (self.seq, self.at, self.kind.encode())
        # Named only where it tells something: a reader may take its absence for 1.
        if self.version != 1:
            head += b',"version":%d' % self.version
        return head + (b"}" if self.body == b"{}" else b"," + self.body[1:])


def encode(fact: AnyFact | UnknownFact) -> tuple[str, int, bytes]:
    """Kind, version and body of a fact."""
    if isinstance(fact, UnknownFact):
        return fact.kind, fact.of_version, fact.body
    return KINDS[type(fact)], fact.version, _ENCODER.encode(fact)


def decode(kind: str, version: int, body: bytes) -> AnyFact | UnknownFact:
    """The fact behind stored bytes.

    Raises msgspec.ValidationError when a known kind and version does not have its fields, or is no JSON at
    all: the store is damaged then, and the caller must not guess.
    """
    known = _DECODERS.get(kind)
    if known is None or version > known[0]:
        return UnknownFact(kind, version, body)
    try:
        return known[1].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise msgspec.ValidationError(str(error)) from error
