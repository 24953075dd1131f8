"""The description of all this that programs read."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig

from holdfast import __version__
from holdfast.domain.errors import BadCursor, HoldfastError, NoSuchSession, TooLarge
from holdfast.server.problem import MEDIA_TYPE, document
from holdfast.server.strict import StrictBody
from holdfast.server.telling import ANYWHERE, sample

OPENAPI_PATH = "/openapi.json"
_DESCRIPTION = (
    "An agent server that never loses a turn. Errors are problem documents (RFC 9457) with a stable `code`."
)
_EVENT = 'id: 42\nevent: text_appended\ndata: {"seq":42,"at":1760000000123,"kind":"text_appended",…}\n\n'
_OPTIONAL: Mapping[str, str] = MappingProxyType({
    f"/api/sessions/{{session_id}}/{verb}": "post" for verb in ("undo", "retry", "fork")
})  # fmt: skip
"""Routes whose body may be left out."""


def describe(routes: Sequence[Any]) -> bytes:
    """The document for `routes`, which must not be those of an application that serves.

    Takes a tenth of a second: not for the event loop.
    """
    config = OpenAPIConfig(
        title="Holdfast", version=__version__, description=_DESCRIPTION, use_handler_docstrings=True
    )
    told = Litestar(routes, openapi_config=config, dto=StrictBody, return_dto=None, logging_config=None)
    return msgspec.json.encode(_complete(told.openapi_schema.to_schema()))


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """What Litestar knows, and the streams, which are answered in front of it."""
    for path, method in _OPTIONAL.items():
        schema["paths"][path][method]["requestBody"]["required"] = False
    schema["paths"]["/api/sessions/{session_id}/events"] = {
        "get": _stream(
            "Follow one conversation: everything after a cursor, then each event as it happens.",
            [
                _parameter("session_id", "path", "The conversation.", required=True),
                _parameter("after", "query", "The last event that is known already.", kind="integer"),
                _parameter("Last-Event-ID", "header", "The same; wins over `after`.", kind="integer"),
            ],
        )
    }
    schema["paths"]["/api/stream"] = {
        "get": _stream(
            "Follow several conversations in one connection; each event then says its `session_id`.",
            [
                _parameter(
                    "session", "query", "A conversation and a cursor: `ID:SEQ`.", kind="array", required=True
                ),
                _parameter("Last-Event-ID", "header", "The last id that was seen, as `ID:SEQ`."),
            ],
        )
    }
    return schema


def _stream(summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {
            "description": "Events for ever, as server-sent events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENT}},
        }
    }
    problems: tuple[type[HoldfastError], ...] = (NoSuchSession, BadCursor, TooLarge)
    for kind in (*problems, *ANYWHERE):
        told = responses.setdefault(
            str(kind.status), {"description": "", "content": {MEDIA_TYPE: {"examples": {}}}}
        )
        _add_problem(told, kind)
    return {"summary": summary, "parameters": parameters, "responses": responses}


def _add_problem(told: dict[str, Any], kind: type[HoldfastError]) -> None:
    told["description"] = f"{told['description']} or {kind.code}".removeprefix(" or ")
    content = told["content"][MEDIA_TYPE]
    content["schema"] = {"$ref": "#/components/schemas/Problem"}
    content["examples"][kind.code] = {"value": msgspec.to_builtins(document(sample(kind)))}


def _parameter(
    name: str, place: str, description: str, kind: str = "string", required: bool = False
) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": kind}
    if kind == "array":
        shape["items"] = {"type": "string"}
    return {"name": name, "in": place, "description": description, "required": required, "schema": shape}
