"""Which words people had the notes forget, and when. Of each wording a digest is kept, and no word.

The digest has a key that this store alone has: whoever has another store learns nothing from comparing.
"""

from collections.abc import Iterable
from hashlib import blake2b

import apsw

from holdfast.domain.clock import Instant
from holdfast.domain.limits import FORGOTTEN_MAX
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import one, run


def put(tx: Tx, scope: str, wordings: Iterable[str]) -> None:
    """These are forgotten from now on. Of very many, the newest are kept."""
    run(tx.db, "make_forgotten_key")
    for wording in wordings:
        run(tx.db, "put_forgotten", _digest(tx.db, scope, wording), tx.at)
    run(tx.db, "prune_forgotten", FORGOTTEN_MAX)


def at(db: apsw.Connection, scope: str, wording: str) -> Instant | None:
    """When it was forgotten last; None if it never was."""
    digest = _digest(db, scope, wording)
    row = one(db, "forgotten_at", digest) if digest else None
    return row[0] if row is not None else None


def _digest(db: apsw.Connection, scope: str, wording: str) -> bytes:
    row = one(db, "forgotten_key")
    words = f"{scope}\0{wording}".encode("utf-8", "surrogatepass")
    return blake2b(words, key=row[0], digest_size=32).digest() if row is not None else b""
