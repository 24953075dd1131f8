"""Read beside the writer: a few threads, each with its own connection."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from holdfast.domain.errors import HoldfastError, StoreClosed
from holdfast.store.sqlite.connection import StoreLocation, as_fault, connect, inode

READERS = 3
T = TypeVar("T")
P = ParamSpec("P")


class ReaderPool:
    """Run short reads. After a fault the connection is closed, and the next read opens a new one."""

    def __init__(self, location: StoreLocation) -> None:
        self._location = location
        self._own = threading.local()
        self._all: set[apsw.Connection] = set()
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-reader")
        self._closed = False

    async def read(
        self,
        query: Callable[Concatenate[apsw.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return `query(connection, ...)`; raise what it raises, or a StoreFault."""
        if self._closed:
            raise StoreClosed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: self._run(query, *args, **kwargs))

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run slow work that opens its own connection, on a reader's thread."""
        if self._closed:
            raise StoreClosed()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=True)
        for db in self._all:
            db.close()

    def _run(
        self, query: Callable[Concatenate[apsw.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            db: apsw.Connection | None = getattr(self._own, "db", None)
            if db is not None and self._own.inode != inode(self._location):
                # The path names another file now; this connection would go on reading the old one.
                self._disconnect()
                db = None
            if db is None:
                self._own.inode = inode(self._location)
                db = self._own.db = connect(self._location, writes=False)
                self._all.add(db)
            return query(db, *args, **kwargs)
        except HoldfastError:
            raise
        except (apsw.Error, OSError) as error:
            self._disconnect()
            raise as_fault(error, self._location.file, self._location.wait_s) from error

    def _disconnect(self) -> None:
        db: apsw.Connection | None = getattr(self._own, "db", None)
        self._own.db = None
        if db is not None:
            self._all.discard(db)
            db.close()
