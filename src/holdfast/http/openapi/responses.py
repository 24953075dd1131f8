"""What each route is said to answer: its shape with an example, and every problem it may meet."""

from string import Formatter
from typing import Any

from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import Example
from litestar.params import Body

from holdfast.domain.errors import DiskFull, HoldfastError, StoreFault, TooLarge
from holdfast.http.errors import (
    MEDIA_TYPE,
    BadRequest,
    CrossSite,
    NotAllowed,
    NotJson,
    NotSignedIn,
    Problem,
    Stopping,
    TooManyTries,
    Unexpected,
    WrongHost,
    WrongOrigin,
    document,
)

ANYWHERE: tuple[type[HoldfastError], ...] = (
    BadRequest,
    NotSignedIn,
    NotAllowed,
    WrongOrigin,
    CrossSite,
    WrongHost,
    TooManyTries,
    Stopping,
    StoreFault,
    Unexpected,
)
WITH_BODY: tuple[type[HoldfastError], ...] = (NotJson, TooLarge, DiskFull)


def answers(
    status: int, shape: Any, example: object, *problems: type[HoldfastError], sends: bool = False
) -> dict[int, ResponseSpec]:
    """The `responses` of a route: its own answer, then the problems it names and those of every route.

    `sends`: it takes a body, or changes something.
    """
    told = {status: _spec(shape, "application/json", "As asked", [example])}
    by_status: dict[int, list[type[HoldfastError]]] = {}
    for kind in (*problems, *(WITH_BODY if sends else ()), *ANYWHERE):
        kinds = by_status.setdefault(kind.status, [])
        if kind not in kinds:
            kinds.append(kind)
    for number, kinds in by_status.items():
        examples: list[object] = [document(sample(kind)) for kind in kinds]
        told[number] = _spec(Problem, MEDIA_TYPE, " or ".join(kind.code for kind in kinds), examples)
    return told


def body(*examples: object) -> Any:
    """How a route's body is annotated, beside its type."""
    return Body(examples=[Example(value=example) for example in examples])


def sample(kind: type[HoldfastError]) -> HoldfastError:
    """An error of that kind, as an example: what it would say of its occasion is left open."""
    template = f"{kind.__doc__} {kind.remedy}"
    return kind(**{name: "…" for _, name, _, _ in Formatter().parse(template) if name})


def _spec(shape: Any, media_type: str, description: str, examples: list[object]) -> ResponseSpec:
    # As structs, which are encoded with the document: Litestar leaves out what is None in anything it knows.
    shown = [Example(value=example) for example in examples]
    return ResponseSpec(shape, False, description, media_type, shown)
