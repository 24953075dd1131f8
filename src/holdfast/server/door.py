"""A listening socket and the HTTP server behind it, inside our own event loop."""

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager

import uvicorn

from holdfast.domain.errors import HoldfastError
from holdfast.server.app import App, Look

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

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        host, port = listener.getsockname()[:2]
        self.address = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    @classmethod
    def open(cls, host: str, port: int, or_next: bool) -> "HttpDoor":
        """Listen on `port`, or with `or_next` on the first free one from there.

        Raises PortTaken or CannotListen.
        """
        tried = PORTS_TRIED_MAX if or_next else 1
        for candidate in range(port, min(port + tried, 65536)):
            listener = _listen(host, candidate)
            if listener is not None:
                return cls(listener)
        raise PortTaken(host=host, port=port)

    async def run(self, look: Look, on_ready: Callable[[], None]) -> None:
        """Answer until SIGINT or SIGTERM; `on_ready` is called once requests are answered."""
        config = uvicorn.Config(
            App(look),
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config, on_ready)
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, server.stop)
        try:
            await server.serve([self._listener])
        finally:
            for signum in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(signum)

    def close(self) -> None:
        self._listener.close()


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would raise the signal again before the store is closed."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    def stop(self) -> None:
        self.should_exit = True

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
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise CannotListen(host=host, port=port, detail=error.strerror) from None
    return listener
