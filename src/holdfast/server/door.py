"""A listening socket and the HTTP server behind it, inside our own event loop."""

import asyncio
import errno
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import HEARTBEAT_S
from holdfast.engine.engine import Engine
from holdfast.overview import Look
from holdfast.server.app import application
from holdfast.server.gate import Gate
from holdfast.server.streams import ABORT, Streams

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 1_024
PORTS_TRIED_MAX = 100
"""How far past the default port a free one is looked for."""


class PortTaken(HoldfastError):
    """Port {port} on {host} is taken by another program."""

    code = "port_taken"
    remedy = "Choose another with --port, or leave it out to take the next free one."


class CannotListen(HoldfastError):
    """Nothing can listen on {host} port {port}: {detail}."""

    code = "cannot_listen"
    remedy = "Leave out --host and --port, or give ones that this machine has."


class HttpDoor:
    """Bound at once, so that the address is known; answers from `run` on."""

    def __init__(self, listener: socket.socket, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._listener = listener
        self._heartbeat_s = heartbeat_s
        host, port = listener.getsockname()[:2]
        self.address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @classmethod
    def open(cls, host: str, port: int, or_next: bool, heartbeat_s: float = HEARTBEAT_S) -> "HttpDoor":
        """Listen on `port`, or with `or_next` on the first free one from there.

        Raises PortTaken or CannotListen.
        """
        tried = PORTS_TRIED_MAX if or_next else 1
        for candidate in range(port, min(port + tried, 65536)):
            listener = _listen(host, candidate)
            if listener is not None:
                return cls(listener, heartbeat_s)
        raise PortTaken(host=host, port=port)

    async def run(
        self,
        engine: Engine,
        look: Look,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        """Answer until SIGINT or SIGTERM; `on_ready` is called once requests are answered.

        Told to stop, it accepts nothing more, awaits `on_stop` while streams still follow, and lets go. A
        second signal does not wait for `on_stop`.
        """
        streams = Streams(engine.store, self._heartbeat_s)
        app = application(engine, look, streams)
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        server, told = _Server(config, on_ready), _Told()
        beating = asyncio.create_task(streams.beat_for_ever())
        stopping = asyncio.create_task(self._stop_when_told(told, app, streams, server, on_stop))
        try:
            with told.by_signals():
                await server.serve([self._listener])
        finally:
            for task in (beating, stopping):
                task.cancel()
            await asyncio.gather(beating, stopping, return_exceptions=True)

    async def _stop_when_told(
        self,
        told: "_Told",
        app: Gate,
        streams: Streams,
        server: "_Server",
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        await told.once.wait()
        app.stop_accepting()
        leaving, hurrying = asyncio.ensure_future(on_stop()), asyncio.ensure_future(told.twice.wait())
        try:
            await asyncio.wait((leaving, hurrying), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (leaving, hurrying):
                waiting.cancel()
            streams.close()
            server.should_exit = True
        await asyncio.gather(leaving, hurrying, return_exceptions=True)

    def close(self) -> None:
        self._listener.close()


class _Told:
    """Whether a signal has come, and a second one."""

    def __init__(self) -> None:
        self.once, self.twice = asyncio.Event(), asyncio.Event()

    @contextmanager
    def by_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        for signum in _SIGNALS:
            loop.add_signal_handler(signum, self._tell)
        try:
            yield
        finally:
            for signum in _SIGNALS:
                loop.remove_signal_handler(signum)

    def _tell(self) -> None:
        (self.twice if self.once.is_set() else self.once).set()


class _Protocol(HttpToolsProtocol):
    """uvicorn's, and a way to end a connection whose reader takes nothing: closing would wait for it."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would raise the signal again before the store is closed."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def _listen(host: str, port: int) -> socket.socket | None:
    """A listening socket, or None when the port is taken. Raises CannotListen."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise CannotListen(host=host, port=port, detail=error.strerror) from None
    try:
        # A port of a process that has just ended is free again at once.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets may be bound to one port; only one may listen.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise CannotListen(host=host, port=port, detail=error.strerror) from None
    return listener
