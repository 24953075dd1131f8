"""A memory provider of one's own: what people said, in one file of its folder.

Its package names it in pyproject.toml, and `memory = "shelf"` chooses it:

[project.entry-points."holdfast.memory"]
shelf = "memory_provider:make"
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.ports import Health, ProviderCannot, Segment
from holdfast.memory.providers.installed import ProviderContext


class Shelf:
    name = "shelf"
    takes_key = True  # The same key again changes nothing: see `commit`.

    def __init__(self, path: Path) -> None:
        self._path = path
        self._told: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}

    async def commit(self, segment: Segment) -> str:
        text = "\n".join(said.text for said in segment.messages if said.role == "user")
        if segment.key not in self._told:
            self._keep({**self._told, segment.key: {"scope": segment.scope, "text": text}})
        return segment.key

    async def retract(self, key: str, receipt: str) -> None:
        self._keep({**self._told, key: {"scope": "", "text": ""}})  # A telling that comes late is not kept.

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        words = {word.strip(".,:;!?").lower() for word in query.split()} - {""}
        hits = [
            (sum(word in told["text"].lower() for word in words), Memory(key, told["text"], Origin("model")))
            for key, told in self._told.items()
            if told["scope"] == scope
        ]
        return [memory for score, memory in sorted(hits, key=lambda hit: -hit[0]) if score][:limit]

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        raise ProviderCannot(verb="remember one thing")

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        raise ProviderCannot(verb="list")

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise ProviderCannot(verb="change a memory")

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget one thing")

    async def health(self) -> Health:
        return Health(os.access(self._path.parent, os.W_OK))

    async def close(self) -> None:
        pass

    def _keep(self, told: dict[str, dict[str, str]]) -> None:
        """Lasting on return: the new file is on the disk before it takes the place of the old one."""
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(told, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._told = told


def make(given: ProviderContext) -> Shelf:
    return Shelf(given.folder / "told.json")
