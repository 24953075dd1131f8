"""Sign and verify messages by Standard Webhooks: the signature covers the body, the time and the id."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import WEBHOOK_SKEW_S

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"
KEY_PREFIX = "whsec_"
"""The prefix of a key in text form, before its base 64."""
_VERSION = "v1,"
_ID = re.compile(r"[\x21-\x7e]{1,200}")
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURES_MAX = 8
_KEY_BYTES_MIN = 24


class BadSignature(HoldfastError):
    """This is not signed as was agreed: {why}."""

    code, status = "bad_signature", 401
    remedy = "Sign it as Standard Webhooks say, with the key in channel-webhook.key of the data folder."


class SignatureHeaders(msgspec.Struct, frozen=True):
    """The headers of a signed message."""

    id: str
    timestamp: str
    signature: str


def decode_key(text: str) -> bytes:
    """Decode a key. Raises ValueError, which does not contain it."""
    try:
        key = base64.b64decode(text.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(KEY_PREFIX) or len(key) < _KEY_BYTES_MIN:
        raise ValueError(f"not {KEY_PREFIX} and {_KEY_BYTES_MIN} bytes or more in base64")
    return key


def encode_key(key: bytes) -> str:
    return KEY_PREFIX + base64.b64encode(key).decode()


def signature_headers(key: bytes, webhook_id: str, now: Instant, body: bytes) -> dict[str, str]:
    """Return the headers that sign `body`."""
    timestamp = str(now // 1000)
    return {
        ID_HEADER: webhook_id,
        TIMESTAMP_HEADER: timestamp,
        SIGNATURE_HEADER: _VERSION + _signature(key, webhook_id, timestamp, body),
    }


def parse_headers(headers: Mapping[str, str], now: Instant) -> SignatureHeaders:
    """Parse and check the headers before the body is read; names are in lower case. Raises BadSignature."""
    parsed = SignatureHeaders(
        headers.get(ID_HEADER, ""), headers.get(TIMESTAMP_HEADER, ""), headers.get(SIGNATURE_HEADER, "")
    )
    if not _ID.fullmatch(parsed.id) or not _TIMESTAMP.fullmatch(parsed.timestamp) or not parsed.signature:
        raise BadSignature(
            why=f"the headers {ID_HEADER}, {TIMESTAMP_HEADER} and {SIGNATURE_HEADER} are not all there"
        )
    if abs(now // 1000 - int(parsed.timestamp)) > WEBHOOK_SKEW_S:
        raise BadSignature(why=f"it was signed more than {WEBHOOK_SKEW_S} s ago, or the clocks differ")
    return parsed


def verify(key: bytes, headers: Mapping[str, str], body: bytes, now: Instant) -> str:
    """Return the id under which `body` was signed. Raises BadSignature."""
    parsed = parse_headers(headers, now)
    expected = _signature(key, parsed.id, parsed.timestamp, body).encode()
    # During a key change a sender may sign with both keys.
    offered = parsed.signature.split(" ")[:_SIGNATURES_MAX]
    shown = [item.removeprefix(_VERSION).encode() for item in offered if item.startswith(_VERSION)]
    if not any(hmac.compare_digest(signature, expected) for signature in shown):
        raise BadSignature(why="the signature is of something else, or by another key")
    return parsed.id


def _signature(key: bytes, webhook_id: str, timestamp: str, body: bytes) -> str:
    digest = hmac.digest(key, f"{webhook_id}.{timestamp}.".encode() + body, "sha256")
    return base64.b64encode(digest).decode()
