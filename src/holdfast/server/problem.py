"""Errors over HTTP: RFC 9457 problem documents with our stable `code`, and the errors only this door has."""

from http import HTTPStatus

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.server.asgi import Answer


class NoSuchPage(HoldfastError):
    """There is nothing at {path}."""

    code, status = "no_such_page", 404


class MethodNotAllowed(HoldfastError):
    """{path} can be read, not sent {method}."""

    code, status = "method_not_allowed", 405


class WrongHost(HoldfastError):
    """This server does not answer to the name {host}."""

    # A page of another site that resolves its own name to this machine must not reach us.
    code, status = "wrong_host", 421
    remedy = "Use the address that `holdfast serve` printed."


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document's members. `type` is absent, which the RFC reads as `about:blank`."""

    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""


def problem(error: HoldfastError) -> Answer:
    """The answer that tells a client of `error`."""
    document = Problem(HTTPStatus(error.status).phrase, error.status, str(error), error.code, error.advice)
    allowed = ((b"allow", b"GET, HEAD"),) if isinstance(error, MethodNotAllowed) else ()
    return Answer(msgspec.json.encode(document), "application/problem+json", error.status, allowed)
