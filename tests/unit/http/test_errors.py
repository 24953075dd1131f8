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
    Problem,
    SignInFailed,
    Stopping,
    TooManyTries,
    document,
    problem,
)
from holdfast.http.uploads import CutOff, TooManyUploads

ALWAYS = {"title", "status", "detail", "code", "remedy"}


class Named(HoldfastError):
    """This one says more than others of {name}."""

    code, status = "named", 418
    told = ("password",)
    headers = MappingProxyType({"x-name": "{name}"})


def kinds(above: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    for kind in above.__subclasses__():
        yield kind
        yield from kinds(kind)


def members(error: HoldfastError) -> dict[str, object]:
    told: dict[str, object] = msgspec.json.decode(problem(error).body)
    return {name: value for name, value in told.items() if name not in ALWAYS}


def test_any_error_can_say_which_of_its_fields_are_told_and_what_its_answer_has_in_its_head() -> None:
    error = Named(name="it", password=True, hidden="not told")
    assert document(error).password is True
    assert members(error) == {"password": True}
    assert problem(error).headers == ((b"x-name", b"it"),)


def test_what_is_told_by_name_is_what_was_given_and_nothing_where_nothing_was() -> None:
    assert members(NotSignedIn(password=False)) == {"password": False}
    assert members(NotSignedIn()) == members(NoSuchSession(session_id="s")) == members(SignInFailed()) == {}


@pytest.mark.parametrize(
    ("error", "head"),
    [
        (MethodNotAllowed(path="/x", method="PUT", allowed="GET, POST"), {"allow": "GET, POST"}),
        (TooManyTries(seconds=7), {"retry-after": "7"}),
        (NotSignedIn(), {"www-authenticate": "Bearer"}),
        (SignInFailed(), {"www-authenticate": "Bearer"}),
        (Stopping(), {"connection": "close", "retry-after": "2"}),
        (CutOff(limit=5), {"connection": "close"}),
        (TooManyUploads(), {"retry-after": "2"}),
        (NoSuchSession(session_id="s"), {}),
    ],
)
def test_an_answers_head_says_what_its_error_has_for_it(error: HoldfastError, head: dict[str, str]) -> None:
    assert dict(error.head) == head


def test_no_error_names_a_member_that_the_documents_description_does_not_have() -> None:
    assert Api is not None, "the door is loaded, and with it every error that comes through it"
    found = list(kinds())
    assert NotSignedIn in found
    assert len(found) > 50
    for kind in found:
        assert set(kind.told) <= set(Problem.__struct_fields__) - ALWAYS, kind
