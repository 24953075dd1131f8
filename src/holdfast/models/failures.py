"""Describe failures of model requests so that people can act on them, and say which to retry.

The wire protocols over HTTP share it. A provider's own message is kept, short and without keys.
"""

import os
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from msgspec.structs import replace

from holdfast.models.endpoint import Endpoint
from holdfast.models.ports import ModelFailure

TOO_LONG = "the conversation is too long for this model"
"""Beginning of a failure's detail when the request did not fit the model's window."""
MESSAGE_CHARS_MAX = 300
"""Limit of a provider's message."""
RETRY_AFTER_MS_MAX = 86_400_000

_ENDPOINT_PATHS = ("/chat/completions", "/messages", "/responses")
"""Paths that people paste along with a base URL."""
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_BILLING_CODES = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "billing_error"}
)
_PERMANENT_TYPES = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "not_found_error", "refusal"}
)
_RETRYABLE_CODES = frozenset({"tool_use_failed", "output_parse_failed"})
"""Codes by which Groq fails an answer that its model has written badly: the next one may be better."""
_PERMANENT_CODE = re.compile(r"(?:invalid|image|unsupported)_|empty_image_file|\w+_policy")
"""Beginnings of the codes by which OpenAI fails an answer because of the request."""
_TOO_LONG_PATTERN = re.compile(
    r"context_length_exceeded|exceed_context_size|context (?:length|window|size|limit)|prompt is too long"
    r"|request_too_large|request too large|(?:maximum|available) context|too many tokens"
    r"|maximum number of tokens|maximum model length",
    re.IGNORECASE,
)

_TOO_LARGE_PATTERN = re.compile(r"request too large", re.IGNORECASE)
_ACCOUNT_PATTERN = re.compile(r"credit|billing|quota|balance|model|api key", re.IGNORECASE)
"""Words in a refusal that concerns the account or the model, and not the content of the request."""


_RETRY_DELAY_PATTERN = re.compile(
    rb'(?:"retryDelay"\s*:\s*"|(?:try again|retry) in )(?:(\d{1,4})m)?(\d{1,6}(?:\.\d{1,9})?)(ms|s)\b'
)
"""The wait that Google, Groq and OpenAI put into an error's body instead of a header."""


class _Error(msgspec.Struct, frozen=True):
    """An error. `metadata` is OpenRouter's, and holds the message of the provider behind it."""

    message: str | None = None
    code: str | int | None = None
    type: str | None = None
    metadata: msgspec.Raw = msgspec.Raw()


class _Metadata(msgspec.Struct, frozen=True):
    raw: str | None = None


class _Body(msgspec.Struct, frozen=True):
    """The shapes in which servers of these protocols send an error."""

    error: _Error | str | None = None
    message: str | None = None
    detail: msgspec.Raw = msgspec.Raw()
    code: str | int | None = None
    type: str | None = None


_BODY = msgspec.json.Decoder(_Body)
_BODY_LIST = msgspec.json.Decoder(list[_Body])
_METADATA = msgspec.json.Decoder(_Metadata)
_TEXT = msgspec.json.Decoder(str)


def from_status(endpoint: Endpoint, status: int, headers: Mapping[str, str], body: bytes) -> ModelFailure:
    """Return the failure of a response with a status other than 200, before any part of an answer."""
    error = parse_error(body)
    message = clean_message(endpoint, error.message or _plain_text(body))
    code = str(error.code or error.type or "")
    retryable = status in _RETRYABLE_STATUSES or (status >= 500 and status != 501)
    if (should_retry := headers.get("x-should-retry", "").lower()) in ("true", "false"):
        retryable = should_retry == "true"
    if code in _BILLING_CODES or error.type in _BILLING_CODES:
        retryable = False
    retryable = retryable or code in _RETRYABLE_CODES
    # A single request above the limit per minute never succeeds, so a retry is no use.
    if (status in (400, 413, 422, 500) and _is_too_long(error)) or (
        status == 429 and _TOO_LARGE_PATTERN.search(message)
    ):
        return ModelFailure(detail=f"{TOO_LONG}: {message or status}", retryable=False, too_long=True)
    detail = f"{_summary(endpoint, status)}: {message}" if message else _summary(endpoint, status)
    wait_ms = retry_after_ms(headers, body) if retryable else None
    # Another model may answer what this account or this model's name does not allow.
    refused = status in (400, 413, 422) and not retryable and not _ACCOUNT_PATTERN.search(message)
    return ModelFailure(detail=detail, retryable=retryable, retry_after_ms=wait_ms, bad_request=refused)


def from_error_body(endpoint: Endpoint, body: bytes) -> ModelFailure:
    """Return the failure of an error that came with status 200, alone or in the middle of a stream."""
    error = parse_error(body)
    message = clean_message(endpoint, error.message or "") or "without saying why"
    if _is_too_long(error):
        return ModelFailure(detail=f"{TOO_LONG}: {message}", retryable=False, too_long=True)
    code = str(error.code)
    status = int(code) if code.isdecimal() else 0
    refused = 400 <= status < 500 and status not in _RETRYABLE_STATUSES
    permanent = bool({code, error.type} & (_PERMANENT_TYPES | _BILLING_CODES)) or bool(
        _PERMANENT_CODE.match(code)
    )
    retryable = code in _RETRYABLE_CODES or not (refused or permanent)
    return ModelFailure(detail=f"{endpoint.host} reported an error: {message}", retryable=retryable)


def from_connection_error(endpoint: Endpoint, error: Exception) -> ModelFailure:
    """Return the failure of a connection that was refused or broke."""
    host = endpoint.host
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            why = clean_message(endpoint, str(error.os_error if hasattr(error, "os_error") else error))
            return ModelFailure(detail=f"the certificate of {host} was refused: {why}", retryable=False)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return ModelFailure(detail=f"{endpoint.display_url} is not an http address", retryable=False)
        case aiohttp.ConnectionTimeoutError():
            return ModelFailure(detail=f"no connection to {host} in time", retryable=True)
        case aiohttp.ClientConnectorDNSError():
            return ModelFailure(detail=f"there is no server named {host}", retryable=True)
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            why = os.strerror(number) if number else str(error.os_error)
            return ModelFailure(
                detail=f"no connection to {host}: {clean_message(endpoint, why)}", retryable=True
            )
        case aiohttp.ClientPayloadError():
            return incomplete_answer(endpoint)
        case aiohttp.ServerDisconnectedError():
            return ModelFailure(detail=f"{host} closed the connection without an answer", retryable=True)
    why = clean_message(endpoint, str(error)) or type(error).__name__
    return ModelFailure(detail=f"the connection to {host} broke: {why}", retryable=True)


def incomplete_answer(endpoint: Endpoint) -> ModelFailure:
    """Return the failure of a stream that ended before the answer was complete."""
    detail = f"the answer broke off: {endpoint.host} ended the stream before it was complete"
    return ModelFailure(detail=detail, retryable=True)


def timed_out(endpoint: Endpoint, awaited: str, wait_s: float) -> ModelFailure:
    """Return the failure of a server that stayed silent."""
    detail = f"{endpoint.host} was silent: no {awaited} within {wait_s:g} s"
    return ModelFailure(detail=detail, retryable=True)


def unreadable_response(endpoint: Endpoint, content: str) -> ModelFailure:
    """Return the failure of a response that is no part of an answer."""
    return ModelFailure(detail=f"{endpoint.host} sent {content}", retryable=True)


def unexpected_content(endpoint: Endpoint, content: str) -> ModelFailure:
    """Return the failure of a response from something else than a model: a proxy's page, another service."""
    detail = f"{endpoint.display_url} answered with {content}: is it the right base URL?"
    return ModelFailure(detail=detail, retryable=False)


def parse_error(body: bytes) -> _Error:
    """Return the error in a JSON body of any known shape; an empty one if it holds none."""
    try:
        # Google sends its error in a list.
        found = _BODY_LIST.decode(body)[0] if body.lstrip()[:1] == b"[" else _BODY.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError):
        return _Error()
    if isinstance(found.error, _Error):
        return _with_provider_message(found.error)
    if found.error is not None:
        return _Error(found.error, found.code, found.type)
    message = found.message
    if message is None and found.detail:
        detail = bytes(found.detail)
        message = _TEXT.decode(detail) if detail.startswith(b'"') else detail.decode("utf-8", "replace")
    return _Error(message, found.code, found.type)


def _with_provider_message(error: _Error) -> _Error:
    """Return a gateway's error with the message of the provider behind it."""
    try:
        raw = _METADATA.decode(error.metadata).raw if error.metadata else None
    except msgspec.DecodeError:
        return error
    if not raw:
        return error
    message = parse_error(raw.encode("utf-8", "replace")).message or raw
    return replace(error, message=f"{error.message}: {message}" if error.message else message)


def clean_message(endpoint: Endpoint, text: str) -> str:
    """Return a provider's message for people: on one line, short, without keys and the last full stop."""
    line = endpoint.key.mask(" ".join(text.split()))
    if len(line) > MESSAGE_CHARS_MAX:
        line = line[: MESSAGE_CHARS_MAX - 1].rstrip() + "…"
    return line.rstrip(".")


def retry_after_ms(headers: Mapping[str, str], body: bytes = b"") -> int | None:
    """Return the wait that the server asks for; None if it states none in a known form."""
    header_ms = _retry_after_header_ms(headers)
    if header_ms is None and (found := _RETRY_DELAY_PATTERN.search(body)) is not None:
        minutes, count, unit = found.groups()
        wait_s = float(count) / 1_000 if unit == b"ms" else int(minutes or 0) * 60 + float(count)
        return min(int(wait_s * 1_000), RETRY_AFTER_MS_MAX)
    return header_ms


def _retry_after_header_ms(headers: Mapping[str, str]) -> int | None:
    for name, unit_ms in (("retry-after-ms", 1), ("retry-after", 1_000)):
        try:
            wait_ms = float(headers[name]) * unit_ms
        except (KeyError, ValueError):
            continue
        if 0 <= wait_ms < float("inf"):
            return min(int(wait_ms), RETRY_AFTER_MS_MAX)
    try:
        # Both dates are the server's, so its clock need not agree with ours.
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return min(max(int(wait.total_seconds() * 1_000), 0), RETRY_AFTER_MS_MAX)


def _is_too_long(error: _Error) -> bool:
    return any(
        _TOO_LONG_PATTERN.search(str(word)) for word in (error.code, error.type, error.message) if word
    )


def _plain_text(body: bytes) -> str:
    """Return the text of an error's body, unless it is JSON or a page for browsers."""
    text = body[: 4 * MESSAGE_CHARS_MAX].decode("utf-8", "replace").strip()
    return "" if text.startswith(("<", "{", "[")) else text


def _summary(endpoint: Endpoint, status: int) -> str:
    host, url = endpoint.host, endpoint.display_url
    match status:
        case 401 | 403 if not endpoint.key:
            return f"{host} wants a key, and none is set ({status})"
        case 401:
            return f"{host} refused the key from {endpoint.key_from or 'the settings'} (401)"
        case 403:
            return f"{host} does not allow this with the key from {endpoint.key_from or 'the settings'} (403)"
        case 404 if endpoint.display_url.rstrip("/").endswith(_ENDPOINT_PATHS):
            return f"{url} is more than a base URL, which ends before that path (404)"
        case 404:
            return f"{host} has no model {endpoint.model}, or {url} is not its base URL (404)"
        case 429:
            return f"{host} asks for fewer requests (429)"
        case _ if 300 <= status < 400:
            return f"{host} sends us elsewhere ({status}), so {url} is not its base URL"
        case _ if status >= 500:
            return f"{host} failed ({status})"
    return f"{host} refused the request ({status})"
