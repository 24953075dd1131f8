"""A memory provider that writes down, durably, every call that reaches it, and misbehaves when told to.

It lives in a server's process and is told what to do through files of its own folder, so that a test decides
what happens to a call without anything in the server knowing. `calls.jsonl` is all that it remembers too:
what it holds is a fold of what it did, so that no kill can come between doing a thing and writing it down.

An order is a file `VERB.POINT`; the point is `before` (nothing was done yet) or `after` (it was done, and
nobody was told). It says `pause` (until the file is gone), `kill` (the whole process, once), `fail`, `break`
(raise what no provider should), `hang`, `deaf` (hang, and pay no heed to being cancelled), `late SECONDS`,
`block SECONDS` (in a thread that nothing stops) or `rubbish` (answer with what no provider should). A file
`no_keys` makes it one that does not know a key again.
"""

import asyncio
import hashlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.ports import Health, ProviderCannot, ProviderFailure, Segment
from holdfast.memory.providers.installed import ProviderContext

POLL_S = 0.005
"""How often a blocked call checks whether it may continue."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log: a call was `asked`, `waits`, or was done (`did`, or `knew` its key already)."""

    verb: str
    stage: str
    at_ms: int
    pid: int
    key: str = ""
    digest: str = ""
    session_id: str = ""
    turns: tuple[tuple[int, int], ...] = ()
    ids: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    receipt: str = ""
    point: str = ""


class WitnessMemory:
    """Keep one memory per segment, named by its key."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "calls.jsonl"
        self._takes_key = not (folder / "no_keys").exists()

    @property
    def name(self) -> str:
        return "witness"

    @property
    def takes_key(self) -> bool:
        return self._takes_key

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        self._note("recall", "asked")
        rubbish = await self._obey("recall", "before") or await self._obey("recall", "after")
        return [7, None, "no memory"] if rubbish else []  # type: ignore[list-item]

    async def commit(self, segment: Segment) -> str:
        fields = {
            "key": segment.key, "session_id": segment.session_id, "turns": segment.turns,
            "ids": tuple(said.id for said in segment.messages),
            "texts": tuple(said.text for said in segment.messages), "digest": _digest(segment),
        }  # fmt: skip
        self._note("commit", "asked", **fields)
        await self._obey("commit", "before", segment.key)
        if not self._takes_key or segment.key not in self._held():
            self._note("commit", "did", **fields)
        else:
            self._note("commit", "knew", **fields)
        rubbish = await self._obey("commit", "after", segment.key)
        return {"receipt": [7]} if rubbish else f"receipt of {segment.key}"  # type: ignore[return-value]

    async def retract(self, key: str, receipt: str) -> None:
        self._note("retract", "asked", key=key, receipt=receipt)
        await self._obey("retract", "before", key)
        self._note("retract", "did", key=key, receipt=receipt)
        await self._obey("retract", "after", key)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        await self._obey("remember", "before", key)
        raise ProviderCannot(verb="remember one thing")

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        await self._obey("list", "before")
        raise ProviderCannot(verb="list")

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise ProviderCannot(verb="change a memory")

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget one thing")

    async def health(self) -> Health:
        return Health(ok=True)

    async def close(self) -> None:
        return

    def _note(self, verb: str, stage: str, **more: Any) -> None:
        call = Call(verb, stage, int(time.time() * 1000), os.getpid(), **more)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # One write to a file opened for appending: the line is there whole or not at all.
            os.write(handle, msgspec.json.encode(call) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)

    def _held(self) -> set[str]:
        held: set[str] = set()
        for line in self._path.read_bytes().splitlines():
            call = msgspec.json.decode(line, type=Call)
            if (call.verb, call.stage) == ("commit", "did"):
                held.add(call.key)
            elif (call.verb, call.stage) == ("retract", "did"):
                held.discard(call.key)
        return held

    async def _obey(self, verb: str, point: str, key: str = "") -> bool:
        """Obey the order, if there is one; return whether the answer is to be rubbish."""
        path = self._folder / f"{verb}.{point}"
        order, _, seconds = (path.read_text() if path.exists() else "").partition(" ")
        if order:
            self._note(verb, "waits", key=key, point=point)
        match order:
            case "pause":
                await _wait_until(lambda: not path.exists())
            case "kill":
                path.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "fail":
                raise ProviderFailure(detail=f"told to fail at {point}")
            case "break":
                raise RuntimeError(f"told to break at {point}")
            case "late":
                await asyncio.sleep(float(seconds))
            case "hang":
                await asyncio.Event().wait()
            case "block":
                await asyncio.to_thread(time.sleep, float(seconds))
            case "deaf":
                await _hang_forever()
        return order == "rubbish"


async def _wait_until(is_so: Callable[[], bool]) -> None:
    for _ in itertools.repeat(None):
        if is_so():
            return
        await asyncio.sleep(POLL_S)


async def _hang_forever() -> None:
    for _ in itertools.repeat(None):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


def _digest(segment: Segment) -> str:
    """Return a digest of a segment; a title may change between two attempts."""
    raw = msgspec.json.encode((segment.session_id, segment.scope, segment.turns, segment.messages))
    return hashlib.blake2b(raw, digest_size=8).hexdigest()


def remembering(given: ProviderContext) -> WitnessMemory:
    """The entry point. It does not use the folder that it is given, as a test reads along."""
    return WitnessMemory(Path(os.environ["WITNESS_MEMORY"]))
