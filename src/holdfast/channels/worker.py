"""All chat apps of one process: each is served by one process at a time, and by another if that one dies.

Whatever any of them tells is kept before it may forget it; the rest is `inbox` and `outbox`.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from holdfast.channels.commands import Asked
from holdfast.channels.inbox import Inbox
from holdfast.channels.outbox import Outbox
from holdfast.channels.pairing import Pairing, Strangers
from holdfast.channels.ports import Channel, ChannelHealth, Take
from holdfast.channels.stats import ChannelState, Ledger
from holdfast.channels.supervise import Sleep, keep_on
from holdfast.domain.chats import Inbound, sound
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, LeaseHeld, LeaseLost, NoSuchChannel, StoreFault
from holdfast.domain.ids import Ids
from holdfast.domain.limits import CHANNEL_LEASE_MS, DELIVERY_RETRY_MS
from holdfast.engine.engine import Engine
from holdfast.store.ports import Lease, Store


def tell(lines: str) -> None:
    """Where an operator reads."""
    print(lines, file=sys.stderr)


class Gateway:
    """Belongs to one event loop. `asked` is what commands ask others about: which model, which memories."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        channels: Iterable[Channel],
        pairing: Pairing,
        clock: Clock,
        ids: Ids,
        chance: Callable[[], float],
        asked: Asked | None = None,
        lease_ms: int = CHANNEL_LEASE_MS,
        retry_ms: int = DELIVERY_RETRY_MS,
        sleep: Sleep = asyncio.sleep,
        tell: Callable[[str], None] = tell,
    ) -> None:
        self._store = store
        self._engine = engine
        self._pairing = pairing
        self._clock = clock
        self._ids = ids
        self._chance = chance
        self._asked = asked or Asked()
        self._lease_ms = lease_ms
        self._retry_ms = retry_ms
        self._sleep = sleep
        self._tell = tell
        self._posts: dict[str, _Post] = {}
        self._started = False
        for channel in channels:
            self.add(channel)

    @property
    def channels(self) -> Mapping[str, Channel]:
        return {name: post.ledger.channel for name, post in self._posts.items()}

    async def start(self) -> None:
        """Serve every channel, or stand by for whoever does."""
        self._started = True
        for post in self._posts.values():
            post.start()

    async def stop(self, within_s: float) -> None:
        """Listen no longer; what is being sent has so long to be receipted. Channels are closed then."""
        self._started = False
        await asyncio.gather(*(post.stop(within_s) for post in self._posts.values()))

    def add(self, channel: Channel) -> None:
        """One more channel, or another in place of one that was removed."""
        assert channel.name not in self._posts, f"{channel.name} is there already"
        ledger = Ledger(channel, self._clock, lambda lines: self._tell(self._engine.mask(lines)))
        outbox = Outbox(self._store, ledger, self._pairing, self._clock, self._chance, self._retry_ms)
        inbox = Inbox(
            self._store, self._engine, ledger, self._pairing, outbox, self._ids, self._clock, self._asked,
            self._sleep,
        )  # fmt: skip
        strangers = Strangers(self._pairing, ledger)
        post = _Post(self._store, ledger, inbox, outbox, strangers, self._lease_ms, self._sleep)
        self._posts[channel.name] = post
        if self._started:
            post.start()

    async def remove(self, name: str, within_s: float = 5.0) -> None:
        """Serve a channel no longer, and let go of it. Raises NoSuchChannel."""
        post = self._post(name)
        del self._posts[name]
        await post.stop(within_s)

    def take(self, name: str) -> Take:
        """Where what comes through a channel is handed over, by whoever hears it. Raises NoSuchChannel."""
        return self._post(name).take

    def states(self) -> Sequence[ChannelState]:
        """How each channel fares in this process."""
        return [post.ledger.state() for post in self._posts.values()]

    async def test(self, name: str) -> ChannelHealth:
        """Ask the app itself. Raises NoSuchChannel."""
        post = self._post(name)
        health = await post.ledger.channel.health()
        if health.ok:
            post.ledger.went_well()
        else:
            post.ledger.failed(health.detail)
        return health

    def _post(self, name: str) -> "_Post":
        post = self._posts.get(name)
        if post is None:
            raise NoSuchChannel(name=name[:64])
        return post


class _Post:
    """One channel: served while this process has the right to."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        inbox: Inbox,
        outbox: Outbox,
        strangers: Strangers,
        lease_ms: int,
        sleep: Sleep,
    ) -> None:
        self._store = store
        self.ledger = ledger
        self._inbox = inbox
        self._outbox = outbox
        self._strangers = strangers
        self._lease_ms = lease_ms
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        self._task = asyncio.create_task(
            keep_on("serving", self._stand_by, self.ledger, self._sleep), name=self.ledger.channel.name
        )

    async def stop(self, within_s: float) -> None:
        self._outbox.close()
        self._inbox.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await asyncio.gather(self._inbox.drained(), self._outbox.drained())
        await self._strangers.close()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if not self._is_closed:
            self._is_closed = True
            with suppress(HoldfastError):
                await self.ledger.channel.close()

    async def take(self, *inbound: Inbound) -> None:
        """Keep what came. Of a stranger nothing is kept: they are told how to be let in.

        Nor of what is said in a group to others.
        """
        self.ledger.came(len(inbound))
        meant = [each for each in map(sound, inbound) if each.moved_from or each.is_meant]
        strangers = await self._strangers.turned_away(each for each in meant if not each.moved_from)
        kept = [each for each in meant if each.moved_from or each.sender not in strangers]
        if kept:
            await self._store.receive(*kept)
            self._inbox.ring()

    async def _stand_by(self) -> None:
        """Serve whenever nobody else does."""
        while True:
            try:
                lease = await self._store.claim_name(f"channel:{self.ledger.channel.name}", self._lease_ms)
            except LeaseHeld:
                await self._sleep(self._lease_ms / 3000)
                continue
            try:
                await self._serve(lease)
            finally:
                self.ledger.serving = False
                with suppress(StoreFault):
                    await self._store.release(lease)

    async def _serve(self, lease: Lease) -> None:
        """Until the right to is lost."""
        self.ledger.serving = True
        listen = partial(self.ledger.channel.listen, self.take)
        works: Mapping[str, Callable[[], Awaitable[None]]] = {
            "listening": listen,
            "taking up": self._inbox.run,
            "telling": self._outbox.tell_for_ever,
            "delivering": self._outbox.deliver_for_ever,
        }
        tasks = [
            asyncio.create_task(keep_on(what, work, self.ledger, self._sleep)) for what, work in works.items()
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
        # Whoever cannot renew it stops before another may begin.
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
