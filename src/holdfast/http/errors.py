"""Errors over HTTP: RFC 9457 problem documents with our stable `code`, and the errors that only HTTP has."""

from http import HTTPStatus
from types import MappingProxyType

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.http.asgi import AsgiResponse

PROBLEM_MEDIA_TYPE = "application/problem+json"
BEARER_CHALLENGE = MappingProxyType({"www-authenticate": "Bearer"})
"""The response header that names the authentication scheme."""


class NoSuchPage(HoldfastError):
    """There is nothing at {path}."""

    code, status = "no_such_page", 404


class PageNotBuilt(HoldfastError):
    """The page has not been built here."""

    code, status = "page_not_built", 503
    remedy = "make setup"


class MethodNotAllowed(HoldfastError):
    """{path} does not take {method}; it takes {allowed}."""

    code, status = "method_not_allowed", 405
    headers = MappingProxyType({"allow": "{allowed}"})


class WrongHost(HoldfastError):
    """This server does not answer to the name {host}."""

    # Stops DNS rebinding: a page of another site may resolve its own name to this machine.
    code, status = "wrong_host", 421
    remedy = (
        "Use the address that `holdfast serve` printed. If {host} is a name of this server, add it to the "
        "setting allowed_hosts, or set public_url where a proxy stands in front."
    )


class WrongOrigin(HoldfastError):
    """A page of {origin} may not use this server."""

    code, status = "wrong_origin", 403
    remedy = "If that page is this server's own, name its host in the setting allowed_hosts or in public_url."


class CrossSite(HoldfastError):
    """Only this server's own page may ask for this from a browser, not a page of another ({site})."""

    code, status = "cross_site", 403


class NotSignedIn(HoldfastError):
    """This needs somebody who is signed in."""

    code, status = "not_signed_in", 401
    remedy = "Open the link that `holdfast link` prints, or send `Authorization: Bearer` with a token."
    public_fields = ("password",)
    """Tells the page whether a password is set, so that it offers only sign-in methods that work."""
    headers = BEARER_CHALLENGE


class SignInFailed(HoldfastError):
    """That does not let you in: the password is wrong, or the link was used or has run out."""

    code, status = "sign_in_failed", 401
    remedy = "`holdfast link` prints a fresh link."
    headers = BEARER_CHALLENGE


class NotAllowed(HoldfastError):
    """This needs the right to {right}, which {name} does not have."""

    code, status = "not_allowed", 403
    remedy = "Make a token that has it: `holdfast tokens add NAME --right {right}`."


class TooManyAttempts(HoldfastError):
    """Too many tries to come in have failed."""

    code, status = "too_many_tries", 429
    remedy = "Try again in {seconds} s. A fresh link from `holdfast link` works at once."
    headers = MappingProxyType({"retry-after": "{seconds}"})


class RequestTooSlow(HoldfastError):
    """The request took too long to arrive."""

    code, status = "too_slow", 408


class HeadTooLarge(HoldfastError):
    """The request's headers are longer than {limit} bytes."""

    code, status = "head_too_large", 431


class NotJson(HoldfastError):
    """What is sent here must be application/json, not {content_type}."""

    # A form of another site cannot send this type without a CORS preflight.
    code, status = "not_json", 415


class BadRequest(HoldfastError):
    """The request cannot be understood: {why}."""

    code, status = "bad_request", 400


class ServerShuttingDown(HoldfastError):
    """The server is stopping."""

    code, status = "stopping", 503
    remedy = "Try again when it is back."
    headers = MappingProxyType({"connection": "close", "retry-after": "2"})


class InternalError(HoldfastError):
    """Something went wrong in the server; its log says what."""

    code, status = "internal_error", 500


class ProblemDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong (RFC 9457). `code` is stable; `remedy` is the next thing to do, where there is one.

    What follows them is told of some errors alone. `password` is told to those who are not signed in: whether
    one is set, and nothing else of it.
    """

    title: str
    status: int
    detail: str
    code: str
    remedy: str = ""
    password: bool | None = None


def problem_document(error: HoldfastError, mask: MaskFunction = no_mask) -> ProblemDocument:
    """Return the problem document of `error`, without secrets."""
    members = {
        name: mask(value) if isinstance(value, str) else value for name, value in error.public_members.items()
    }
    title, detail, remedy = HTTPStatus(error.status).phrase, mask(str(error)), mask(error.advice)
    # Converted, so that no field is sent that the OpenAPI document does not describe.
    standard_members = {
        "title": title,
        "status": error.status,
        "detail": detail,
        "code": error.code,
        "remedy": remedy,
    }
    return msgspec.convert(standard_members | members, ProblemDocument)


def problem_response(error: HoldfastError, mask: MaskFunction = no_mask) -> AsgiResponse:
    """Return the response for `error`."""
    headers = tuple((name.encode(), text.encode()) for name, text in error.response_headers.items())
    return AsgiResponse(
        msgspec.json.encode(problem_document(error, mask)), PROBLEM_MEDIA_TYPE, error.status, headers
    )
