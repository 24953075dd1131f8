"""Access to the store's file: reads run beside the writer, changes run in its transactions."""

from collections.abc import Callable
from typing import TypeVar

from holdfast.domain.clock import Clock
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.readers import ReaderPool
from holdfast.store.writer import Writer

T = TypeVar("T")


class SqliteAccess:
    """The connections that all parts of the store share. Each part implements one port."""

    def __init__(self, clock: Clock, lock: ProcessLock, readers: ReaderPool, writer: Writer) -> None:
        self._clock = clock
        self._lock = lock
        self._readers = readers
        self._writer = writer

    async def _transact(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in one transaction; return its result once that is durable."""

        def in_transaction(tx: object) -> T:
            assert isinstance(tx, Tx)
            return work(tx)

        await self._writer.wait_for_capacity()
        result: T = await self._writer.run_in_transaction(in_transaction)
        return result
