"""A call's arguments: told to the model as a schema, read from what it wrote, refused in a plain sentence."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from holdfast.domain.events.parts import Text
from holdfast.domain.shell.commands import Unreadable, checked_arguments
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import ToolResult

T = TypeVar("T", bound=msgspec.Struct)

_WORDS = (("`str`", "text"), ("`int`", "a whole number"), ("`bool`", "true or false"), ("`array`", "a list"),
          ("`object`", "an object"), ("`null`", "nothing"), ("`float`", "a number"))  # fmt: skip
_AT = re.compile(r"(?P<problem>.*?) - at `\$\.?(?P<field>.*?)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_WRONG_KIND = re.compile(r"Expected (.*), got (.*)")
_OUT_OF_RANGE = re.compile(r"Expected .* (<=|>=) ([\d.]+)")


class Refused(Exception):
    """A tool will not or cannot do what it was asked; the message is the sentence that the model reads."""


def spec_of(name: str, description: str, arguments: type[msgspec.Struct]) -> ToolSpec:
    """The tool as a model is told of it."""
    return ToolSpec(name, description, schema_of(arguments))


def schema_of(arguments: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The JSON schema of a struct of plain fields, without references or titles."""
    _, components = msgspec.json.schema_components((arguments,))
    schema = dict(components[arguments.__name__])
    schema.pop("title")
    schema.pop("description", None)
    return schema


def read_arguments(text: str, shape: type[T]) -> T:
    """What the model wrote, as `shape`. Numbers written as text are taken. Raises Refused."""
    try:
        return msgspec.json.decode(checked_arguments(text), type=shape, strict=False)
    except Unreadable as error:
        raise Refused(f"arguments: {error}") from None
    except msgspec.ValidationError as error:
        raise Refused(f"arguments: {_sentence(str(error))}") from None
    except msgspec.DecodeError as error:
        raise Refused(f"arguments: not valid JSON ({error})") from None
    except UnicodeError:
        raise Refused("arguments: not valid Unicode text") from None
    except RecursionError:
        raise Refused("arguments: nested too deeply") from None


def flaw_in(text: str, read: Callable[[str], object]) -> str:
    """Why `read` refuses a call's arguments; empty if it does not."""
    try:
        read(text)
    except Refused as refusal:
        return str(refusal)
    return ""


def done(text: str) -> ToolResult:
    return ToolResult("done", (Text(text),))


def failed(refusal: Refused) -> ToolResult:
    return ToolResult("failed", (Text(str(refusal)),))


def _sentence(problem: str) -> str:
    place = _AT.match(problem)
    field = place["field"] if place else ""
    problem = place["problem"] if place else problem
    if missing := _MISSING.match(problem):
        return f"`{missing[1]}` is missing"
    if unknown := _UNKNOWN.match(problem):
        return f"there is no argument `{unknown[1]}`"
    for kind, word in _WORDS:
        problem = problem.replace(kind, word)
    subject = f"`{field}`" if field else "the whole"
    if wrong := _WRONG_KIND.match(problem):
        return f"{subject} must be {wrong[1]}, not {wrong[2]}"
    if beyond := _OUT_OF_RANGE.match(problem):
        return f"{subject} must be {'at most' if beyond[1] == '<=' else 'at least'} {beyond[2]}"
    return f"{subject}: {problem}"
