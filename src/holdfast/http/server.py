"""Listen on a socket and run the HTTP server inside our own event loop."""

import asyncio
import errno
import ipaddress
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn

from holdfast.auth.credentials import CredentialStore
from holdfast.domain.clock import SystemClock
from holdfast.domain.credentials import AuthConfig
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import HEARTBEAT_S
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.engine.engine import Engine
from holdfast.http.app import create_app
from holdfast.http.authenticator import Authenticator
from holdfast.http.connections import ConnectionRegistry, ConnectionTimeouts, HttpConnection
from holdfast.http.gate import RequestGate
from holdfast.http.hosts import HostPolicy
from holdfast.http.sse.streams import Streams
from holdfast.services import Services
from holdfast.status import GetServerStatus

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 1_024
_DATE_HEADER_EVERY_S = 1.0
PORTS_TRIED_MAX = 100
"""The most ports that are tried to find a free one."""


class PortTaken(HoldfastError):
    """Port {port} on {host} is taken by another program."""

    code = "port_taken"
    remedy = "Choose another with --port, or leave it out to take the next free one."


class CannotListen(HoldfastError):
    """Nothing can listen on {host} port {port}: {detail}."""

    code = "cannot_listen"
    remedy = "Leave out --host and --port, or give ones that this machine has."


class UvicornHttpServer:
    """An HTTP server that is bound when created, so that its address is known, and serves from `run` on."""

    def __init__(
        self,
        listener: socket.socket,
        heartbeat_s: float = HEARTBEAT_S,
        timeouts: ConnectionTimeouts | None = None,
        mask: MaskFunction = no_mask,
    ) -> None:
        self._listener = listener
        self._mask = mask
        self._heartbeat_s = heartbeat_s
        self._timeouts = timeouts or ConnectionTimeouts()
        self._host, self._port = listener.getsockname()[:2]
        bound = ipaddress.ip_address(self._host.partition("%")[0])
        self.is_local = bound.is_loopback
        """True if only this machine can reach it."""
        # A server that listens on all interfaces is reachable on the loopback address too.
        reachable_host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        self.address = (
            f"http://[{reachable_host}]:{self._port}/"
            if ":" in reachable_host
            else f"http://{reachable_host}:{self._port}/"
        )

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        or_next: bool,
        heartbeat_s: float = HEARTBEAT_S,
        timeouts: ConnectionTimeouts | None = None,
        mask: MaskFunction = no_mask,
    ) -> "UvicornHttpServer":
        """Listen on `port`, or with `or_next` on the first free port from there.

        Raises PortTaken or CannotListen.
        """
        tried = PORTS_TRIED_MAX if or_next else 1
        for candidate in range(port, min(port + tried, 65536)):
            listener = _listen(host, candidate)
            if listener is not None:
                return cls(listener, heartbeat_s, timeouts, mask)
        raise PortTaken(host=host, port=port)

    async def run(
        self,
        engine: Engine,
        read_status: GetServerStatus,
        credential_store: CredentialStore,
        auth_config: AuthConfig,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
        services: Services | None = None,
    ) -> None:
        """Serve until SIGINT or SIGTERM, and call `on_ready` once requests are served.

        On a signal it refuses new requests, awaits `on_stop` while streams go on, and ends. A second signal
        does not wait for `on_stop`.
        """
        now = asyncio.get_running_loop().time
        streams, connections = (
            Streams(engine.store, self._heartbeat_s),
            ConnectionRegistry(now, self._timeouts),
        )
        hosts = HostPolicy(self._host, self._port, auth_config)
        authenticator = Authenticator(credential_store, auth_config, hosts, now, SystemClock().now_ms)
        app = create_app(
            engine, read_status, streams, credential_store, authenticator, hosts, self._mask, services
        )
        server, signals = _EmbeddedUvicorn(self._config(app, connections), on_ready), _StopSignals()
        tasks = [
            asyncio.create_task(work)
            for work in (
                streams.send_heartbeats(),
                authenticator.watch_revocations(),
                connections.run_timeout_checks(),
                self._stop_on_signal(signals, app, streams, server, on_stop),
            )
        ]
        try:
            with signals.installed():
                await server.serve([self._listener])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _config(self, app: RequestGate, connections: ConnectionRegistry) -> uvicorn.Config:
        return uvicorn.Config(
            app,
            http=partial(HttpConnection, connections),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=self._timeouts.idle_s,
            timeout_graceful_shutdown=1,
        )

    async def _stop_on_signal(
        self,
        signals: "_StopSignals",
        app: RequestGate,
        streams: Streams,
        server: "_EmbeddedUvicorn",
        on_stop: Callable[[], Awaitable[None]],
    ) -> None:
        await signals.first.wait()
        app.stop_accepting()
        stopping, second_signal = (
            asyncio.ensure_future(on_stop()),
            asyncio.ensure_future(signals.second.wait()),
        )
        try:
            await asyncio.wait((stopping, second_signal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in (stopping, second_signal):
                waiting.cancel()
            streams.close()
            server.request_exit()
        await asyncio.gather(stopping, second_signal, return_exceptions=True)

    def close(self) -> None:
        self._listener.close()


class _StopSignals:
    """The first and the second stop signal, as events."""

    def __init__(self) -> None:
        self.first, self.second = asyncio.Event(), asyncio.Event()

    @contextmanager
    def installed(self) -> Generator[None]:
        # Not with the loop's own handlers: they end with the loop, and a later signal would kill the process.
        loop = asyncio.get_running_loop()
        for signum in _SIGNALS:
            signal.signal(signum, lambda signum, frame: _call_soon(loop, self._record))
        try:
            yield
        finally:
            for signum in _SIGNALS:
                # The rest of the shutdown is short; a further signal must not interrupt it.
                signal.signal(signum, lambda signum, frame: None)

    def _record(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(call)


class _EmbeddedUvicorn(uvicorn.Server):
    """A uvicorn server without its signal handling, which would raise the signal before the store is closed.

    It updates the date header once a second.
    """

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._exit_requested = asyncio.Event()

    def request_exit(self) -> None:
        self.should_exit = True
        self._exit_requested.set()

    async def main_loop(self) -> None:
        """Wait for `request_exit`; uvicorn's own loop polls ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_HEADER_EVERY_S):
                    await self._exit_requested.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def _listen(host: str, port: int) -> socket.socket | None:
    """Return a listening socket, or None if the port is taken. Raises CannotListen."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise CannotListen(host=host, port=port, detail=error.strerror) from None
    try:
        # Otherwise the port of a process that has just ended stays blocked for a while.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Two sockets can be bound to one port, so only listening shows that it is taken.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise CannotListen(host=host, port=port, detail=error.strerror) from None
    return listener
