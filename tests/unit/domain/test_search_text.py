"""Search finds what people type: words, identifiers, scripts without spaces. Against a real index."""

import contextlib
import time
import unicodedata
from collections.abc import Callable, Iterator

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import BadQuery
from holdfast.domain.limits import SEARCH_TERMS_MAX, SNIPPET_CHARS
from holdfast.domain.search_text import index_text, match_query, snippet

Find = Callable[[str, str], bool]
TOKENIZERS = ("ascii", "unicode61 remove_diacritics 0", "unicode61 remove_diacritics 0 categories 'L* N* Co'")


@pytest.fixture(scope="module", params=TOKENIZERS)
def find(request: pytest.FixtureRequest) -> Iterator[Find]:
    """Whether a text is found by a query, in a contentless FTS5 table."""
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE search USING fts5"
        f'(words, content = "", contentless_delete = 1, tokenize = "{request.param}")'
    )

    def ask(text: str, query: str) -> bool:
        db.execute("DELETE FROM search")
        db.execute("INSERT INTO search (rowid, words) VALUES (1, ?)", (index_text(text),))
        return bool(list(db.execute("SELECT rowid FROM search WHERE search MATCH ?", (match_query(query),))))

    yield ask
    db.close()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The quick brown fox", "quick"),
        ("The quick brown fox", "fox QUICK"),
        ("The quick brown fox", "bro"),
        ("The quick brown fox", '"quick brown"'),
        ("call getUserName() here", "getUserName"),
        ("call getUserName() here", "getusername"),
        ("call getUserName() here", "userName"),
        ("call getUserName() here", "user name"),
        ("call getUserName() here", "username"),
        ("call getUserName() here", "getUser"),
        ("an HTTPServer in tests", "http server"),
        ("an HTTPServer in tests", "HTTPServ"),
        ("def parse_config(path):", "parse_config"),
        ("def parse_config(path):", "config"),
        ("def parse_config(path):", "parse_conf"),
        ("see src/holdfast/domain/search_text.py", "domain/search_text.py"),
        ("foo.barBaz()", "foo.barBaz"),
        ("version 3.51.3 is out", "3.51.3"),
        ("明天的会议改到下午三点", "会议"),
        ("明天的会议改到下午三点", "下午"),
        ("会", "会"),
        ("API设计文档", "API设计"),
        ("データベースが壊れた", "データベース"),
        ("データベースが壊れた", "壊れ"),
        ("ﾃﾞｰﾀﾍﾞｰｽ", "データベース"),
        ("회의에서 논의했다", "회의"),
        ("ประชุมพรุ่งนี้", "พรุ่งนี้"),
        ("हिन्दी में लिखा", "हिन्दी"),
        ("Привет, мир", "привет"),
        ("café au lait", "cafe"),
        ("cafe au lait", "café"),
        ("cafe\u0301 au lait", "café"),
        ("STRASSE", "straße"),
        ("İstanbul", "istanbul"),
        ("ｆｕｌｌ ｗｉｄｔｈ", "full width"),
        ("well done 🎉 team", "done 🎉"),
        ("𠮷野家", "𠮷野"),
        ("AND OR NOT NEAR", "and or not near"),
        ("x" * 5000, "x" * 5000),
    ],
)
def test_finds(find: Find, text: str, query: str) -> None:
    assert find(text, query)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The quick brown fox", "quick cat"),
        ("The quick brown fox", '"brown quick"'),
        ("会面再议", "会议"),
        ("parse the config", "config_parse"),
        ("ははは", "ばば"),
        ("united", '"unit"'),
        ("", "anything"),
        ("🎉🎉", "party"),
    ],
)
def test_does_not_find(find: Find, text: str, query: str) -> None:
    assert not find(text, query)


@pytest.mark.parametrize("query", ["", "   ", "🎉", '""', "***", "()", "\u0301\u0301", "_"])
def test_a_query_without_a_word_is_refused(query: str) -> None:
    with pytest.raises(BadQuery):
        match_query(query)
    with pytest.raises(BadQuery):
        snippet("some text", query)


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=60))
def test_no_query_is_a_syntax_error(find: Find, query: str) -> None:
    try:
        find("anything at all 会议", query)
    except BadQuery:
        assert not any(c.isascii() and c.isalnum() for c in query)


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=40))
def test_any_text_with_a_word_finds_itself(find: Find, text: str) -> None:
    # A quotation mark in a query opens a phrase, which asks for something else.
    query = text.replace('"', " ")
    if index_text(query):
        assert find(f"before {text} after", query)


@given(st.text(max_size=80))
def test_words_hold_no_space_punctuation_or_symbol(text: str) -> None:
    kinds = {unicodedata.category(c)[0] for c in index_text(text).replace(" ", "")}
    # Characters that this Python does not know yet may be Han of a newer Unicode.
    assert kinds <= {"L", "N", "C"}


def test_a_query_has_a_bounded_number_of_terms() -> None:
    assert match_query(" ".join(f"w{i}" for i in range(1000))).count(" AND ") == SEARCH_TERMS_MAX - 1
    assert len(match_query("会" * 100_000)) < 1000


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("We met in the café today", "cafe", ["café"]),
        ("call getUserName() here", "username", ["UserName"]),
        ("call getUserName() here", "user name", ["User", "Name"]),
        ("call getUserName() here", "getUserName", ["getUserName"]),
        ("def parse_config(path):", "parse_config", ["parse_config"]),
        ("明天的会议改到下午", "会议", ["会议"]),
        ("회의에서 논의", "회의", ["회의"]),
        ("🎉🎉 the meeting 🎉", "meeting", ["meeting"]),
        ("Straße und strasse", "strasse", ["Straße", "strasse"]),
        ("one two three", "tw", ["tw"]),
        ("nothing of it", "absent", []),
    ],
)
def test_a_snippet_marks_what_was_found(text: str, query: str, found: list[str]) -> None:
    shown, marks = snippet(text, query)
    assert [shown[a:b] for a, b in marks] == found
    assert shown == text


def test_a_snippet_shows_the_best_part_of_a_long_text() -> None:
    text = "alpha " + "filler " * 100 + "then alpha met\nbeta there " + "filler " * 100
    shown, marks = snippet(text, "alpha beta")
    assert [shown[a:b] for a, b in marks] == ["alpha", "beta"]
    assert len(shown) <= SNIPPET_CHARS
    assert shown.startswith("…") and shown.endswith("…") and "\n" not in shown


@given(st.text(max_size=400), st.text(max_size=20))
def test_a_snippet_is_bounded_and_its_marks_lie_within(text: str, query: str) -> None:
    try:
        shown, marks = snippet(text, query)
    except BadQuery:
        return
    assert len(shown) <= SNIPPET_CHARS
    ends = [0, *(offset for mark in marks for offset in mark), len(shown)]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    "text",
    ["a" * 1_000_000, "aB" * 500_000, "a" + "\u0301\u0316" * 500_000, "\ufdfa" * 300_000, "会议" * 300_000,
     "_" * 1_000_000, "parse" + " " * 1_000_000, '"' * 1_000_000],
)  # fmt: skip
def test_hostile_text_is_indexed_and_quoted_in_bounded_time(text: str) -> None:
    begun = time.process_time()
    index_text(text)
    snippet(text, 'a parse_config 会议 aBaB "b a"')
    with contextlib.suppress(BadQuery):
        match_query(text)
    # Not a timing: what grows with the square of the text would take hours.
    assert time.process_time() - begun < 30
