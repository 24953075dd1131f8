"""What becomes of an MCP server's answer: text for the model, images for people, and nothing that harms."""

import base64

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from holdfast.domain.events.parts import File, Text
from holdfast.domain.files import PNG
from holdfast.mcp.ports import CallNotSent, McpSession, OfferedTool
from holdfast.mcp.results import to_tool_result
from holdfast.mcp.tool import McpTool
from holdfast.models.ports import ToolSpec
from tests.support.mcp_sdk_server import PIXEL


class BlobRecorder:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    async def keep(self, content: bytes) -> str | None:
        self.kept.append(content)
        return "b" * 64


def image(content: bytes, claimed: str = "image/png") -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(content).decode(), mime_type=claimed)


async def test_an_image_is_stored_by_its_content_not_its_claimed_type() -> None:
    blobs, pixel = BlobRecorder(), base64.b64decode(PIXEL)
    words = TextContent(type="text", text="Look:")
    result = await to_tool_result(CallToolResult(content=[words, image(pixel, "image/svg+xml")]), blobs.keep)
    assert result.parts is not None
    text, file = result.parts
    size = len(pixel)
    assert text == Text(f"Look:\n[image, image/svg+xml, {size + 2} bytes: a person can look at it]")
    assert isinstance(file, File)
    assert (file.media_type, file.size_bytes, blobs.kept) == (PNG, size, [pixel])


async def test_content_that_is_not_an_image_is_not_stored() -> None:
    blobs = BlobRecorder()
    for content in (b"", b"<svg onload=alert(1)>", b"%PDF-1.4", b"\x89PNG\r\n\x1a\n"):
        result = await to_tool_result(CallToolResult(content=[image(content)]), blobs.keep)
        assert result.parts is not None
        (text,) = result.parts
        assert isinstance(text, Text) and text.text.endswith("it cannot be shown here]")
    bad = ImageContent(type="image", data="not base64!", mime_type="image/png")
    assert len((await to_tool_result(CallToolResult(content=[bad]), blobs.keep)).parts or ()) == 1
    assert blobs.kept == []


async def test_an_mcp_error_result_fails_the_call() -> None:
    said = TextContent(type="text", text="No.")
    result = await to_tool_result(CallToolResult(content=[said], is_error=True), BlobRecorder().keep)
    assert (result.outcome, result.parts) == ("failed", (Text("No."),))


@pytest.mark.parametrize(
    ("parameters", "arguments", "flaw"),
    [
        ({"required": ["to", "text"]}, '{"to": "me"}', "arguments: `text` is missing"),
        ({"required": ["to"]}, '{"to": null, "more": 1}', ""),
        ({"required": "to"}, "{}", ""),
        ({"required": [1]}, "{}", ""),
        ({}, "[]", "arguments: not a JSON object"),
    ],
)
def test_a_call_without_required_arguments_fails_validation(
    parameters: dict[str, object], arguments: str, flaw: str
) -> None:
    async def reach() -> McpSession:
        raise CallNotSent("nobody is there")

    offered = OfferedTool("send", "Send it.", parameters, "unsafe")
    spec = ToolSpec("mail__send", "Send it.", parameters)
    tool = McpTool(spec, offered, reach, 1, lambda outcome: None, lambda: True)
    found = tool.validate(arguments)
    assert found.startswith(flaw) and bool(found) == bool(flaw)
