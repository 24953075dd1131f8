"""The shapes of ASGI, and an answer as a value: what a route returns, and what is sent."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; "
    b"img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Nothing here is to be framed, sniffed, cached, used by other sites or told to them.
ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Answer(msgspec.Struct, frozen=True):
    """A whole response."""

    body: bytes
    content_type: str = "application/json"
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()


async def send_answer(send: Send, answer: Answer) -> None:
    own = (
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.body)).encode()),
    )
    headers = [*own, *answer.headers, *ALWAYS]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


def header(scope: Scope, name: bytes) -> str:
    """The first header of that name, or nothing."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
