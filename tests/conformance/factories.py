"""The stores that the suite runs on. To add one, write its `StoreHome` and name it in FACTORIES."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from holdfast.domain.clock import Clock
from holdfast.store.ports import Store
from holdfast.store.sqlite.store import SqliteStore
from tests.support.repeating_store import repeat_decisions

ROOT = Path(__file__).resolve().parents[2]


class StoreHome(Protocol):
    """The content of one test. Each `open` is a store of its own over the same content."""

    async def open(self, clock: Clock | None = None) -> Store: ...

    def start_child(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a process that opens the same content and runs a command of `tests.conformance.child`."""

    async def close(self) -> None:
        """Close what is still open, and remove what is outside the test's folder."""


class SqliteStoreHome:
    """A folder with one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[SqliteStore] = []

    async def open(self, clock: Clock | None = None) -> Store:
        store = await SqliteStore.open(self._folder, clock=clock)
        self._opened.append(store)
        return store

    def start_child(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.conformance.child", "sqlite", str(self._folder), *arguments]
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


class RepeatingStoreHome(SqliteStoreHome):
    """The same, where every decision runs twice."""

    async def open(self, clock: Clock | None = None) -> Store:
        return repeat_decisions(await super().open(clock))


FACTORIES: Mapping[str, Callable[[Path], StoreHome]] = MappingProxyType(
    {"sqlite": SqliteStoreHome, "sqlite-decides-twice": RepeatingStoreHome}
)
