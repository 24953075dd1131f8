"""Signatures of Standard Webhooks: who has the key wrote exactly this, at about this time, under this id."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import WEBHOOK_SKEW_S

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PREFIX = "whsec_"
"""How a key is written down, before its base64."""
_VERSION = "v1,"
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURES_MAX = 8
_KEY_BYTES_MIN = 24


class BadSignature(HoldfastError):
    """This is not signed as was agreed: {why}."""

    code, status = "bad_signature", 401
    remedy = "Sign it as Standard Webhooks say, with the key in channel-webhook.key of the data folder."


class Signed(msgspec.Struct, frozen=True):
    """The head of something that is signed."""

    id: str
    timestamp: str
    signature: str


def key_of(written: str) -> bytes:
    """The key as it was written down. Raises ValueError, which does not hold it."""
    try:
        key = base64.b64decode(written.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not written.startswith(PREFIX) or len(key) < _KEY_BYTES_MIN:
        raise ValueError(f"not {PREFIX} and {_KEY_BYTES_MIN} bytes or more in base64")
    return key


def written_of(key: bytes) -> str:
    return PREFIX + base64.b64encode(key).decode()


def signed(key: bytes, webhook_id: str, now: Instant, body: bytes) -> dict[str, str]:
    """The headers that say who wrote `body`."""
    timestamp = str(now // 1000)
    return {
        ID: webhook_id,
        TIMESTAMP: timestamp,
        SIGNATURE: _VERSION + _digest(key, webhook_id, timestamp, body),
    }


def check_head(headers: Mapping[str, str], now: Instant) -> Signed:
    """What the headers say, if a body could go with them. Names are in lower case. Raises BadSignature."""
    told = Signed(headers.get(ID, ""), headers.get(TIMESTAMP, ""), headers.get(SIGNATURE, ""))
    if not _ID.fullmatch(told.id) or not _TIMESTAMP.fullmatch(told.timestamp) or not told.signature:
        raise BadSignature(why=f"the headers {ID}, {TIMESTAMP} and {SIGNATURE} are not all there")
    if abs(now // 1000 - int(told.timestamp)) > WEBHOOK_SKEW_S:
        raise BadSignature(why=f"it was signed more than {WEBHOOK_SKEW_S} s ago, or the clocks differ")
    return told


def check(key: bytes, headers: Mapping[str, str], body: bytes, now: Instant) -> str:
    """The id under which `body` was signed. Raises BadSignature."""
    told = check_head(headers, now)
    expected = _digest(key, told.id, told.timestamp, body).encode()
    # Several: while a key is changed, a sender may sign with the old and the new one.
    offered = told.signature.split(" ")[:_SIGNATURES_MAX]
    shown = [each.removeprefix(_VERSION).encode() for each in offered if each.startswith(_VERSION)]
    if not any(hmac.compare_digest(each, expected) for each in shown):
        raise BadSignature(why="the signature is of something else, or by another key")
    return told.id


def _digest(key: bytes, webhook_id: str, timestamp: str, body: bytes) -> str:
    made = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
    return base64.b64encode(made).decode()
