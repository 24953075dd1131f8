"""The stores that the suite runs on. To add one, write its `Home` and name it in FACTORIES."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from holdfast.domain.clock import Clock
from holdfast.store.ports import Store
from holdfast.store.sqlite.store import SqliteStore
from tests.support.repeating_store import repeating

ROOT = Path(__file__).resolve().parents[2]


class Home(Protocol):
    """Where one test's content lives. Each `open` is a store of its own over the same content."""

    async def open(self, clock: Clock | None = None) -> Store: ...

    def child(self, *words: str) -> "subprocess.Popen[str]":
        """Another process that opens the same content and does what `tests.conformance.child` knows."""

    async def leave(self) -> None:
        """Close what is still open, and remove what is not in the test's folder."""


class SqliteHome:
    """A folder with one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._opened: list[SqliteStore] = []

    async def open(self, clock: Clock | None = None) -> Store:
        store = await SqliteStore.open(self._folder, clock=clock)
        self._opened.append(store)
        return store

    def child(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.conformance.child", "sqlite", str(self._folder), *words]
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    async def leave(self) -> None:
        for store in self._opened:
            await store.close()


class RepeatingHome(SqliteHome):
    """The same, where every decision runs twice."""

    async def open(self, clock: Clock | None = None) -> Store:
        return repeating(await super().open(clock))


FACTORIES: Mapping[str, Callable[[Path], Home]] = MappingProxyType(
    {"sqlite": SqliteHome, "sqlite-decides-twice": RepeatingHome}
)
