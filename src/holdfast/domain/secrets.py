"""Mask secrets in what is written: known values, wherever they appear.

A known value is masked everywhere. `mask_with_patterns` also masks what only looks like a secret; it is for
logs and errors alone, since people rightly work on such text in a conversation. This guards against
accidents: anyone can carry a secret past it by spelling it backwards.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

import msgspec
from msgspec.structs import replace

MASK = "[secret]"
SECRET_CHARS_MIN = 8
"""Shorter values are too likely to be ordinary words."""
REVEALED_CHARS_MAX = 3
"""The most of a possible secret that may be shown early, if the order of events requires it."""

MaskFunction = Callable[[str], str]
"""Return a text without its secrets."""
T = TypeVar("T")

_PREFIX_CHARS = 6
"""The prefix of a secret that is searched for before a full comparison."""
_LINE_CHARS_MIN = 24
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|APIKEY)(?:_|$)"
    r"|(?:^|_)(?:API|ACCESS|PRIVATE|SECRET|AUTH|SIGNING|ENCRYPTION|MASTER)_?KEY(?:_|$)"
    r"|(?:_KEY|_PASS|_PWD|TOKEN|SECRET|PASSWORD)$|^(?:KEY|CODE|SIG)$",
    re.IGNORECASE,
)
_LOCATION_NAME = re.compile(r"(?:FILE|PATH|DIR|SOCK|NAME)$", re.IGNORECASE)
_PLACEHOLDERS = frozenset({
    "changeme", "password", "not-needed", "no-key-needed", "no-key-required", "lm-studio", "undefined",
    "dummy-key", "your-api-key", "placeholder",
})  # fmt: skip
_URL_WITH_PASSWORD = re.compile(r"[a-zA-Z][\w+.-]*://([^\s/?#@:]*):([^\s/?#@]+)@")
_SHAPES = re.compile(
    r"-----BEGIN (?P<pem>[A-Z0-9 ]*PRIVATE KEY[A-Z ]*)-----[\s\S]*?(?:-----END (?P=pem)-----|\Z)"
    r"|\b(?:sk|pk|rk|gsk|xai)[-_][\w*.\-\u2026]{6,}"
    r"|\bgithub_pat_\w{10,}|\bgh[pousr]_\w{10,}|\bglpat-[\w\-]{10,}|\bhf_[\w\-]{10,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bxox[a-z]-[\w\-]{6,}|\bAIza[\w\-]{10,}"
    r"|\beyJ[\w\-]{6,}\.[\w\-]{6,}\.[\w\-]*"
    r"|(?<=://)[^\s/?#@:]*:[^\s/?#@]+(?=@)"
    r"|(?P<said>\b(?:proxy-)?authorization\b[\"']?\s*[:=]\s*[\"']?(?:\w+\s+)?|\bbearer\s+"
    r"|\b(?:x-)?api[-_]?key\b[\"']?\s*[:=]\s*[\"']?)[^\s\"',;]{8,}",
    re.IGNORECASE,
)


def no_mask(text: str) -> str:
    """Return the text unchanged: a mask without secrets."""
    return text


class SecretMask:
    """Mask known values, also where they are quoted for a URL or escaped for JSON."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self.add(*values)

    def add(self, *values: str) -> None:
        """Add secrets, for all holders of this mask."""
        given = {value.strip() for value in values}
        self._values |= {value for value in given if len(value) >= SECRET_CHARS_MIN}
        spelt = {spelling for value in self._values for spelling in _encodings(value)}
        self._secrets = tuple(sorted(spelt, key=lambda text: (-len(text), text)))
        self._find_start = re.compile(_prefix_pattern({text[:_PREFIX_CHARS] for text in spelt})).search

    def __repr__(self) -> str:
        return f"Mask({len(self._values)} values)"

    @property
    def longest_chars(self) -> int:
        return max((len(secret) for secret in self._secrets), default=0)

    def mask(self, text: str) -> str:
        """Return `text` without the known values: from the left, the longest match at each place."""
        return text if self._find_start(text) is None else self._mask_until_open(text, is_whole=True)[0]

    def mask_with_patterns(self, text: str) -> str:
        """Return `text` without the known values or anything shaped like a key, token or password."""
        return _SHAPES.sub(lambda found: (found["said"] or "") + MASK, self.mask(text))

    def is_clean(self, text: str) -> bool:
        """Return whether `text` contains no known value."""
        return self.mask(text) == text

    def stream(self) -> "StreamMask":
        return StreamMask(self._find_start, self._mask_until_open)

    def _mask_until_open(self, text: str, is_whole: bool) -> tuple[str, str]:
        """Return `text` masked, and its open end, which the next piece may complete to a secret."""
        masked_pieces: list[str] = []
        at = search_from = 0
        while (found := self._find_start(text, search_from)) is not None:
            start = found.start()
            if not is_whole and self._may_begin(text[start:]):
                masked_pieces.append(text[at:start])
                return "".join(masked_pieces), text[start:]
            secret = next((known for known in self._secrets if text.startswith(known, start)), None)
            if secret is None:
                search_from = start + 1
            else:
                masked_pieces += (text[at:start], MASK)
                at = search_from = start + len(secret)
        masked_pieces.append(text[at:])
        return "".join(masked_pieces), ""

    def _may_begin(self, end: str) -> bool:
        # A match this short is at the end of the text, where a secret may begin.
        return len(end) < _PREFIX_CHARS or any(
            len(secret) > len(end) and secret.startswith(end) for secret in self._secrets
        )


class StreamMask:
    """Mask streamed text as if it came whole, holding back only what may become a secret.

    `pending` is what it holds back.
    """

    def __init__(
        self,
        find_start: Callable[[str], re.Match[str] | None],
        mask_until_open: Callable[[str, bool], tuple[str, str]],
    ) -> None:
        self._find_start = find_start
        self._mask_until_open = mask_until_open
        self.pending = ""
        self._shown = ""

    def feed(self, text: str) -> str:
        """Add the next piece and return the text that is final now."""
        if self.pending:
            text = self.pending + text
        if self._find_start(text) is None:
            done, self.pending = text, ""
        else:
            done, self.pending = self._mask_until_open(text, False)
        return self._without_shown(done) if self._shown else done

    def finish(self) -> str:
        """Return what was held back, as nothing follows it; then a new text may begin."""
        done, self.pending = self._mask_until_open(self.pending, True)[0], ""
        return self._without_shown(done) if self._shown else done

    def reveal_pending(self) -> str:
        """Return the held text that was not shown yet, if it is too short to reveal anything.

        Used if something else follows it, or nothing for a while.
        """
        if len(self.pending) > REVEALED_CHARS_MAX:
            return ""
        more, self._shown = self.pending[len(self._shown) :], self.pending
        return more

    def _without_shown(self, done: str) -> str:
        """Return `done` without the beginning that was already shown."""
        pairs = enumerate(zip(self._shown, done, strict=False))
        same = next((at for at, (shown, new) in pairs if shown != new), min(len(self._shown), len(done)))
        # Where the two differ, a secret was masked, which extends past all that was shown.
        self._shown = self._shown[same:] if same == len(done) else ""
        return done[same:]


def mask_value(value: T, mask: MaskFunction) -> T:
    """Return `value` with every text in it masked, or the same object if nothing changed.

    `value` is a struct or what JSON is made of.
    """
    changed: Any = value
    match value:
        case str():
            changed = mask(value)
        case tuple() | list():
            inner = [mask_value(item, mask) for item in value]
            changed = type(value)(inner)
        case dict():
            changed = {mask_value(name, mask): mask_value(item, mask) for name, item in value.items()}
        case msgspec.Struct():
            fields = {name: getattr(value, name) for name in value.__struct_fields__}
            inner_fields = {name: mask_value(field, mask) for name, field in fields.items()}
            changed = replace(value, **inner_fields)
    return value if changed == value else changed


def find_secrets(environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the secret values of an environment, by their names or as part of a URL."""
    for name, value in environ.items():
        is_word = value.strip().lower() in _PLACEHOLDERS
        if _SECRET_NAME.search(name) and not is_word and not _is_location(name, value):
            yield value
            if "\n" in value.strip():
                yield from (line for line in value.splitlines() if _is_secret_line(line))
        if "://" in value:
            yield from _secrets_in_url(value)


def _is_secret_line(line: str) -> bool:
    # The first and last line of a PEM key are the same in all keys.
    return len(line.strip()) >= _LINE_CHARS_MIN and not line.strip().startswith("-----")


def _is_location(name: str, value: str) -> bool:
    """Return whether the value is the location of a secret rather than a secret."""
    of_file = "CREDENTIAL" in name.upper() and value.startswith(("/", "~", "./"))
    return of_file or _LOCATION_NAME.search(name) is not None


def _secrets_in_url(value: str) -> Iterator[str]:
    for user, password in _URL_WITH_PASSWORD.findall(value):
        yield from (password, unquote(password), f"{user}:{password}@")
        # HTTP basic authentication carries both in base 64.
        both = f"{unquote(user)}:{unquote(password)}".encode("utf-8", "surrogateescape")
        yield base64.b64encode(both).decode()
    try:
        query = urlsplit(value).query
    except ValueError:
        return
    yield from (text for name, text in parse_qsl(query) if _SECRET_NAME.search(name.replace("-", "_")))


def _encodings(value: str) -> Iterator[str]:
    yield value
    raw = value.encode("utf-8", "surrogateescape")  # A variable may hold any bytes.
    for quoted in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield quoted
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), quoted)
    for plain in (True, False):
        escaped = json.dumps(value, ensure_ascii=plain)[1:-1]
        yield escaped
        yield escaped.replace("/", "\\/")


def _prefix_pattern(starts: set[str]) -> str:
    """Return a pattern that matches one of `starts`, or a beginning of one at the end of the text."""
    if not starts:
        return r"(?!)"
    by_first: dict[str, set[str]] = {}
    for start in starts:
        by_first.setdefault(start[0], set()).add(start[1:])
    branches = []
    for first, rests in sorted(by_first.items()):
        rest = "" if "" in rests else rf"(?:\Z|{_prefix_pattern(rests)})"
        branches.append(re.escape(first) + rest)
    return f"(?:{'|'.join(branches)})"
