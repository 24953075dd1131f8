"""Deliver planned messages in order per chat: record each attempt before it starts, and its outcome after.

An edit may be repeated. A send with an unknown outcome is repeated if the app deduplicates sends. Otherwise
an answer or a question is resent with a note, more slowly each time, and a notice is dropped. A message that
the app never accepts is skipped in the end: see `PoisonMessages`.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Literal

from msgspec.structs import replace

from holdfast.aio.keyed_tasks import KeyedTasks
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import ChannelFailure
from holdfast.channels.stats import ChannelStats
from holdfast.channels.supervise import ChannelWakeup
from holdfast.domain.chats import POISON_MESSAGE, Chat, DeliveryRow, NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.errors import HoldfastError, NoSuchSession, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import MessageId
from holdfast.domain.limits import (
    DELIVERIES_AT_ONCE_MAX,
    DELIVERY_DUPLICATES_MAX,
    DELIVERY_MS_MAX,
    DELIVERY_RETRY_MS,
    DELIVERY_RETRY_MS_MAX,
    POISON_MESSAGE_MS,
    POISON_MESSAGE_TRIES,
)
from holdfast.store.ports import Append, Store

POLL_S = 5.0
"""The poll interval for due deliveries, since a notification may be lost."""
_LOOK_AHEAD = 4
"""The deliveries that one query loads, as a multiple of the concurrency."""
_HEALTH_CHECK_AFTER = 3
"""Attempts after which a failure triggers a health check of the app."""
_HAND_BACK_S = 2.0
_NOT_ALLOWED = "not_allowed"
_FinalState = Literal["in_doubt", "dropped"]
LOST_MESSAGE_NOTICE = "*One message could not be delivered here. It is in the conversation: see the page.*"
"""The notice in place of a dropped message."""
_DeliveryKey = tuple[str, int]


def delivery_key(route: str, row: DeliveryRow) -> str:
    """Return the idempotency key of a delivery: letters and digits, the same at each attempt."""
    name = f"{route}\n{row.source}\n{row.piece}".encode()
    return "d_" + hashlib.blake2b(name, digest_size=16).hexdigest()


class DeliveryWorker:
    """Deliver to the chats of one channel: several chats concurrently, each chat in order."""

    def __init__(
        self,
        store: Store,
        stats: ChannelStats,
        pairing: Pairing,
        clock: Clock,
        rng: Callable[[], float],
        retry_ms: int = DELIVERY_RETRY_MS,
    ) -> None:
        self._retry_ms = retry_ms
        self._store = store
        self._stats = stats
        self._pairing = pairing
        self._clock = clock
        self._rng = rng
        self._wakeup = ChannelWakeup()
        self._closed = False
        self._tasks = KeyedTasks("delivering", self._ended)
        self._next: list[tuple[str, DeliveryRow]] = []
        self._doubts: dict[tuple[str, int], int] = {}
        self._busy_until: dict[str, float] = {}
        self._poison = PoisonMessages(clock)
        self._polled_at = 0

    def notify(self) -> None:
        """Wake the worker after a delivery was added."""
        self._wakeup.notify()

    def close(self) -> None:
        """Start no more deliveries."""
        self._closed = True

    async def drained(self) -> None:
        """Return once running sends are recorded."""
        await self._tasks.wait_until_empty()

    async def run(self) -> None:
        """Deliver until cancelled; running sends are then handed back to the next process as started."""
        self._closed = False
        try:
            while True:
                await self._begin_due()
                await self._wakeup.wait(POLL_S)
        finally:
            await self._tasks.stop_all()

    async def _begin_due(self) -> None:
        if self._closed:
            return
        if not self._start_found():
            # The result includes running deliveries, which must not hide the others.
            limit = DELIVERIES_AT_ONCE_MAX * _LOOK_AHEAD + len(self._tasks)
            self._next = list(await self._store.due(self._stats.channel.name, self._clock.now_ms(), limit))
            self._stats.waiting = len(self._next)
            self._start_found()
        now = self._clock.now_ms()
        if abs(now - self._polled_at) >= POLL_S * 1000:
            self._polled_at = now
            await self._start_blocked(now)

    def _start_found(self) -> bool:
        """Start the loaded deliveries; return whether all slots are taken."""
        now = asyncio.get_running_loop().time()
        while self._next and len(self._tasks) < DELIVERIES_AT_ONCE_MAX:
            key, row = self._next.pop(0)
            if key not in self._tasks and self._busy_until.get(key, 0.0) <= now:
                self._tasks.start(key, self._deliver(key, row))
        return len(self._tasks) >= DELIVERIES_AT_ONCE_MAX

    async def _start_blocked(self, now: Instant) -> None:
        """Start deliveries that are queued behind a message that the app never accepts."""
        held_up = await self._store.blocked_deliveries(self._stats.channel.name, now, DELIVERIES_AT_ONCE_MAX)
        for key, held, behind in held_up:
            if key not in self._tasks and len(self._tasks) < DELIVERIES_AT_ONCE_MAX:
                self._tasks.start(key, self._skip_poison(key, held, behind))

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._wakeup.notify()
        elif not isinstance(error, StoreFault):
            self._stats.record_fault(f"delivering {key}", error)

    async def _deliver(self, key: str, found: DeliveryRow) -> None:
        route = await self._store.route(key)
        row = await self._begin(key, found.n) if route is not None else None
        if row is None or route is None:
            if found.state == "sending" and found.process_id != self._store.own_process:
                # Another process is sending it; check again after a while.
                self._busy_until[key] = asyncio.get_running_loop().time() + POLL_S
            return
        self._busy_until.pop(key, None)
        after = await self._run_attempt(route, row)
        if after.retry_at:
            delay_s = max(0, after.retry_at - self._clock.now_ms()) / 1000
            asyncio.get_running_loop().call_later(delay_s, self.notify)

    async def _begin(self, key: str, n: int) -> DeliveryRow | None:
        """Record the start of an attempt; if cancelled meanwhile, hand the delivery back."""
        beginning = asyncio.ensure_future(self._store.begin_delivery(key, n))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Bounded, so that a slow store cannot block the stop.
            with suppress(StoreFault, TimeoutError):
                async with asyncio.timeout(_HAND_BACK_S):
                    row = await beginning
                    if row is not None:
                        await self._store.settle_delivery(key, row)
            raise

    async def _run_attempt(self, route: RouteRow, row: DeliveryRow) -> DeliveryRow:
        """Make one attempt and record its outcome."""
        key = route.chat.route
        try:
            after = await self._attempt(route, row)
        except asyncio.CancelledError:
            await self._hand_back(key, row)
            raise
        await self._store.settle_delivery(key, after)
        if after.is_finished:
            self._doubts.pop((key, row.n), None)
            self._poison.forget((key, row.n))
        return after

    async def _skip_poison(self, key: str, held: DeliveryRow, behind: DeliveryRow) -> None:
        """Send the message behind a poison message; if only that one arrives, give the poison message up."""
        route = await self._store.route(key)
        begun = await self._begin(key, behind.n) if route is not None else None
        if route is None or begun is None or (await self._run_attempt(route, begun)).state != "sent":
            return
        # A successful edit proves nothing about a send.
        if begun.state == "changed" and held.state != "changed":
            return
        poison = await self._begin(key, held.n)
        after = await self._run_attempt(route, poison) if poison is not None else None
        if after is None or after.is_finished:
            return
        if after.state == "changed" and after.kind == "answer" and not after.body.is_taken_back:
            after = await self._resend(route.chat, after)
        else:
            after = self._finished(
                after, "in_doubt" if after.state == "sending" else "dropped", after.failure
            )
        is_lost = after.state in ("in_doubt", "dropped")
        lost = (
            [NewDelivery(f"lost:{held.n}", 0, "notice", OutboundMessage(LOST_MESSAGE_NOTICE))]
            if is_lost
            else []
        )
        await self._store.settle_delivery(key, after, lost)

    async def _hand_back(self, key: str, row: DeliveryRow) -> None:
        """Hand back an attempt of unknown outcome, so that the next process need not wait for this one."""
        with suppress(StoreFault):
            state = "changed" if row.state == "changed" else "sending"
            await self._store.settle_delivery(key, replace(row, state=state, retry_at=0))

    async def _attempt(self, route: RouteRow, row: DeliveryRow) -> DeliveryRow:
        """Make one attempt; return the delivery with its outcome."""
        if self._clock.now_ms() - row.made_at > DELIVERY_MS_MAX:
            return self._finished(row, "dropped", f.Failure("too_old", "It could not be said for too long."))
        if not await self._pairing.may_send_to(route.chat):
            return self._finished(row, "dropped", f.Failure(_NOT_ALLOWED, "Nobody there may speak any more."))
        if row.state == "changed":
            return await self._edit(route.chat, row)
        body, is_again = row.body, False
        if row.state == "sending" and not self._stats.channel.abilities.dedupes_sends:
            # An earlier attempt started, and its outcome is unknown.
            doubts = self._doubts.get((route.chat.route, row.n), 0)
            if doubts <= 1:
                await self._record_doubt(route, row)
            if row.kind == "notice":
                return self._finished(row, "in_doubt", row.failure)
            if doubts >= DELIVERY_DUPLICATES_MAX and not (await self._stats.channel.health()).ok:
                # The app is unreachable: another copy would be in doubt too.
                return replace(row, retry_at=self._retry_at(row, 0))
            body, is_again = replace(body, is_again=True), True
        return await self._send(route.chat, row, body, is_again)

    async def _send(self, chat: Chat, row: DeliveryRow, body: OutboundMessage, is_again: bool) -> DeliveryRow:
        failure = await self._try(lambda: self._stats.channel.send(chat, body, delivery_key(chat.route, row)))
        if isinstance(failure, str):
            self._stats.count("again" if is_again else "sent")
            return replace(row, state="sent", platform_id=failure, failure=None, retry_at=0)
        if failure.arrived:
            self._stats.count("sent")
            return replace(row, state="sent", failure=_to_failure(failure), retry_at=0)
        name = (chat.route, row.n)
        if failure.arrived is None:
            self._doubts[name] = self._doubts.get(name, 0) + 1
        if failure.final:
            return self._finished(
                row, "dropped" if failure.arrived is False else "in_doubt", _to_failure(failure)
            )
        # An earlier doubtful attempt stays in doubt, whatever this one's outcome.
        in_doubt = failure.arrived is None or is_again
        later = await self._retry_later(chat, row, failure, self._doubts.get(name, 0))
        return replace(later, state="sending" if in_doubt else "waiting")

    async def _edit(self, chat: Chat, row: DeliveryRow) -> DeliveryRow:
        channel = self._stats.channel

        async def edit() -> str:
            await channel.edit(chat, row.platform_id, row.body)
            return row.platform_id

        unknown = ChannelFailure(channel=channel.name, detail="its id is not known", final=True)
        failure = await self._try(edit) if row.platform_id else unknown
        if isinstance(failure, str):
            self._stats.count("edited")
            return replace(row, state="sent", failure=None, retry_at=0)
        if not failure.final:
            # An edit may be repeated.
            return await self._retry_later(chat, row, failure)
        if row.kind != "answer" or row.body.is_taken_back:
            return self._finished(row, "dropped", _to_failure(failure))
        # The message cannot be edited any more: send its new content.
        return await self._resend(chat, row)

    async def _resend(self, chat: Chat, row: DeliveryRow) -> DeliveryRow:
        sent = await self._try(
            lambda: self._stats.channel.send(chat, row.body, delivery_key(chat.route, row) + "_anew")
        )
        if isinstance(sent, str):
            self._stats.count("sent")
            return replace(row, state="sent", platform_id=sent, failure=None, retry_at=0)
        if sent.final or sent.arrived is not False:
            return self._finished(row, "in_doubt" if sent.arrived is None else "dropped", _to_failure(sent))
        return await self._retry_later(chat, row, sent)

    async def _retry_later(
        self, chat: Chat, row: DeliveryRow, failure: ChannelFailure, doubts: int = 0
    ) -> DeliveryRow:
        """Return the delivery with its retry time and failure. A rate limit is not the message's fault."""
        self._stats.count("retried")
        may_be_alone = failure.retry_after_ms is None and row.attempts >= _HEALTH_CHECK_AFTER
        is_well = may_be_alone and (await self._stats.channel.health()).ok
        return replace(
            row, failure=self._poison.failure_to_record((chat.route, row.n), failure, is_well, row.failure),
            retry_at=self._retry_at(row, failure.retry_after_ms or 0, doubts),
        )  # fmt: skip

    async def _try(self, work: Callable[[], Awaitable[str]]) -> str | ChannelFailure:
        """Return the app's id of the message, or the failure."""
        channel = self._stats.channel
        try:
            platform_id = await work()
        except ChannelFailure as failure:
            self._stats.record_failure(str(failure))
            return failure
        except HoldfastError as error:
            self._stats.record_failure(str(error))
            return ChannelFailure(channel=channel.name, detail=str(error), final=True)
        except Exception as error:
            self._stats.record_fault("sending", error)
            return ChannelFailure(channel=channel.name, detail=type(error).__name__, arrived=None)
        self._stats.record_success()
        return platform_id

    async def _record_doubt(self, route: RouteRow, row: DeliveryRow) -> None:
        """Record a doubtful answer in the conversation, if it belongs to the chat's current one."""
        if row.kind != "answer" or not route.session_id or row.made_at < route.touched_at:
            return
        fact = f.DeliveryInDoubt(route.chat.channel, MessageId(row.source))
        with suppress(NoSuchSession):
            await self._store.append(Append(route.session_id, (fact,)))

    def _finished(self, row: DeliveryRow, state: _FinalState, failure: f.Failure | None) -> DeliveryRow:
        self._stats.count(state)
        if failure is not None and row.kind != "notice" and failure.code != _NOT_ALLOWED:
            self._stats.record_lost(failure.detail)
        return replace(row, state=state, failure=failure, retry_at=0)

    def _retry_at(self, row: DeliveryRow, after_ms: int, doubts: int = 0) -> int:
        delay_ms = min(self._retry_ms << min(row.attempts - 1, 20), DELIVERY_RETRY_MS_MAX)
        if doubts >= DELIVERY_DUPLICATES_MAX:
            # Each attempt may be another copy: this delay limits them to a dozen before the message expires.
            delay_ms = max(delay_ms, min(self._retry_ms << min(2 * doubts - 2, 40), DELIVERY_MS_MAX))
        # Jitter, so that deliveries that failed together are not retried together.
        delay_ms = round(delay_ms * (0.75 + self._rng() / 2))
        return self._clock.now_ms() + max(delay_ms, after_ms)


def _to_failure(failure: ChannelFailure) -> f.Failure:
    return f.Failure(failure.code, str(failure)[:500])


class PoisonMessages:
    """Detect messages of one channel that the app never accepts while it is healthy.

    The counts are of this process; the verdict is stored in each message's `failure`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures_while_healthy: dict[_DeliveryKey, tuple[int, Instant]] = {}

    def forget(self, name: _DeliveryKey) -> None:
        self._failures_while_healthy.pop(name, None)

    def failure_to_record(
        self, name: _DeliveryKey, failure: ChannelFailure, is_well: bool, before: Failure | None
    ) -> Failure:
        """Return the failure to record for a waiting message. `is_well`: the app's health check succeeded."""
        code = failure.code
        if not is_well:
            self.forget(name)
        else:
            now = self._clock.now_ms()
            tries, since = self._failures_while_healthy.get(name, (0, now))
            self._failures_while_healthy[name] = tries + 1, since
            is_long = tries + 1 >= POISON_MESSAGE_TRIES and now - since >= POISON_MESSAGE_MS
            # A verdict from before a restart stays valid while the app is healthy.
            if is_long or (before is not None and before.code == POISON_MESSAGE):
                code = POISON_MESSAGE
        return Failure(code, str(failure)[:500])
