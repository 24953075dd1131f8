"""Saying in chats what was planned: recorded before it is tried, receipted after, in order per chat.

An edit may be repeated. A first message whose outcome nobody knows is sent again where the app can tell that
it is the same one; elsewhere an answer or a question is sent again and says so, more slowly each time, and a
notice is let be. One that its app never takes is passed by in the end: see `Stubborn`.
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
"""How often it is looked for what is due, hint or no hint."""
_LOOK_AHEAD = 4
"""Times as many as are sent at once are looked up together."""
_HEALTH_CHECK_AFTER = 3
"""Tries after which a failure has the app itself asked how it is."""
_HAND_BACK_S = 2.0
_NOT_ALLOWED = "not_allowed"
_FinalState = Literal["in_doubt", "dropped"]
LOST_MESSAGE_NOTICE = "*One message could not be delivered here. It is in the conversation: see the page.*"
"""What a chat is told of a message that was let be."""
_DeliveryKey = tuple[str, int]


def delivery_key(route: str, row: DeliveryRow) -> str:
    """The name of a message, the same at each try: letters and digits, whatever the chat is called."""
    name = f"{route}\n{row.source}\n{row.piece}".encode()
    return "d_" + hashlib.blake2b(name, digest_size=16).hexdigest()


class DeliveryWorker:
    """All chats of one channel: several at the same time, each one message after the other."""

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
        """There may be something to deliver."""
        self._wakeup.notify()

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    async def drained(self) -> None:
        """Return once what is being sent is receipted."""
        await self._tasks.wait_until_empty()

    async def run(self) -> None:
        """Until cancelled; what is being sent then is handed back as begun, to whoever comes next."""
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
            # What is being sent is among what is found: it must not hide the others.
            limit = DELIVERIES_AT_ONCE_MAX * _LOOK_AHEAD + len(self._tasks)
            self._next = list(await self._store.due(self._stats.channel.name, self._clock.now_ms(), limit))
            self._stats.waiting = len(self._next)
            self._start_found()
        now = self._clock.now_ms()
        if abs(now - self._polled_at) >= POLL_S * 1000:
            self._polled_at = now
            await self._begin_held_up(now)

    def _start_found(self) -> bool:
        """Set going what was found. Whether all places are taken now."""
        now = asyncio.get_running_loop().time()
        while self._next and len(self._tasks) < DELIVERIES_AT_ONCE_MAX:
            key, row = self._next.pop(0)
            if key not in self._tasks and self._busy_until.get(key, 0.0) <= now:
                self._tasks.start(key, self._deliver(key, row))
        return len(self._tasks) >= DELIVERIES_AT_ONCE_MAX

    async def _begin_held_up(self, now: Instant) -> None:
        """What stands behind a message that its app never takes is tried in its stead."""
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
                # Another process has it; it is looked at again after a while, not at once.
                self._busy_until[key] = asyncio.get_running_loop().time() + POLL_S
            return
        self._busy_until.pop(key, None)
        after = await self._run_attempt(route, row)
        if after.retry_at:
            delay_s = max(0, after.retry_at - self._clock.now_ms()) / 1000
            asyncio.get_running_loop().call_later(delay_s, self.notify)

    async def _begin(self, key: str, n: int) -> DeliveryRow | None:
        """Record that it is tried now. Whoever is stopped meanwhile hands it back as it was found."""
        beginning = asyncio.ensure_future(self._store.begin_delivery(key, n))
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # No longer than that: a store that does not answer keeps nobody from stopping.
            with suppress(StoreFault, TimeoutError):
                async with asyncio.timeout(_HAND_BACK_S):
                    row = await beginning
                    if row is not None:
                        await self._store.settle_delivery(key, row)
            raise

    async def _run_attempt(self, route: RouteRow, row: DeliveryRow) -> DeliveryRow:
        """One try, and its outcome written down."""
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
        """Say what is behind a stubborn message. If only that gets through, the other is over."""
        route = await self._store.route(key)
        begun = await self._begin(key, behind.n) if route is not None else None
        if route is None or begun is None or (await self._run_attempt(route, begun)).state != "sent":
            return
        # That edits get through says nothing about messages: such a one is not even begun.
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
        """It may have been sent, and who began it is no longer at it: the next need not wait for them."""
        with suppress(StoreFault):
            state = "changed" if row.state == "changed" else "sending"
            await self._store.settle_delivery(key, replace(row, state=state, retry_at=0))

    async def _attempt(self, route: RouteRow, row: DeliveryRow) -> DeliveryRow:
        """Say it, as it was found, and what became of that."""
        if self._clock.now_ms() - row.made_at > DELIVERY_MS_MAX:
            return self._finished(row, "dropped", f.Failure("too_old", "It could not be said for too long."))
        if not await self._pairing.may_send_to(route.chat):
            return self._finished(row, "dropped", f.Failure(_NOT_ALLOWED, "Nobody there may speak any more."))
        if row.state == "changed":
            return await self._edit(route.chat, row)
        body, is_again = row.body, False
        if row.state == "sending" and not self._stats.channel.abilities.dedupes_sends:
            # Somebody began to send it, and nobody knows whether it arrived.
            doubts = self._doubts.get((route.chat.route, row.n), 0)
            if doubts <= 1:
                await self._record_doubt(route, row)
            if row.kind == "notice":
                return self._finished(row, "in_doubt", row.failure)
            if doubts >= DELIVERY_DUPLICATES_MAX and not (await self._stats.channel.health()).ok:
                # Nobody answers: another copy would be as doubtful as the last.
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
        # What may have been sent before is still so, whatever became of this try.
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
            # Repeating an edit does no harm, whatever became of it.
            return await self._retry_later(chat, row, failure)
        if row.kind != "answer" or row.body.is_taken_back:
            return self._finished(row, "dropped", _to_failure(failure))
        # It cannot be changed any more; what it says now is not to be lost.
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
        """It is tried again, and until then it says why. Who asks for patience has nothing against it."""
        self._stats.count("retried")
        may_be_alone = failure.retry_after_ms is None and row.attempts >= _HEALTH_CHECK_AFTER
        is_well = may_be_alone and (await self._stats.channel.health()).ok
        return replace(
            row, failure=self._poison.reason((chat.route, row.n), failure, is_well, row.failure),
            retry_at=self._retry_at(row, failure.retry_after_ms or 0, doubts),
        )  # fmt: skip

    async def _try(self, work: Callable[[], Awaitable[str]]) -> str | ChannelFailure:
        """What the app calls it, or why it does not know it."""
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
        """Note it in the conversation, if it is of the one that the chat is at."""
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
            # Each may be one more copy of the same: before it is let be, there are a dozen at most.
            delay_ms = max(delay_ms, min(self._retry_ms << min(2 * doubts - 2, 40), DELIVERY_MS_MAX))
        # Those that failed together do not come back together.
        delay_ms = round(delay_ms * (0.75 + self._rng() / 2))
        return self._clock.now_ms() + max(delay_ms, after_ms)


def _to_failure(failure: ChannelFailure) -> f.Failure:
    return f.Failure(failure.code, str(failure)[:500])


class PoisonMessages:
    """Of one channel. What is known is of this process; what comes of it is in each message's `failure`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alone: dict[_DeliveryKey, tuple[int, Instant]] = {}

    def forget(self, name: _DeliveryKey) -> None:
        self._alone.pop(name, None)

    def reason(
        self, name: _DeliveryKey, failure: ChannelFailure, is_well: bool, before: Failure | None
    ) -> Failure:
        """Why a message waits from now on. `is_well`: the app answered, whatever it made of this message."""
        code = failure.code
        if not is_well:
            self.forget(name)
        else:
            now = self._clock.now_ms()
            tries, since = self._alone.get(name, (0, now))
            self._alone[name] = tries + 1, since
            is_long = tries + 1 >= POISON_MESSAGE_TRIES and now - since >= POISON_MESSAGE_MS
            # What was known before a restart holds as long as nothing speaks against it.
            if is_long or (before is not None and before.code == POISON_MESSAGE):
                code = POISON_MESSAGE
        return Failure(code, str(failure)[:500])
