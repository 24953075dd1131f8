"""Run the local model's server as long as somebody holds it, and restart it when it dies."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from holdfast.models.endpoint import Endpoint, ProtocolName, Secret
from holdfast.models.local.info import LOCAL, LocalNotInstalled
from holdfast.models.local.install_dir import MODEL_NAME, WINDOW_TOKENS, LocalModelDir
from holdfast.models.local.server_process import (
    START_S_MAX,
    LlamaProcess,
    LlamaServerConfig,
    StartFailed,
    thread_count,
)
from holdfast.models.ports import ModelFailure

BACKOFF_S, BACKOFF_S_MAX = 0.5, 60.0
"""The wait before a restart, doubled each time the server dies soon again."""
STABLE_S = 60.0
"""The uptime after which a death does not count as soon."""
_READY_S_MAX = START_S_MAX + 10.0


class LlamaServer:
    """Supervise the server's process, in one event loop. `environ` is its whole environment.

    The server asks for `key`, because others on this machine can reach its port too.
    """

    def __init__(
        self,
        model_dir: LocalModelDir,
        environ: Mapping[str, str],
        key: str,
        template: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.model_dir = model_dir
        self._environ = environ
        self._key = Secret(key)
        self._template = template
        self._sleep = sleep
        self._now = now
        self._users = 0
        self._supervisor: asyncio.Task[None] | None = None
        self._url = ""
        self._problem = ""
        self._is_settled = asyncio.Event()
        """Set once the server runs or has failed; clear while it comes up."""
        self.pid = 0
        """The id of the running process; 0 if none runs."""

    @property
    def is_running(self) -> bool:
        return bool(self._url)

    @property
    def is_in_use(self) -> bool:
        return bool(self._users)

    @property
    def problem(self) -> str:
        """Return why the server does not run although it should; empty otherwise."""
        return self._problem

    def acquire(self) -> None:
        """Hold the server, which starts with the first holder. Raises LocalNotInstalled.

        Each call needs one call of `release`.
        """
        if not self.model_dir.is_installed:
            raise LocalNotInstalled()
        self._users += 1
        if self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name="local model")

    async def release(self) -> None:
        """Let go of the server, which stops with the last holder."""
        assert self._users, "held before it is let go of"
        self._users -= 1
        if not self._users:
            await self._stop()

    async def endpoint(self, protocol: ProtocolName = "chat") -> Endpoint:
        """Wait until the server runs, and return its endpoint. The caller holds it. Raises ModelFailure."""
        assert self._users, "held before it is asked for"
        try:
            async with asyncio.timeout(_READY_S_MAX):
                await self._is_settled.wait()
        except TimeoutError:
            raise ModelFailure(detail="the local model does not come up", retryable=True) from None
        if not self._url:
            raise ModelFailure(detail=f"the local model does not run: {self._problem}", retryable=True)
        return Endpoint(f"{self._url}/v1", MODEL_NAME, self._key, provider=LOCAL, protocol=protocol)

    async def _stop(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        self._problem = ""

    async def _supervise(self) -> None:
        wait_s = BACKOFF_S
        try:
            while True:
                self._is_settled.clear()
                started_at = self._now()
                self._problem = await self._run_once()
                self._is_settled.set()
                wait_s = BACKOFF_S if self._now() - started_at > STABLE_S else wait_s
                await self._sleep(wait_s)
                wait_s = min(2 * wait_s, BACKOFF_S_MAX)
        finally:
            self._is_settled.clear()

    async def _run_once(self) -> str:
        """Run the server from start to end; return how it ended."""
        config = LlamaServerConfig(
            str(self.model_dir.library), str(self.model_dir.weights), MODEL_NAME, self._key.reveal(),
            WINDOW_TOKENS, thread_count(), template=self._template,
        )  # fmt: skip
        try:
            process, url = await LlamaProcess.start(config, self._environ)
        except StartFailed as error:
            return str(error)
        try:
            self._url, self._problem, self.pid = url, "", process.pid
            self._is_settled.set()
            return await process.wait()
        finally:
            self._url, self.pid = "", 0
            await process.stop()
