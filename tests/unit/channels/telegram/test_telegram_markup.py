"""Markdown in Telegram's HTML: what Telegram can read, with every word that was there."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.channels.telegram.markup import telegram_html, utf16_units, visible_text
from tests.support.telegram_html import misnested_entities, parse_markup

WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8)
SCRIBBLE = st.text("abcxyz  \n\n\t*_~`#>|-+=:[]()!\\<&19.\"'", max_size=120)
"""All that means something in Markdown, in no order."""


@pytest.mark.parametrize(
    ("markdown", "markup"),
    [
        ("plain", "plain"),
        ("# Title", "<b>Title</b>"),
        ("a **b** *c* ~~d~~ `e`", "a <b>b</b> <i>c</i> <s>d</s> <code>e</code>"),
        ("**bold *both***", "<b>bold </b><b><i>both</i></b>"),
        ("**run `ls` now**", "<b>run </b><code>ls</code><b> now</b>"),
        ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ('[x](https://e.org/?a=1&b="2")', '<a href="https://e.org/?a=1&amp;b=%222%22">x</a>'),
        ("[`code`](https://e.org)", '<a href="https://e.org">code</a>'),
        ("[a file](src/a.py)", "a file (src/a.py)"),
        ('[a](https://e.org "title")', '<a href="https://e.org">a</a> (title)'),
        ("[me](tg://user?id=1)", "me (tg://user?id=1)"),
        ("![a cat](https://e.org/cat.png)", '<a href="https://e.org/cat.png">a cat</a>'),
        ("```python\nif a < b:\n    pass\n```",
         '<pre><code class="language-python">if a &lt; b:\n    pass</code></pre>'),
        ("```\nnot closed", "<pre>not closed</pre>"),
        ("- a\n- b\n  - c\n\n1. x\n2. y", "• a\n• b\n  • c\n\n1. x\n2. y"),
        ("> a\n> > b", "<blockquote>a\n\nb</blockquote>"),
        ("> a\n> ```\n> b\n> ```\n> c",
         "<blockquote>a</blockquote>\n\n<pre>b</pre>\n\n<blockquote>c</blockquote>"),
        ("one\ntwo  \nthree", "one\ntwo\nthree"),
        ("a\n\n---\n\nb", "a\n\n———\n\nb"),
        ("| file | n |\n|---|--:|\n| **a**.py | 12 |\n| 你好 |",
         "<pre>file │ n\n─────┼───\na.py │ 12\n你好 │</pre>"),
        ("|a|b|\n|-|-|\n|c|d|e|", "<pre>|a|b|\n|-|-|\n|c|d|e|</pre>"),
    ],
)  # fmt: skip
def test_markdown_becomes_what_telegram_renders(markdown: str, markup: str) -> None:
    assert telegram_html(markdown) == markup


def test_a_table_need_not_be_padded() -> None:
    assert telegram_html("|a|long|\n|-|-|\n|b|c|", is_padded=False) == "<pre>a | long\nb | c</pre>"


def test_what_is_nested_too_deeply_to_be_read_is_left_as_it_is() -> None:
    assert telegram_html(">" * 60 + " deep") is None
    assert telegram_html("") is None


def test_length_is_counted_as_telegram_counts_it() -> None:
    assert [utf16_units("abc"), utf16_units("ä"), utf16_units("🙂"), utf16_units("👩‍👩‍👧")] == [3, 1, 2, 8]


@settings(max_examples=400, deadline=None)
@given(SCRIBBLE)
@example("**a `b` c**")
@example('[![a](b)](https://c "d")')
@example("> - a\n> - ```x y\n>   b")
@example("|a|\n|-|\n|b|c|")
@example("&lt;b&gt; &amp;amp;")
def test_no_markdown_makes_markup_that_telegram_cannot_read(markdown: str) -> None:
    for is_padded in (True, False):
        markup = telegram_html(markdown, is_padded=is_padded)
        if markup is None:
            continue
        text, entities = parse_markup(markup)
        assert misnested_entities(entities) == []
        assert visible_text(markup) == text


@settings(max_examples=400, deadline=None)
@given(st.text("abcxyz  \n\n*_~`#>|-+=:[]()!\\<19.", max_size=120))
def test_no_word_is_lost(markdown: str) -> None:
    """In whatever it stands: what is not shown is at least where a link leads or what code is written in."""
    markup = telegram_html(markdown)
    if markup is None:
        return
    text, entities = parse_markup(markup)
    kept = text + " " + " ".join(entity.value for entity in entities)
    assert _letters(markdown) <= _letters(kept)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A document as models write it, and its words in order."""
    blocks: list[str] = []
    said: list[str] = []
    for kind in draw(st.lists(st.sampled_from(["h", "p", "ul", "ol", "quote", "code", "table"]), max_size=6)):
        words = draw(st.lists(WORD, min_size=2, max_size=4))
        said += words
        first, rest = words[0], " ".join(words[1:])
        blocks.append(
            {
                "h": f"## {first} {rest}",
                "p": f"{first} **{rest}**",
                "ul": "\n".join(f"- *{word}*" for word in words),
                "ol": "\n".join(f"1. `{word}`" for word in words),
                "quote": "\n".join(f"> {word}" for word in words),
                "code": f"```\n{first}\n\n{rest}\n```",
                "table": f"| {first} |\n| --- |\n" + "\n".join(f"| {word} |" for word in words[1:]),
            }[kind]
        )
    return "\n\n".join(blocks), said


@given(documents())
@settings(max_examples=150, deadline=None)
def test_the_words_of_a_document_stay_in_their_order(written: tuple[str, list[str]]) -> None:
    markdown, words = written
    markup = telegram_html(markdown) or ""
    text, _ = parse_markup(markup)
    assert re.findall("[a-z]+", text) == words


def _letters(text: str) -> int:
    return sum(char in "abcxyz" for char in text)
