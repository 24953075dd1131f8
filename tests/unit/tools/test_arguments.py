"""Arguments: told to the model as a schema, and refused in sentences it can act on."""

import asyncio

import pytest

from holdfast.tools.ports import ToolRun
from tests.support.tool_fixture import ToolHarness, bench

__all__ = ["bench"]


def ask(bench: ToolHarness, tool: str, arguments: str) -> str:
    call = bench.prepare()
    call.result = asyncio.run(
        bench.tools[tool].run(ToolRun(call.id, arguments, bench.workspace, call.tool_run().emit))
    )
    assert call.outcome == "failed"
    return call.text


@pytest.mark.parametrize(
    ("tool", "arguments", "sentence"),
    [
        ("read_file", "", "`path` is missing"),
        ("read_file", "{}", "`path` is missing"),
        ("write_file", '{"path": "x"}', "`content` is missing"),
        ("read_file", '{"path": 3}', "`path` must be text, not a whole number"),
        ("read_file", '{"path": null}', "`path` must be text, not nothing"),
        ("read_file", '{"path": ["a"]}', "`path` must be text, not a list"),
        (
            "read_file",
            '{"path": "a", "limit_lines": "many"}',
            "`limit_lines` must be a whole number, not text",
        ),
        ("read_file", '{"path": "a", "offset_lines": -1}', "`offset_lines` must be at least 0"),
        ("read_file", '{"path": "a", "limit_lines": 0}', "`limit_lines` must be at least 1"),
        ("list_files", '{"depth": 11}', "`depth` must be at most 10"),
        ("list_files", '{"deep": 2}', "there is no argument `deep`"),
        ("shell", '{"command": "x", "timeout": 5}', "there is no argument `timeout`"),
        ("shell", '{"command": "a", "command": "b"}', "`command` is there twice"),
        ("write_file", '{"path": "a", "content": "b", "path": "c"}', "`path` is there twice"),
        ("shell", '["ls"]', "the whole must be an object, not a list"),
        ("shell", '"ls"', "the whole must be an object, not text"),
    ],
)
def test_invalid_arguments_are_refused_with_a_readable_message(
    bench: ToolHarness, tool: str, arguments: str, sentence: str
) -> None:
    assert ask(bench, tool, arguments) == f"arguments: {sentence}"


@pytest.mark.parametrize("arguments", ['{"path": "a', "{'path': 1}", "ls -l", '{"path": "a"} and more', "{"])
def test_arguments_that_are_not_json_are_refused(bench: ToolHarness, arguments: str) -> None:
    assert ask(bench, "read_file", arguments).startswith("arguments: not valid JSON (")


@pytest.mark.parametrize("tool", ["shell", "write_file", "read_file", "list_files"])
def test_lone_surrogates_never_raise(bench: ToolHarness, tool: str) -> None:
    field = "command" if tool == "shell" else "path"
    more = ', "content": "\\udc00"' if tool == "write_file" else ""
    ask(bench, tool, f'{{"{field}": "x\\ud800/y\\udfff"{more}}}')


def test_a_number_given_as_text_is_accepted(bench: ToolHarness) -> None:
    assert bench.call_sync("list_files", depth="2").outcome == "done"


def test_argument_schemas_are_complete_and_without_references(bench: ToolHarness) -> None:
    for tool in bench.tools.values():
        schema = tool.spec.parameters
        assert set(schema) == {"type", "properties", "required", "additionalProperties"}
        assert schema["additionalProperties"] is False
        assert all(field["description"] for field in schema["properties"].values())
    depth = bench.tools["list_files"].spec.parameters["properties"]["depth"]
    assert (depth["type"], depth["minimum"], depth["maximum"], depth["default"]) == ("integer", 1, 10, 1)
    assert bench.tools["shell"].spec.parameters["required"] == ["command"]
