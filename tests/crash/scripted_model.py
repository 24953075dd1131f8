"""A model server that runs scripts over real HTTP: numbered words at a pace, and tool calls.

It keeps no state: an interrupted answer continues after the last word in the request.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from tests.support.model_server import DONE, USAGE, call, chunk
from tests.support.turn_script import ScriptCue, cue_of

GatePosition = tuple[str, int, int]
"""A position: before a word of a step of a turn; past the last word, before the end of the step."""


class Gate:
    """Hold the model: `reached` is set at the gate, and the model continues once it opens."""

    def __init__(self) -> None:
        self.is_reached, self.is_open = asyncio.Event(), asyncio.Event()

    async def wait(self) -> None:
        self.is_reached.set()
        await self.is_open.wait()


class GatedModelServer:
    def __init__(self) -> None:
        self.url = ""
        self._gates: dict[GatePosition, Gate] = {}
        self.cues: list[ScriptCue] = []
        self.script_errors: list[str] = []

    def gate(self, name: str, step: int, word: int) -> Gate:
        """Add a gate at which the model waits until it is opened."""
        return self._gates.setdefault((name, step, word), Gate())

    def open_all_gates(self) -> None:
        for gate in self._gates.values():
            gate.is_open.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            async for piece in self._answer_chunks(body):
                await response.write(piece)
            await response.write(USAGE + DONE)
        except ConnectionError:
            pass  # Whoever asked was killed.
        except AssertionError as mistake:
            self.script_errors.append(str(mistake))
            raise
        return response

    async def _answer_chunks(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        if not body.get("tools"):
            yield chunk({"content": "A play"}) + chunk({}, "stop")
            return
        cue = cue_of(body["messages"])
        self.cues.append(cue)
        step = cue.script.steps[cue.step]
        if step.thinks and not cue.words_sent:
            yield chunk({"reasoning_content": f"thinking of {cue.script.name}.{cue.step} "})
        for number, word in enumerate(cue.script.words(cue.step)):
            if number >= cue.words_sent:
                await self._wait_at_gate(cue, number)
                yield chunk({"content": word})
                await asyncio.sleep(step.pace_ms / 1000)
        await self._wait_at_gate(cue, step.word_count)
        if step.tool:
            for piece in _call(*cue.script.call(cue.step)):
                yield piece
                await asyncio.sleep(0)
        yield chunk({}, "tool_calls" if step.tool else "stop")

    async def _wait_at_gate(self, cue: ScriptCue, word: int) -> None:
        gate = self._gates.get((cue.script.name, cue.step, word))
        if gate is not None:
            await gate.wait()


def _call(name: str, arguments: dict[str, Any]) -> list[bytes]:
    """Return a call in pieces, as models stream it: it may be cut off in the middle of its arguments."""
    text = msgspec.json.encode(arguments).decode()
    half = len(text) // 2
    first = call(text[:half], index=0, id="call_1", type="function", name=name)
    return [chunk(first), chunk(call(text[half:], index=0))]


@asynccontextmanager
async def gated_model_server() -> AsyncIterator[GatedModelServer]:
    server = GatedModelServer()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        yield server
    finally:
        server.open_all_gates()
        await runner.cleanup()
    assert not server.script_errors, server.script_errors
