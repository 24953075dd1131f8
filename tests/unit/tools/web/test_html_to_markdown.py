"""Pages as text: what people would read of them, and that no page, however broken, takes long or fails."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.limits import FETCH_URL_PIECES_MAX, FETCH_URL_TEXT_CHARS_MAX
from holdfast.tools.arguments import ToolError
from holdfast.tools.web.charset import decode_body
from holdfast.tools.web.html_to_markdown import REST_HEADING, html_to_markdown
from holdfast.tools.web.html_tokenizer import tokenize

AT = "https://example.org/a/b"


def text_of(page: str) -> str:
    return html_to_markdown(page, AT).text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<p>one<p>two", "one\n\ntwo"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<h1>A</h1><h3>B <i>c</i></h3>d", "# A\n\n### B c\n\nd"),
        ("<ul><li>a<li>b <ul><li>c</ul></ul>d", "- a\n- b\n  - c\n\nd"),
        ("<ol start=7><li>a</li><li>b</li></ol>", "7. a\n8. b"),
        ("<ol start=-1><li>a</ol><ol start=x><li>b</ol>", "1. a\n\n1. b"),
        ("<li>alone", "- alone"),
        ("<a href='x?y=1&amp;z=2'>l</a>", "[l](https://example.org/a/x?y=1&z=2)"),
        ("<a href=//o.example/p>l</a>", "[l](https://o.example/p)"),
        ("<a href='#top'>up</a> <a>no</a> <a href='javascript:x'>js</a>", "up no js"),
        ("<a href='http://[bad'>x</a><a href=' /y '>z</a>", "x[z](https://example.org/y)"),
        ("<a href=/a>one<a href=/b>two", "[one](https://example.org/a)[two](https://example.org/b)"),
        ("say <a href=/x> it </a>now", "say [it](https://example.org/x)now"),
        ("<a href=/x><div>a</div><div>b</div></a>", "[a](https://example.org/x)\n[b](https://example.org/x)"),
        ("<a href='/x (1) y'>l</a>", "[l](https://example.org/x%20(1%29%20y)"),
        ("<base href='https://b.example/c/'><a href=d>l</a>", "[l](https://b.example/c/d)"),
        ("<pre>a\n  b\n\nc</pre>d", "```\na\n  b\n\nc\n```\n\nd"),
        ("use <code>x &lt; y</code>", "use `x < y`"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
        ("<blockquote>said<p>more</blockquote>x", "> said\n\n> more\n\nx"),
        ("<img alt='a  cat'><img src=x>", "[image: a cat]"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("&lt;b&gt; &amp;amp; &eacute;&#233;&#xe9; &nosuch; &copy", "<b> &amp; ééé &nosuch; ©"),
        ("&#0; &#xD800; &#x110000;", "\ufffd \ufffd \ufffd"),
        ("&#" + "9" * 10_000 + ";x&#x" + "f" * 10_000, "\ufffdx\ufffd"),
        ("a<script>if (1<2) x('<p>no')</script>b<style>p{}</style>c<!-- no <p> -->d", "abcd"),
        ("a<SCRIPT >no</script\n>b<svg><text>no</text></svg>c<template>no</template>d", "abcd"),
        ("a<svg><svg></svg>no</svg>b", "ab"),
        ("a<!-->b--><!DOCTYPE x><?php no ?>c</>d", "ab-->cd"),
        ("1 < 2 and a<3 <", "1 < 2 and a<3 <"),
        ("a <é b </é>c", "a <é b c"),
        ("<p title='a>b' class=\"c>d\">e", "e"),
        ("<p title=it's>one</p><p>two's", "one\n\ntwo's"),
        ("<p title=\"never closed>text <b>x</b>", "text x"),
        ("seen <a href=", "seen"),
        ("seen <script>never closed <p>x", "seen"),
        ("<![CDATA[raw <b>]]> x", "raw <b> x"),
        ("<noscript>please</noscript>", "please"),
        ("</p></div></li></ul></a></pre></title>fine", "fine"),
        ("a\u00a0 \n\t b", "a b"),
        ("a\u202e\u200bb\U000e0041", "ab"),
        ("<x-foo bar>custom</x-foo>", "custom"),
        ("", ""),
        ("   ", ""),
    ],
)  # fmt: skip
def test_a_page_becomes_readable_markdown(page: str, text: str) -> None:
    assert text_of(page) == text


def test_the_first_title_counts_and_is_not_part_of_the_text() -> None:
    page = html_to_markdown("<title>\n A &amp; B <i> </title><title>C</title><p>x", AT)
    assert (page.title, page.text) == ("A & B <i>", "x")


def test_main_content_comes_first_and_nothing_is_lost() -> None:
    words = "many words " * 30
    page = f"<nav><a href=/>Home</a></nav><main><p>{words}</main><footer>end</footer>"
    assert text_of(page) == f"{words.strip()}\n\n{REST_HEADING}\n\n[Home](https://example.org/)\n\nend"
    assert text_of("<nav>n</nav><main>short</main>") == "n\n\nshort", "too little to be the main part"


@given(st.text(alphabet="<>/!-='\"& #;\n\tabpreltdihscgv[]?", max_size=300))
def test_malformed_markup_never_fails(page: str) -> None:
    read = html_to_markdown(page, AT)
    assert "".join(piece.value for piece in tokenize(page)) is not None
    assert len(read.text) <= 60 * len(page) + 60 and not read.is_cut


WORDS = st.sampled_from((
    "<p>", "</p>", "<a href=x>", "</a>", "<pre>", "</pre>", "<ul>", "<li>", "</ul>", "<table>", "<tr>",
    "<td>", "<main>", "</main>", "<svg>", "</svg>", "<title>", "</title>", "<script>", "</script>", "<!--",
    "-->", "<h1>", "</h2>", "<blockquote>", "</blockquote>", "<br>", "&amp;", "&#", "<", "a='", '"',
    "<base href=", "w ",
))  # fmt: skip


@given(st.lists(WORDS | st.text(string.printable, max_size=3), max_size=60).map("".join))
def test_tags_in_any_order_never_fail(page: str) -> None:
    assert isinstance(html_to_markdown(page, AT).text, str)


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "text/html", "text/html; charset=utf-16", "text/x; charset=gbk"]),
)
def test_any_bytes_decode_or_are_refused(body: bytes, kind: str) -> None:
    try:
        found, text = decode_body(body, kind)
    except ToolError:
        return
    assert found in ("html", "text") and isinstance(html_to_markdown(text, AT).text, str)


NEVER_ENDING = (
    "<a ", '<a ="', "<a ='\"x", "<!--", "<!-- -", "<script>", "</script", "<![CDATA[", "<title>", "<?", "<!",
    "</", "</svg>", "&#", "&#9", "&", "&a", "]]>", "-->", "=", "<a b=c ", "<a\t", "'", '"', "<meta charset=",
    "<a href='",
)  # fmt: skip
ENDING = (
    "<", "<a href=x>y</a>", "<pre>\n", "<ol>", "<li>", "<svg>", "<blockquote>x", "<td>", "<p title=it's>",
    "<a href=x><div>y", "<main>", "<base href=x/>", "<img alt=x>", "<code>", "<br>",
    "<a href=" + "x" * 900 + ">y</a>",
)  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("words", "chars"), [(NEVER_ENDING, 1_000_000), (ENDING, 60_000)])
def test_parsing_time_is_linear(words: tuple[str, ...], chars: int) -> None:
    # What grew with the square of it would not be done within the hour.
    for word in words:
        assert isinstance(html_to_markdown(word * (chars // len(word)), AT).text, str)


@pytest.mark.parametrize(
    "page",
    [
        "<b>" * (FETCH_URL_PIECES_MAX + 1),
        "<pre>" + "\n" * (FETCH_URL_TEXT_CHARS_MAX + 10),
        "x" * (FETCH_URL_TEXT_CHARS_MAX + 10),
        "<a href=x>y</a>" * (FETCH_URL_TEXT_CHARS_MAX // 500),
    ],
    ids=["tags", "lines", "text", "links"],
)
def test_converted_text_is_bounded_with_a_note(page: str) -> None:
    read = html_to_markdown(page, "https://example.org/" + "l" * 900 + "/")
    assert read.is_cut and len(read.text) < FETCH_URL_TEXT_CHARS_MAX + 5_000
