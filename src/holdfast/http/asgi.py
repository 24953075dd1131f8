"""ASGI types, the security headers, and a response as a value."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
    b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# No other site may frame, sniff, cache, load or learn the address of anything here.
SECURITY_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _CONTENT_SECURITY_POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class AsgiResponse(msgspec.Struct, frozen=True):
    """A response with a complete body."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


async def send_response(send: Send, response: AsgiResponse) -> None:
    content_headers = (
        (b"content-type", response.content_type.encode()),
        (b"content-length", str(len(response.body)).encode()),
    )
    headers = [*content_headers, *response.headers, *SECURITY_HEADERS]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def header(scope: Scope, name: bytes) -> str:
    """Return the first header of that name, or an empty string."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
