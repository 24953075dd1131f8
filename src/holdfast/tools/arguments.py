"""Describe a tool's arguments as a schema, decode a call's arguments, and refuse bad ones in a sentence."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.domain.events.parts import Text
from holdfast.domain.shell.commands import UnreadableArguments, validate_arguments
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import ToolResult

T = TypeVar("T", bound=msgspec.Struct)

_TYPE_NAMES = (
    ("`str`", "text"),
    ("`int`", "a whole number"),
    ("`bool`", "true or false"),
    ("`array`", "a list"),
    ("`object`", "an object"),
    ("`null`", "nothing"),
    ("`float`", "a number"),
)
_LOCATION = re.compile(r"(?P<problem>.*?) - at `\$\.?(?P<field>.*?)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_WRONG_TYPE = re.compile(r"Expected (.*), got (.*)")
_OUT_OF_RANGE = re.compile(r"Expected .* (<=|>=) ([\d.]+)")


class ToolError(Exception):
    """A tool refuses or fails a call; the message is the sentence that the model reads."""


def tool_spec(name: str, description: str, arguments: type[msgspec.Struct]) -> ToolSpec:
    """Return a tool's description for the model."""
    return ToolSpec(name, description, json_schema(arguments))


def json_schema(arguments: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the JSON schema of a struct of plain fields, without references or titles."""
    _, components = msgspec.json.schema_components((arguments,))
    schema = dict(components[arguments.__name__])
    schema.pop("title")
    schema.pop("description", None)
    return schema


def read_arguments(text: str, shape: type[T]) -> T:
    """Decode arguments as `shape`, accepting numbers written as text. Raises ToolError."""
    try:
        return msgspec.json.decode(validate_arguments(text), type=shape, strict=False)
    except UnreadableArguments as error:
        raise ToolError(f"arguments: {error}") from None
    except msgspec.ValidationError as error:
        raise ToolError(f"arguments: {_validation_sentence(str(error))}") from None
    except msgspec.DecodeError as error:
        raise ToolError(f"arguments: not valid JSON ({error})") from None
    except UnicodeError:
        raise ToolError("arguments: not valid Unicode text") from None
    except RecursionError:
        raise ToolError("arguments: nested too deeply") from None


def argument_error(text: str, read: Callable[[str], object]) -> str:
    """Return the reason why `read` refuses a call's arguments, or an empty text."""
    try:
        read(text)
    except ToolError as error:
        return str(error)
    return ""


def done_result(text: str) -> ToolResult:
    return ToolResult("done", (Text(text),))


def failed_result(refusal: ToolError) -> ToolResult:
    return ToolResult("failed", (Text(str(refusal)),))


def _validation_sentence(problem: str) -> str:
    location = _LOCATION.match(problem)
    field = location["field"] if location else ""
    problem = location["problem"] if location else problem
    if missing := _MISSING.match(problem):
        return f"`{missing[1]}` is missing"
    if unknown := _UNKNOWN.match(problem):
        return f"there is no argument `{unknown[1]}`"
    for kind, name in _TYPE_NAMES:
        problem = problem.replace(kind, name)
    subject = f"`{field}`" if field else "the whole"
    if wrong := _WRONG_TYPE.match(problem):
        return f"{subject} must be {wrong[1]}, not {wrong[2]}"
    if beyond := _OUT_OF_RANGE.match(problem):
        return f"{subject} must be {'at most' if beyond[1] == '<=' else 'at least'} {beyond[2]}"
    return f"{subject}: {problem}"
