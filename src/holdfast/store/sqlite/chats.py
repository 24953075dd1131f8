"""Inbound updates, routes and deliveries of chat apps: their rows, and when they may change."""

from collections.abc import Callable, Sequence
from typing import Any

import apsw
import msgspec
from msgspec.structs import replace

from holdfast.domain.chats import (
    POISON_MESSAGE,
    BlockedDelivery,
    Chat,
    DeliveryRow,
    InboundRow,
    InboundUpdate,
    NewDelivery,
    RouteRow,
)
from holdfast.domain.clock import Instant
from holdfast.domain.ids import ProcessId, Seq, SessionId
from holdfast.domain.limits import CHANNEL_LEASE_MS
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import Columns, execute, fetch_all, fetch_one, fetch_value

_DELIVERIES = Columns(DeliveryRow)


def receive(tx: Tx, inbound: Sequence[InboundUpdate]) -> bool:
    new_count = 0
    for each in inbound:
        body = msgspec.json.encode(each).decode()
        execute(tx.db, "insert_inbound", each.chat.channel, each.update_id, body, tx.at)
        new_count += tx.db.changes()
    return new_count > 0


def received(db: apsw.Connection, channel: str, limit: int, after: int) -> Sequence[InboundRow]:
    return [_inbound(row) for row in fetch_all(db, "open_inbound", channel, after, limit)]


def assign(tx: Tx, no: int, session_id: SessionId, expect: Seq) -> InboundRow:
    execute(tx.db, "assign_inbound", session_id, expect, no)
    row = fetch_one(tx.db, "get_inbound", no)
    assert row is not None, f"{no} was received"
    return _inbound(row)


def finish(tx: Tx, no: int, replies: Sequence[NewDelivery], move: RouteRow | None) -> None:
    row = fetch_one(tx.db, "get_inbound", no)
    if row is None or row[2] == "done":
        return
    execute(tx.db, "finish_inbound", no)
    if move is not None:
        put_route(tx, move)
    route = _inbound(row).inbound.chat.route
    for each in replies:
        _plan_delivery(tx, route, each)


def put_route(tx: Tx, route: RouteRow) -> None:
    execute(
        tx.db, "put_route", route.chat.route, route.chat.channel, msgspec.json.encode(route.chat).decode(),
        route.session_id, msgspec.json.encode(route.sessions).decode(), route.cursor, route.touched_at,
    )  # fmt: skip


def route(db: apsw.Connection, key: str) -> RouteRow | None:
    row = fetch_one(db, "get_route", key)
    return _route(row) if row is not None else None


def routes(db: apsw.Connection, channel: str, session_id: str, limit: int) -> Sequence[RouteRow]:
    if session_id:
        found = fetch_all(db, "routes_at_session", session_id, limit)
    elif channel:
        found = fetch_all(db, "routes_of_channel", channel, limit)
    else:
        found = fetch_all(db, "every_route", limit)
    return [_route(row) for row in found]


def plan(
    tx: Tx, key: str, session_id: SessionId, before: Seq, after: Seq, deliveries: Sequence[NewDelivery]
) -> bool:
    execute(tx.db, "move_cursor", key, session_id, before, after)
    if not tx.db.changes():
        return False
    for each in deliveries:
        _plan_delivery(tx, key, each)
    return True


def due(db: apsw.Connection, channel: str, now: Instant, limit: int) -> Sequence[tuple[str, DeliveryRow]]:
    found = fetch_all(db, "due_deliveries", channel, now, limit)
    return [(row[0], _DELIVERIES.read(row[1:])) for row in found]


def blocked_deliveries(
    db: apsw.Connection, channel: str, now: Instant, limit: int
) -> Sequence[BlockedDelivery]:
    found = fetch_all(db, "blocked_deliveries", channel, now, limit, f'"{POISON_MESSAGE}"')
    many = 1 + len(DeliveryRow.__struct_fields__)
    return [(row[0], _DELIVERIES.read(row[1:many]), _DELIVERIES.read(row[many:])) for row in found]


def begin_delivery(
    tx: Tx, key: str, n: int, process_id: ProcessId, is_alive: Callable[[ProcessId], bool]
) -> DeliveryRow | None:
    row = _delivery(tx.db, "get_delivery", key, n)
    if row is None or row.is_finished:
        return None
    holder_id = row.process_id
    is_under_way = row.state == "sending" and tx.at < row.retry_at + CHANNEL_LEASE_MS
    if is_under_way and holder_id is not None and holder_id != process_id and is_alive(holder_id):
        return None
    begun = replace(row, attempts=row.attempts + 1, process_id=process_id, retry_at=tx.at)
    if row.state == "waiting":
        begun = replace(begun, state="sending")
    _put(tx, key, begun)
    # The state from before: the sender must know whether an earlier try may have sent it.
    return replace(begun, state=row.state)


def settle_delivery(tx: Tx, key: str, row: DeliveryRow, new_deliveries: Sequence[NewDelivery]) -> bool:
    stored = _delivery(tx.db, "get_delivery", key, row.n)
    if stored is None or stored.attempts != row.attempts or stored.is_finished:
        return False
    if row.state == "sent" and stored.body != row.body:
        # The body changed while the worker was sending it.
        row = replace(row, state="changed")
    _put(tx, key, replace(row, body=stored.body, process_id=None))
    for each in new_deliveries:
        _plan_delivery(tx, key, each)
    return True


def delivery(db: apsw.Connection, key: str, source: str, piece: int) -> DeliveryRow | None:
    return _delivery(db, "delivery_of", key, source, piece)


def deliveries(db: apsw.Connection, key: str, limit: int) -> Sequence[DeliveryRow]:
    return [_DELIVERIES.read(row) for row in fetch_all(db, "deliveries", key, limit)]


def message_with_button(db: apsw.Connection, key: str, press: str) -> DeliveryRow | None:
    # A press as a body encodes it. Text that contains the same is ruled out by decoding the body.
    carried = '"press":' + msgspec.json.encode(press).decode()
    found = map(_DELIVERIES.read, fetch_all(db, "deliveries_with", key, carried))
    return next((row for row in found if any(press == each.press for each in row.body.buttons)), None)


def prune(tx: Tx, before: Instant, limit: int) -> int:
    """Delete old finished rows that can be neither planned again nor pressed; return how many."""
    execute(tx.db, "drop_old_inbound", before, limit)
    deleted = tx.db.changes()
    old = fetch_all(tx.db, "old_deliveries", before, limit)
    for key, n in old:
        execute(tx.db, "delete_delivery", key, n)
    return deleted + len(old)


def _plan_delivery(tx: Tx, key: str, new_delivery: NewDelivery) -> None:
    stored = _delivery(tx.db, "delivery_of", key, new_delivery.source, new_delivery.piece)
    if stored is None:
        n = fetch_value(tx.db, "last_delivery", key) + 1
        _put(
            tx,
            key,
            DeliveryRow(
                n,
                new_delivery.source,
                new_delivery.piece,
                new_delivery.kind,
                new_delivery.body,
                "waiting",
                tx.at,
            ),
        )
    elif stored.body != new_delivery.body and stored.state not in ("in_doubt", "dropped"):
        state = "changed" if stored.state == "sent" else stored.state
        # While a process sends it, `retry_at` is when that began.
        retry_at = stored.retry_at if stored.process_id is not None else 0
        _put(tx, key, replace(stored, body=new_delivery.body, state=state, retry_at=retry_at))


def _put(tx: Tx, key: str, row: DeliveryRow) -> None:
    execute(tx.db, "put_delivery", key, *_DELIVERIES.write(row))


def _delivery(db: apsw.Connection, name: str, *keys: Any) -> DeliveryRow | None:
    row = fetch_one(db, name, *keys)
    return _DELIVERIES.read(row) if row is not None else None


def _inbound(row: tuple[Any, ...]) -> InboundRow:
    no, body, state, received_at, session_id, expect = row
    return InboundRow(
        no, msgspec.json.decode(body, type=InboundUpdate), state, received_at, session_id, expect
    )


def _route(row: tuple[Any, ...]) -> RouteRow:
    chat, session_id, sessions, cursor, touched_at = row
    named = msgspec.json.decode(sessions, type=tuple[SessionId, ...])
    return RouteRow(msgspec.json.decode(chat, type=Chat), session_id, named, cursor, touched_at)
