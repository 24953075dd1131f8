"""Describe the responses of a route: its body with an example, and each problem that it may return."""

from string import Formatter
from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import Body

from holdfast.domain.errors import DiskFull, HoldfastError, StoreFault, TooLarge
from holdfast.http.errors import (
    PROBLEM_MEDIA_TYPE,
    BadRequest,
    CrossSite,
    InternalError,
    NotAllowed,
    NotJson,
    NotSignedIn,
    ProblemDocument,
    ServerShuttingDown,
    TooManyAttempts,
    WrongHost,
    WrongOrigin,
    problem_document,
)

COMMON_PROBLEMS: tuple[type[HoldfastError], ...] = (
    BadRequest,
    NotSignedIn,
    NotAllowed,
    WrongOrigin,
    CrossSite,
    WrongHost,
    TooManyAttempts,
    ServerShuttingDown,
    StoreFault,
    InternalError,
)
BODY_PROBLEMS: tuple[type[HoldfastError], ...] = (NotJson, TooLarge, DiskFull)


def response_specs(
    status: int, shape: Any, example: object, *problems: type[HoldfastError], has_body: bool = False
) -> dict[int, ResponseSpec]:
    """Return the `responses` of a route: its own, then its problems and those of all routes.

    `has_body`: it takes a body, or changes something.
    """
    specs = {status: _spec(shape, "application/json", "As asked", [example])}
    by_status: dict[int, list[type[HoldfastError]]] = {}
    for kind in (*problems, *(BODY_PROBLEMS if has_body else ()), *COMMON_PROBLEMS):
        kinds = by_status.setdefault(kind.status, [])
        if kind not in kinds:
            kinds.append(kind)
    for number, kinds in by_status.items():
        examples: list[object] = [problem_document(example_error(kind)) for kind in kinds]
        specs[number] = _spec(
            ProblemDocument, PROBLEM_MEDIA_TYPE, " or ".join(kind.code for kind in kinds), examples
        )
    return specs


def request_body(*examples: object) -> Any:
    """Return the annotation of a route's body that adds `examples`."""
    return Body(examples=[Example(value=example) for example in examples])


def example_error(error_type: type[HoldfastError]) -> HoldfastError:
    """Return an example of the error, with … for each value in its message."""
    template = f"{error_type.__doc__} {error_type.remedy}"
    return error_type(**{name: "…" for _, name, _, _ in Formatter().parse(template) if name})


def _spec(shape: Any, media_type: str, description: str, examples: list[object]) -> ResponseSpec:
    # As structs: they are encoded with the document, whereas Litestar would leave out values that are None.
    spec_examples = [Example(value=example) for example in examples]
    return ResponseSpec(shape, False, description, media_type, spec_examples)
