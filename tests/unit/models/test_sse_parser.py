"""Events come out the same however their bytes are split, and nothing grows without bound."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.models.sse import EventTooLong, SseParser

LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data", b"data: ", b"data:  two", b": note", b"event: x", b"id: 1", b"", b"",
     b"datas: no", "data: é世🌍".encode(), b"data: [DONE]"]
)  # fmt: skip
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def parsed(chunks: list[bytes], data_bytes_max: int = 1_000) -> tuple[list[bytes], bytes]:
    parser = SseParser(data_bytes_max)
    return [data for chunk in chunks for data in parser.feed(chunk)], parser.end()


def split(body: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    return [body[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"]),
        (b"data: one\ndata: two\n\n", [b"one\ntwo"]),
        (b": ping\n\nevent: message\nid: 7\nretry: 9\ndata: a\n\n", [b"a"]),
        (b"data:no space\n\ndata:  two spaces\n\n", [b"no space", b" two spaces"]),
        (b"data\n\ndata:\ndata:\n\n", [b"", b"\n"]),
        (b"\n\n\n\ndata: a\n\n\n\n", [b"a"]),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        (b"database: x\n\nerror: y\n\n", []),
        (b"data: a\x0bb\x0cc\x1cd\n\n", [b"a\x0bb\x0cc\x1cd"]),
    ],
)
def test_events_are_parsed_as_the_specification_says(body: bytes, events: list[bytes]) -> None:
    assert parsed([body]) == (events, b"")
    assert parsed([body[i : i + 1] for i in range(len(body))]) == (events, b"")


@given(st.lists(st.tuples(LINES, ENDS), max_size=12), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_split_gives_the_same_events(lines: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    body = b"".join(line + end for line, end in lines)
    assert parsed(split(body, cuts)) == parsed([body])


@given(st.lists(st.lists(st.tuples(LINES, ENDS), min_size=1, max_size=3), max_size=6))
def test_events_fed_one_at_a_time_equal_events_fed_at_once(
    events: list[list[tuple[bytes, bytes]]],
) -> None:
    chunks = [b"".join(line + end for line, end in lines) + b"\n" for lines in events]
    assert parsed(chunks) == parsed([b"".join(chunks)])


@given(st.integers(0, 40))
def test_a_cut_stream_yields_complete_events_and_the_partial_last_one(at: int) -> None:
    body = b"data: first\n\ndata: second\n\ndata: third\n\n"
    events, rest = parsed([body[:at]])
    words = [b"first", b"second", b"third", b""]
    assert events == words[: len(events)]
    assert words[len(events)].startswith(rest)


def test_an_event_without_a_blank_line_is_returned_by_end() -> None:
    assert parsed([b"data: a\n\ndata: b\n"]) == ([b"a"], b"b")
    assert parsed([b"data: a\n\ndata: b"]) == ([b"a"], b"b")
    assert parsed([b"data: a\n\ndat"]) == ([b"a"], b"")


@pytest.mark.parametrize(
    "long",
    [b"data: " + b"x" * 1_001, b": " + b"x" * 1_001, b"data: x\n" * 600, b"data:\n" * 1_100],
    ids=["data", "comment", "many lines", "many empty lines"],
)
@pytest.mark.parametrize("size", [7, 100_000])
def test_an_event_that_is_too_long_is_refused_after_earlier_events(long: bytes, size: int) -> None:
    body = b"data: kept\n\n" + long + b"\n\ndata: never\n\n"
    parser = SseParser(1_000)
    events = []
    with pytest.raises(EventTooLong):
        for start in range(0, len(body), size):
            for data in parser.feed(body[start : start + size]):
                events.append(data)
    assert events == [b"kept"]


def test_a_long_line_in_many_chunks_is_joined() -> None:
    body = b"data: " + b"x" * 200_000 + b"\n\n"
    assert parsed([body[i : i + 100] for i in range(0, len(body), 100)], 300_000)[0] == [b"x" * 200_000]
