"""Follow conversations and plan their messages for chats as events occur.

One watcher serves all chats of an app, so an idle chat costs nothing. During a run, one task follows the
conversation. Final messages are planned in the store; an answer in progress is shown by edits, of which only
the last is stored.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from holdfast.aio.keyed_tasks import KeyedTasks
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import ChannelFailure
from holdfast.channels.reply_plan import ReplyPlan
from holdfast.channels.router import successor_route
from holdfast.channels.stats import ChannelStats
from holdfast.channels.streaming_reply import CONTINUATION_MARK
from holdfast.channels.supervise import ChannelWakeup
from holdfast.channels.turn_removals import RemovedTurns, RestoredTurns
from holdfast.domain.chats import NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.errors import HoldfastError, NoSuchSession, StoreFault
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.store.ports import SessionFollower, Store

POLL_S = 30.0
"""The poll interval for all chats, since a notification may be lost."""
FOLLOW_S = 5.0
"""The silence after which a follower reads the store."""
RETRY_S, RETRY_S_MAX = 0.5, 300.0
TYPING_S = 4.0
"""Apps show a typing indicator for about this long."""
FIRST_TEXT_DELAY_S = 0.4
"""The delay of the first text of an answer, so that it contains more than a word."""
_LIVE_S_MAX = 5.0
_ATTEMPTS_MAX = 5
_RECENT_DELIVERIES_MAX = 10
_REMOVAL_MESSAGES_MAX = 200
"""The newest messages that are searched for answers of removed turns."""
_ROUTES_MAX = 1_000_000


class _FollowedChat(msgspec.Struct):
    """A chat's route, its plan and the position up to which the plan is saved."""

    route: RouteRow
    plan: ReplyPlan
    cursor: Seq


class ConversationFollower:
    """The followers of one channel's chats. `notify_delivery` is called after a delivery was planned."""

    def __init__(
        self, store: Store, stats: ChannelStats, pairing: Pairing, notify_delivery: Callable[[], None]
    ) -> None:
        self._store = store
        self._stats = stats
        self._pairing = pairing
        self._notify_delivery = notify_delivery
        self._wakeup = ChannelWakeup()
        self._routes: dict[str, RouteRow] = {}
        self._chats_by_session: dict[SessionId, set[str]] = {}
        self._seen: dict[str, Seq] = {}
        self._switching: set[str] = set()
        self._tasks = KeyedTasks("telling", self._ended)
        self._wakeups: dict[str, ChannelWakeup] = {}
        self._failures: dict[str, int] = {}

    async def run(self) -> None:
        """Follow conversations until cancelled."""
        try:
            with self._store.watch(self._wakeup.notify) as watch:
                for known in (self._routes, self._chats_by_session, self._seen, self._switching):
                    known.clear()
                # Watches before it reads, so that no change in between is missed.
                for route in await self._store.routes(self._stats.channel.name, limit=_ROUTES_MAX):
                    # A route that changed meanwhile is newer than this read.
                    if route.chat.route not in self._routes:
                        self._set_route(route)
                await self._poll_all()
                while True:
                    was_notified = await self._wakeup.wait(POLL_S)
                    changed = watch.take_changed() if was_notified else None
                    if changed is None:
                        await self._poll_all()
                    for session_id in changed or ():
                        self._changed(session_id)
        finally:
            await self._tasks.stop_all()

    def chat_moved(self, route: RouteRow) -> None:
        """Follow a chat's new route."""
        self._set_route(route)
        self._switching.discard(route.chat.route)
        self._wake_chat(route.chat.route)

    def sync_route(self, route: RouteRow) -> None:
        """Follow a chat's route if it differs from the known one."""
        known = self._routes.get(route.chat.route)
        if known is not None and known.session_id != route.session_id:
            self.chat_moved(route)

    async def prepare_switch(self, key: str) -> None:
        """Finish the messages of a chat's conversation before the chat switches to another."""
        self._switching.add(key)
        await self._tasks.stop(key)
        for _ in range(_ATTEMPTS_MAX):
            route = await self._store.route(key)
            if route is None or not route.session_id:
                return
            # Writes keep their order: after this one, what the stopped task planned is stored.
            if not await self._store.plan(key, route.session_id, route.cursor, route.cursor, ()):
                continue
            following = self._start_following(route)
            with suppress(NoSuchSession):
                await self._catch_up(following)
            fresh = [*following.plan.take_deliveries(), *following.plan.take_switch_deliveries()]
            if await self._store.plan(key, route.session_id, route.cursor, route.cursor, fresh):
                self._notify_delivery()
                return

    def cancel_switch(self, key: str) -> None:
        """Resume following after a switch that did not happen."""
        self._switching.discard(key)
        self._wake_chat(key)

    def _set_route(self, route: RouteRow) -> None:
        key = route.chat.route
        before = self._routes.get(key)
        chats = self._chats_by_session.get(before.session_id) if before is not None else None
        if before is not None and chats is not None:
            chats.discard(key)
            if not chats:
                del self._chats_by_session[before.session_id]
        self._routes[key] = route
        self._seen.pop(key, None)
        if route.session_id:
            self._chats_by_session.setdefault(route.session_id, set()).add(key)

    def _changed(self, session_id: SessionId) -> None:
        for key in tuple(self._chats_by_session.get(session_id, ())):
            self._wake_chat(key)

    async def _poll_all(self) -> None:
        """Check every chat's head, since a notification may be lost."""
        for key, route in list(self._routes.items()):
            if not route.session_id or key in self._tasks:
                continue
            try:
                if await self._store.head(route.session_id) > self._seen.get(key, route.cursor):
                    self._wake_chat(key)
            except NoSuchSession:
                # The chat is notified once that its conversation is gone.
                self._chats_by_session.pop(route.session_id, None)
                self._routes.pop(key, None)
                await self._end_deleted(self._start_following(route))

    def _wake_chat(self, key: str) -> None:
        if key in self._wakeups:
            self._wakeups[key].notify()
        elif key not in self._switching and key in self._routes:
            self._wakeups[key] = ChannelWakeup()
            self._tasks.start(key, self._follow(key))

    def _ended(self, key: str, task: "asyncio.Task[None]") -> None:
        was_notified = self._wakeups.pop(key).is_set
        if task.cancelled():
            return
        if was_notified:
            # An event arrived after the task's last read.
            self._wake_chat(key)
        error = task.exception()
        if error is None:
            self._failures.pop(key, None)
            return
        if not isinstance(error, HoldfastError):
            self._stats.record_fault(f"telling {key}", error)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(RETRY_S * (1 << min(failures, 20)), RETRY_S_MAX)
        asyncio.get_running_loop().call_later(delay_s, self._retry_chat, key)

    def _retry_chat(self, key: str) -> None:
        # Not after the stop: the next process to serve reads everything.
        if self._stats.serving:
            self._wake_chat(key)

    async def _follow(self, key: str) -> None:
        """Follow one chat's conversation until no run is in progress."""
        route = await self._store.route(key)
        if route is None or not route.session_id:
            return
        if not await self._pairing.may_send_to(route.chat):
            # No speaker is allowed any more; the detached chat starts anew if one is allowed again.
            detached = replace(route, session_id=SessionId(""), sessions=(), cursor=0)
            await self._store.put_route(detached)
            self._set_route(detached)
            return
        following = self._start_following(route)
        wakeup = self._wakeups[key]
        live = _LiveReply(self._store, self._stats, self._pairing, following, self._notify_delivery)
        with self._store.follow(route.session_id, route.cursor, wakeup.notify) as follower:
            last_event_at = _now()
            while await self._read_events(following, follower):
                if following.plan.has_successor:
                    await self._follow_successor(key)
                    return
                if not following.plan.is_working:
                    self._seen[key] = following.plan.seen
                    return
                if not await live.step():
                    return
                if await wakeup.wait(live.wait_s()):
                    last_event_at = _now()
                elif _now() - last_event_at > FOLLOW_S:
                    last_event_at = _now()
                    follower.resync()

    async def _follow_successor(self, key: str) -> bool:
        """Move the chat to the successor of its conversation; return whether there is one."""
        route = await self._store.route(key)
        successor = await successor_route(self._store, route) if route is not None else None
        if successor is None:
            return False
        await self._store.put_route(successor)
        self._set_route(successor)
        self._wake_chat(key)
        return True

    async def _read_events(self, following: _FollowedChat, follower: SessionFollower) -> bool:
        """Read and plan all new events; return False if the chat moved or its conversation was deleted."""
        try:
            while events := await follower.next_events():
                for event in events:
                    following.plan.add(event)
        except NoSuchSession:
            await self._end_deleted(following)
            return False
        return await self._save_plan(following)

    async def _end_deleted(self, following: _FollowedChat) -> None:
        """Mark unfinished answers of a deleted conversation as ended, or follow its successor."""
        key, fresh = following.route.chat.route, following.plan.take_deliveries()
        if await self._follow_successor(key):
            return
        for row in await self._store.deliveries(key, _RECENT_DELIVERIES_MAX):
            if row.kind == "answer" and row.body.text.endswith(CONTINUATION_MARK):
                text = row.body.text.removesuffix(CONTINUATION_MARK) + "\n\n*This conversation was deleted.*"
                fresh.append(NewDelivery(row.source, row.piece, row.kind, OutboundMessage(text)))
        at, cursor = following.route.session_id, following.cursor
        if fresh and await self._store.plan(key, at, cursor, cursor, fresh):
            self._notify_delivery()

    async def _save_plan(self, following: _FollowedChat) -> bool:
        """Save new deliveries; return False if the chat has moved."""
        plan, key = following.plan, following.route.chat.route
        fresh, done = plan.take_deliveries(), plan.completed_seq
        for removal in plan.take_removals():
            fresh += await self._removal_edits(following, removal, fresh)
        if not fresh and done == following.cursor:
            return True
        if not await self._store.plan(key, following.route.session_id, following.cursor, done, fresh):
            return False
        following.cursor = done
        if fresh:
            self._notify_delivery()
        return True

    async def _removal_edits(
        self, following: _FollowedChat, removal: RemovedTurns | RestoredTurns, fresh: list[NewDelivery]
    ) -> list[NewDelivery]:
        """Return the edits of the chat's answers whose turns were removed or restored."""
        if not self._stats.channel.abilities.edits:
            return []
        route = following.route
        page = await self._store.messages(route.session_id, None, _REMOVAL_MESSAGES_MAX)
        turns = {str(each.row.id): each.row.turn for each in page.messages}
        rows = await self._store.deliveries(route.chat.route, _REMOVAL_MESSAGES_MAX)
        delivered = [NewDelivery(row.source, row.piece, row.kind, row.body) for row in rows]
        known = {(each.source, each.piece): each for each in (*delivered, *fresh)}
        return removal.marked_answers(list(known.values()), turns)

    def _start_following(self, route: RouteRow) -> _FollowedChat:
        abilities = self._stats.channel.abilities
        plan = ReplyPlan(
            route.chat.route, route.session_id, route.cursor, abilities.text_chars_max, abilities.buttons
        )
        return _FollowedChat(route, plan, route.cursor)

    async def _catch_up(self, following: _FollowedChat) -> None:
        plan, route = following.plan, following.route
        while events := await self._store.read(route.session_id, plan.seen, READ_EVENTS_MAX):
            for event in events:
                plan.add(event)
        for message_id in plan.unfinished:
            piece = 0
            while await self._store.delivery(route.chat.route, message_id, piece) is not None:
                plan.mark_shown(message_id, piece)
                piece += 1


class _LiveReply:
    """Show an answer in progress by edits, and a typing indicator. Store nothing of either."""

    def __init__(
        self,
        store: Store,
        stats: ChannelStats,
        pairing: Pairing,
        following: _FollowedChat,
        notify_delivery: Callable[[], None],
    ) -> None:
        self._store = store
        self._pairing = pairing
        self._notify_delivery = notify_delivery
        self._stats = stats
        self._following = following
        self._every_s = stats.channel.abilities.edit_every_ms / 1000
        self._shown: NewDelivery | None = None
        self._platform_id = ""
        self._first_text_at = 0.0
        self._edit_at = 0.0
        self._typing_at = 0.0

    def wait_s(self) -> float:
        """Return the time until the next step, unless an event arrives."""
        now = _now()
        due = [FOLLOW_S, self._typing_at - now]
        if self._first_text_at:
            due.append(self._first_text_at - now)
        if self._is_behind():
            due.append(self._edit_at - now)
        return max(0.02, min(due))

    async def step(self) -> bool:
        """Do what is due now; return False if the chat has moved."""
        channel, plan = self._stats.channel, self._following.plan
        if channel.abilities.edits and not await self._plan_first_text():
            return False
        delivery = plan.live_delivery()
        if delivery is not None:
            if _now() >= self._edit_at and self._is_behind():
                await self._edit(delivery)
        elif _now() >= self._typing_at:
            self._typing_at = _now() + TYPING_S
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(_LIVE_S_MAX):
                    await channel.show_typing(self._following.route.chat)
        return True

    async def _plan_first_text(self) -> bool:
        """Plan the first text of an answer, or of its next piece, once there is some."""
        plan, now = self._following.plan, _now()
        if not plan.has_unseen_text:
            self._first_text_at = 0.0
            return True
        if not self._first_text_at:
            self._first_text_at = now + min(FIRST_TEXT_DELAY_S, self._every_s)
        if now < self._first_text_at:
            return True
        self._first_text_at = 0.0
        fresh = plan.take_first_text()
        self._edit_at, self._shown, self._platform_id = now + self._every_s, fresh[-1], ""
        return await self._plan(fresh)

    async def _plan(self, fresh: list[NewDelivery]) -> bool:
        route, cursor = self._following.route, self._following.cursor
        if not await self._store.plan(route.chat.route, route.session_id, cursor, cursor, fresh):
            return False
        self._notify_delivery()
        return True

    def _is_behind(self) -> bool:
        delivery = self._following.plan.live_delivery()
        return delivery is not None and delivery != self._shown

    async def _edit(self, delivery: NewDelivery) -> None:
        self._edit_at = _now() + self._every_s
        chat = self._following.route.chat
        if self._shown is None or (self._shown.source, self._shown.piece) != (
            delivery.source,
            delivery.piece,
        ):
            self._platform_id = ""
        if not self._platform_id:
            row = await self._store.delivery(chat.route, delivery.source, delivery.piece)
            if row is None or row.state != "sent":
                return
            self._platform_id = row.platform_id
        if not await self._pairing.may_send_to(chat):
            return
        try:
            async with asyncio.timeout(_LIVE_S_MAX):
                await self._stats.channel.edit(chat, self._platform_id, delivery.body)
            self._shown = delivery
        except ChannelFailure as failure:
            # The next edit includes this text anyway; it waits as long as the app asks.
            self._edit_at += (failure.retry_after_ms or 0) / 1000
        except (TimeoutError, StoreFault):
            pass


def _now() -> float:
    return asyncio.get_running_loop().time()
