"""Store large content in chunks, so that no transaction is long. A blob is complete with its last chunk."""

import hashlib

import apsw

from holdfast.domain.errors import NoSuchBlob
from holdfast.domain.limits import BLOB_CHUNK_BYTES
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import execute, fetch_all, fetch_one, read_transaction


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def begin(tx: Tx, digest: str) -> tuple[int, bool]:
    """Return the blob's number and whether it is complete. Its age starts over either way."""
    row = fetch_one(tx.db, "get_blob", digest)
    if row is not None:
        execute(tx.db, "touch_blob", tx.at, row[0])
        return row[0], bool(row[1])
    (number,) = fetch_all(tx.db, "insert_blob", digest, tx.at)[0]
    return number, False


def put_chunk(tx: Tx, number: int, n: int, chunk: bytes, last: bool) -> None:
    execute(tx.db, "put_chunk", number, n, chunk)
    if last:
        execute(tx.db, "complete_blob", number)


def chunks(content: bytes) -> list[bytes]:
    """Split content into chunks: at least one, so that empty content is a blob too."""
    starts = range(0, max(len(content), 1), BLOB_CHUNK_BYTES)
    return [content[start : start + BLOB_CHUNK_BYTES] for start in starts]


def get(db: apsw.Connection, digest: str) -> bytes:
    """Return a blob's content. Raises NoSuchBlob, also while the blob is incomplete."""
    # One snapshot for all chunks: a sweep between two reads would leave a part that looks whole.
    with read_transaction(db):
        row = fetch_one(db, "get_blob", digest)
        if row is None or not row[1]:
            raise NoSuchBlob(digest=digest)
        pieces: list[bytes] = []
        while (piece := fetch_one(db, "get_chunk", row[0], len(pieces))) is not None:
            pieces.append(piece[0])
        return b"".join(pieces)
