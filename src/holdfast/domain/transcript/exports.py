"""Export and import a conversation as one line of JSON, with every event as it is stored.

Files can be concatenated: several conversations are several lines. This module writes and parses piece by
piece and opens no files. An import is checked completely before a caller gets it.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.domain.errors import BadImport
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import blob_digests
from holdfast.domain.ids import SessionId, is_id
from holdfast.domain.limits import BLOB_BYTES_MAX, EVENT_BYTES_MAX
from holdfast.domain.state.projections import fold

FORMAT = "holdfast-conversation"
VERSION = 1
FILES_START = b'],"files":{'
EXPORT_END = b"}}\n"

_KIND = re.compile(r"[a-z][a-z0-9_]{0,99}")
_RESERVED = frozenset({"seq", "at", "kind", "version"})
"""The envelope fields of an event: a body with one of these names could replace them."""
_NUMBER_MAX = 1 << 53
_AT_MAX = 253_402_300_799_999
"""The end of the year 9999, past which no calendar goes."""
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Marker(msgspec.Struct, frozen=True):
    format: str = ""
    version: int = 0


class _Line(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str
    version: int = 1
    body: msgspec.Raw = msgspec.Raw()
    body_base64: str = ""


class _Document(msgspec.Struct, frozen=True):
    session_id: str
    events: list[_Line]
    title: str = ""
    files: dict[str, str] = msgspec.field(default_factory=dict)


class ImportedConversation(msgspec.Struct, frozen=True):
    """A checked conversation from a file. `files` are still encoded; see `decode_file`."""

    session_id: SessionId
    title: str
    events: tuple[Event, ...]
    files: Mapping[str, str]


# Writing: the head, events with commas between, `FILES_START`, files with commas between, the end.


def export_head(session_id: SessionId, title: str) -> bytes:
    head = {"format": FORMAT, "version": VERSION, "session_id": session_id, "title": title}
    return msgspec.json.encode(head)[:-1] + b',"events":['


def export_event(event: Event) -> bytes:
    """Encode an event with its stored body; a body that would break the line is written in base 64."""
    head = {"seq": event.seq, "at": event.at, "kind": event.kind, "version": event.version}
    start = msgspec.json.encode(head)[:-1]
    if _is_plain(event.body):
        return start + b',"body":' + event.body + b"}"
    return start + b',"body_base64":"' + base64.b64encode(event.body) + b'"}'


def export_file(digest: str, content: bytes) -> bytes:
    return b'"%s":"%s"' % (digest.encode(), base64.b64encode(content))


def file_digests(event: Event) -> list[str]:
    """Return the digests of the files that an event's parts name; none if it cannot be decoded."""
    if event.kind not in f.BODY_KINDS:
        return []
    try:
        fact = event.fact
    except msgspec.DecodeError:
        return []
    return blob_digests(fact.parts) if isinstance(fact, f.Body) else []


def _is_plain(body: bytes) -> bool:
    if b"\n" in body or b"\r" in body:
        return False
    try:
        body.decode()
        # Text around the JSON value would be lost on import.
        return bytes(msgspec.json.decode(body, type=msgspec.Raw)) == body
    except (UnicodeDecodeError, msgspec.DecodeError):
        return False


# Reading.


def parse_export(document: bytes, path: str, is_reformatted: bool = False) -> ImportedConversation:
    """Parse a document. `is_reformatted`: someone has laid it out for reading.

    Raises BadImport, which says what is wrong.
    """
    try:
        found = _decode(document)
        events = _events(found.events, is_reformatted)
        session_id = _session_id(found.session_id)
        _check_rows(session_id, events)
        return ImportedConversation(session_id, found.title, events, _files(found.files))
    except _InvalidExport as error:
        raise BadImport(path=path, why=str(error)) from None


def decode_file(text: str) -> bytes:
    """Decode a file's content from its form in an export."""
    return base64.b64decode(text, validate=True)


class _InvalidExport(Exception):
    """A document is invalid; the message says why."""


def _decode(document: bytes) -> _Document:
    try:
        marker = msgspec.json.decode(document, type=_Marker)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if isinstance(error, msgspec.ValidationError):
            raise _InvalidExport("it does not say that it is one") from None
        raise _InvalidExport("it is not JSON, or was cut short") from None
    if marker.format != FORMAT:
        raise _InvalidExport("it does not say that it is one")
    if marker.version > VERSION:
        raise _InvalidExport(
            f"a newer Holdfast wrote it (version {marker.version}; this one knows {VERSION})"
        )
    try:
        return msgspec.json.decode(document, type=_Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _InvalidExport(f"{error}") from None


def _session_id(text: str) -> SessionId:
    if not is_id(text) or not text.startswith("s_"):
        raise _InvalidExport(f"{text[:40]!r} is not the id of a conversation")
    return SessionId(text)


def _events(lines: Iterable[_Line], is_reformatted: bool) -> tuple[Event, ...]:
    events: list[Event] = []
    seq = 0
    for line in lines:
        if line.seq <= seq:
            raise _InvalidExport(f"event {line.seq} comes after event {seq}")
        seq = line.seq
        events.append(_event(line, is_reformatted))
    if not events or events[0].seq != 1 or events[0].kind != "session_created":
        raise _InvalidExport("it does not start with the beginning of a conversation")
    return tuple(events)


def _event(line: _Line, is_reformatted: bool) -> Event:
    name = f"event {line.seq}"
    if max(line.seq, line.version) >= _NUMBER_MAX or not 0 <= line.at <= _AT_MAX or line.version < 1:
        raise _InvalidExport(f"{name} has a number that cannot be")
    if _KIND.fullmatch(line.kind) is None:
        raise _InvalidExport(f"{name} has no proper kind")
    try:
        body = decode_file(line.body_base64) if line.body_base64 else bytes(line.body)
        body.decode()
        fields = _FIELDS.decode(body)
        body = msgspec.json.format(body, indent=-1) if is_reformatted and not line.body_base64 else body
        event = Event(line.seq, line.at, line.kind, line.version, body if fields else b"{}")
        fact = event.fact
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error) as error:
        raise _InvalidExport(f"{name} ({line.kind}) cannot be read: {error}") from None
    if len(body) > EVENT_BYTES_MAX:
        raise _InvalidExport(f"{name} is {len(body)} bytes long; the limit is {EVENT_BYTES_MAX}")
    if _RESERVED & fields.keys():
        raise _InvalidExport(f"the body of {name} names {min(_RESERVED & fields.keys())}")
    if isinstance(fact, f.SessionDeleted):
        raise _InvalidExport("the conversation in it was deleted")
    return event


def _files(files: Mapping[str, str]) -> Mapping[str, str]:
    for digest, written in files.items():
        try:
            content = decode_file(written)
        except (binascii.Error, ValueError):
            raise _InvalidExport(f"the content of file {digest[:64]} is not base 64") from None
        if len(content) > BLOB_BYTES_MAX:
            raise _InvalidExport(
                f"file {digest[:64]} is {len(content)} bytes long; the limit is {BLOB_BYTES_MAX}"
            )
        if hashlib.sha256(content).hexdigest() != digest:
            raise _InvalidExport(f"the content of file {digest[:64]} does not have that hash")
    return files


def _check_rows(session_id: SessionId, events: tuple[Event, ...]) -> None:
    """Raise _InvalidExport unless the events yield rows that can be stored."""
    state = fold(session_id, events)
    keys = [turn.key for turn in state.turns.values() if turn.key is not None]
    if len(set(keys)) < len(keys):
        raise _InvalidExport("two of its messages have the same key")
    rows = (
        state.row,
        *state.turns.values(),
        *state.runs.values(),
        *state.tools.values(),
        *state.messages.values(),
    )
    if any(abs(number) >= _NUMBER_MAX for row in rows for number in _numbers(row)):
        raise _InvalidExport("it has a number that cannot be")


def _numbers(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, msgspec.Struct):
        for inner in msgspec.structs.astuple(value):
            yield from _numbers(inner)
