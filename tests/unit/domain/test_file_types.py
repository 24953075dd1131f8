"""What a file is, by its content alone; what it may be called; who can take it."""

import random
import unicodedata
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.errors import TooLarge
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import (
    HEAD_BYTES,
    IMAGE_TOKENS,
    NO_FILES,
    FileKind,
    FileNotSupported,
    FileSupportUnknown,
    SupportedFiles,
    UnsupportedFile,
    check_start,
    check_supported,
    clean_name,
    describe_kinds,
    detect_media_type,
    file_tokens,
    guess_media_type,
    image_size,
    is_file_id,
)
from holdfast.domain.limits import (
    FILE_BYTES_MAX,
    FILE_NAME_CHARS_MAX,
    IMAGE_PIXELS_MAX,
    IMAGE_SIDE_PX_MAX,
    TEXT_FILE_BYTES_MAX,
)
from tests.support.sample_files import PDF, gif, jpeg, png, webp

IMAGES: dict[str, tuple[str, Callable[[int, int], bytes]]] = {
    "png": ("image/png", png),
    "jpeg": ("image/jpeg", jpeg),
    "gif": ("image/gif", gif),
    "webp": ("image/webp", webp),
    "webp, lossless": ("image/webp", lambda width, height: webp(width, height, b"VP8L")),
    "webp, lossy": ("image/webp", lambda width, height: webp(width, height, b"VP8 ")),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_type_and_size_come_from_the_header(name: str) -> None:
    media_type, make = IMAGES[name]
    for size in ((1, 1), (640, 480), (16_383, 5)):
        assert detect_media_type(make(*size)) == media_type
        assert image_size(media_type, make(*size)) == size


@pytest.mark.parametrize("name", IMAGES)
def test_a_header_that_is_cut_anywhere_is_refused_as_an_image(name: str) -> None:
    media_type, make = IMAGES[name]
    whole = make(640, 480)
    cut = [whole[:end] for end in range(12, len(whole)) if guess_media_type(whole[:end]) == media_type]
    taken = []
    for content in cut:
        try:
            taken.append(detect_media_type(content))
        except UnsupportedFile:
            continue
        # Once the size is there, the rest is for the model to decode.
        assert image_size(media_type, content) == (640, 480)
    assert len(taken) < len(cut)


@pytest.mark.parametrize(
    ("media_type", "content"),
    [
        ("image/png", png(100_000, 100_000)),
        ("image/png", png(IMAGE_SIDE_PX_MAX + 1, 1)),
        ("image/png", png(0, 5)),
        ("image/png", png(2**31, 1)),
        ("image/png", png().replace(b"IHDR", b"IHDX")),
        ("image/png", png()[:24] + b"\x09" + png()[25:]),
        ("image/jpeg", jpeg(65_535, 65_535)),
        ("image/jpeg", jpeg(0, 3)),
        ("image/jpeg", b"\xff\xd8\xff\xd9" + bytes(20)),
        ("image/jpeg", b"\xff\xd8" + b"\xff" * 100_000),
        ("image/jpeg", b"\xff\xd8" + b"\xff\xe1\x00\x00" * 20),
        ("image/gif", gif(65_535, 65_535)),
        ("image/gif", gif(0, 0)),
        ("image/webp", webp(2**24, 2**24)),
        ("image/webp", webp().replace(b"VP8X", b"VP8Y")),
    ],
)
def test_a_damaged_or_oversized_image_is_refused(media_type: str, content: bytes) -> None:
    assert guess_media_type(content[:HEAD_BYTES]) == media_type
    with pytest.raises(UnsupportedFile):
        detect_media_type(content)


def test_an_image_may_be_as_large_as_the_limits_say() -> None:
    side = IMAGE_SIDE_PX_MAX
    assert detect_media_type(png(side, IMAGE_PIXELS_MAX // side)) == "image/png"
    with pytest.raises(UnsupportedFile):
        detect_media_type(png(side, IMAGE_PIXELS_MAX // side + 1))


@given(st.binary(max_size=200), st.sampled_from(["", *IMAGES]), st.integers(0, 2**32))
@example(b"", "", 0)
def test_any_bytes_are_classified_or_refused(noise: bytes, start: str, seed: int) -> None:
    """Noise, noise behind each beginning, and images with bytes overwritten."""
    rng = random.Random(seed)
    content = bytearray(IMAGES[start][1](640, 480) if start else b"")
    for byte in noise[: rng.randrange(5)] if content else b"":
        content[rng.randrange(len(content))] = byte
    content = content[: rng.randrange(8, len(content) + 1)] + noise if content else bytearray(noise)
    try:
        media_type = detect_media_type(bytes(content))
    except UnsupportedFile:
        return
    if media_type.startswith("image/"):
        width, height = image_size(media_type, bytes(content))
        assert 0 < width <= IMAGE_SIDE_PX_MAX and 0 < height <= IMAGE_SIDE_PX_MAX
        assert width * height <= IMAGE_PIXELS_MAX
    elif media_type == "text/plain":
        assert "\0" not in bytes(content).decode()


def test_text_is_utf_8_without_controls() -> None:
    assert detect_media_type("Grüße, 世界\r\n\tund mehr\f".encode()) == "text/plain"
    assert detect_media_type(b"\xef\xbb\xbfa,b") == "text/plain"
    assert detect_media_type(b"<svg onload='alert(1)'/>") == "text/plain"
    for content in (
        b"",
        b"a\0b",
        b"\x1b[31mred",
        b"PK\x03\x04",
        "Grüße".encode("utf-16"),
        b"caf\xe9",
        b"\x7f",
    ):
        with pytest.raises(UnsupportedFile):
            detect_media_type(content)


def test_a_file_may_be_as_long_as_its_kind_allows() -> None:
    assert detect_media_type(b"a" * TEXT_FILE_BYTES_MAX) == "text/plain"
    assert detect_media_type(PDF + bytes(FILE_BYTES_MAX - len(PDF))) == "application/pdf"
    for content in (b"a" * (TEXT_FILE_BYTES_MAX + 1), PDF + bytes(FILE_BYTES_MAX)):
        with pytest.raises(TooLarge):
            detect_media_type(content)


@pytest.mark.parametrize(
    ("content", "claims"),
    [
        (png(), ("image/png", "IMAGE/PNG", "image/png; x=y", "image/x-png", "", "application/octet-stream")),
        (jpeg(), ("image/jpeg", "image/jpg")),
        (PDF, ("application/pdf",)),
        (
            b"a: b\n",
            ("text/plain; charset=utf-8", "text/csv", "application/json", "image/svg+xml", "text/html"),
        ),
    ],
)
def test_a_matching_claimed_type_is_accepted(content: bytes, claims: tuple[str, ...]) -> None:
    for claim in claims:
        assert check_start(content[:HEAD_BYTES], claim) == detect_media_type(content)


@pytest.mark.parametrize(
    ("content", "claim"),
    [
        (png(), "image/jpeg"),
        (png(), "text/plain"),
        (b"<html></html>", "image/png"),
        (b"text", "application/pdf"),
        (PDF, "image/png"),
        (b"a=b", "multipart/form-data; boundary=x"),
        (b"a=b", "application/x-www-form-urlencoded"),
        (b"MZ\x90\0", ""),
    ],
)
def test_a_mismatched_claimed_type_is_refused(content: bytes, claim: str) -> None:
    with pytest.raises(UnsupportedFile, match="images, PDF files and text"):
        check_start(content[:HEAD_BYTES], claim)


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("report.txt", "report.txt"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\a.txt", "a.txt"),
        ("a\nb\tc\0.txt", "abc.txt"),
        ("invoice\u202egnp.exe", "invoicegnp.exe"),
        ("a\u2066b\u200bc.txt", "abc.txt"),
        ("  two   words .txt. ", "two words .txt"),
        ("", "text.txt"),
        ("..", "text.txt"),
        ("a/", "text.txt"),
        ("\ud800", "?"),
        ("Gru\u0308\u00dfe.txt", "Gr\u00fc\u00dfe.txt"),
        ("x" * 300 + ".txt", "x" * (FILE_NAME_CHARS_MAX - 4) + ".txt"),
    ],
)
def test_a_name_is_cleaned(name: str, cleaned: str) -> None:
    assert clean_name(name, "text/plain") == cleaned


@given(st.text(max_size=400))
def test_a_cleaned_name_can_be_shown_anywhere(name: str) -> None:
    cleaned = clean_name(name, "image/png")
    assert 0 < len(cleaned) <= FILE_NAME_CHARS_MAX
    assert not set(cleaned) & set("/\\\n\r\0")
    assert not any(unicodedata.category(each) in ("Cc", "Cf", "Cs") for each in cleaned)
    assert clean_name(cleaned, "image/png") == cleaned


def test_an_id_is_a_hash_in_lower_case() -> None:
    assert is_file_id("0a" * 32)
    assert not any(map(is_file_id, ("", "0A" * 32, "0a" * 31, "0a" * 32 + "\n", "../" + "0a" * 31)))


TEXT_FILE = File("b1", "a.txt", "text/plain", 3_000)
PICTURE = File("b2", "a.png", "image/png", 5_000_000)


WORDS, GUESSED = SupportedFiles(frozenset({"text"})), SupportedFiles(frozenset({"text"}), guessed=True)


def refusal(takes: frozenset[FileKind], room: int, *files: File) -> str:
    with pytest.raises(FileNotSupported) as refused:
        check_supported("openai:small", SupportedFiles(takes), room, (Text("Look."), *files))
    return str(refused.value)


def test_refusing_a_file_names_the_supported_kinds() -> None:
    check_supported("m", SupportedFiles(frozenset({"text", "image"})), 1_000, (TEXT_FILE, PICTURE))
    check_supported("m", NO_FILES, 0, (Text("Only words."),))
    assert refusal(frozenset({"text"}), 1_000, TEXT_FILE, PICTURE) == (
        "openai:small cannot take images; it takes text files."
    )
    assert "cannot take files of type video/mp4" in refusal(
        frozenset({"text"}), 9, File("b", "a", "video/mp4", 1)
    )


def test_a_pdf_file_goes_to_any_model_as_text_that_is_cut_to_its_window() -> None:
    check_supported("m", WORDS, 10, (File("b3", "a.pdf", "application/pdf", 20_000_000),))


def test_anyway_sends_an_image_only_when_support_is_a_guess() -> None:
    anyway = replace(PICTURE, anyway=True)
    check_supported("m", GUESSED, 1_000, (anyway,))
    with pytest.raises(FileSupportUnknown) as refused:
        check_supported("openai:small", GUESSED, 1_000, (anyway, PICTURE))
    assert str(refused.value) == "openai:small is not known to take images; it takes text files."
    assert "send it anyway" in refused.value.advice
    with pytest.raises(FileNotSupported, match="openai:small cannot take images"):
        check_supported("openai:small", WORDS, 1_000, (anyway,))
    with pytest.raises(FileNotSupported, match="cannot take files of type video/mp4"):
        check_supported("openai:small", GUESSED, 1_000, (File("b", "a", "video/mp4", 1, anyway=True),))


def test_an_old_file_part_without_anyway_round_trips() -> None:
    kept = b'{"type":"file","blob":"b2","name":"a.png","media_type":"image/png","size_bytes":5000000}'
    assert msgspec.json.decode(kept, type=AnyPart) == PICTURE
    assert msgspec.json.encode(PICTURE) == kept
    anyway = replace(PICTURE, anyway=True)
    assert msgspec.json.decode(msgspec.json.encode(anyway), type=AnyPart) == anyway


def test_text_files_larger_than_the_window_are_refused() -> None:
    assert refusal(frozenset({"text"}), 999, TEXT_FILE) == (
        "openai:small cannot take 3,000 bytes of text files; it takes about 2,997 bytes of text at once."
    )


def test_supported_kinds_are_listed_in_order() -> None:
    assert describe_kinds(frozenset({"pdf", "image", "text"})) == "text files, images and PDF files"
    assert describe_kinds(frozenset()) == "no files"


def test_text_files_cost_by_size_and_others_by_a_bound() -> None:
    assert file_tokens(TEXT_FILE) == 1_000
    assert file_tokens(PICTURE) == IMAGE_TOKENS
    small, large = (File("b", "a", "application/pdf", size) for size in (1_000, 20_000_000))
    assert IMAGE_TOKENS < file_tokens(small) < file_tokens(large) <= 100_000
