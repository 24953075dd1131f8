"""Tokenize text and queries for search.

Text is indexed as space-separated words of letters and digits only, so that any simple tokenizer keeps them
whole. Scripts written without spaces are indexed by character and queried as phrases. An identifier is found
whole and by its parts.
"""

import re
import unicodedata

from holdfast.domain.errors import BadQuery
from holdfast.domain.limits import SEARCH_TERMS_MAX, SNIPPET_CHARS

Marks = tuple[tuple[int, int], ...]

_WORD_CHARS_MAX = 64
"""A longer word (a hash, encoded bytes) is indexed by its beginning."""
_IDENTIFIER_PARTS_MAX = 8
"""A word with more parts is not an identifier that anyone would search by its parts."""
_PHRASE_WORDS_MAX = 64
_LOOSE_CHARS_MIN = 4
"""A shorter word is a prefix of too many others."""
_QUERY_CHARS_MAX = 2_000
_SNIPPET_MATCHES_MAX = 200

# Han, kana, bopomofo, hangul, yi; thai, lao, myanmar, khmer: written without spaces, or (hangul) with
# endings that grow onto a word.
_UNSPACED = (
    r"\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0eff\u1000-\u1049\u1050-\u109d\u1100-\u11ff"
    r"\u1780-\u17d3\u17e0-\u17e9\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3041-\u3096"
    r"\u309d-\u309f\u30a1-\u30fa\u30fc-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\ua48c"
    r"\ua960-\ua97c\uac00-\ud7fb\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_PART_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_CHUNK = re.compile(r'"([^"]*)"|([^\s"]+)')
_BETWEEN = r"[\W_]{0,8}"
# Voicing marks distinguish kana; all other marks are removed.
_KEPT_MARKS = frozenset("\u3099\u309a")
# These are letters today, but marks in SQLite's tables, where they would split words.
_LEFT_OUT = re.compile("[\u19b0-\u19c0\u19c8\u19c9\u1cf2\u1cf3]")


def index_text(text: str) -> str:
    """Return the words of `text` for a search index: in order, then the parts of its identifiers."""
    plain = _normalize(text)
    lower = plain.casefold()
    words = [
        word if len(word) <= _WORD_CHARS_MAX else word[:_WORD_CHARS_MAX]
        for word in (_ASCII_WORD if lower.isascii() else _WORD).findall(lower)
    ]
    if plain != lower:
        for word in dict.fromkeys(_ASCII_WORD.findall(plain)):
            parts = _identifier_parts(word)
            words += parts
            # Suffixes, so that `username` finds getUserName.
            words += ("".join(parts[i:]) for i in range(1, len(parts) - 1))
    return " ".join(words)


def match_query(query: str) -> str:
    """Return `query` as an FTS5 expression that requires all its words; the last may be unfinished.

    Raises BadQuery if it has no word. Terms past SEARCH_TERMS_MAX are dropped.
    """
    terms = [_expression(words, prefix) for words, prefix in _terms(query)]
    return " AND ".join(dict.fromkeys(terms))


def loose_terms(text: str) -> list[str]:
    """Return the terms of `text` that other texts may share, each as an FTS5 expression, in order and once.

    A longer word also matches words that begin with it, and its singular; a short one matches its plural.
    Characters of scripts without spaces are taken in pairs.
    """
    found = [(match[0], match.span()) for match in _WORD.finditer(_normalize(text).casefold())]
    terms: list[str] = []
    for i, (word, (start, end)) in enumerate(found):
        if not _IS_UNSPACED.match(word):
            terms.append(_loose_expression(word[:_WORD_CHARS_MAX]))
        elif i + 1 < len(found) and found[i + 1][1][0] == end and _IS_UNSPACED.match(found[i + 1][0]):
            terms.append(f'"{word} {found[i + 1][0]}"')
        elif not (i and found[i - 1][1][1] == start and _IS_UNSPACED.match(found[i - 1][0])):
            terms.append(f'"{word}"')
    return list(dict.fromkeys(terms))


def snippet(text: str, query: str) -> tuple[str, Marks]:
    """Return the excerpt of `text` that matches `query` best, and the positions of the matches in it."""
    folded, offsets = _fold(text)
    patterns = [_pattern(words, prefix) for words, prefix in _terms(query)]
    spans = _spans(folded, patterns)
    found = [(offsets[a], offsets[b], term) if offsets else (a, b, term) for a, b, term in spans]
    start, end = _window(text, found)
    lead, tail = "…" if start > 0 else "", "…" if end < len(text) else ""
    shown = lead + re.sub(r"\s", " ", text[start:end]) + tail
    shift = len(lead) - start
    marks: list[tuple[int, int]] = []
    for a, b, _ in sorted(found):
        if a >= start and b <= end and (not marks or a + shift >= marks[-1][1]):
            marks.append((a + shift, b + shift))
    return shown, tuple(marks)


def _strip(text: str) -> str:
    marks = [c for c in set(text) if unicodedata.category(c)[0] == "M" and c not in _KEPT_MARKS]
    return text.translate(dict.fromkeys(map(ord, marks))) if marks else text


def _normalize(text: str) -> str:
    """Return compatibility-normalized text without accents and vowel points; case is kept."""
    if text.isascii():
        return text
    # Marks are removed first: normalizing sorts a run of them in quadratic time.
    parted = unicodedata.normalize("NFKD", _strip(text))
    return _LEFT_OUT.sub("", unicodedata.normalize("NFC", _strip(parted)))


def _loose_expression(word: str) -> str:
    if len(word) < _LOOSE_CHARS_MIN - 1 or not word.isalpha():
        return f'"{word}"'
    if len(word) < _LOOSE_CHARS_MIN:
        return f'("{word}" OR "{word}s")'
    is_plural = word.isascii() and word.endswith("s") and not word.endswith("ss")
    return f'("{word}"* OR "{word[:-1]}")' if is_plural else f'"{word}"*'


def _identifier_parts(word: str) -> list[str]:
    if word.islower() or len(word) > _WORD_CHARS_MAX:
        return []
    parts = _PART_BOUNDARY.split(word)
    return [part.casefold() for part in parts] if 1 < len(parts) <= _IDENTIFIER_PARTS_MAX else []


def _terms(query: str) -> list[tuple[list[str], bool]]:
    """Return the words of each term, in their case, and whether its last word is unfinished."""
    terms: list[tuple[list[str], bool]] = []
    for chunk in _CHUNK.finditer(_normalize(query[:_QUERY_CHARS_MAX])):
        words = [word[:_WORD_CHARS_MAX] for word in _WORD.findall(chunk[0])][:_PHRASE_WORDS_MAX]
        if words:
            terms.append((words, chunk[2] is not None))
    if not terms:
        raise BadQuery(query=repr(query[:_QUERY_CHARS_MAX]))
    terms = terms[:SEARCH_TERMS_MAX]
    last, quoted = len(terms) - 1, not terms[-1][1]
    unfinished = not quoted and len(terms[-1][0][-1]) > 1
    return [(words, i == last and unfinished) for i, (words, _) in enumerate(terms)]


def _expression(words: list[str], prefix: bool) -> str:
    star = "*" if prefix else ""
    whole = f'"{" ".join(words).casefold()}"{star}'
    parts = _identifier_parts(words[0]) if len(words) == 1 else []
    return f'({whole} OR "{" ".join(parts)}"{star})' if parts else whole


def _pattern(words: list[str], prefix: bool) -> re.Pattern[str]:
    parts = _identifier_parts(words[0]) if len(words) == 1 else []
    body = _BETWEEN.join(re.escape(word) for word in parts or [word.casefold() for word in words])
    end = "" if prefix or _IS_UNSPACED.match(words[-1]) else r"(?![^\W_])"
    start = "" if _IS_UNSPACED.match(words[0]) else r"(?<![^\W_])"
    # Whole words take precedence over a part inside an identifier.
    return re.compile(f"{start}{body}{end}|{body}")


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the folded text, and the origin of each of its characters (empty: the same positions)."""
    if text.isascii():
        return text.lower(), []
    table = {c: _normalize(c).casefold() for c in set(text)}
    folded = text.translate({ord(c): to for c, to in table.items()})
    if all(len(to) == 1 for to in table.values()):
        return folded, []
    offsets = [i for i, c in enumerate(text) for _ in table[c]]
    return folded, [*offsets, len(text)]


def _spans(folded: str, patterns: list[re.Pattern[str]]) -> list[tuple[int, int, int]]:
    spans: list[tuple[int, int, int]] = []
    for term, pattern in enumerate(patterns):
        for match in pattern.finditer(folded):
            spans.append((match.start(), match.end(), term))
            if len(spans) >= (term + 1) * _SNIPPET_MATCHES_MAX:
                break
    return sorted(spans)


def _window(text: str, found: list[tuple[int, int, int]]) -> tuple[int, int]:
    """Return the excerpt to show: the first with the most different terms."""
    room = SNIPPET_CHARS - 2
    if len(text) <= SNIPPET_CHARS:
        return 0, len(text)
    best, most, first = 0, 0, 0
    counts: dict[int, int] = {}
    for start, end, term in found:
        counts[term] = counts.get(term, 0) + 1
        while end - found[first][0] > room * 3 // 4 and found[first][0] < start:
            counts[found[first][2]] -= 1
            first += 1
        distinct = sum(1 for count in counts.values() if count)
        if distinct > most:
            best, most = found[first][0], distinct
    begin = max(0, min(best - room // 4, len(text) - room))
    # Start at a word boundary if one is near.
    space = text.find(" ", begin, best) if begin > 0 else -1
    begin = space + 1 if space >= 0 else begin
    return begin, min(len(text), begin + room)
