"""Make untrusted text safe for a terminal: remove control sequences and invisible characters."""

import re

import msgspec

from holdfast.domain.transcript.labels import strip_control_chars

_MISLEADING_CHARS = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    "|(?<=[\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?=[\x00-\x7f])"
)
"""Characters that change the text direction, break lines or are invisible, so that the text misleads.

Joiners are allowed where some scripts and emoji need them."""
_CONTROL_CHARS = re.compile("[\x7f-\x9f]")
TAB = "    "


def safe(text: str) -> str:
    """Return `text` with unsafe characters replaced by a mark."""
    return _MISLEADING_CHARS.sub("�", strip_control_chars(text)).replace("\t", TAB)


def one_line(text: str, chars_max: int) -> str:
    """Return safe `text` on one line of at most `chars_max` characters."""
    line = " ".join(safe(text).split())
    return line if len(line) <= chars_max else line[: max(0, chars_max - 1)] + "…"


def json_line(value: object) -> str:
    """Return `value` as one line of JSON, with control characters escaped."""
    line = msgspec.json.encode(value).decode()
    return _CONTROL_CHARS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
