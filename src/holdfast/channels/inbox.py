"""What came from a chat app, worked off: per chat in order, chats side by side.

Whatever is done for something that came can be done again to the same effect: it is written down first which
conversation it is for, a message has a key, and a command looks whether it was carried out before.
"""

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic

from msgspec import structs

from holdfast.aio.keyed_tasks import KeyedTasks
from holdfast.channels import button_action, router
from holdfast.channels.answering import Answering
from holdfast.channels.commands import Asked, Commands
from holdfast.channels.outbox import Outbox
from holdfast.channels.pacing import Pace
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import ChannelFailure
from holdfast.channels.reply_plan import in_pieces, send_key
from holdfast.channels.router import Done, Place
from holdfast.channels.stats import Ledger
from holdfast.channels.supervise import Bell, Sleep
from holdfast.domain import slash
from holdfast.domain.chats import FileRef, Inbound, InboundRow, NewDelivery, RouteRow
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, SessionExists, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.files import HEAD_BYTES, check_start, clean_name, media_type_of
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import (
    FETCH_S_MAX,
    FETCHES_AT_ONCE_MAX,
    INBOUND_BATCH_MAX,
    INBOUND_OPEN_MAX,
    INBOUND_TRIES_MAX,
    ROUTES_AT_ONCE_MAX,
)
from holdfast.engine.engine import Engine
from holdfast.store.ports import Store

LOOK_S = 1.0
"""How soon is found what another process has taken in."""
RETRY_S = 0.5
APOLOGY = "Sorry, something went wrong here, and this could not be taken up."
NOT_FETCHED = "What you sent could not be fetched. Please send it again."
LET_IN = "You are let in. Say it again, please."
EMPTY = "I can read words, images, PDF files and text files; there was none of them in this."


class _Pending:
    """Something that is being taken up. `words` are what is said if it is given up."""

    def __init__(self, row: InboundRow) -> None:
        self.row = row
        self.words = ""
        self._tries = 0

    def failed(self, words: str, final: bool = False) -> float:
        """It did not work; how long to wait before the next try."""
        self._tries += 1
        if final or self._tries >= INBOUND_TRIES_MAX:
            self.words = words
            # What is left is to say so; whatever is wrong, that is not tried for ever at full speed.
            return RETRY_S if self._tries > INBOUND_TRIES_MAX else 0.0
        return RETRY_S * self._tries


class Inbox:
    """Of one channel."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        ledger: Ledger,
        pairing: Pairing,
        outbox: Outbox,
        ids: Ids,
        clock: Clock,
        asked: Asked,
        sleep: Sleep,
    ) -> None:
        self._store = store
        self._engine = engine
        self._ledger = ledger
        self._pairing = pairing
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._sleep = sleep
        self._commands = Commands(store, engine, outbox, ids, clock, asked)
        self._answering = Answering(store, engine)
        self._bell = Bell()
        self._closed = False
        self._held: set[int] = set()
        """What has come and is not dealt with: none of it is older than what is still to be found."""
        self._lanes: dict[str, deque[InboundRow]] = {}
        self._tasks = KeyedTasks("taking up")
        self._pace = Pace(monotonic)
        self._slots = asyncio.Semaphore(ROUTES_AT_ONCE_MAX)
        self._fetches = asyncio.Semaphore(FETCHES_AT_ONCE_MAX)

    def ring(self) -> None:
        """Something has come."""
        self._bell.ring()

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    async def drained(self) -> None:
        """Return once nothing is being worked off."""
        await self._tasks.drained()

    async def run(self) -> None:
        """Until cancelled; what is being worked off then is found as it is by whoever comes next."""
        self._closed = False
        self._held.clear()
        try:
            while True:
                while await self._gather():
                    pass
                await self._bell.wait(LOOK_S)
        finally:
            await self._tasks.stop_all()
            self._lanes.clear()

    async def _gather(self) -> bool:
        """Find what has come; whether there may be more."""
        # However much one chat has said, what the others said is found behind it.
        many = min(INBOUND_BATCH_MAX, INBOUND_OPEN_MAX - len(self._held))
        rows = await self._store.received(self._ledger.channel.name, many, max(self._held, default=0))
        for row in rows:
            self._held.add(row.no)
            self._line_up(row)
        return many > 0 and len(rows) == many

    def _line_up(self, row: InboundRow) -> None:
        key = row.inbound.chat.route
        if key in self._lanes:
            self._lanes[key].append(row)
            return
        self._lanes[key] = deque([row])
        self._tasks.begin(key, self._work_off(key))

    async def _work_off(self, key: str) -> None:
        lane = self._lanes[key]
        try:
            while lane and not self._closed:
                if wait_s := self._pace.wait_s(key):
                    await self._sleep(wait_s)
                pending = _Pending(lane.popleft())
                if pending.row.inbound.moved_from:
                    await self._heard_out(router.before_moving(pending.row.inbound).route)
                while (again_s := await self._attempt(pending)) is not None:
                    # Not while holding a place: others go on meanwhile.
                    await self._sleep(again_s)
                self._held.discard(pending.row.no)
        finally:
            # Nothing can line up between the last look and this: there is no await.
            del self._lanes[key]

    async def _heard_out(self, key: str) -> None:
        """Return once nothing waits any more that was said in another chat."""
        while key in self._lanes and not self._closed:
            await self._sleep(RETRY_S)

    async def _attempt(self, pending: _Pending) -> float | None:
        """Take one thing up. None: it is dealt with; else how long to wait before it is tried again."""
        update_id = pending.row.inbound.update_id
        try:
            async with self._slots:
                await self._take_up(pending)
            return None
        except StoreFault as fault:
            self._ledger.failed(str(fault))
            return RETRY_S
        except ChannelFailure as failure:
            self._ledger.failed(str(failure))
            wait_s = pending.failed(NOT_FETCHED, failure.final)
            return max(wait_s, (failure.retry_after_ms or 0) / 1000)
        except Exception as error:
            self._ledger.fault(f"update {update_id}", error)
            wait_s = pending.failed(APOLOGY)
            self._ledger.poisoned += bool(pending.words)
            return wait_s

    async def _take_up(self, pending: _Pending) -> None:
        row, inbound = pending.row, pending.row.inbound
        if inbound.moved_from:
            await self._move(row)
            return
        if not inbound.is_meant or not await self._pairing.is_allowed(inbound.chat.channel, inbound.sender):
            await self._store.finish(row.no)
            return
        await self._pairing.spoke(inbound)
        place = await router.find(self._store, inbound.chat)
        if place.route is not None:
            self._outbox.followed(place.route)
        if pending.words:
            self._outbox.stay(place.key)
            await self._finish(row, place, router.said(pending.words))
            return
        try:
            done = await self._perform(row, place)
        except (StoreFault, ChannelFailure):
            raise
        except HoldfastError as refusal:
            # It cannot be done, and why not is the answer.
            done = router.said(" ".join(filter(None, (str(refusal), refusal.advice))))
        if done is not None:
            await self._finish(row, place, done)

    async def _move(self, row: InboundRow) -> None:
        """A chat has taken the place of another: it is where that one was, and is told the rest."""
        before = await self._store.route(router.before_moving(row.inbound).route)
        here = await self._store.route(row.inbound.chat.route)
        if before is None or (here is not None and here.session_id):
            await self._store.finish(row.no)
            return
        # Written down first: whoever has to do it again finds the other chat nowhere.
        assigned = await self._store.assign(row.no, before.session_id, before.cursor)
        left = structs.replace(before, session_id=router.NOWHERE, cursor=0)
        await self._store.put_route(left)
        self._outbox.moved(left)
        sessions, now = before.sessions, self._clock.now_ms()
        at = RouteRow(row.inbound.chat, assigned.session_id, sessions, assigned.expect, now)
        await self._store.finish(row.no, (), at)
        self._outbox.moved(at)

    async def _perform(self, row: InboundRow, place: Place) -> Done | None:
        """What is done for it. None: it was dealt with before."""
        inbound = row.inbound
        if inbound.press:
            press = button_action.read(inbound.press)
            if press is None:
                return router.said("This button is not known any more.")
            if press.verb == "welcome":
                return router.said(LET_IN)
            if press.verb == "switch":
                return await self._commands.switch_to(row, place, SessionId(press.what))
            return await self._answering.press(row, place, press)
        says = self._engine.expand(inbound.text)
        is_command = not inbound.files and says == inbound.text
        command = slash.read(inbound.text) if is_command else None
        if command is not None:
            return await self._commands.perform(row, place, command)
        if not inbound.text.strip() and not inbound.files:
            return router.said(EMPTY)
        if is_command and await self._reply(inbound, row, place):
            return Done()
        return await self._say(row, place)

    async def _reply(self, inbound: Inbound, row: InboundRow, place: Place) -> bool:
        key = send_key(place.key, inbound.update_id)
        return await self._answering.reply(row, place, inbound.text, _words(inbound), key)

    async def _say(self, row: InboundRow, place: Place) -> Done | None:
        """Have it answered: in the conversation that the chat is at, or in a new one."""
        begins = place.session_id or self._ids.session()
        assigned = await self._store.assign(row.no, begins, place.head)
        if assigned.state == "done":
            return None
        session_id, inbound = assigned.session_id, row.inbound
        key = send_key(place.key, inbound.update_id)
        # Files may be gone from the app by now, and a prompt may say something else: what was kept is kept.
        may_differ = inbound.files or self._engine.expand(inbound.text) != inbound.text
        if not may_differ or not await self._is_kept(assigned, key):
            parts = await self._parts(inbound)
            if not assigned.expect:
                # It may be there by an earlier try.
                with suppress(SessionExists):
                    await self._engine.create(f.SessionCreated(agent=inbound.chat.agent), session_id)
            # It may have gone on in another one meanwhile.
            session_id = (await self._engine.send(session_id, parts, key)).session_id
        if place.session_id == session_id:
            return Done()
        return Done(move=router.moved(place, session_id, 0, self._clock.now_ms()))

    async def _is_kept(self, assigned: InboundRow, key: str) -> bool:
        return await self._engine.kept(assigned.session_id, key) is not None

    async def _parts(self, inbound: Inbound) -> tuple[AnyPart, ...]:
        text = _words(structs.replace(inbound, text=self._engine.expand(inbound.text)))
        files = [await self._fetch(file) for file in inbound.files]
        return (Text(text), *files) if text else tuple(files)

    async def _fetch(self, file: FileRef) -> File:
        """Have a file here. Raises ChannelFailure, UnsupportedFile, TooLarge."""
        channel = self._ledger.channel
        async with self._fetches:
            try:
                async with asyncio.timeout(FETCH_S_MAX):
                    content = await channel.fetch(file)
            except TimeoutError:
                raise ChannelFailure(channel=channel.name, detail="a file took too long to fetch") from None
            check_start(content[:HEAD_BYTES], file.media_type)
            media_type = media_type_of(content)
            blob = await self._store.put_blob(content)
        return File(blob, clean_name(self._engine.mask(file.name), media_type), media_type, len(content))

    async def _finish(self, row: InboundRow, place: Place, done: Done) -> None:
        source, chars_max = f"update:{row.inbound.update_id}", self._ledger.channel.abilities.text_chars_max
        bodies = [body for each in done.replies for body in in_pieces(each, chars_max)]
        replies = [NewDelivery(source, n, "reply", body) for n, body in enumerate(bodies)]
        move = done.move
        if move is None and replies and place.route is None:
            # A chat that has no conversation yet can be spoken to all the same.
            move = RouteRow(place.chat, router.NOWHERE, (), 0, self._clock.now_ms())
        # What is planned under a name that is there already is changed: edited, if it was sent.
        await self._store.finish(row.no, (*done.changed, *replies), move)
        if move is not None:
            self._outbox.moved(move)
        if replies or done.changed:
            self._outbox.ring()


def _words(inbound: Inbound) -> str:
    """What was said. In a group it matters who speaks."""
    is_one_of_many = inbound.text and inbound.chat.kind == "group" and inbound.sender_name
    return f"{inbound.sender_name}: {inbound.text}" if is_one_of_many else inbound.text
