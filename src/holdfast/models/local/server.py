"""The local model's server, kept running for as long as somebody holds it: begun anew when it dies."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic

from holdfast.models.endpoint import Endpoint, Protocol, Secret
from holdfast.models.local.info import LOCAL, LocalNotInstalled
from holdfast.models.local.place import NAME, WINDOW_TOKENS, Place
from holdfast.models.local.server_process import START_S_MAX, Child, NotRunning, Order, threads_here
from holdfast.models.ports import ModelFailure

AGAIN_S, AGAIN_S_MAX = 0.5, 60.0
"""How long it waits before it begins anew, doubled each time it dies soon again."""
STEADY_S = 60.0
"""After so long it has not died soon."""
_READY_S_MAX = START_S_MAX + 10.0


class Llama:
    """Belongs to one event loop. `environ` is all that the process may know of the environment.

    `key` is what it asks for: others on this machine can reach its port too.
    """

    def __init__(
        self,
        place: Place,
        environ: Mapping[str, str],
        key: str,
        template: str = "",
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self.place = place
        self._environ = environ
        self._key = Secret(key)
        self._template = template
        self._sleep = sleep
        self._now = now
        self._holders = 0
        self._keeper: asyncio.Task[None] | None = None
        self._url = ""
        self._problem = ""
        self._is_known = asyncio.Event()
        """Whether it runs or not: set while that is clear, and not while it comes up."""
        self.pid = 0
        """Of the process that runs; 0: none does."""

    @property
    def is_running(self) -> bool:
        return bool(self._url)

    @property
    def is_held(self) -> bool:
        return bool(self._holders)

    @property
    def problem(self) -> str:
        """Why it does not run, if it should."""
        return self._problem

    def hold(self) -> None:
        """Have it run from now on. Raises LocalNotInstalled. Each hold is let go of by one `release`."""
        if not self.place.is_installed:
            raise LocalNotInstalled()
        self._holders += 1
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep(), name="local model")

    async def release(self) -> None:
        """With the last one it is stopped."""
        assert self._holders, "held before it is let go of"
        self._holders -= 1
        if not self._holders:
            await self._stop()

    async def endpoint(self, protocol: Protocol = "chat") -> Endpoint:
        """Where it is asked, once it runs; for whoever holds it. Raises ModelFailure."""
        assert self._holders, "held before it is asked for"
        try:
            async with asyncio.timeout(_READY_S_MAX):
                await self._is_known.wait()
        except TimeoutError:
            raise ModelFailure(detail="the local model does not come up", retryable=True) from None
        if not self._url:
            raise ModelFailure(detail=f"the local model does not run: {self._problem}", retryable=True)
        return Endpoint(f"{self._url}/v1", NAME, self._key, provider=LOCAL, protocol=protocol)

    async def _stop(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        self._problem = ""

    async def _keep(self) -> None:
        wait_s = AGAIN_S
        try:
            while True:
                self._is_known.clear()
                begun_at = self._now()
                self._problem = await self._one_run()
                self._is_known.set()
                wait_s = AGAIN_S if self._now() - begun_at > STEADY_S else wait_s
                await self._sleep(wait_s)
                wait_s = min(2 * wait_s, AGAIN_S_MAX)
        finally:
            self._is_known.clear()

    async def _one_run(self) -> str:
        """From its start to its end; says how it ended."""
        order = Order(
            str(self.place.library), str(self.place.weights), NAME, self._key.reveal(),
            WINDOW_TOKENS, threads_here(), template=self._template,
        )  # fmt: skip
        try:
            child, url = await Child.start(order, self._environ)
        except NotRunning as error:
            return str(error)
        try:
            self._url, self._problem, self.pid = url, "", child.pid
            self._is_known.set()
            return await child.ended()
        finally:
            self._url, self.pid = "", 0
            await child.end()
