"""Small records outside any session, by kind and id."""

from collections.abc import Mapping

import apsw

from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import execute, fetch_all, fetch_one


def put(tx: Tx, kind: str, item_id: str, body: bytes) -> None:
    execute(tx.db, "put_item", kind, item_id, body)


def take(tx: Tx, kind: str, item_id: str) -> bytes | None:
    row = fetch_one(tx.db, "take_item", kind, item_id)
    return row[0] if row is not None else None


def compare_and_swap(tx: Tx, kind: str, item_id: str, expected: bytes, replacement: bytes | None) -> bool:
    if replacement is None:
        return fetch_one(tx.db, "drop_item", kind, item_id, expected) is not None
    return fetch_one(tx.db, "compare_and_swap_item", kind, item_id, expected, replacement) is not None


def item(db: apsw.Connection, kind: str, item_id: str) -> bytes | None:
    row = fetch_one(db, "item", kind, item_id)
    return row[0] if row is not None else None


def items(db: apsw.Connection, kind: str) -> Mapping[str, bytes]:
    return dict(fetch_all(db, "items", kind))
