"""Where a chat is: from a chat to its conversation, and on to another."""

import msgspec
from msgspec import structs

from holdfast.domain.chats import Chat, Inbound, NewDelivery, Outgoing, RouteRow
from holdfast.domain.clock import Instant
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import ROUTE_SESSIONS_MAX, SUCCESSORS_MAX
from holdfast.store.ports import Store

NOWHERE = SessionId("")
"""Where a chat is that has no conversation (any more)."""


class Place(msgspec.Struct, frozen=True):
    """A chat, the conversation that it is at and how far that has come."""

    chat: Chat
    route: RouteRow | None
    session_id: SessionId
    head: Seq

    @property
    def key(self) -> str:
        return self.chat.route


class Done(msgspec.Struct, frozen=True):
    """What became of something that came: what is said to it, and where the chat is from now on.

    `changed` are messages of the chat that say something else since.
    """

    replies: tuple[Outgoing, ...] = ()
    move: RouteRow | None = None
    changed: tuple[NewDelivery, ...] = ()


def said(text: str) -> Done:
    return Done((Outgoing(text),))


def before_moving(inbound: Inbound) -> Chat:
    """The chat whose place the one that this came from has taken."""
    return structs.replace(inbound.chat, chat=inbound.moved_from, thread="")


async def find(store: Store, chat: Chat) -> Place:
    """Where the chat is now: where its conversation went on, if it did. One that was deleted is none."""
    route = await store.route(chat.route)
    if route is None or not route.session_id:
        return Place(chat, route, NOWHERE, 0)
    ahead = await followed(store, route)
    if ahead is not None:
        await store.put_route(ahead)
        route = ahead
    try:
        return Place(chat, route, route.session_id, await store.head(route.session_id))
    except NoSuchSession:
        return Place(chat, route, NOWHERE, 0)


def moved(place: Place, session_id: SessionId, cursor: Seq, at: Instant) -> RouteRow:
    """The chat at another conversation, of which it is told from `cursor` on."""
    before = place.route.sessions if place.route is not None else ()
    known = tuple(each for each in before if each != session_id)
    sessions = (*known, session_id)[-ROUTE_SESSIONS_MAX:] if session_id else known
    return RouteRow(place.chat, session_id, sessions, cursor, at)


async def followed(store: Store, route: RouteRow) -> RouteRow | None:
    """The chat where its conversation went on; None if it did not. It is told all of what waited there."""
    at, seen = route.session_id, route.sessions
    for _ in range(SUCCESSORS_MAX):
        successor = await store.successor(at)
        if successor is None:
            break
        at, seen = successor, (*(each for each in seen if each != successor), successor)
    if at == route.session_id:
        return None
    return RouteRow(route.chat, at, seen[-ROUTE_SESSIONS_MAX:], 0, route.touched_at)
