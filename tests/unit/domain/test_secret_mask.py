"""Masking: whatever is known to be secret is gone, however the text was cut, and nothing else is."""

import itertools
import os
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from holdfast.domain.events.parts import AnyPart, Text, ToolCall
from holdfast.domain.secrets import MASK, REVEALED_CHARS_MAX, SecretMask, find_secrets, mask_value

KEY = "sk-proj-0123456789abcdef"
OTHER = "sk-proj-0123456789abcdefGHIJ"
"""Begins as the first one does."""

# Few letters, so that secrets overlap, repeat and begin like each other.
values = st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=4)
texts = st.lists(st.text("abc ", max_size=6), max_size=20).map("".join)


@st.composite
def text_with_secrets(draw: st.DrawFn) -> tuple[list[str], str, list[str]]:
    """Secrets, a text that holds some of them, and the text in pieces."""
    known = draw(values)
    text = "".join(draw(st.lists(st.one_of(st.sampled_from(known), texts), max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[start:end] for start, end in itertools.pairwise([0, *cuts, len(text)])]
    return known, text, pieces


@given(text_with_secrets())
@example((["abababab", "babababc"], "abababab" + "babababc", list("ababababbabababc")))
def test_streamed_text_is_masked_like_whole_text(story: tuple[list[str], str, list[str]]) -> None:
    known, text, pieces = story
    mask = SecretMask(known)
    stream, shown = mask.stream(), ""
    for piece in pieces:
        shown += stream.feed(piece)
        assert len(stream.pending) < mask.longest_chars
    shown += stream.finish()
    assert shown == mask.mask(text)
    assert not any(value in shown for value in known)


@given(text_with_secrets(), st.lists(st.booleans(), min_size=14, max_size=14))
def test_revealing_pending_text_early_leaks_no_secret(
    story: tuple[list[str], str, list[str]], shows: list[bool]
) -> None:
    known, text, pieces = story
    stream, shown = SecretMask(known).stream(), ""
    for piece, show in zip(pieces, shows, strict=False):
        shown += stream.feed(piece) + (stream.reveal_pending() if show else "")
    shown += stream.finish()
    if SecretMask(known).is_clean(text):
        assert shown == text
    for value in known:
        assert value not in shown
    # At most so many characters stand before a mask that would not stand there otherwise.
    assert len(shown) <= len(SecretMask(known).mask(text)) + REVEALED_CHARS_MAX * shown.count(MASK)


@given(st.text(), values)
def test_text_without_a_secret_is_left_alone(text: str, known: list[str]) -> None:
    assume(not any(value in text for value in known))
    assert SecretMask(known).mask(text) == text


@given(st.text(min_size=8).map(str.strip))
def test_a_secret_is_found_quoted_and_escaped(value: str) -> None:
    assume(len(value) >= 8)
    mask = SecretMask([value])
    assert mask.mask(f" {value} ") == f" {MASK} "
    assert mask.mask(f"?key={quote(value, safe='')}&") == f"?key={MASK}&"
    assert msgspec.json.decode(mask.mask(msgspec.json.encode({"a": value}).decode())) == {"a": MASK}


def test_of_two_that_begin_alike_the_longer_one_is_masked_whole() -> None:
    stream = SecretMask([KEY, OTHER]).stream()
    assert stream.feed(f"a {OTHER[:-1]}") == "a "
    assert stream.feed(OTHER[-1]) == MASK
    assert stream.feed(KEY) + stream.feed(" b") == f"{MASK} b"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", KEY),
        ("MY_SERVICE_TOKEN", "abcdefgh12"),
        ("PGPASSWORD", "correct horse"),
        ("AWS_SECRET_ACCESS_KEY", "/Ab+cdefgh/ijkl"),
        ("AWS_ACCESS_KEY_ID", "AKIA0123456789"),
        ("MYSQL_PWD", "abcdefgh12"),
        ("APP_CREDENTIAL", "abcdefgh12"),
        ("GITHUB_SECRET_2", "abcdefgh12"),
    ],
)
def test_a_variable_with_a_secret_name_is_secret(name: str, value: str) -> None:
    assert SecretMask(find_secrets({name: value})).mask(f"<{value}>") == f"<{MASK}>"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/data/somebody/work"),
        ("OLDPWD", "/data/somebody/work"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/data/somebody/key.json"),
        ("SECRET_KEY_FILE", "/run/secrets/key"),
        ("OPENAI_API_KEY", "lm-studio"),
        ("OPENAI_API_KEY", "none"),
        ("KEYBOARD_LAYOUT", "de-latin1"),
        ("MAX_TOKENS", "100000000"),
        ("HOME", "/data/somebody"),
        ("MONKEY", "business as usual"),
    ],
)
def test_other_variables_and_placeholders_stay_readable(name: str, value: str) -> None:
    assert SecretMask(find_secrets({name: value})).mask(value) == value


def test_a_value_that_is_no_proper_text_is_masked_too() -> None:
    value = os.fsdecode(b"caf\xe9-0123456789")
    assert SecretMask(find_secrets({"A_TOKEN": value})).mask(f"<{value}>") == f"<{MASK}>"


def test_a_password_in_an_address_is_secret_in_any_variable() -> None:
    mask = SecretMask(
        find_secrets({"OPENAI_BASE_URL": "https://me:p%40ssw0rd9@models.example/v1?api-key=k0123456789"})
    )
    for planted in ("p%40ssw0rd9", "p@ssw0rd9", "bWU6cEBzc3cwcmQ5", "k0123456789"):
        assert mask.mask(f"x{planted}y") == f"x{MASK}y"
    assert mask.mask("https://models.example/v1") == "https://models.example/v1"


def test_the_lines_of_a_key_of_several_lines_are_secret_by_themselves() -> None:
    line = "MIIEvQIBADANBgkqhkiG9w0BAQEF"
    pem = f"-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----"
    assert SecretMask(find_secrets({"DEPLOY_KEY": pem})).mask(f"> {line}") == f"> {MASK}"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdef123456",
        "sk-ant-api03-abcdef-123456",
        "ghp_abcdefghij0123456789",
        "github_pat_abcdefghij0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-1234567890-abcdef",
        "AIzaSyA1234567890abcdef",
        "hf_abcdefghij0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQ\nIBADAN\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA",
    ],
)
def test_the_shapes_of_keys_are_masked_in_logs_and_nowhere_else(secret: str) -> None:
    assert SecretMask().mask_with_patterns(f"Incorrect key: {secret}") == f"Incorrect key: {MASK}"
    assert SecretMask().mask(secret) == secret


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ("Authorization: Bearer abc.defghi", f"Authorization: Bearer {MASK}"),
        ("authorization: Basic dXNlcjpwYXNz", f"authorization: Basic {MASK}"),
        ("{'Authorization': 'Bearer abcdefgh'}", f"{{'Authorization': 'Bearer {MASK}'}}"),
        ("bearer abcdefgh, please", f"bearer {MASK}, please"),
        ("x-api-key: 0123abcd", f"x-api-key: {MASK}"),
        ("cannot reach http://me:word@host/v1", f"cannot reach http://{MASK}@host/v1"),
    ],
)
def test_credentials_in_headers_and_urls_are_masked_in_logs(said: str, masked: str) -> None:
    assert SecretMask().mask_with_patterns(said) == masked


@pytest.mark.parametrize(
    "line",
    [
        "There is no session s_01hzy.",
        "Using OPENAI_API_KEY from your environment (gpt-5.4-mini).",
        "Set OPENAI_API_KEY to your key; for a server that needs none, set OPENAI_BASE_URL to its address.",
        'File "/app/holdfast/server/app.py", line 7, in _tell',
        "http://127.0.0.1:8787/",
        "Send the header Authorization: Bearer TOKEN with a token of yours.",
    ],
)
def test_ordinary_lines_of_a_log_stay_as_they_are(line: str) -> None:
    assert SecretMask([KEY]).mask_with_patterns(line) == line


def test_every_text_inside_a_value_is_masked_and_the_rest_is_the_same() -> None:
    parts: tuple[AnyPart, ...] = (Text(f"a {KEY}"), ToolCall("c_1", "shell", f'{{"command":"echo {KEY}"}}'))
    masked = mask_value(parts, SecretMask([KEY]).mask)
    assert masked == (Text(f"a {MASK}"), ToolCall("c_1", "shell", f'{{"command":"echo {MASK}"}}'))
    assert mask_value({"n": 1, "deep": [{"x": KEY}]}, SecretMask([KEY]).mask) == {
        "n": 1,
        "deep": [{"x": MASK}],
    }
    assert mask_value(parts, SecretMask(["something-else"]).mask) is parts


def test_the_repr_of_a_mask_shows_no_secret() -> None:
    assert KEY not in repr(SecretMask([KEY])) + str(SecretMask([KEY]))


def test_a_value_added_later_is_masked_everywhere() -> None:
    mask = SecretMask([KEY])
    whole, shapes = mask.mask, mask.mask_with_patterns
    secret = "connected-0123456789"
    assert whole(f"{secret} {KEY}") == f"{secret} {MASK}"
    mask.add(secret, "short")
    assert whole(f"{secret} {KEY} short") == f"{MASK} {MASK} short"
    assert shapes(quote(secret)) == MASK
    stream = mask.stream()
    assert stream.feed("connec") + stream.feed("ted-0123456789.") + stream.finish() == f"{MASK}."
