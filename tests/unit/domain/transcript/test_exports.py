"""A conversation as a file: whatever is wrong with one is found before anyone is given it."""

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import BadImport
from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.events.parts import File
from holdfast.domain.limits import BLOB_BYTES_MAX
from holdfast.domain.transcript import exports
from tests.support.sample_conversations import SampleConversation

CONTENT = bytes(range(256))
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def export_document(session_id: Any, events: list[Event], *files: tuple[str, bytes]) -> bytes:
    """A document as the command line writes it."""
    return b"".join((
        exports.export_head(session_id, "Title"),
        b",".join(map(exports.export_event, events)),
        exports.FILES_START,
        b",".join(exports.export_file(*file) for file in files),
        exports.EXPORT_END,
    ))  # fmt: skip


@pytest.fixture(scope="module")
def story() -> SampleConversation:
    story = (
        SampleConversation("Title")
        .user_message("Look", File(DIGEST, "a.bin", "x/y", 256), key="one")
        .assistant_message("I do.")
    )
    return story.user_message("Again", key="two").tool_call("shell", "{}", "out\n").assistant_message("Done.")


@pytest.fixture(scope="module")
def document(story: SampleConversation) -> bytes:
    events = [Event(n, 1_700_000_000_000 + n, *encode(fact)) for n, fact in enumerate(story.facts, 1)]
    return export_document(story.id, events, (DIGEST, CONTENT))


def test_an_export_round_trips(story: SampleConversation, document: bytes) -> None:
    found = exports.parse_export(document, "a file")
    assert (found.session_id, found.title) == (story.id, "Title")
    assert [event.fact for event in found.events] == story.facts
    assert {digest: exports.decode_file(text) for digest, text in found.files.items()} == {DIGEST: CONTENT}
    assert document.count(b"\n") == 1


@given(
    st.dictionaries(st.text(), st.text() | st.integers() | st.none()), st.sampled_from(["", " ", "\n", "\t"])
)
def test_the_bytes_of_a_newer_programs_event_are_kept(fields: dict[str, Any], space: str) -> None:
    fields = {f"x{name}": value for name, value in fields.items()}
    body = (
        (json.dumps(fields, separators=(f",{space}", ":"), indent=None) + space).encode() if fields else b"{}"
    )
    newer = Event(2, 5, *encode(UnknownFact("dream_dreamt", 9, body)))
    text = export_document(SampleConversation().id, [Event(1, 5, "session_created", 1, b"{}"), newer])
    assert text.count(b"\n") == 1
    assert exports.parse_export(text, "a file").events[1] == newer


def _change(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    def damaged(text: bytes) -> bytes:
        document = json.loads(text)
        change(document)
        return json.dumps(document).encode()

    return damaged


def _body(document: Any, kind: str) -> Any:
    return next(event for event in document["events"] if event["kind"] == kind)["body"]


def _accepted(document: Any) -> list[Any]:
    return [event["body"] for event in document["events"] if event["kind"] == "turn_accepted"]


GONE = {"seq": 10_000, "at": 1, "kind": "session_deleted", "version": 1, "body": {}}
DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda text: b"", "it is not JSON"),
    "text": (lambda text: b"# Notes\n", "it is not JSON"),
    "cut short": (lambda text: text[: len(text) // 2], "it is not JSON, or was cut short"),
    "not UTF-8": (lambda text: text.replace(b"Look", b"\xff\xfe"), "cannot be read"),
    "something else": (lambda text: b'{"messages": []}\n', "does not say that it is one"),
    "a list": (lambda text: b"[" + text + b"]", "does not say that it is one"),
    "null": (lambda text: b"null", "does not say that it is one"),
    "a newer format": (_change(lambda d: d.update(version=2)), "a newer Holdfast wrote it (version 2"),
    "no events": (_change(lambda d: d.pop("events")), "missing required field `events`"),
    "a strange id": (_change(lambda d: d.update(session_id="s_../../etc")), "not the id of a conversation"),
    "a run's id": (_change(lambda d: d.update(session_id="r_0000000000000000")), "not the id of a conv"),
    "out of order": (_change(lambda d: d["events"].reverse()), "comes after event"),
    "an event twice": (_change(lambda d: d["events"].insert(1, d["events"][0])), "comes after event 1"),
    "no beginning": (_change(lambda d: d["events"].pop(0)), "does not start with the beginning"),
    "no event": (_change(lambda d: d["events"].clear()), "does not start with the beginning"),
    "a known kind without its fields": (
        _change(lambda d: _body(d, "turn_accepted").pop("turn")), "(turn_accepted) cannot be read"
    ),
    "a known kind with a wrong field": (
        _change(lambda d: _body(d, "message_settled").update(role="king")), "(message_settled) cannot be read"
    ),
    "no body": (_change(lambda d: d["events"][1].pop("body")), "cannot be read"),
    "a body that is no object": (_change(lambda d: d["events"][1].update(kind="new", body=[1])), "cannot be"),
    "a body that speaks for another": (
        _change(lambda d: _body(d, "turn_accepted").update(seq=99)), "the body of event 2 names seq"
    ),
    "a kind that is no name": (_change(lambda d: d["events"][1].update(kind='x","y')), "no proper kind"),
    "a negative time": (_change(lambda d: d["events"][1].update(at=-1)), "a number that cannot be"),
    "a time past all calendars": (_change(lambda d: d["events"][1].update(at=10**15)), "a number that"),
    "a huge turn": (_change(lambda d: _accepted(d)[0].update(turn=2**70)), "a number that cannot be"),
    "a huge event": (
        _change(lambda d: d["events"][1].update(kind="huge", body={"x": "y" * 4_000_001})), "limit is 4000000"
    ),
    "a file with another content": (
        _change(lambda d: d["files"].update({DIGEST: base64.b64encode(b"else").decode()})),
        "does not have that hash",
    ),
    "a file that is not base 64": (_change(lambda d: d["files"].update({DIGEST: "?"})), "not base 64"),
    "a file that is not ASCII": (_change(lambda d: d["files"].update({DIGEST: "é"})), "not base 64"),
    "a huge file": (
        _change(lambda d: d["files"].update(x=base64.b64encode(bytes(BLOB_BYTES_MAX + 1)).decode())),
        f"the limit is {BLOB_BYTES_MAX}",
    ),
    "a deleted conversation": (_change(lambda d: d["events"].append(GONE)), "was deleted"),
    "two messages with one key": (
        _change(lambda d: [body.update(key="k") for body in _accepted(d)]), "have the same key"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_importing_a_bad_file_names_the_problem(name: str, document: bytes) -> None:
    damage, why = DAMAGED[name]
    with pytest.raises(BadImport) as refused:
        exports.parse_export(damage(document), "a file")
    assert str(refused.value).startswith("a file is not an export of a conversation: ")
    assert why in str(refused.value)


def test_an_event_that_cannot_be_written_as_it_is_still_keeps_its_bytes() -> None:
    for body in (b'{"a":\n1}', b'{"a":"\xff"}', b"not json", b' {"a":1}'):
        event = Event(1, 1, "dream_dreamt", 2, body)
        text = exports.export_event(event)
        assert base64.b64decode(json.loads(text)["body_base64"]) == body and b"\n" not in text
