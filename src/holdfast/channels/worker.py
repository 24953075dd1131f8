"""Serve the channels of a process under leases: one process serves a channel, another takes over if it dies.

Inbound updates are stored before they are acknowledged; `inbox` and `outbox` do the rest.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from holdfast.channels.commands import CommandSources
from holdfast.channels.inbox import ChannelInbox
from holdfast.channels.outbox import ChannelOutbox
from holdfast.channels.pairing import Pairing, PairingChallenges
from holdfast.channels.ports import Channel, ChannelHealth, InboundReceiver
from holdfast.channels.stats import ChannelState, ChannelStats
from holdfast.channels.supervise import Sleep, restart_on_failure
from holdfast.domain.chats import InboundUpdate, sanitize
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, LeaseHeld, LeaseLost, NoSuchChannel, StoreFault
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import CHANNEL_LEASE_MS, DELIVERY_RETRY_MS
from holdfast.engine.engine import Engine
from holdfast.store.ports import Lease, Store


def print_to_stderr(lines: str) -> None:
    """Print lines for the operator."""
    print(lines, file=sys.stderr)


class ChannelWorkers:
    """The workers of all channels. Belongs to one event loop. `sources` supplies data to chat commands."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        channels: Iterable[Channel],
        pairing: Pairing,
        clock: Clock,
        ids: IdGenerator,
        rng: Callable[[], float],
        sources: CommandSources | None = None,
        lease_ms: int = CHANNEL_LEASE_MS,
        retry_ms: int = DELIVERY_RETRY_MS,
        sleep: Sleep = asyncio.sleep,
        notify: Callable[[str], None] = print_to_stderr,
    ) -> None:
        self._store = store
        self._engine = engine
        self._pairing = pairing
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._sources = sources or CommandSources()
        self._lease_ms = lease_ms
        self._retry_ms = retry_ms
        self._sleep = sleep
        self._notify = notify
        self._workers: dict[str, _ChannelWorker] = {}
        self._started = False
        for channel in channels:
            self.add(channel)

    @property
    def channels(self) -> Mapping[str, Channel]:
        return {name: worker.stats.channel for name, worker in self._workers.items()}

    async def start(self) -> None:
        """Serve every channel, or stand by while another process does."""
        self._started = True
        for worker in self._workers.values():
            worker.start()

    async def stop(self, within_s: float) -> None:
        """Stop listening, finish running sends within `within_s`, then close the channels."""
        self._started = False
        await asyncio.gather(*(worker.stop(within_s) for worker in self._workers.values()))

    def add(self, channel: Channel) -> None:
        """Add a channel; its name must be free."""
        assert channel.name not in self._workers, f"{channel.name} is there already"
        stats = ChannelStats(channel, self._clock, lambda lines: self._notify(self._engine.mask(lines)))
        outbox = ChannelOutbox(self._store, stats, self._pairing, self._clock, self._rng, self._retry_ms)
        inbox = ChannelInbox(
            self._store, self._engine, stats, self._pairing, outbox, self._ids, self._clock, self._sources,
            self._sleep,
        )  # fmt: skip
        challenges = PairingChallenges(self._pairing, stats)
        worker = _ChannelWorker(self._store, stats, inbox, outbox, challenges, self._lease_ms, self._sleep)
        self._workers[channel.name] = worker
        if self._started:
            worker.start()

    async def remove(self, name: str, within_s: float = 5.0) -> None:
        """Stop a channel and close it. Raises NoSuchChannel."""
        worker = self._worker(name)
        del self._workers[name]
        await worker.stop(within_s)

    def receiver_for(self, name: str) -> InboundReceiver:
        """Return the receiver of a channel's inbound updates. Raises NoSuchChannel."""
        return self._worker(name).receive

    def states(self) -> Sequence[ChannelState]:
        """Return the state of each channel in this process."""
        return [worker.stats.state() for worker in self._workers.values()]

    async def test(self, name: str) -> ChannelHealth:
        """Return the result of a request to the app. Raises NoSuchChannel."""
        worker = self._worker(name)
        health = await worker.stats.channel.health()
        if health.ok:
            worker.stats.record_success()
        else:
            worker.stats.record_failure(health.detail)
        return health

    def _worker(self, name: str) -> "_ChannelWorker":
        worker = self._workers.get(name)
        if worker is None:
            raise NoSuchChannel(name=name[:64])
        return worker


class _ChannelWorker:
    """Serve one channel while this process has its lease."""

    def __init__(
        self,
        store: Store,
        stats: ChannelStats,
        inbox: ChannelInbox,
        outbox: ChannelOutbox,
        challenges: PairingChallenges,
        lease_ms: int,
        sleep: Sleep,
    ) -> None:
        self._store = store
        self.stats = stats
        self._inbox = inbox
        self._outbox = outbox
        self._challenges = challenges
        self._lease_ms = lease_ms
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._task = asyncio.create_task(
            restart_on_failure("serving", self._stand_by, self.stats, self._sleep),
            name=self.stats.channel.name,
        )

    async def stop(self, within_s: float) -> None:
        self._outbox.close()
        self._inbox.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(self._inbox.drained(), self._outbox.drained())
        await self._challenges.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self._is_closed:
            self._is_closed = True
            with suppress(HoldfastError):
                await self.stats.channel.close()

    async def receive(self, *inbound: InboundUpdate) -> None:
        """Store updates for the agent from allowed senders; send a code to unknown senders."""
        self.stats.record_received(len(inbound))
        relevant = [each for each in map(sanitize, inbound) if each.moved_from or each.is_for_agent]
        unknown = await self._challenges.reject_unknown(each for each in relevant if not each.moved_from)
        kept = [each for each in relevant if each.moved_from or each.sender not in unknown]
        if kept:
            await self._store.receive(*kept)
            self._inbox.notify()

    async def _stand_by(self) -> None:
        """Claim the channel's lease whenever it is free, and serve."""
        while True:
            try:
                lease = await self._store.claim_name(f"channel:{self.stats.channel.name}", self._lease_ms)
            except LeaseHeld:
                await self._sleep(self._lease_ms / 3000)
                continue
            try:
                await self._serve(lease)
            finally:
                self.stats.serving = False
                with suppress(StoreFault):
                    await self._store.release(lease)

    async def _serve(self, lease: Lease) -> None:
        """Serve until the lease is lost."""
        self.stats.serving = True
        listen = partial(self.stats.channel.listen, self.receive)
        loops: Mapping[str, Callable[[], Awaitable[None]]] = {
            "listening": listen,
            "taking up": self._inbox.run,
            "telling": self._outbox.follow_conversations,
            "delivering": self._outbox.deliver,
        }
        tasks = [
            asyncio.create_task(restart_on_failure(what, work, self.stats, self._sleep))
            for what, work in loops.items()
        ]
        try:
            await self._renew(lease)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _renew(self, lease: Lease) -> None:
        now = asyncio.get_running_loop().time
        renewed = now()
        # Stops before the lease expires and another process may claim it.
        while now() - renewed < self._lease_ms * 0.8 / 1000:
            await self._sleep(self._lease_ms / 5000)
            began = now()
            try:
                await self._store.renew(lease, self._lease_ms)
            except LeaseLost:
                return
            except StoreFault:
                continue
            renewed = began
