"""What each route is said to answer: its shape with an example, and every problem it may meet."""

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
    """The `responses` of a route: its own answer, then the problems it names and those of every route.

    `sends`: it takes a body, or changes something.
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
    """How a route's body is annotated, beside its type."""
    return Body(examples=[Example(value=example) for example in examples])


def example_error(error_type: type[HoldfastError]) -> HoldfastError:
    """An error of that kind, as an example: what it would say of its occasion is left open."""
    template = f"{error_type.__doc__} {error_type.remedy}"
    return error_type(**{name: "…" for _, name, _, _ in Formatter().parse(template) if name})


def _spec(shape: Any, media_type: str, description: str, examples: list[object]) -> ResponseSpec:
    # As structs, which are encoded with the document: Litestar leaves out what is None in anything it knows.
    shown = [Example(value=example) for example in examples]
    return ResponseSpec(shape, False, description, media_type, shown)
