"""A store that runs every decision twice, as a real one may do when a batch fails and is tried again.

Run as a program, it is `holdfast` over such a store.
"""

import asyncio
from typing import Any, cast

from msgspec.structs import replace

from holdfast import app
from holdfast.domain.state.session_state import Decide, Facts, SessionStateView
from holdfast.store.ports import Append, AppendReceipt, Store
from holdfast.store.sqlite.store import SqliteStore


class RepeatedDecisions:
    """Wrap a store: a decision that is not a pure function shows in what its second run returns."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, *appends: Append) -> tuple[AppendReceipt, ...]:
        return await self._store.append(*map(_repeat_append, appends))

    def submit(self, append: Append) -> "asyncio.Future[tuple[AppendReceipt, ...]]":
        return self._store.submit(_repeat_append(append))


def repeat_decisions(store: Store) -> Store:
    return cast(Store, RepeatedDecisions(store))


def _repeat_append(append: Append) -> Append:
    return replace(append, facts=_run_twice(append.facts)) if callable(append.facts) else append


def _run_twice(decide: Decide) -> Decide:
    def decide_twice(view: SessionStateView) -> Facts:
        decide(view)
        return decide(view)

    return decide_twice


class RepeatingSqlite:
    """Stands in the program where `SqliteStore` does."""

    @staticmethod
    async def open(*args: Any, **options: Any) -> Store:
        return repeat_decisions(await SqliteStore.open(*args, **options))


if __name__ == "__main__":
    app.SqliteStore = RepeatingSqlite  # type: ignore[assignment, misc]
    app.main()
