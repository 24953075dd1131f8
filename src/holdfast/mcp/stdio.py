"""An MCP server as a process of ours, confined as commands are: one message for each line, both ways.

It runs under the supervisor of commands, behind the same walls, and talks with us through two sockets. So it
never outlives this process, nor does anything that it starts.
"""

import asyncio
import json
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

from holdfast.aio.finish import see_through
from holdfast.domain.limits import (
    MCP_ERROR_CHARS_MAX,
    MCP_MESSAGE_BYTES_MAX,
    MCP_STOP_S_MAX,
)
from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import LinkBroken
from holdfast.mcp.spawn_context import Yard
from holdfast.mcp.transport import UNREADABLE, Pace
from holdfast.tools.arguments import Refused
from holdfast.tools.sandbox.protected_paths import Vault
from holdfast.tools.sandbox.supervised import Order, Supervised
from holdfast.tools.shell import clean_environment

_SHELL = "/bin/sh"
_CHUNK_BYTES = 65_536
_ENDING_S_MAX = 2.0
_LEAVE_S = 0.5
"""How long a server that hears no more from us has to end by itself, before it is stopped."""


class Stdio:
    """One run of a server."""

    says_closed = False

    def __init__(self, server: McpServer, yard: Yard) -> None:
        self.why = ""
        self._server = server
        self._yard = yard
        self._broken = asyncio.Event()
        self._said = ""
        self._ending = ""

    async def broken(self) -> str:
        await self._broken.wait()
        return self.why

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[TransportStreams]:
        ours = _Ends()
        try:
            supervised = self._start(ours)
        except (OSError, Refused) as error:
            ours.close()
            raise LinkBroken(f"it could not be started: {error}") from None
        told = asyncio.ensure_future(self._hear(supervised))
        try:
            async with self._talk(ours, told) as streams:
                yield streams
        finally:
            self._break("it was stopped")
            ours.input.close()
            await see_through(_left(told, supervised))
            ours.close()

    def _start(self, ours: "_Ends") -> Supervised:
        server, yard = self._server, self._yard
        cwd = Path(server.cwd).expanduser() if server.cwd else yard.own(server)
        if not server.cwd:
            cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace = Vault(yard.folder).admitted(cwd) if server.cwd else cwd.resolve()
        yard.lock(server).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ = clean_environment(yard.environ) | server.env
        command = f"exec {shlex.join((server.command, *server.args))}"
        lock, talk = yard.lock(server).absolute(), ours.theirs
        try:
            return Supervised.start(Order(command, _SHELL, workspace, lock, 0, environ, yard.walls, talk))
        finally:
            ours.close_theirs()

    @asynccontextmanager
    async def _talk(self, ours: "_Ends", told: "asyncio.Future[None]") -> AsyncIterator[TransportStreams]:
        heard, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, to_say = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with heard:
                why = await _read_lines(ours.output, heard)
                # Why is known before those hear of it who wait for an answer.
                self._break(why or await self._end_of(told, "it says no more"))

        async def write() -> None:
            async with to_say:
                await _write_lines(ours.input, to_say)
                self._break(await self._end_of(told, "it listens no more"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            try:
                yield reading, writing
            finally:
                tasks.cancel_scope.cancel()
                for stream in (heard, reading, writing, to_say):
                    stream.close()

    async def _hear(self, supervised: Supervised) -> None:
        """What it says on the side, of which the end is kept, and how it ended."""
        async for tag, body in supervised.frames():
            if tag == "x":
                self._ending = body.decode()
            elif tag == "e":
                self._said = (self._said + body.decode(errors="replace"))[-MCP_ERROR_CHARS_MAX:]

    async def _end_of(self, told: "asyncio.Future[None]", otherwise: str) -> str:
        """How it ended, if that is heard soon."""
        await asyncio.wait({told}, timeout=_ENDING_S_MAX)
        how, _, number = self._ending.partition(" ")
        kinds = {"exit": f"it ended with exit code {number}", "signal": f"it was killed by signal {number}"}
        told_of = kinds.get(how, "it ended" if told.done() else otherwise)
        last = " ".join(self._said.split())[-MCP_ERROR_CHARS_MAX // 2 :]
        return f"{told_of}; it said: {last}" if last else told_of

    def _break(self, why: str) -> None:
        self.why = self.why or why
        self._broken.set()


class _Ends:
    """Our ends of the two sockets, and theirs until they are handed over."""

    def __init__(self) -> None:
        self.input, self._their_input = socket.socketpair()
        self.output, self._their_output = socket.socketpair()
        for end in (self.input, self.output):
            end.setblocking(False)

    @property
    def theirs(self) -> tuple[int, int]:
        return self._their_input.fileno(), self._their_output.fileno()

    def close_theirs(self) -> None:
        self._their_input.close()
        self._their_output.close()

    def close(self) -> None:
        self.close_theirs()
        self.input.close()
        self.output.close()


async def _left(told: "asyncio.Future[None]", supervised: Supervised) -> None:
    """Wait a little for a server to end by itself, then have it stopped."""
    await asyncio.wait({told}, timeout=_LEAVE_S)
    told.cancel()
    with suppress(asyncio.CancelledError):
        await told
    await supervised.end(MCP_STOP_S_MAX)


async def _read_lines(
    output: socket.socket, heard: MemoryObjectSendStream[SessionMessage | Exception]
) -> str:
    """Hand on each line until there are no more; returns what is wrong, if something is."""
    loop, held = asyncio.get_running_loop(), bytearray()
    pace = Pace(loop.time())
    while chunk := await _received(loop, output):
        looked = len(held)
        held += chunk
        while (end := held.find(b"\n", looked)) >= 0:
            line = bytes(held[:end])
            del held[: end + 1]
            looked = 0
            await pace.keep(loop.time())
            if line.strip() and (message := _message(line)) is not None:
                try:
                    await heard.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return ""
        if len(held) > MCP_MESSAGE_BYTES_MAX:
            return f"it said more than {MCP_MESSAGE_BYTES_MAX:,} bytes in one message"
    return ""


async def _received(loop: asyncio.AbstractEventLoop, output: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(output, _CHUNK_BYTES)
    except OSError:
        return b""


def _message(line: bytes) -> SessionMessage | None:
    """A line as a message; None for what is none, as many programs greet and warn on their output.

    Whoever waits for an answer that cannot be read hears that, and not nothing for ever.
    """
    with suppress(ValueError):
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    id_ = found.get("id") if isinstance(found, dict) and "method" not in found else None
    if not isinstance(id_, int | str):
        return None
    error = ErrorData(code=UNREADABLE, message="its answer cannot be read")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error))


async def _write_lines(input_: socket.socket, to_say: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Say what there is to say. A server that listens no more is found out by whoever reads."""
    loop = asyncio.get_running_loop()
    async for each in to_say:
        line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await loop.sock_sendall(input_, line.encode() + b"\n")
        except OSError:
            return
