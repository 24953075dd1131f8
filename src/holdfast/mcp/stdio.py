"""Run an MCP server as a child process and exchange one message per line with it.

The server runs under the supervisor and in the sandbox of shell commands, and talks to us through two
sockets. So neither the server nor any process that it starts outlives this process.
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

from holdfast.aio.finish import run_to_completion
from holdfast.domain.limits import (
    MCP_ERROR_CHARS_MAX,
    MCP_MESSAGE_BYTES_MAX,
    MCP_STOP_S_MAX,
)
from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import McpConnectionError
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.mcp.transport import UNREADABLE, McpRateLimiter
from holdfast.tools.arguments import ToolError
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from holdfast.tools.sandbox.supervised import CommandSpec, SupervisedProcess
from holdfast.tools.shell import clean_environment

_SHELL = "/bin/sh"
_CHUNK_BYTES = 65_536
_ENDING_S_MAX = 2.0
_EXIT_GRACE_S = 0.5
"""Seconds that a server has to exit after we close its input, before we stop it."""


class McpStdioTransport:
    """The transport to one run of a server process."""

    reports_lost_requests = False

    def __init__(self, server: McpServer, spawn_context: McpSpawnContext) -> None:
        self.close_reason = ""
        self._server = server
        self._spawn_context = spawn_context
        self._closed = asyncio.Event()
        self._stderr_tail = ""
        self._ending = ""

    async def wait_closed(self) -> str:
        await self._closed.wait()
        return self.close_reason

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        sockets = _SocketPairs()
        try:
            supervised = self._start(sockets)
        except (OSError, ToolError) as error:
            sockets.close()
            raise McpConnectionError(f"it could not be started: {error}") from None
        ended = asyncio.ensure_future(self._read_frames(supervised))
        try:
            async with self._streams(sockets, ended) as streams:
                yield streams
        finally:
            self._close("it was stopped")
            sockets.input.close()
            await run_to_completion(_stop_server(ended, supervised))
            sockets.close()

    def _start(self, sockets: "_SocketPairs") -> SupervisedProcess:
        server, context = self._server, self._spawn_context
        cwd = Path(server.cwd).expanduser() if server.cwd else context.working_folder(server)
        if not server.cwd:
            cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace = ProtectedPaths(context.folder).resolve_workspace(cwd) if server.cwd else cwd.resolve()
        context.lock_path(server).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        environ = clean_environment(context.environ) | server.env
        command = f"exec {shlex.join((server.command, *server.args))}"
        lock, stdio_fds = context.lock_path(server).absolute(), sockets.child_fds
        try:
            return SupervisedProcess.start(
                CommandSpec(command, _SHELL, workspace, lock, 0, environ, context.sandbox, stdio_fds)
            )
        finally:
            sockets.close_child_ends()

    @asynccontextmanager
    async def _streams(
        self, sockets: "_SocketPairs", ended: "asyncio.Future[None]"
    ) -> AsyncIterator[TransportStreams]:
        incoming, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        writing, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

        async def read() -> None:
            async with incoming:
                reason = await _read_lines(sockets.output, incoming)
                # Record the reason before `incoming` closes, since that ends the calls that report it.
                self._close(reason or await self._ending_reason(ended, "it says no more"))

        async def write() -> None:
            async with outgoing:
                await _write_lines(sockets.input, outgoing)
                self._close(await self._ending_reason(ended, "it listens no more"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            try:
                yield reading, writing
            finally:
                tasks.cancel_scope.cancel()
                for stream in (incoming, reading, writing, outgoing):
                    stream.close()

    async def _read_frames(self, supervised: SupervisedProcess) -> None:
        """Record how the server ended, and the last of what it wrote to its stderr."""
        async for tag, body in supervised.frames():
            if tag == "x":
                self._ending = body.decode()
            elif tag == "e":
                self._stderr_tail = (self._stderr_tail + body.decode(errors="replace"))[-MCP_ERROR_CHARS_MAX:]

    async def _ending_reason(self, ended: "asyncio.Future[None]", default: str) -> str:
        """Return how the server ended, or `default` if the supervisor does not report it soon."""
        await asyncio.wait({ended}, timeout=_ENDING_S_MAX)
        how, _, number = self._ending.partition(" ")
        kinds = {"exit": f"it ended with exit code {number}", "signal": f"it was killed by signal {number}"}
        message = kinds.get(how, "it ended" if ended.done() else default)
        last = " ".join(self._stderr_tail.split())[-MCP_ERROR_CHARS_MAX // 2 :]
        return f"{message}; it said: {last}" if last else message

    def _close(self, reason: str) -> None:
        self.close_reason = self.close_reason or reason
        self._closed.set()


class _SocketPairs:
    """Our ends of the two sockets, and the server's ends until it has them."""

    def __init__(self) -> None:
        self.input, self._their_input = socket.socketpair()
        self.output, self._their_output = socket.socketpair()
        for end in (self.input, self.output):
            end.setblocking(False)

    @property
    def child_fds(self) -> tuple[int, int]:
        return self._their_input.fileno(), self._their_output.fileno()

    def close_child_ends(self) -> None:
        self._their_input.close()
        self._their_output.close()

    def close(self) -> None:
        self.close_child_ends()
        self.input.close()
        self.output.close()


async def _stop_server(ended: "asyncio.Future[None]", supervised: SupervisedProcess) -> None:
    """Give a server a moment to exit, then stop it."""
    await asyncio.wait({ended}, timeout=_EXIT_GRACE_S)
    ended.cancel()
    with suppress(asyncio.CancelledError):
        await ended
    await supervised.stop(MCP_STOP_S_MAX)


async def _read_lines(
    output: socket.socket, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> str:
    """Send each line on until the output ends, and return what went wrong, or an empty text."""
    loop, buffer = asyncio.get_running_loop(), bytearray()
    rate_limiter = McpRateLimiter(loop.time())
    while chunk := await _receive_bytes(loop, output):
        searched_bytes = len(buffer)
        buffer += chunk
        while (end := buffer.find(b"\n", searched_bytes)) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            searched_bytes = 0
            await rate_limiter.throttle(loop.time())
            if line.strip() and (message := _parse_message(line)) is not None:
                try:
                    await incoming.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return ""
        if len(buffer) > MCP_MESSAGE_BYTES_MAX:
            return f"it said more than {MCP_MESSAGE_BYTES_MAX:,} bytes in one message"
    return ""


async def _receive_bytes(loop: asyncio.AbstractEventLoop, output: socket.socket) -> bytes:
    try:
        return await loop.sock_recv(output, _CHUNK_BYTES)
    except OSError:
        return b""


def _parse_message(line: bytes) -> SessionMessage | None:
    """Parse a line; return None if it is no message, since many programs print greetings and warnings.

    An unreadable answer becomes an error, or its caller would wait for ever.
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


async def _write_lines(input_: socket.socket, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write each message as a line until the server stops reading."""
    loop = asyncio.get_running_loop()
    async for outgoing_message in outgoing:
        line = outgoing_message.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            await loop.sock_sendall(input_, line.encode() + b"\n")
        except OSError:
            return
