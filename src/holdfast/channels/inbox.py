"""Process inbound updates: in order within a chat, concurrently across chats.

Processing is idempotent: the inbox first records which conversation an update is for, a message has an
idempotency key, and a command checks whether it already ran.
"""

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic

from msgspec import structs

from holdfast.aio.keyed_tasks import KeyedTasks
from holdfast.channels import button_action, router
from holdfast.channels.chat_actions import ChatActions
from holdfast.channels.chat_rate_limiter import ChatRateLimiter
from holdfast.channels.commands import ChannelCommands, CommandSources
from holdfast.channels.outbox import ChannelOutbox
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import ChannelFailure
from holdfast.channels.reply_plan import send_key, split_outgoing
from holdfast.channels.router import ChatLocation, InboundResult
from holdfast.channels.stats import ChannelStats
from holdfast.channels.supervise import ChannelWakeup, Sleep
from holdfast.domain import slash
from holdfast.domain.chats import FileRef, InboundRow, InboundUpdate, NewDelivery, RouteRow
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, SessionExists, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import HEAD_BYTES, check_start, clean_name, detect_media_type
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import (
    CHANNEL_FETCH_S_MAX,
    CHANNEL_FETCHES_AT_ONCE_MAX,
    INBOUND_BATCH_MAX,
    INBOUND_OPEN_MAX,
    INBOUND_TRIES_MAX,
    ROUTES_AT_ONCE_MAX,
)
from holdfast.engine.engine import Engine
from holdfast.store.ports import Store

POLL_S = 1.0
"""The poll interval for updates that another process stored."""
RETRY_S = 0.5
APOLOGY = "Sorry, something went wrong here, and this could not be taken up."
NOT_FETCHED = "What you sent could not be fetched. Please send it again."
WELCOME_TEXT = "You are let in. Say it again, please."
EMPTY = "I can read words, images, PDF files and text files; there was none of them in this."


class _PendingInbound:
    """An update in process. `reply_text` is set once processing is given up."""

    def __init__(self, row: InboundRow) -> None:
        self.row = row
        self.reply_text = ""
        self._tries = 0

    def record_failure(self, reply_text: str, final: bool = False) -> float:
        """Count a failure; return how long to wait before the next attempt."""
        self._tries += 1
        if final or self._tries >= INBOUND_TRIES_MAX:
            self.reply_text = reply_text
            # Only the reply is left to send; if that keeps failing, it must not spin.
            return RETRY_S if self._tries > INBOUND_TRIES_MAX else 0.0
        return RETRY_S * self._tries


class ChannelInbox:
    """The inbox of one channel."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        stats: ChannelStats,
        pairing: Pairing,
        outbox: ChannelOutbox,
        ids: IdGenerator,
        clock: Clock,
        sources: CommandSources,
        sleep: Sleep,
    ) -> None:
        self._store = store
        self._engine = engine
        self._stats = stats
        self._pairing = pairing
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._sleep = sleep
        self._commands = ChannelCommands(store, engine, outbox, ids, clock, sources)
        self._actions = ChatActions(store, engine)
        self._wakeup = ChannelWakeup()
        self._closed = False
        self._open_numbers: set[int] = set()
        """The numbers of updates in process: any update not yet loaded has a higher number."""
        self._queues: dict[str, deque[InboundRow]] = {}
        self._tasks = KeyedTasks("taking up")
        self._rate_limiter = ChatRateLimiter(monotonic)
        self._slots = asyncio.Semaphore(ROUTES_AT_ONCE_MAX)
        self._fetches = asyncio.Semaphore(CHANNEL_FETCHES_AT_ONCE_MAX)

    def notify(self) -> None:
        """Wake the inbox after an update was stored."""
        self._wakeup.notify()

    def close(self) -> None:
        """Start no more updates."""
        self._closed = True

    async def drained(self) -> None:
        """Return once no update is in process."""
        await self._tasks.wait_until_empty()

    async def run(self) -> None:
        """Process updates until cancelled; the next process resumes unfinished ones from the store."""
        self._closed = False
        self._open_numbers.clear()
        try:
            while True:
                while await self._gather():
                    pass
                await self._wakeup.wait(POLL_S)
        finally:
            await self._tasks.stop_all()
            self._queues.clear()

    async def _gather(self) -> bool:
        """Load stored updates; return whether there may be more."""
        # Starts after the updates in process, so that one busy chat does not hide the others.
        limit = min(INBOUND_BATCH_MAX, INBOUND_OPEN_MAX - len(self._open_numbers))
        rows = await self._store.received(self._stats.channel.name, limit, max(self._open_numbers, default=0))
        for row in rows:
            self._open_numbers.add(row.no)
            self._enqueue(row)
        return limit > 0 and len(rows) == limit

    def _enqueue(self, row: InboundRow) -> None:
        key = row.inbound.chat.route
        if key in self._queues:
            self._queues[key].append(row)
            return
        self._queues[key] = deque([row])
        self._tasks.start(key, self._drain_queue(key))

    async def _drain_queue(self, key: str) -> None:
        queue = self._queues[key]
        try:
            while queue and not self._closed:
                if wait_s := self._rate_limiter.wait_s(key):
                    await self._sleep(wait_s)
                pending = _PendingInbound(queue.popleft())
                if pending.row.inbound.moved_from:
                    await self._wait_for_chat(router.chat_before_move(pending.row.inbound).route)
                while (retry_s := await self._attempt(pending)) is not None:
                    # Without a slot, so that other chats continue.
                    await self._sleep(retry_s)
                self._open_numbers.discard(pending.row.no)
        finally:
            # No await since the last check, so nothing was enqueued in between.
            del self._queues[key]

    async def _wait_for_chat(self, key: str) -> None:
        """Return once another chat has no queued updates."""
        while key in self._queues and not self._closed:
            await self._sleep(RETRY_S)

    async def _attempt(self, pending: _PendingInbound) -> float | None:
        """Process one update; return the delay before a retry, or None once it is finished."""
        update_id = pending.row.inbound.update_id
        try:
            async with self._slots:
                await self._handle(pending)
            return None
        except StoreFault as fault:
            self._stats.record_failure(str(fault))
            return RETRY_S
        except ChannelFailure as failure:
            self._stats.record_failure(str(failure))
            wait_s = pending.record_failure(NOT_FETCHED, failure.final)
            return max(wait_s, (failure.retry_after_ms or 0) / 1000)
        except Exception as error:
            self._stats.record_fault(f"update {update_id}", error)
            wait_s = pending.record_failure(APOLOGY)
            self._stats.poisoned += bool(pending.reply_text)
            return wait_s

    async def _handle(self, pending: _PendingInbound) -> None:
        row, inbound = pending.row, pending.row.inbound
        if inbound.moved_from:
            await self._move(row)
            return
        if not inbound.is_for_agent or not await self._pairing.is_allowed(
            inbound.chat.channel, inbound.sender
        ):
            await self._store.finish(row.no)
            return
        await self._pairing.record_speaker(inbound)
        location = await router.locate_chat(self._store, inbound.chat)
        if location.route is not None:
            self._outbox.sync_route(location.route)
        if pending.reply_text:
            self._outbox.cancel_switch(location.key)
            await self._finish(row, location, router.text_reply(pending.reply_text))
            return
        try:
            result = await self._perform(row, location)
        except (StoreFault, ChannelFailure):
            raise
        except HoldfastError as refusal:
            # The refusal itself is the reply.
            result = router.text_reply(" ".join(filter(None, (str(refusal), refusal.advice))))
        if result is not None:
            await self._finish(row, location, result)

    async def _move(self, row: InboundRow) -> None:
        """Move the route of a replaced chat to its successor, which receives the remaining messages."""
        before = await self._store.route(router.chat_before_move(row.inbound).route)
        here = await self._store.route(row.inbound.chat.route)
        if before is None or (here is not None and here.session_id):
            await self._store.finish(row.no)
            return
        # Recorded first: a retry no longer finds the old chat's route.
        assigned = await self._store.assign(row.no, before.session_id, before.cursor)
        left = structs.replace(before, session_id=router.NO_SESSION, cursor=0)
        await self._store.put_route(left)
        self._outbox.chat_moved(left)
        sessions, now = before.sessions, self._clock.now_ms()
        at = RouteRow(row.inbound.chat, assigned.session_id, sessions, assigned.expect, now)
        await self._store.finish(row.no, (), at)
        self._outbox.chat_moved(at)

    async def _perform(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        """Carry out an update; return None if it was finished before."""
        inbound = row.inbound
        if inbound.press:
            press = button_action.parse_action(inbound.press)
            if press is None:
                return router.text_reply("This button is not known any more.")
            if press.verb == "welcome":
                return router.text_reply(WELCOME_TEXT)
            if press.verb == "switch":
                return await self._commands.switch_to(row, location, SessionId(press.target))
            return await self._actions.press(row, location, press)
        expanded = self._engine.expand_prompt(inbound.text)
        is_command = not inbound.files and expanded == inbound.text
        command = slash.parse_command(inbound.text) if is_command else None
        if command is not None:
            return await self._commands.perform(row, location, command)
        if not inbound.text.strip() and not inbound.files:
            return router.text_reply(EMPTY)
        if is_command and await self._reply(inbound, row, location):
            return InboundResult()
        return await self._send_turn(row, location)

    async def _reply(self, inbound: InboundUpdate, row: InboundRow, location: ChatLocation) -> bool:
        key = send_key(location.key, inbound.update_id)
        return await self._actions.reply(row, location, inbound.text, _inbound_text(inbound), key)

    async def _send_turn(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        """Send the message to the chat's conversation, or to a new one."""
        candidate_id = location.session_id or self._ids.session()
        assigned = await self._store.assign(row.no, candidate_id, location.head)
        if assigned.state == "done":
            return None
        session_id, inbound = assigned.session_id, row.inbound
        key = send_key(location.key, inbound.update_id)
        # On a retry, files may be gone and a prompt may have changed: the accepted turn counts.
        may_differ = inbound.files or self._engine.expand_prompt(inbound.text) != inbound.text
        if not may_differ or not await self._is_accepted(assigned, key):
            parts = await self._parts(inbound)
            if not assigned.expect:
                # An earlier attempt may have created it.
                with suppress(SessionExists):
                    await self._engine.create(f.SessionCreated(agent=inbound.chat.agent), session_id)
            # A successor may have replaced the conversation meanwhile.
            session_id = (await self._engine.send(session_id, parts, key)).session_id
        if location.session_id == session_id:
            return InboundResult()
        return InboundResult(move=router.moved_route(location, session_id, 0, self._clock.now_ms()))

    async def _is_accepted(self, assigned: InboundRow, key: str) -> bool:
        return await self._engine.find_accepted(assigned.session_id, key) is not None

    async def _parts(self, inbound: InboundUpdate) -> tuple[AnyPart, ...]:
        text = _inbound_text(structs.replace(inbound, text=self._engine.expand_prompt(inbound.text)))
        files = [await self._fetch(file) for file in inbound.files]
        return (Text(text), *files) if text else tuple(files)

    async def _fetch(self, file: FileRef) -> File:
        """Fetch a file and store it. Raises ChannelFailure, UnsupportedFile, TooLarge."""
        channel = self._stats.channel
        async with self._fetches:
            try:
                async with asyncio.timeout(CHANNEL_FETCH_S_MAX):
                    content = await channel.fetch(file)
            except TimeoutError:
                raise ChannelFailure(channel=channel.name, detail="a file took too long to fetch") from None
            check_start(content[:HEAD_BYTES], file.media_type)
            media_type = detect_media_type(content)
            blob = await self._store.put_blob(content)
        return File(blob, clean_name(self._engine.mask(file.name), media_type), media_type, len(content))

    async def _finish(self, row: InboundRow, location: ChatLocation, result: InboundResult) -> None:
        source, chars_max = f"update:{row.inbound.update_id}", self._stats.channel.abilities.text_chars_max
        bodies = [body for each in result.replies for body in split_outgoing(each, chars_max)]
        replies = [NewDelivery(source, n, "reply", body) for n, body in enumerate(bodies)]
        move = result.move
        if move is None and replies and location.route is None:
            # A reply needs a route, even without a conversation.
            move = RouteRow(location.chat, router.NO_SESSION, (), 0, self._clock.now_ms())
        # A delivery with an existing name replaces it, and edits the message if it was sent.
        await self._store.finish(row.no, (*result.changed, *replies), move)
        if move is not None:
            self._outbox.chat_moved(move)
        if replies or result.changed:
            self._outbox.notify()


def _inbound_text(inbound: InboundUpdate) -> str:
    """Return the text; in a group, with the sender's name."""
    is_one_of_many = inbound.text and inbound.chat.kind == "group" and inbound.sender_name
    return f"{inbound.sender_name}: {inbound.text}" if is_one_of_many else inbound.text
