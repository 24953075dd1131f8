"""Telling chats what happens in their conversations, while it happens.

One watcher for all chats of an app: a chat in whose conversation nothing happens costs nothing. While an
answer is worked on, one task follows it; what is for good is planned in the store, and an answer that is
being written is shown by edits, which are not kept: the last of them is.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from holdfast.aio.keyed_tasks import KeyedTasks
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import ChannelFailure
from holdfast.channels.reply_plan import Plan
from holdfast.channels.router import followed
from holdfast.channels.stats import Ledger
from holdfast.channels.streaming_reply import GOES_ON
from holdfast.channels.supervise import Bell
from holdfast.channels.taking_back import Restored, Undone
from holdfast.domain.chats import NewDelivery, Outgoing, RouteRow
from holdfast.domain.errors import HoldfastError, NoSuchSession, StoreFault
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.store.ports import Follower, Store

LOOK_S = 30.0
"""How often every chat is looked at, hint or no hint."""
FOLLOW_S = 5.0
"""How long a followed conversation may be silent before the store itself is asked."""
RETRY_S, RETRY_S_MAX = 0.5, 300.0
TYPING_S = 4.0
"""Apps show that somebody types for about so long."""
FIRST_WORDS_S = 0.4
"""How long an answer gathers words before the first are shown."""
_LIVE_S_MAX = 5.0
_TRIES_MAX = 5
_LOOK_BACK = 10
_TAKEN_BACK_MAX = 200
"""Of a chat and of its conversation, among how many messages those are looked for that were taken back."""
_ROUTES_MAX = 1_000_000


class _Following(msgspec.Struct):
    """A conversation as a chat is told of it just now."""

    route: RouteRow
    plan: Plan
    cursor: Seq


class Telling:
    """All chats of one channel. `planned` is called when there is something to deliver."""

    def __init__(self, store: Store, ledger: Ledger, pairing: Pairing, planned: Callable[[], None]) -> None:
        self._store = store
        self._ledger = ledger
        self._pairing = pairing
        self._planned = planned
        self._bell = Bell()
        self._routes: dict[str, RouteRow] = {}
        self._at: dict[SessionId, set[str]] = {}
        self._seen: dict[str, Seq] = {}
        self._left: set[str] = set()
        self._tasks = KeyedTasks("telling", self._ended)
        self._bells: dict[str, Bell] = {}
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        try:
            with self._store.watch(self._bell.ring) as watch:
                for known in (self._routes, self._at, self._seen, self._left):
                    known.clear()
                # Watched before it is read: what changes in between is told too.
                for route in await self._store.routes(self._ledger.channel.name, limit=_ROUTES_MAX):
                    # One that has moved meanwhile is known better than it was read.
                    if route.chat.route not in self._routes:
                        self._keep(route)
                await self._look()
                while True:
                    rung = await self._bell.wait(LOOK_S)
                    changed = watch.take() if rung else None
                    if changed is None:
                        await self._look()
                    for session_id in changed or ():
                        self._changed(session_id)
        finally:
            await self._tasks.stop_all()

    def moved(self, route: RouteRow) -> None:
        """A chat is at another conversation from now on."""
        self._keep(route)
        self._left.discard(route.chat.route)
        self._tell(route.chat.route)

    def followed(self, route: RouteRow) -> None:
        """The same, if that is news."""
        known = self._routes.get(route.chat.route)
        if known is not None and known.session_id != route.session_id:
            self.moved(route)

    async def leave(self, key: str) -> None:
        """A chat is about to turn to another conversation: what it was shown of this one ends well."""
        self._left.add(key)
        await self._tasks.stop(key)
        for _ in range(_TRIES_MAX):
            route = await self._store.route(key)
            if route is None or not route.session_id:
                return
            # What the task had begun to plan is planned once this is: writes keep their order.
            if not await self._store.plan(key, route.session_id, route.cursor, route.cursor, ()):
                continue
            following = self._begin(route)
            with suppress(NoSuchSession):
                await self._catch_up(following)
            fresh = [*following.plan.take(), *following.plan.leave()]
            if await self._store.plan(key, route.session_id, route.cursor, route.cursor, fresh):
                self._planned()
                return

    def stay(self, key: str) -> None:
        """It did not turn away after all."""
        self._left.discard(key)
        self._tell(key)

    def _keep(self, route: RouteRow) -> None:
        key = route.chat.route
        before = self._routes.get(key)
        chats = self._at.get(before.session_id) if before is not None else None
        if before is not None and chats is not None:
            chats.discard(key)
            if not chats:
                del self._at[before.session_id]
        self._routes[key] = route
        self._seen.pop(key, None)
        if route.session_id:
            self._at.setdefault(route.session_id, set()).add(key)

    def _changed(self, session_id: SessionId) -> None:
        for key in tuple(self._at.get(session_id, ())):
            self._tell(key)

    async def _look(self) -> None:
        """At every chat: a hint may be lost, a look may not."""
        for key, route in list(self._routes.items()):
            if not route.session_id or key in self._tasks:
                continue
            try:
                if await self._store.head(route.session_id) > self._seen.get(key, route.cursor):
                    self._tell(key)
            except NoSuchSession:
                # Told once that it is gone, it has nothing more to be told.
                self._at.pop(route.session_id, None)
                self._routes.pop(key, None)
                await self._end_deleted(self._begin(route))

    def _tell(self, key: str) -> None:
        if key in self._bells:
            self._bells[key].ring()
        elif key not in self._left and key in self._routes:
            self._bells[key] = Bell()
            self._tasks.begin(key, self._follow(key))

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        rung = self._bells.pop(key).is_rung
        if task.cancelled():
            return
        if rung:
            # Something happened after it had looked for the last time.
            self._tell(key)
        error = task.exception()
        if error is None:
            self._failures.pop(key, None)
            return
        if not isinstance(error, HoldfastError):
            self._ledger.fault(f"telling {key}", error)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(RETRY_S * (1 << min(failures, 20)), RETRY_S_MAX)
        asyncio.get_running_loop().call_later(delay_s, self._look_again, key)

    def _look_again(self, key: str) -> None:
        # Not after the end: whoever serves next looks at everything.
        if self._ledger.serving:
            self._tell(key)

    async def _follow(self, key: str) -> None:
        """Tell one chat until nothing is being worked on in its conversation."""
        route = await self._store.route(key)
        if route is None or not route.session_id:
            return
        if not await self._pairing.may_hear(route.chat):
            # Nobody there may speak any more: it has no conversation, also for whoever is let in again.
            nowhere = replace(route, session_id=SessionId(""), sessions=(), cursor=0)
            await self._store.put_route(nowhere)
            self._keep(nowhere)
            return
        following = self._begin(route)
        bell = self._bells[key]
        live = _Live(self._store, self._ledger, self._pairing, following, self._planned)
        with self._store.follow(route.session_id, route.cursor, bell.ring) as follower:
            heard = _now()
            while await self._take_in(following, follower):
                if following.plan.has_moved:
                    await self._follow_on(key)
                    return
                if not following.plan.is_working:
                    self._seen[key] = following.plan.seen
                    return
                if not await live.step():
                    return
                if await bell.wait(live.wait_s()):
                    heard = _now()
                elif _now() - heard > FOLLOW_S:
                    heard = _now()
                    follower.look()

    async def _follow_on(self, key: str) -> bool:
        """Where the conversation goes on in another one, the chat does too; whether that is so."""
        route = await self._store.route(key)
        ahead = await followed(self._store, route) if route is not None else None
        if ahead is None:
            return False
        await self._store.put_route(ahead)
        self._keep(ahead)
        self._tell(key)
        return True

    async def _take_in(self, following: _Following, follower: Follower) -> bool:
        """Everything that there is now. False if there will be no more: told elsewhere, or deleted."""
        try:
            while events := await follower.take():
                for event in events:
                    following.plan.add(event)
        except NoSuchSession:
            await self._end_deleted(following)
            return False
        return await self._note(following)

    async def _end_deleted(self, following: _Following) -> None:
        """The conversation is no more: what was being written of it does not seem to go on."""
        key, fresh = following.route.chat.route, following.plan.take()
        if await self._follow_on(key):
            return
        for row in await self._store.deliveries(key, _LOOK_BACK):
            if row.kind == "answer" and row.body.text.endswith(GOES_ON):
                words = row.body.text.removesuffix(GOES_ON) + "\n\n*This conversation was deleted.*"
                fresh.append(NewDelivery(row.source, row.piece, row.kind, Outgoing(words)))
        at, cursor = following.route.session_id, following.cursor
        if fresh and await self._store.plan(key, at, cursor, cursor, fresh):
            self._planned()

    async def _note(self, following: _Following) -> bool:
        """Plan what is new. False: the chat is somewhere else."""
        plan, key = following.plan, following.route.chat.route
        fresh, done = plan.take(), plan.done
        for removal in plan.take_removals():
            fresh += await self._edited(following, removal, fresh)
        if not fresh and done == following.cursor:
            return True
        if not await self._store.plan(key, following.route.session_id, following.cursor, done, fresh):
            return False
        following.cursor = done
        if fresh:
            self._planned()
        return True

    async def _edited(
        self, following: _Following, removal: Undone | Restored, fresh: list[NewDelivery]
    ) -> list[NewDelivery]:
        """Return the chat's messages about turns that were removed or restored, as they read from now on."""
        if not self._ledger.channel.abilities.edits:
            return []
        route = following.route
        page = await self._store.messages(route.session_id, None, _TAKEN_BACK_MAX)
        turns = {str(each.row.id): each.row.turn for each in page.messages}
        rows = await self._store.deliveries(route.chat.route, _TAKEN_BACK_MAX)
        told = [NewDelivery(row.source, row.piece, row.kind, row.body) for row in rows]
        known = {(each.source, each.piece): each for each in (*told, *fresh)}
        return removal.among(list(known.values()), turns)

    def _begin(self, route: RouteRow) -> _Following:
        abilities = self._ledger.channel.abilities
        plan = Plan(
            route.chat.route, route.session_id, route.cursor, abilities.text_chars_max, abilities.buttons
        )
        return _Following(route, plan, route.cursor)

    async def _catch_up(self, following: _Following) -> None:
        plan, route = following.plan, following.route
        while events := await self._store.read(route.session_id, plan.seen, READ_EVENTS_MAX):
            for event in events:
                plan.add(event)
        for message_id in plan.unfinished:
            piece = 0
            while await self._store.delivery(route.chat.route, message_id, piece) is not None:
                plan.was_begun(message_id, piece)
                piece += 1


class _Live:
    """Shows an answer while it is being written, and that it is being worked on. Nothing of it is kept."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        pairing: Pairing,
        following: _Following,
        planned: Callable[[], None],
    ) -> None:
        self._store = store
        self._pairing = pairing
        self._planned = planned
        self._ledger = ledger
        self._following = following
        self._every_s = ledger.channel.abilities.edit_every_ms / 1000
        self._shown: NewDelivery | None = None
        self._platform_id = ""
        self._words_at = 0.0
        self._edit_at = 0.0
        self._typing_at = 0.0

    def wait_s(self) -> float:
        """How long there is nothing to do unless something comes."""
        now = _now()
        due = [FOLLOW_S, self._typing_at - now]
        if self._words_at:
            due.append(self._words_at - now)
        if self._is_behind():
            due.append(self._edit_at - now)
        return max(0.02, min(due))

    async def step(self) -> bool:
        """What is due now. False: the chat is somewhere else."""
        channel, plan = self._ledger.channel, self._following.plan
        if channel.abilities.edits and not await self._begin_writing():
            return False
        written = plan.being_written()
        if written is not None:
            if _now() >= self._edit_at and self._is_behind():
                await self._edit(written)
        elif _now() >= self._typing_at:
            self._typing_at = _now() + TYPING_S
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_LIVE_S_MAX):
                    await channel.show_typing(self._following.route.chat)
        return True

    async def _begin_writing(self) -> bool:
        """Plan the first words of an answer, or of its next piece, once there are some."""
        plan, now = self._following.plan, _now()
        if not plan.has_words:
            self._words_at = 0.0
            return True
        if not self._words_at:
            self._words_at = now + min(FIRST_WORDS_S, self._every_s)
        if now < self._words_at:
            return True
        self._words_at = 0.0
        fresh = plan.begin_writing()
        self._edit_at, self._shown, self._platform_id = now + self._every_s, fresh[-1], ""
        return await self._plan(fresh)

    async def _plan(self, fresh: list[NewDelivery]) -> bool:
        route, cursor = self._following.route, self._following.cursor
        if not await self._store.plan(route.chat.route, route.session_id, cursor, cursor, fresh):
            return False
        self._planned()
        return True

    def _is_behind(self) -> bool:
        written = self._following.plan.being_written()
        return written is not None and written != self._shown

    async def _edit(self, written: NewDelivery) -> None:
        self._edit_at = _now() + self._every_s
        chat = self._following.route.chat
        if self._shown is None or (self._shown.source, self._shown.piece) != (written.source, written.piece):
            self._platform_id = ""
        if not self._platform_id:
            row = await self._store.delivery(chat.route, written.source, written.piece)
            if row is None or row.state != "sent":
                return
            self._platform_id = row.platform_id
        if not await self._pairing.may_hear(chat):
            return
        try:
            async with asyncio.timeout(_LIVE_S_MAX):
                await self._ledger.channel.edit(chat, self._platform_id, written.body)
            self._shown = written
        except ChannelFailure as failure:
            # The next edit says more anyway; but not before the app wants to hear it.
            self._edit_at += (failure.retry_after_ms or 0) / 1000
        except (TimeoutError, StoreFault):
            pass


def _now() -> float:
    return asyncio.get_running_loop().time()
