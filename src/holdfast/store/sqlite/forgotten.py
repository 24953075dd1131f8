"""Texts that people made the notes forget, and when. The store keeps a digest of each, never the text.

The digest is keyed, and each store has its own key: comparing two stores reveals nothing.
"""

from collections.abc import Iterable
from hashlib import blake2b

import apsw

from holdfast.domain.clock import Instant
from holdfast.domain.limits import FORGOTTEN_MAX
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import execute, fetch_one


def put(tx: Tx, scope: str, wordings: Iterable[str]) -> None:
    """Record these texts as forgotten. Only the newest FORGOTTEN_MAX are kept."""
    execute(tx.db, "make_forgotten_key")
    for wording in wordings:
        execute(tx.db, "put_forgotten", _digest(tx.db, scope, wording), tx.at)
    execute(tx.db, "prune_forgotten", FORGOTTEN_MAX)


def forgotten_at(db: apsw.Connection, scope: str, wording: str) -> Instant | None:
    """Return when a text was last forgotten; None if it never was."""
    digest = _digest(db, scope, wording)
    row = fetch_one(db, "forgotten_at", digest) if digest else None
    return row[0] if row is not None else None


def _digest(db: apsw.Connection, scope: str, wording: str) -> bytes:
    row = fetch_one(db, "forgotten_key")
    words = f"{scope}\0{wording}".encode("utf-8", "surrogatepass")
    return blake2b(words, key=row[0], digest_size=32).digest() if row is not None else b""
