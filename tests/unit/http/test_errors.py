"""What a client is told of an error: the document, and the head of the answer that holds it."""

from collections.abc import Iterator
from types import MappingProxyType

import msgspec
import pytest

from holdfast.domain.errors import HoldfastError, NoSuchSession
from holdfast.http.app import Api
from holdfast.http.errors import (
    MethodNotAllowed,
    NotSignedIn,
    ProblemDocument,
    ServerShuttingDown,
    SignInFailed,
    TooManyAttempts,
    problem_document,
    problem_response,
)
from holdfast.http.uploads import TooManyUploads, UploadCutOff

STANDARD_MEMBERS = {"title", "status", "detail", "code", "remedy"}


class Named(HoldfastError):
    """This one says more than others of {name}."""

    code, status = "named", 418
    public_fields = ("password",)
    headers = MappingProxyType({"x-name": "{name}"})


def error_types(above: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    for kind in above.__subclasses__():
        yield kind
        yield from error_types(kind)


def members(error: HoldfastError) -> dict[str, object]:
    body: dict[str, object] = msgspec.json.decode(problem_response(error).body)
    return {name: value for name, value in body.items() if name not in STANDARD_MEMBERS}


def test_an_error_declares_its_public_fields_and_headers() -> None:
    error = Named(name="it", password=True, hidden="not told")
    assert problem_document(error).password is True
    assert members(error) == {"password": True}
    assert problem_response(error).headers == ((b"x-name", b"it"),)


def test_a_public_field_appears_only_if_given() -> None:
    assert members(NotSignedIn(password=False)) == {"password": False}
    assert members(NotSignedIn()) == members(NoSuchSession(session_id="s")) == members(SignInFailed()) == {}


@pytest.mark.parametrize(
    ("error", "head"),
    [
        (MethodNotAllowed(path="/x", method="PUT", allowed="GET, POST"), {"allow": "GET, POST"}),
        (TooManyAttempts(seconds=7), {"retry-after": "7"}),
        (NotSignedIn(), {"www-authenticate": "Bearer"}),
        (SignInFailed(), {"www-authenticate": "Bearer"}),
        (ServerShuttingDown(), {"connection": "close", "retry-after": "2"}),
        (UploadCutOff(limit=5), {"connection": "close"}),
        (TooManyUploads(), {"retry-after": "2"}),
        (NoSuchSession(session_id="s"), {}),
    ],
)
def test_a_problem_response_has_the_headers_of_its_error(error: HoldfastError, head: dict[str, str]) -> None:
    assert dict(error.response_headers) == head


def test_every_public_error_field_is_a_problem_document_field() -> None:
    assert Api is not None, "the door is loaded, and with it every error that comes through it"
    found = list(error_types())
    assert NotSignedIn in found
    assert len(found) > 50
    for kind in found:
        assert set(kind.public_fields) <= set(ProblemDocument.__struct_fields__) - STANDARD_MEMBERS, kind
