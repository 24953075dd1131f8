"""Errors over HTTP: RFC 9457 problem documents with our stable `code`, and the errors only this door has."""

from http import HTTPStatus

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.server.asgi import Answer

MEDIA_TYPE = "application/problem+json"


class NoSuchPage(HoldfastError):
    """There is nothing at {path}."""

    code, status = "no_such_page", 404


class MethodNotAllowed(HoldfastError):
    """{path} does not take {method}; it takes {allowed}."""

    code, status = "method_not_allowed", 405


class WrongHost(HoldfastError):
    """This server does not answer to the name {host}."""

    # A page of another site that resolves its own name to this machine must not reach us.
    code, status = "wrong_host", 421
    remedy = "Use the address that `holdfast serve` printed."


class WrongOrigin(HoldfastError):
    """A page of {origin} may not use this server."""

    code, status = "wrong_origin", 403


class NotJson(HoldfastError):
    """What is sent here must be application/json, not {content_type}."""

    # A form of another site cannot send this type without asking first.
    code, status = "not_json", 415


class BadRequest(HoldfastError):
    """The request cannot be understood: {why}."""

    code, status = "bad_request", 400


class Stopping(HoldfastError):
    """The server is stopping."""

    code, status = "stopping", 503
    remedy = "Try again when it is back."


class Unexpected(HoldfastError):
    """Something went wrong in the server; its log says what."""

    code, status = "internal_error", 500


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong (RFC 9457). `code` is stable; `remedy` is the next thing to do, where there is one."""

    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""


def document(error: HoldfastError) -> Problem:
    """What a client is told of `error`."""
    return Problem(HTTPStatus(error.status).phrase, error.status, str(error), error.code, error.advice)


def headers(error: HoldfastError) -> dict[str, str]:
    """What the answer's head says beside the document."""
    if isinstance(error, MethodNotAllowed):
        return {"allow": str(error.fields["allowed"])}
    if isinstance(error, Stopping):
        return {"connection": "close", "retry-after": "2"}
    return {}


def problem(error: HoldfastError) -> Answer:
    """The answer that tells a client of `error`."""
    lines = tuple((name.encode(), text.encode()) for name, text in headers(error).items())
    return Answer(msgspec.json.encode(document(error)), MEDIA_TYPE, error.status, lines)
