"""Long Markdown in pieces: nothing lost, nothing too long, code whole in each of them."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.channels.splitting import LIMIT_MIN, pieces, split, utf16_length
from holdfast.channels.streaming_reply import CONTINUATION_MARK, StreamingReply

LINES = st.one_of(
    st.just(""),
    st.sampled_from(["```", "```python", "````", "~~~", "  ```js", "- a point", "# A heading", "> quoted"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\n\r`~"), max_size=120),
    st.text("ab c.", min_size=50, max_size=400),
    st.text("😀é漢", min_size=20, max_size=300),
)
TEXTS = st.lists(LINES, max_size=40).map("\n".join)


def is_open(text: str) -> bool:
    """Whether code is open at the end of a piece."""
    fence = ""
    for line in text.split("\n"):
        found = re.match(r" {0,3}(`{3,16}|~{3,16})([^`\n]{0,100})$", line)
        if found is None:
            continue
        if not fence:
            fence = found.group(1)
        elif (
            found.group(1)[0] == fence[0] and len(found.group(1)) >= len(fence) and not found.group(2).strip()
        ):
            fence = ""
    return bool(fence)


@given(TEXTS, st.integers(LIMIT_MIN, 900))
def test_nothing_is_lost_and_every_piece_fits(text: str, limit: int) -> None:
    found = list(pieces(text, limit))
    assert "".join(piece.chunk for piece in found) == text
    assert all(utf16_length(piece.text) <= limit for piece in found)
    assert all(piece.strip() for piece in split(text, limit))


@given(TEXTS, st.integers(LIMIT_MIN, 900))
def test_code_is_closed_in_every_piece_but_one_that_never_was(text: str, limit: int) -> None:
    found = list(pieces(text, limit))
    assert not any(is_open(piece.text) for piece in found[:-1])
    assert not found or is_open(found[-1].text) == is_open(text)


@settings(deadline=None)
@given(TEXTS, st.integers(LIMIT_MIN, 900), st.integers(1, 400))
def test_what_is_cut_while_it_is_written_is_cut_as_the_whole_is(text: str, limit: int, step: int) -> None:
    writing, shown = StreamingReply(limit), dict[int, str]()
    for at in range(0, len(text), step):
        writing.add(text[at : at + step])
        shown |= dict(writing.take_unseen())
        assert all(utf16_length(each.removesuffix(CONTINUATION_MARK)) <= limit for each in shown.values())
    whole = split(text, limit)
    # The last may become several; all before it stay what they are.
    assert list(shown) == list(range(len(shown))) and len(shown) <= len(whole)
    assert [shown[n] for n in range(len(shown) - 1)] == whole[: max(len(shown) - 1, 0)]


@given(st.lists(st.text("ab. \n`", max_size=400), min_size=2, max_size=4), st.integers(1, 60))
def test_what_is_written_in_several_parts_is_cut_where_the_whole_of_them_is(
    parts: list[str], by: int
) -> None:
    writing, shown = StreamingReply(200), dict[int, str]()
    for part in parts:
        writing.mark_break()
        for at in range(0, len(part), by):
            writing.add(part[at : at + by])
            shown |= dict(writing.take_unseen())
    whole = split("\n".join(filter(None, parts)), 200)
    assert len(shown) <= len(whole)
    assert [shown[n] for n in range(len(shown) - 1)] == whole[: max(len(shown) - 1, 0)]


def test_a_text_that_is_ten_times_as_long_takes_about_ten_times_as_long() -> None:
    text = "Some words of an answer that is long. " * 40_000
    began = time.process_time()
    split(text[: len(text) // 10], 500)
    short = time.process_time() - began
    split(text, 500)
    assert time.process_time() - began - short < 40 * short + 0.2


def test_what_fits_is_left_as_it_is() -> None:
    assert split("Short.\n\n```\nx\n```", 200) == ["Short.\n\n```\nx\n```"]
    assert split("", 200) == split("\n \n", 200) == []


def test_paragraphs_are_kept_together() -> None:
    first, second = "One. " * 25, "Two. " * 25
    assert split(f"{first}\n\n{second}", 200) == [first, second]


def test_sentences_are_kept_together() -> None:
    text = " ".join(f"This is sentence number {n}, of some length." for n in range(20))
    assert all(piece.rstrip().endswith(".") for piece in split(text, 300))


def test_code_that_is_cut_is_closed_and_opened_again_with_its_language() -> None:
    text = "```python\n" + "\n".join(f"line_{n} = {n}" for n in range(60)) + "\n```"
    found = split(text, 300)
    assert len(found) > 2
    assert all(piece.startswith("```python\n") and piece.endswith("\n```") for piece in found)


def test_what_is_before_code_is_cut_from_it() -> None:
    words, code = "Some words. " * 12, "```\n" + "x = 1\n" * 20 + "```"
    assert split(f"{words}\n{code}", 250) == [words, code]


@pytest.mark.parametrize("text", ["x" * 1_000, "😀" * 1_000])
def test_a_word_without_end_is_cut_where_it_must_be(text: str) -> None:
    found = split(text, 200)
    assert "".join(found) == text and all(utf16_length(piece) <= 200 for piece in found)
