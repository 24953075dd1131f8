"""Route a chat to its conversation, and to the conversation that succeeds it."""

import msgspec
from msgspec import structs

from holdfast.domain.chats import Chat, InboundUpdate, NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.clock import Instant
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import ROUTE_SESSIONS_MAX, SUCCESSORS_MAX
from holdfast.store.ports import Store

NO_SESSION = SessionId("")
"""The session id of a chat without a conversation."""


class ChatLocation(msgspec.Struct, frozen=True):
    """A chat, its conversation and the head of that conversation."""

    chat: Chat
    route: RouteRow | None
    session_id: SessionId
    head: Seq

    @property
    def key(self) -> str:
        return self.chat.route


class InboundResult(msgspec.Struct, frozen=True):
    """The result of an inbound update: the replies, and the chat's new route.

    `changed` are messages of the chat to edit.
    """

    replies: tuple[OutboundMessage, ...] = ()
    move: RouteRow | None = None
    changed: tuple[NewDelivery, ...] = ()


def text_reply(text: str) -> InboundResult:
    return InboundResult((OutboundMessage(text),))


def chat_before_move(inbound: InboundUpdate) -> Chat:
    """Return the chat that this update's chat replaces."""
    return structs.replace(inbound.chat, chat=inbound.moved_from, thread="")


async def locate_chat(store: Store, chat: Chat) -> ChatLocation:
    """Return the chat's location, after following successors. A deleted conversation counts as none."""
    route = await store.route(chat.route)
    if route is None or not route.session_id:
        return ChatLocation(chat, route, NO_SESSION, 0)
    ahead = await successor_route(store, route)
    if ahead is not None:
        await store.put_route(ahead)
        route = ahead
    try:
        return ChatLocation(chat, route, route.session_id, await store.head(route.session_id))
    except NoSuchSession:
        return ChatLocation(chat, route, NO_SESSION, 0)


def moved_route(location: ChatLocation, session_id: SessionId, cursor: Seq, at: Instant) -> RouteRow:
    """Return the chat's route to another conversation, to be followed from `cursor` on."""
    before = location.route.sessions if location.route is not None else ()
    known = tuple(each for each in before if each != session_id)
    sessions = (*known, session_id)[-ROUTE_SESSIONS_MAX:] if session_id else known
    return RouteRow(location.chat, session_id, sessions, cursor, at)


async def successor_route(store: Store, route: RouteRow) -> RouteRow | None:
    """Return the chat's route to the successor of its conversation, from its start; None if there is none."""
    at, seen = route.session_id, route.sessions
    for _ in range(SUCCESSORS_MAX):
        successor = await store.successor(at)
        if successor is None:
            break
        at, seen = successor, (*(each for each in seen if each != successor), successor)
    if at == route.session_id:
        return None
    return RouteRow(route.chat, at, seen[-ROUTE_SESSIONS_MAX:], 0, route.touched_at)
