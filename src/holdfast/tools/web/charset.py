"""Decode bytes from the web as text by their content type and charset."""

import codecs
import re
from types import MappingProxyType
from typing import Literal

from holdfast.tools.arguments import ToolError

ContentKind = Literal["html", "text"]

_TEXT_TYPES = frozenset({
    "application/json", "application/xml", "application/javascript", "application/x-javascript",
    "application/ecmascript", "application/yaml", "application/x-yaml", "application/toml", "application/sql",
    "application/x-ndjson", "application/jsonl", "application/x-sh", "application/graphql",
    "application/x-www-form-urlencoded", "application/rtf", "application/x-tex", "application/csv",
    "message/rfc822", "image/svg+xml",
})  # fmt: skip
_UNSPECIFIC_TYPES = frozenset(
    {"", "application/octet-stream", "binary/octet-stream", "application/x-unknown"}
)
_HTML = re.compile(rb"\s*(<!--[^>]*-->\s*)?<(!doctype\s+html|html|head|body)[\s>]", re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([\w:.-]{1,40})", re.IGNORECASE)
_META_BYTES = 4_096
_SNIFFED_BYTES = 8_192
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_BROWSER_ALIASES = MappingProxyType(
    {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}
)
"""Charset names that pages use for a superset, as browsers know."""
_CHARSETS = frozenset({
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "gb18030",
    "big5", "big5hkscs", "cp950", "cp932", "shift_jis", "euc_jp", "iso2022_jp", "euc_kr", "cp949", "koi8-r",
    "koi8-u", "mac-roman", "mac-cyrillic", "cp437", "cp850", "cp866", "cp874", "tis-620",
    *(f"cp125{number}" for number in range(9)), *(f"iso8859-{number}" for number in range(2, 17)),
})  # fmt: skip
"""Codecs that only map characters: Python has others, some of them slow or dangerous."""


def content_kind(content_type: str) -> ContentKind | None:
    """Return the kind of a content type, or None if it names none. Raises ToolError if it is not text."""
    name = content_type.partition(";")[0].strip().lower()
    if name in ("text/html", "application/xhtml+xml"):
        return "html"
    if name.startswith("text/") or name in _TEXT_TYPES or name.endswith(("+json", "+xml", "+yaml")):
        return "text"
    if name in _UNSPECIFIC_TYPES:
        return None
    raise ToolError(f"it is {_printable_name(name)}, not text")


def decode_body(body: bytes, content_type: str) -> tuple[ContentKind, str]:
    """Decode a body as text. Raises ToolError if it is not text, whatever its server declares."""
    kind, charset = content_kind(content_type), _declared_charset(content_type)
    charset = next((name for mark, name in _BYTE_ORDER_MARKS if body.startswith(mark)), charset)
    is_wide = charset.startswith(("utf-16", "utf-32"))
    if body.startswith(b"%PDF-") or (b"\0" in body[:_SNIFFED_BYTES] and not is_wide):
        what = "a PDF document" if body.startswith(b"%PDF-") else "a binary file"
        raise ToolError(f"it is {what} of {len(body):,} bytes or more, not text")
    if kind is None:
        kind = "html" if _HTML.match(body[:_META_BYTES]) else "text"
    if not charset and (declared := _META.search(body[:_META_BYTES])):
        charset = _codec_name(declared[1].decode("ascii", "replace"))
        # In UTF-16 or UTF-32 the pattern would not have found the tag.
        charset = "utf-8" if charset.startswith(("utf-16", "utf-32")) else charset
    return kind, body.decode(charset or _guess_charset(body), "replace")


def _declared_charset(content_type: str) -> str:
    declared = re.search(r"charset\s*=\s*[\"']?\s*([\w:.-]{1,40})", content_type[:1_000], re.IGNORECASE)
    return _codec_name(declared[1]) if declared else ""


def _codec_name(label: str) -> str:
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    name = _BROWSER_ALIASES.get(name, name)
    return name if name in _CHARSETS else ""


def _guess_charset(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # The body may be cut within its last character; any other error means another charset.
        return "utf-8" if error.reason == "unexpected end of data" else "cp1252"
    return "utf-8"


def _printable_name(name: str) -> str:
    return name[:100] if name.isprintable() else "of an unknown kind"
