"""Answers as the terminal draws them: whatever their Markdown, no word is lost."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from holdfast.cli.markdown_rendering import render_markdown

MARKS = (
    "<details>", "</details>", "<b>", "<!-- ", " -->", "<", ">", "| ", "\n| - | - |\n", "\n| ", "![", "[",
    "](", "](http://x.example/", ' "', ")", "]: ", "\n```\n", "`", "\n> ", "\n- ", "\n1. ", "\n7. ", "**",
    "~~", "_", "&amp;", "&lt;", "\\", "\n# ", "\n    ", "\n", "\n\n", " ", " ",
)  # fmt: skip
WORDS = st.integers(0, 999).map(lambda number: f"word{number}")
ROWS = st.integers(1, 12).flatmap(lambda count: st.lists(WORDS, min_size=count, max_size=count))
TABLES = ROWS.map(
    lambda row: f"\n\n| {' | '.join(row)} |\n|{'-|' * len(row)}\n| {' | '.join(row)} | word0 |\n\n"
)
BLOCKS = st.one_of(
    TABLES,
    WORDS.map(lambda word: f"<{word}>"),
    st.tuples(WORDS, WORDS, WORDS).map(lambda words: '[{}](http://{} "{}")'.format(*words)),
    st.tuples(WORDS, WORDS).map(lambda words: "![{}](http://{})".format(*words)),
    st.tuples(WORDS, WORDS).map(lambda words: "\n\n[{}]: http://{}\n\n".format(*words)),
)
TEXTS = st.lists(WORDS | st.sampled_from(MARKS) | BLOCKS, max_size=30)


def rendered_text(text: str, columns: int = 80) -> str:
    """Return the text on a screen without its line breaks."""
    console = Console(file=io.StringIO(), width=columns, legacy_windows=False)
    console.print(render_markdown(text, columns))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def words_in(text: str) -> set[str]:
    """All words, but those behind the mark that begins code: they name its language."""
    lines = [line for line in text.split("\n") if not line.lstrip(" >-*17.").startswith(("```", "~~~"))]
    return set(re.findall(r"word\d+", "\n".join(lines)))


@given(TEXTS, st.sampled_from([16, 40, 80]))
def test_markdown_rendering_keeps_every_word(pieces: list[str], columns: int) -> None:
    text = "".join(pieces)
    shown = re.sub(r"[\W_]", "", rendered_text(text, columns))
    assert {word for word in words_in(text) if word not in shown} == set()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "<details><summary>More</summary>inside</details>",
            "<details><summary>More</summary>inside</details>",
        ),
        ("press <kbd>A</kbd> <!-- now -->", "press <kbd>A</kbd> <!-- now -->"),
        ("see ![a lamp](http://x.example/lamp.png) here", "see !a lamp (http://x.example/lamp.png) here"),
        ('[words](http://x.example "a title")', '[words](http://x.example "a title")'),
        ("[unused]: http://x.example", "[unused]: http://x.example"),
        ("A **bold** word", "A bold word"),
    ],
)
def test_markdown_that_cannot_be_rendered_is_shown_as_text(text: str, shown: str) -> None:
    assert rendered_text(text).strip() == shown


def test_a_too_wide_table_is_shown_as_source_text() -> None:
    head = [f"column{number}" for number in range(20)]
    table = f"| {' | '.join(head)} |\n|{'---|' * 20}\n"
    shown = rendered_text(table)
    assert all(name in shown for name in head) and "…" not in shown
