"""A model and an MCP server that give away every secret that they know; and the secrets that are planted."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from holdfast.domain.secrets import MASK
from tests.support.api_client import ScriptedModelServer
from tests.support.model_server import DONE, USAGE, call, chunk, event

KEY = "sk-proj-Q7vX2mZr9LkPw4Ta"
TOKEN = "T0k/en+of.a=Service~77"
PASSWORD = "pw-hidden-in-an-address"
HEADER = "hd-told-to-one-server-alone"
CONTROL = "wd-nobody-calls-secret"
"""Not a secret to anyone: it is found wherever the others would be."""
SECRETS = (KEY, TOKEN, PASSWORD)
PLANTED = " ".join((*SECRETS, CONTROL))
WHOLE = f"{HEADER} {PLANTED}"
"""With what only a running server knows: its settings say so."""
MASKED = " ".join((MASK, *(MASK for _ in SECRETS), CONTROL))


@dataclass
class LeakingModelServer(ScriptedModelServer):
    """A model that gives away every secret that it knows, in every way that a model has."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == "/mcp":
            return await self._serve_tools(request)
        if request.method == "GET":
            return await super().answer(request)
        body = await request.json()
        self.requests.append(body)
        messages = body["messages"]
        said = [_text(message) for message in messages if message["role"] == "user"][-1]
        verb, _, rest = said.partition(" ")
        sent = request.headers["Authorization"].removeprefix("Bearer ")
        assert sent == KEY, "the key itself reaches the server that it is for"
        if verb == "refuse" and body.get("tools"):
            error = {"message": f"Incorrect API key provided: {PLANTED}", "code": "invalid_api_key"}
            return web.json_response({"error": error}, status=401)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        async for piece in self._pieces(body, messages[-1]["role"], verb, rest):
            await response.write(piece)
        await response.write(USAGE + DONE)
        return response

    async def _serve_tools(self, request: web.Request) -> web.StreamResponse:
        """As an MCP server, which repeats what it is sent in each way that such a server has."""
        if request.method != "POST":
            return web.Response(status=405)
        assert (request.headers["x-key"], request.headers["x-token"]) == (HEADER, TOKEN)
        body = await request.json()
        result: dict[str, Any]
        match body["method"], body.get("params", {}).get("name"):
            case "initialize", _:
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                result["serverInfo"] = {"name": WHOLE, "version": "1"}
            case "tools/list", _:
                schema = {"type": "object", "properties": {"it": {"description": WHOLE}}}
                names = ("tell", "refuse")
                listed = [{"name": each, "description": WHOLE, "inputSchema": schema} for each in names]
                result = {"tools": [each | {"annotations": {"readOnlyHint": True}} for each in listed]}
            case "tools/call", "tell":
                result = {
                    "content": [{"type": "text", "text": WHOLE}],
                    "structuredContent": {WHOLE: WHOLE},
                }
            case "tools/call", _:
                error = {"code": -32000, "message": WHOLE}
                return web.json_response({"jsonrpc": "2.0", "id": body["id"], "error": error})
            case _:
                return web.Response(status=202)
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result})

    async def _pieces(self, body: Any, last: str, verb: str, rest: str) -> AsyncIterator[bytes]:
        if not body.get("tools"):
            yield chunk({"content": f"Title {PLANTED}"}) + chunk({}, "stop")
        elif last == "tool":
            yield chunk({"content": f"It said {PLANTED}."}) + chunk({}, f"because of {PLANTED}")
        elif verb == "say":
            for piece in _cut_everywhere():
                yield chunk({"reasoning_content": piece})
            for piece in _cut_everywhere():
                yield chunk({"content": piece})
                await asyncio.sleep(0)
            yield chunk({}, "stop")
        elif verb == "fail":
            yield chunk({"content": f"Half of it: {KEY[:12]}"})
            yield event({"error": {"message": f"no more for {PLANTED}", "type": "invalid_request_error"}})
        elif verb == "run":
            written = json.dumps({"command": f"{rest}; echo {PLANTED}"})
            yield chunk(call("", index=0, id="call_1", type="function", name="shell"))
            for start in range(0, len(written), 3):
                yield chunk(call(written[start : start + 3], index=0))
            yield chunk({}, "tool_calls")
        elif verb == "use":
            name, _, written = rest.partition(" ")
            yield chunk(call(written, index=0, id="call_1", type="function", name=name))
            yield chunk({}, "tool_calls")
        elif verb == "read":
            yield chunk(call(json.dumps({"path": rest}), index=0, id="call_1", name="read_file"))
            yield chunk({}, "tool_calls")


def _cut_everywhere() -> Iterator[str]:
    """Each planted word cut in two at each place, then letter by letter."""
    for word in (*SECRETS, CONTROL):
        for cut in range(len(word) + 1):
            yield from (word[:cut], f"{word[cut:]} ")
        yield from word
        yield from (" ", word)  # And whole: the control's search is for this.


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
