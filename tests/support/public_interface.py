"""List what programs and people rely on: events, HTTP, settings, commands, error codes, metrics.

`python -m tests.support.public_interface OPENAPI_JSON` prints the list, one item on each line.
"""

import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from typer.main import get_command

import holdfast
from holdfast.app import build_dependencies, command_line
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.facts import FACTS_BY_KIND
from holdfast.http.metrics import METRICS
from holdfast.settings.settings import Settings

_DEPTH_MAX = 8


def public_interface(openapi: Mapping[str, Any]) -> list[str]:
    """Return every item, sorted. `openapi` is what a server answers at `/openapi.json`."""
    return sorted({*events(), *paths(openapi), *settings(), *commands(), *error_codes(), *metrics()})


def events() -> Iterator[str]:
    """Yield each kind of event with its version and its fields."""
    for kind, fact in FACTS_BY_KIND.items():
        (schema,), components = msgspec.json.schema_components(
            [fact], ref_template="#/components/schemas/{name}"
        )
        yield _line(f"event {kind} version {fact.version}", schema, components)


def paths(openapi: Mapping[str, Any]) -> Iterator[str]:
    """Yield each operation with its parameters, the fields of its body, and those of its answers."""
    schemas = openapi["components"]["schemas"]
    for path, operations in openapi["paths"].items():
        for method, operation in operations.items():
            name = f"http {method.upper()} {path}"
            yield name
            for each in operation.get("parameters", ()):
                yield f"{name} {each['in']} parameter {each['name']}"
            for content_type, body in operation.get("requestBody", {}).get("content", {}).items():
                yield _line(f"{name} takes {content_type}", body.get("schema", {}), schemas)
            for status, answer in operation["responses"].items():
                for content_type, body in answer.get("content", {}).items() if int(status) < 400 else ():
                    yield _line(f"{name} answers {status} {content_type}", body.get("schema", {}), schemas)


def settings() -> Iterator[str]:
    for field in msgspec.structs.fields(Settings):
        yield f"setting {field.name}"


def commands() -> Iterator[str]:
    """Yield each command with its options and arguments."""
    waiting = [("holdfast", get_command(command_line(build_dependencies({}))))]
    while waiting:
        typed, command = waiting.pop()
        yield f"command {typed}"
        for parameter in command.params:
            for name in (*parameter.opts, *parameter.secondary_opts):
                yield f"command {typed} {name}"
        waiting += [(f"{typed} {name}", sub) for name, sub in getattr(command, "commands", {}).items()]


def error_codes() -> Iterator[str]:
    """Yield the code of every error of the package, with its HTTP status."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds = list(HoldfastError.__subclasses__())
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("holdfast."):
            yield f"error {kind.code} status {kind.status}"


def metrics() -> Iterator[str]:
    for name in METRICS:
        yield f"metric {name}"


def _line(name: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    return " ".join([name, *sorted(set(_fields(schema, schemas)))])


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    """Yield the path of each field below a schema, whatever the schemas between are called."""
    if depth > _DEPTH_MAX:
        return
    if "$ref" in schema:
        yield from _fields(schemas[schema["$ref"].rpartition("/")[2]], schemas, depth + 1)
    for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())):
        yield from _fields(each, schemas, depth + 1)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            yield from (f"[]{field}" for field in _fields(schema[inner], schemas, depth + 1))
    for each in schema.get("prefixItems", ()):
        yield from (f"[]{field}" for field in _fields(each, schemas, depth + 1))
    for name, inner in schema.get("properties", {}).items():
        for value in _values(inner):
            yield f".{name}={value}"
        yield f".{name}"
        yield from (f".{name}{field}" for field in _fields(inner, schemas, depth + 1))


def _values(schema: Mapping[str, Any]) -> list[str]:
    """Return the words that a field may have, where they are listed."""
    found = list(schema.get("enum", ())) + ([schema["const"]] if "const" in schema else [])
    for each in schema.get("anyOf", ()):
        found += _values(each)
    return [str(each) for each in found]


if __name__ == "__main__":
    print("\n".join(public_interface(json.loads(Path(sys.argv[1]).read_text("utf-8")))))
