"""Build the OpenAPI document of the HTTP interface."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from litestar import Litestar
from litestar.openapi.config import OpenAPIConfig

from holdfast import __version__
from holdfast.domain.errors import BadCursor, HoldfastError, NoSuchSession, TooLarge
from holdfast.http.errors import PROBLEM_MEDIA_TYPE, problem_document
from holdfast.http.openapi.responses import COMMON_PROBLEMS, example_error
from holdfast.http.route_rights import required_right
from holdfast.http.routes.backups import BACKUP_MEDIA_TYPE as BACKUP_TYPE
from holdfast.http.routes.backups import BACKUPS_PATH
from holdfast.http.routes.channels import INBOUND_PATHS
from holdfast.http.routes.files import FILES_PATH, SERVED_MEDIA_TYPES
from holdfast.http.strict_body import StrictBody

OPENAPI_PATH = "/openapi.json"
_DESCRIPTION = (
    "An agent server that never loses a turn. Errors are problem documents (RFC 9457) with a stable `code`."
)
_EVENT = 'id: 42\nevent: text_appended\ndata: {"seq":42,"at":1760000000123,"kind":"text_appended",…}\n\n'
_HEADERS: Mapping[str, str] = MappingProxyType({"If-Match": r'^"?[0-9]{1,18}"?$'})
"""The pattern of each header parameter."""
_EMPTY_BODY_DESCRIPTION = "`{}`. Nothing is asked, but no page of another site can send this type."


def build_document(routes: Sequence[Any]) -> bytes:
    """Return the document for `routes`, which must not be those of a serving application.

    It takes a tenth of a second: call it outside the event loop.
    """
    config = OpenAPIConfig(
        title="Holdfast", version=__version__, description=_DESCRIPTION, use_handler_docstrings=True
    )
    app = Litestar(routes, openapi_config=config, dto=StrictBody, return_dto=None, logging_config=None)
    return msgspec.json.encode(_complete_schema(app.openapi_schema.to_schema()))


def _complete_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Correct Litestar's schema, and add the streams, which the gate serves in front of it."""
    _describe_files(schema)
    _describe_inbound_calls(schema)
    for shape in schema["components"]["schemas"].values():
        _fix_array_items(shape)
    for item in schema["paths"].values():
        for method, operation in item.items():
            for parameter in operation.get("parameters", ()):
                _fix_parameter_schema(parameter)
            if method in ("post", "patch"):
                _describe_body(operation, schema["components"]["schemas"])
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
            "Follow several conversations in one connection; each event then says its `session_id`. "
            "With `feed`, first a snapshot of the list and of every waiting question, then what changes.",
            [
                _parameter("session", "query", "A conversation and a cursor: `ID:SEQ`.", kind="array"),
                _parameter("feed", "query", "Follow the list of them all.", kind="boolean"),
                _parameter("Last-Event-ID", "header", "The last id that was seen, as `ID:SEQ`."),
            ],
        )
    }
    _describe_security(schema)
    return schema


def _describe_files(schema: dict[str, Any]) -> None:
    """Describe file bodies as binary, and require text or attachments in a message."""
    content = {"schema": {"type": "string", "format": "binary"}, "example": "What the file holds."}
    schema["paths"]["/api/files"]["post"]["requestBody"] = {"content": {"*/*": content}}
    file_response = schema["paths"]["/api/files/{file_id}"]["get"]["responses"]["200"]
    file_response["content"] = dict.fromkeys(SERVED_MEDIA_TYPES, content)
    if f"{BACKUPS_PATH}/{{name}}" in schema["paths"]:
        backup_response = schema["paths"][f"{BACKUPS_PATH}/{{name}}"]["get"]["responses"]["200"]
        backup_response["content"] = {BACKUP_TYPE: content}
    for name in ("NewTurn", "EditedTurn"):
        schema["components"]["schemas"][name]["anyOf"] = [
            {"required": ["text"], "properties": {"text": {"minLength": 1}}},
            {"required": ["attachments"], "properties": {"attachments": {"minItems": 1}}},
        ]


def _describe_inbound_calls(schema: dict[str, Any]) -> None:
    """Describe the calls of chat apps, whose routes read the signed bytes instead of a struct."""
    telegram, webhook = (schema["paths"].get(path, {}).get("post") for path in INBOUND_PATHS)
    if telegram is None or webhook is None:
        return
    telegram["parameters"] = [_parameter("X-Telegram-Bot-Api-Secret-Token", "header", "As was agreed.")]
    update = {"type": "object", "description": "An Update of the Bot API.", "examples": [{"update_id": 1}]}
    telegram["requestBody"] = {"content": {"application/json": {"schema": update}}}
    webhook["parameters"] = [
        _parameter("webhook-id", "header", "Names the call: the same again is the same one."),
        _parameter("webhook-timestamp", "header", "When it was signed, in seconds since 1970."),
        _parameter("webhook-signature", "header", "`v1,` and the base64 of the HMAC-SHA256."),
    ]
    text = {"type": "string"}
    members = dict.fromkeys(("chat", "sender", "sender_name", "text", "press", "thread"), text)
    file = {"type": "object", "required": ["url"], "properties": {"url": text, "name": text}}
    message = {
        "type": "object", "required": ["chat", "sender"], "additionalProperties": False,
        "properties": {
            **members, "kind": {"enum": ["dm", "group"]}, "addressed": {"type": "boolean"},
            "files": {"type": "array", "items": file},
        },
        "examples": [{"chat": "desk", "sender": "ada", "text": "What is new?"}],
    }  # fmt: skip
    webhook["requestBody"] = {"content": {"application/json": {"schema": message}}}


def _describe_security(schema: dict[str, Any]) -> None:
    """Describe the security schemes, and the right that each operation needs."""
    schema["components"]["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "From `holdfast tokens add`."},
        "cookie": {
            "type": "apiKey", "in": "cookie", "name": "holdfast_8787",
            "description": "Set by signing in; named after the port that a browser came to. Browsers send it "
            "to every port of a host, so alone it lets nobody in: only a file can be fetched by it.",
        },
        "page": {
            "type": "apiKey", "in": "header", "name": "X-Holdfast-Page",
            "description": "The `page_key` that signing in answered, beside the cookie that it set.",
        },
    }  # fmt: skip
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            right = required_right(method.upper(), path)
            if right is None:
                operation["security"] = []
                continue
            is_file = method == "get" and path.startswith(f"{FILES_PATH}/")
            browser = {"cookie": [right]} if is_file else {"cookie": [right], "page": [right]}
            operation["security"] = [{"token": [right]}, browser]


def _fix_array_items(shape: dict[str, Any]) -> None:
    """Remove the extra item type that Litestar makes of the dots of an annotated `tuple[X, ...]`."""
    for member in shape.get("properties", {}).values():
        kinds = member.get("items", {}).get("oneOf", ())
        if {} in kinds:
            (member["items"],) = (kind for kind in kinds if kind)


def _fix_parameter_schema(parameter: dict[str, Any]) -> None:
    """Remove null from a parameter's types: in a header or URL it is present or absent, never null."""
    shape = parameter["schema"]
    if "oneOf" in shape:
        (kind,) = (option for option in shape.pop("oneOf") if option != {"type": "null"})
        shape.update(kind)
    if parameter["in"] == "header" and parameter["name"] in _HEADERS:
        shape["pattern"] = _HEADERS[parameter["name"]]


def _describe_body(operation: dict[str, Any], shapes: dict[str, Any]) -> None:
    """Describe that the request needs a body, if an empty one, and that unknown members are refused."""
    shape = {"description": _EMPTY_BODY_DESCRIPTION, "examples": [{}]}
    content = {"application/json": {"schema": shape}}
    body = operation.setdefault("requestBody", {"content": content})
    body["required"] = True
    for form in body["content"].values():
        for named in (form["schema"], *form["schema"].get("allOf", ())):
            if "$ref" in named:
                shapes[named["$ref"].rpartition("/")[2]]["additionalProperties"] = False


def _stream(summary: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {
            "description": "Events for ever, as server-sent events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EVENT}},
        }
    }
    problems: tuple[type[HoldfastError], ...] = (NoSuchSession, BadCursor, TooLarge)
    for kind in (*problems, *COMMON_PROBLEMS):
        response = responses.setdefault(
            str(kind.status), {"description": "", "content": {PROBLEM_MEDIA_TYPE: {"examples": {}}}}
        )
        _add_problem(response, kind)
    return {"summary": summary, "parameters": parameters, "responses": responses}


def _add_problem(response: dict[str, Any], error_type: type[HoldfastError]) -> None:
    response["description"] = f"{response['description']} or {error_type.code}".removeprefix(" or ")
    content = response["content"][PROBLEM_MEDIA_TYPE]
    content["schema"] = {"$ref": "#/components/schemas/ProblemDocument"}
    content["examples"][error_type.code] = {
        "value": msgspec.to_builtins(problem_document(example_error(error_type)))
    }


def _parameter(
    name: str, place: str, description: str, kind: str = "string", required: bool = False
) -> dict[str, Any]:
    shape: dict[str, Any] = {"type": kind}
    if kind == "array":
        shape["items"] = {"type": "string"}
    return {"name": name, "in": place, "description": description, "required": required, "schema": shape}
