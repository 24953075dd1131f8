"""Attached files: their type, judged by content, their names, and the models that accept them.

A claimed type is only compared, never believed. This module reads image headers by hand, only as far as the
size; it never decodes anything.
"""

import re
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.events.parts import AnyPart, File
from holdfast.domain.limits import (
    FILE_BYTES_MAX,
    FILE_NAME_CHARS_MAX,
    IMAGE_PIXELS_MAX,
    IMAGE_SIDE_PX_MAX,
    TEXT_FILE_BYTES_MAX,
)

FileKind = Literal["image", "pdf", "text"]
PNG, JPEG, GIF, WEBP = "image/png", "image/jpeg", "image/gif", "image/webp"
PDF, TEXT = "application/pdf", "text/plain"
HEAD_BYTES = 64
"""The bytes at the beginning of a file that identify its type."""
_KINDS: Mapping[str, FileKind] = MappingProxyType(
    {PNG: "image", JPEG: "image", GIF: "image", WEBP: "image", PDF: "pdf", TEXT: "text"}
)
_DEFAULT_NAMES = MappingProxyType({
    PNG: "image.png", JPEG: "image.jpg", GIF: "image.gif", WEBP: "image.webp",
    PDF: "document.pdf", TEXT: "text.txt",
})  # fmt: skip
_KIND_LABELS = MappingProxyType({"image": "images", "pdf": "PDF files", "text": "text files"})
_ALIASES = MappingProxyType(
    {"image/jpg": JPEG, "image/pjpeg": JPEG, "image/x-png": PNG, "application/x-pdf": PDF}
)
_GENERIC_TYPES = frozenset({"", "application/octet-stream", "binary/octet-stream"})
_TEXTUAL = re.compile(
    r"text/.+|.+\+(json|xml)|application/(json|xml|javascript|ecmascript|typescript|yaml|x-yaml|toml|sql|rtf"
    r"|x-sh|x-shellscript|x-python|x-ndjson|jsonl|graphql|x-httpd-php|x-tex|x-latex|x-subrip|csv)"
)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_SEGMENTS_MAX = 1_000
"""JPEG segments to read before the size must have come; photographs have a few dozen."""
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Controls, direction marks, surrogates, private and unassigned characters, line separators."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class UnsupportedFile(HoldfastError):
    """This file is not taken: {why}. PNG, JPEG, GIF and WebP images, PDF files and text in UTF-8 are."""

    code, status = "unsupported_file", 415


class NoSuchFile(HoldfastError):
    """There is no file {file_id} here; one that is not used by a message is kept for a day."""

    code, status = "no_such_file", 404


class FileNotSupported(HoldfastError):
    """{model} cannot take {what}; it takes {takes}."""

    code, status = "model_cannot_take", 422


class FileSupportUnknown(FileNotSupported):
    """{model} is not known to take {what}; it takes {takes}."""

    remedy = "Choose another model, or send it anyway: in the page, by `holdfast chat --anyway` or `anyway`."


class SupportedFiles(msgspec.Struct, frozen=True):
    """The kinds of files that a model accepts. `guessed`: only the model's name suggests them."""

    kinds: frozenset[FileKind]
    guessed: bool = False

    def accepts(self, kind: FileKind | None, anyway: bool) -> bool:
        """Return whether the model may get a file of this kind; `anyway` is its sender's wish."""
        return kind in self.kinds or (kind == "image" and anyway and self.guessed)


NO_FILES = SupportedFiles(frozenset())


# Types.


def is_file_id(text: str) -> bool:
    """Return whether `text` has the form of a file id: a SHA-256 digest in lower case."""
    return _DIGEST.fullmatch(text) is not None


def file_kind(media_type: str) -> FileKind | None:
    """Return the kind of a media type that `detect_media_type` returns."""
    return _KINDS.get(media_type)


def guess_media_type(head: bytes) -> str:
    """Return the only type that a file with this beginning can have; text if nothing else fits."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PNG
    if head.startswith(b"\xff\xd8\xff"):
        return JPEG
    if head.startswith((b"GIF87a", b"GIF89a")):
        return GIF
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WEBP
    if head.startswith(b"%PDF-"):
        return PDF
    return TEXT


def bytes_max(media_type: str) -> int:
    """Return the size limit for files of that type."""
    return TEXT_FILE_BYTES_MAX if media_type == TEXT else FILE_BYTES_MAX


def check_start(head: bytes, claimed: str) -> str:
    """Return the type of a file's beginning, to refuse it early. Raises UnsupportedFile."""
    media_type = guess_media_type(head)
    if media_type == TEXT and _CONTROL.search(head):
        raise UnsupportedFile(why="what it holds is neither an image that we know, nor PDF, nor text")
    _check_claimed_type(claimed, media_type)
    return media_type


def detect_media_type(content: bytes) -> str:
    """Return the type of a whole file. Raises UnsupportedFile, TooLarge."""
    if not content:
        raise UnsupportedFile(why="it is empty")
    media_type = guess_media_type(content[:HEAD_BYTES])
    if len(content) > bytes_max(media_type):
        raise TooLarge(what="The file", size=len(content), limit=bytes_max(media_type))
    if media_type == TEXT:
        _check_text(content)
    elif media_type != PDF:
        _check_size(*image_size(media_type, content))
    return media_type


def _check_claimed_type(claimed: str, media_type: str) -> None:
    claim = claimed.partition(";")[0].strip().lower()
    claim = _ALIASES.get(claim, claim)
    if claim in _GENERIC_TYPES or claim == media_type:
        return
    if media_type == TEXT and _TEXTUAL.fullmatch(claim):
        return
    raise UnsupportedFile(why=f"it was sent as {claim[:100]}, and begins as {media_type} does")


def _check_text(content: bytes) -> None:
    if _CONTROL.search(content):
        raise UnsupportedFile(why="what it holds is neither an image that we know, nor PDF, nor text")
    try:
        content.decode()
    except UnicodeDecodeError:
        raise UnsupportedFile(why="its text is not UTF-8") from None


def _check_size(width: int, height: int) -> None:
    if max(width, height) > IMAGE_SIDE_PX_MAX or width * height > IMAGE_PIXELS_MAX:
        raise UnsupportedFile(why=f"the image is {width} by {height} pixels large, which is too much")


# Image sizes, from the header alone.


def image_size(media_type: str, content: bytes) -> tuple[int, int]:
    """Return width and height from the header, both at least 1. Raises UnsupportedFile if it is damaged."""
    readers = {PNG: _png_size, JPEG: _jpeg_size, GIF: _gif_size, WEBP: _webp_size}
    try:
        width, height = readers[media_type](content)
    except (struct.error, IndexError):
        width, height = 0, 0
    if width < 1 or height < 1:
        raise UnsupportedFile(why=f"it begins as {media_type} does, but its header is damaged")
    return width, height


def _png_size(content: bytes) -> tuple[int, int]:
    length, name, width, height = struct.unpack_from(">I4sII", content, 8)
    (checksum,) = struct.unpack_from(">I", content, 29)
    if length != 13 or name != b"IHDR" or zlib.crc32(content[12:29]) != checksum or max(width, height) >> 31:
        return 0, 0
    return width, height


def _gif_size(content: bytes) -> tuple[int, int]:
    width, height, *_ = struct.unpack_from("<HHBBB", content, 6)
    return width, height


def _webp_size(content: bytes) -> tuple[int, int]:
    chunk, first = content[12:16], content[20]
    if chunk == b"VP8X":
        (width, more_width, height, more_height) = struct.unpack_from("<HBHB", content, 24)
        return (more_width << 16 | width) + 1, (more_height << 16 | height) + 1
    if chunk == b"VP8L" and first == 0x2F:
        (bits,) = struct.unpack_from("<I", content, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", content, 26)
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def _jpeg_size(content: bytes) -> tuple[int, int]:
    at = 2
    for _ in range(_SEGMENTS_MAX):
        if content[at] != 0xFF:
            return 0, 0
        marker = content[at + 1]
        if marker == 0xFF:  # A fill byte.
            at += 1
        elif marker in (0x01, *range(0xD0, 0xD8)):  # These have no content.
            at += 2
        elif marker in (
            0xD9,
            0xDA,
        ):  # The image data begins or ends before any header gave the size.
            return 0, 0
        else:
            length, _, height, width = struct.unpack_from(">HBHH", content, at + 2)
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
                return (width, height) if length >= 8 else (0, 0)
            if length < 2:
                return 0, 0
            at += 2 + length
    return 0, 0


# Names.


def clean_name(name: str, media_type: str) -> str:
    """Return a name that is safe to show anywhere: no path, no controls, no direction marks."""
    normalized = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())
    last = re.split(r"[/\\]", normalized)[-1]
    cleaned = "".join(char for char in last if unicodedata.category(char) not in _UNSAFE_CATEGORIES)
    cleaned = " ".join(cleaned.split()).rstrip(". ")
    if len(cleaned) > FILE_NAME_CHARS_MAX:
        stem, dot, ending = cleaned.rpartition(".")
        tail = dot + ending if stem and len(ending) <= 10 else ""
        cleaned = cleaned[: FILE_NAME_CHARS_MAX - len(tail)] + tail
    return cleaned or _DEFAULT_NAMES.get(media_type, "file")


def output_name(call_id: str) -> str:
    """Return the name of the file with the whole output of a call."""
    return f"{call_id}.txt"


# Support by models.


def file_parts(parts: Iterable[AnyPart]) -> list[File]:
    return [part for part in parts if isinstance(part, File)]


def forced_blobs(parts: Iterable[AnyPart]) -> frozenset[str]:
    """Return the blobs to send even to a model that is not known to accept them."""
    return frozenset(file.blob for file in file_parts(parts) if file.anyway)


def check_supported(model: str, takes: SupportedFiles, room_tokens: int, parts: Iterable[AnyPart]) -> None:
    """Raise FileNotSupported unless a model accepts these files; `room_tokens` is its window's room for them.

    A model that takes no PDF files gets their text, cut to its window.
    """
    files = file_parts(parts)
    for file in files:
        kind = file_kind(file.media_type)
        if kind != "pdf" and not takes.accepts(kind, file.anyway):
            what = _KIND_LABELS[kind] if kind is not None else f"files of type {file.media_type[:100]}"
            refusal = FileSupportUnknown if kind == "image" and takes.guessed else FileNotSupported
            raise refusal(model=model, what=what, takes=describe_kinds(takes.kinds))
    if sum(file_tokens(file) for file in files if file_kind(file.media_type) == "text") > room_tokens:
        size = sum(file.size_bytes for file in files if file_kind(file.media_type) == "text")
        limit = f"about {max(room_tokens, 0) * 3:,} bytes of text at once"
        raise FileNotSupported(model=model, what=f"{size:,} bytes of text files", takes=limit)


def describe_kinds(takes: Iterable[FileKind]) -> str:
    """Return the kinds of files that a model accepts, as a phrase."""
    names = [_KIND_LABELS[kind] for kind in ("text", "image", "pdf") if kind in set(takes)]
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) or "no files"


IMAGE_TOKENS = 2_500
"""At least the cost of an image of any size, with the models that document it."""
_PDF_BYTES_PER_TOKEN, _PDF_TOKENS_MAX = 16, 100_000


def file_tokens(file: File) -> int:
    """Estimate a file's tokens: text by its size, the rest by an upper bound."""
    match file_kind(file.media_type):
        case "text":
            return -(-file.size_bytes // 3)
        case "pdf":
            return min(IMAGE_TOKENS + file.size_bytes // _PDF_BYTES_PER_TOKEN, _PDF_TOKENS_MAX)
    return IMAGE_TOKENS
