"""The description that programs read is whole: every route, every answer, every example."""

import re
from typing import Any

from holdfast.http.app import PATHS
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import api_client

UNDESCRIBED = {"/", "/page/{name}", "/metrics", "/openapi.json"}
METHODS = {"get", "post", "patch", "delete"}

MEANT = {
    "/api/sign-in": 401, "/api/sign-out": 204, "/api/password": 200, "/api/settings": 200,
    "/api/models/test": 200, "/api/models/connect": 409, "/api/models/disconnect": 409,
    "/api/memory/commit": 200, "/api/models/local/install": 202,
    "/api/channels/telegram/connect": 400, "/api/channels/telegram/disconnect": 200,
}  # fmt: skip
"""How what is not about a conversation that is not there is answered: with nobody's password, with nobody to
sign out, and by a server whose model is given in its environment."""


async def read(server: RunningServer) -> dict[str, Any]:
    async with api_client(server.address) as api:
        found: dict[str, Any] = await api.get("/openapi.json")
        assert api.status == 200
        return found


def operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, item in description["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


async def test_every_path_is_described_and_no_other(server: RunningServer) -> None:
    description = await read(server)
    assert description["openapi"].startswith("3.1")
    assert set(description["paths"]) == set(PATHS) - UNDESCRIBED


async def test_every_operation_has_a_summary_and_its_problems(server: RunningServer) -> None:
    for path, method, operation in operations(await read(server)):
        answers = operation["responses"]
        assert operation.get("description") or operation["summary"], path
        assert {"421", "403", "503", "500"} <= answers.keys(), (path, method)
        if "{" in path:
            assert "404" in answers, (path, method)
        if "requestBody" in operation:
            assert {"400", "413", "415"} <= answers.keys(), (path, method)
        for status, answer in answers.items():
            if status >= "400":
                (content,) = answer["content"].items()
                assert content[0] == "application/problem+json"
                assert content[1]["schema"]["$ref"].endswith("/ProblemDocument")
                for example in content[1]["examples"].values():
                    assert example["value"]["status"] == int(status)


async def test_a_cookie_is_described_as_enough_for_files_alone(server: RunningServer) -> None:
    description = await read(server)
    schemes = description["components"]["securitySchemes"]
    assert schemes["page"]["in"] == "header" and schemes["page"]["name"] == "X-Holdfast-Page"
    by_cookie_alone = set()
    for path, method, operation in operations(description):
        for needed in operation["security"]:
            assert needed.keys() in ({"token"}, {"cookie"}, {"cookie", "page"}), (path, method)
            assert needed.keys() <= schemes.keys()
            if needed.keys() == {"cookie"}:
                by_cookie_alone.add((method, path))
    assert by_cookie_alone == {("get", "/api/files/{file_id}")}


async def test_every_body_and_every_answer_has_an_example_that_fits(server: RunningServer) -> None:
    description = await read(server)
    for path, method, operation in operations(description):
        shapes = [answer["content"] for answer in operation["responses"].values() if answer.get("content")]
        for content in shapes:
            for kind, shape in content.items():
                shown = list(shape.get("examples", {}).values()) or [{"value": shape.get("example")}]
                assert shown and shown[0]["value"] is not None, (path, method, kind)
                for example in shown if "json" in kind else ():
                    assert fits(description, shape["schema"], example["value"]) == [], (path, method)


async def test_every_example_of_a_body_is_accepted_by_the_server(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        description = await api.get("/openapi.json")
        for path, method, operation in operations(description):
            # A file goes as itself.
            if "requestBody" not in operation or path == "/api/files":
                continue
            shape = operation["requestBody"]["content"]["application/json"]["schema"]
            named = shape["$ref"].rpartition("/")[2] if "$ref" in shape else None
            examples = (description["components"]["schemas"][named] if named else shape).get("examples", [])
            assert examples, (path, method)
            for example in examples:
                body = example.get("value", example) if isinstance(example, dict) else example
                await api.request(method.upper(), re.sub(r"\{\w+\}", "s_0000000000000000", path), body)
                assert api.status in (201, MEANT.get(path, 404)), (path, body, api.status)


def fits(description: dict[str, Any], schema: dict[str, Any], value: object, where: str = "$") -> list[str]:
    """What does not fit: references, unions, types, required and unknown members; enough for our shapes."""
    if "$ref" in schema:
        named = schema["$ref"].rpartition("/")[2]
        return fits(description, description["components"]["schemas"][named], value, where)
    for union in ("oneOf", "anyOf"):
        if union in schema:
            tried = [fits(description, each, value, where) for each in schema[union]]
            return [] if [] in tried else [f"{where}: {value!r} is none of {tried}"]
    if "enum" in schema or "const" in schema:
        return [] if value in schema.get("enum", [schema.get("const")]) else [f"{where}: {value!r}"]
    kind = schema.get("type")
    if isinstance(value, dict):
        members = schema.get("properties", {})
        wrong = [f"{where}.{name} is missing" for name in schema.get("required", ()) if name not in value]
        wrong += [f"{where}.{name} is unknown" for name in value if members and name not in members]
        for name in value.keys() & members.keys():
            wrong += fits(description, members[name], value[name], f"{where}.{name}")
        return wrong
    if isinstance(value, list):
        items = schema.get("items", {})
        return [wrong for each in value for wrong in fits(description, items, each, f"{where}[]")]
    is_a = {"string": str, "integer": int, "number": int | float, "boolean": bool, "null": type(None)}
    kinds = kind if isinstance(kind, list) else [kind]
    return [] if any(isinstance(value, is_a.get(each, object)) for each in kinds) else [f"{where}: {value!r}"]
