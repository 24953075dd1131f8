"""Every wire protocol's parser against streams that were split, cut, shuffled, spoilt and mixed with rubbish.

Whatever comes, what had come before the fault was handed over, a failure is a ModelFailure, and an answer
ends once or not at all.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.models.chat.wire import ChatWire
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.http_model import AnswerDecoder
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol
from tests.support import messages_streams, model_server, responses_streams

ENDPOINT = Endpoint("http://127.0.0.1:1/v1", "small", Secret(""))


def events_of(stream: bytes) -> tuple[bytes, ...]:
    return tuple(each + b"\n\n" for each in stream.split(b"\n\n") if each)


WIRES: Sequence[tuple[str, WireProtocol, tuple[bytes, ...]]] = (
    ("chat", ChatWire(), events_of(model_server.TEXT_STREAM)),
    ("chat_thinking", ChatWire(), events_of(model_server.OPAQUE)),
    ("chat_tags", ChatWire(), events_of(model_server.TAGGED)),
    ("messages", MessagesWire(), messages_streams.EVENTS),
    ("responses", ResponsesWire(), events_of(responses_streams.TEXT_STREAM)),
)
"""Each protocol with the events of an answer that has everything in it."""
EVERY = pytest.mark.parametrize(
    ("wire", "events"), [each[1:] for each in WIRES], ids=[each[0] for each in WIRES]
)

Heard = tuple[list[ModelDelta], ModelFailure | None]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
INVALID_DATA = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(lambda body: b"data: " + body + b"\n\n"),
    VALUES.map(lambda value: b"data: " + msgspec.json.encode(value) + b"\n\n"),
    st.sampled_from(
        [b"data: " + b'{"type":' * 50_000 + b"\n\n", b"data: [DONE]\n\n", b"\n\n", b"data: \n\n"]
    ),
)


def decoded(wire: WireProtocol, chunks: Sequence[bytes], to_its_end: bool = True) -> Heard:
    """What is handed over as these chunks come, and the failure that ends it. Anything else is raised."""
    answer = AnswerDecoder(ENDPOINT, wire)
    deltas: list[ModelDelta] = []
    try:
        for chunk in chunks:
            if answer.has_stream_ended:
                break
            for delta in answer.feed(chunk):
                deltas.append(delta)
        if to_its_end:
            for delta in answer.end():
                deltas.append(delta)
    except ModelFailure as failure:
        return deltas, failure
    return deltas, None


def check_end(heard: Heard) -> None:
    """An answer ends once, last of all, or it fails."""
    deltas, failure = heard
    ends = [delta for delta in deltas if isinstance(delta, StepEnd)]
    assert len(ends) == (0 if failure is not None else 1)
    assert not ends or deltas[-1] is ends[0]


def check_kept(wire: WireProtocol, before: Sequence[bytes], heard: Heard) -> None:
    """What came whole before the fault was handed over, and first."""
    kept, failure = decoded(wire, before, to_its_end=False)
    assert failure is None
    assert heard[0][: len(kept)] == kept
    check_end(heard)


@EVERY
def test_the_sample_stream_is_a_complete_answer(wire: WireProtocol, events: tuple[bytes, ...]) -> None:
    heard = decoded(wire, events)
    check_end(heard)
    assert heard[1] is None
    assert len({type(delta) for delta in heard[0]}) == 4, "text, thinking, calls and an end"


@EVERY
@given(cuts=st.lists(st.integers(0, 100_000), max_size=12))
def test_any_split_of_the_stream_decodes_to_the_same_answer(
    wire: WireProtocol, events: tuple[bytes, ...], cuts: list[int]
) -> None:
    body = b"".join(events)
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    assert decoded(wire, [body[a:b] for a, b in pairwise(edges)]) == decoded(wire, events)


@EVERY
def test_a_stream_cut_at_any_byte_keeps_everything_before_the_cut(
    wire: WireProtocol, events: tuple[bytes, ...]
) -> None:
    body, (whole, _) = b"".join(events), decoded(wire, events)
    seen = 0
    for at in range(len(body)):
        deltas, failure = heard = decoded(wire, [body[:at]])
        check_end(heard)
        said = deltas if failure is not None else deltas[:-1]
        assert said == whole[: len(said)]
        assert len(said) >= seen, "more bytes never give less"
        seen = len(said)
    assert seen == len(whole) - 1


@EVERY
@given(st.data())
def test_invalid_data_anywhere_keeps_everything_before_it(
    wire: WireProtocol, events: tuple[bytes, ...], draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, len(events)))
    rubbish = draw.draw(st.lists(INVALID_DATA, min_size=1, max_size=4))
    chunks = [*events[:at], *rubbish, *events[at:]]
    deltas, failure = heard = decoded(wire, chunks)
    check_kept(wire, events[:at], heard)
    at_once, same = decoded(wire, [b"".join(chunks)])
    assert (at_once, str(same)) == (deltas, str(failure)), "how it is split makes no difference"


@EVERY
@given(st.data())
def test_lost_duplicated_or_reordered_events_keep_everything_before_them(
    wire: WireProtocol, events: tuple[bytes, ...], draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, len(events)))
    tail = draw.draw(st.lists(st.sampled_from(events), max_size=2 * len(events)))
    check_kept(wire, events[:at], decoded(wire, [*events[:at], *tail]))


@EVERY
@settings(max_examples=300)
@given(st.data())
def test_an_event_with_arbitrary_content_keeps_everything_before_it(
    wire: WireProtocol, events: tuple[bytes, ...], draw: st.DataObject
) -> None:
    at = draw.draw(st.integers(0, len(events) - 1))
    spoilt = _corrupt(events[at], draw)
    check_kept(wire, events[:at], decoded(wire, [*events[:at], spoilt, *events[at + 1 :]]))


def _corrupt(event: bytes, draw: st.DataObject) -> bytes:
    """The event with one value somewhere in its data left out or replaced."""
    head, _, body = event.partition(b"data: ")
    try:
        value = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return event
    value = _mutate(value, draw)
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


def _mutate(value: Any, draw: st.DataObject) -> Any:
    if isinstance(value, dict) and value and draw.draw(st.booleans()):
        name = draw.draw(st.sampled_from(sorted(value)))
        if draw.draw(st.integers(0, 3)) == 0:
            return {key: inner for key, inner in value.items() if key != name}
        return {**value, name: _mutate(value[name], draw)}
    if isinstance(value, list) and value and draw.draw(st.booleans()):
        return [_mutate(value[0], draw), *value[1:]]
    return draw.draw(VALUES)
