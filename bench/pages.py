"""Measure reads among many sessions: the list, the newest page of a long session, a rare word.

The measurements are end to end from asyncio.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import uvloop

from bench.harness import BenchHarness, Spread, median_spread, spread
from bench.session_corpus import RARE_WORDS, SessionCorpus, build_corpus
from bench.table import ResultLine, info_line, latency_line
from holdfast.store.sqlite.store import SqliteStore

PART = "Reading among very many"
PAGE = 50
ROUNDS = 5
"""The verdict uses the median of the rounds' p99, so that one hiccup of the machine does not decide."""
LIST_MS, PAGE_MS, SEARCH_MS = 5.0, 5.0, 50.0


def measure(harness: BenchHarness) -> list[ResultLine]:
    crowd = build_corpus(harness, harness.scale.crowd_sessions, harness.scale.long_messages)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cold = runner.run(_cold(crowd))
        warm = runner.run(_warm(crowd, harness.scale.reads))
    list_ = f"a page of {PAGE} among {crowd.sessions:,} sessions"
    newest = f"the newest {PAGE} of a session of {crowd.long_messages:,} messages"
    rare = f"a rare word among {crowd.messages + crowd.long_messages:,} messages"
    lines = [
        latency_line(PART, f"{list_}: the first", warm["first"].p50, warm["first"].p99, LIST_MS),
        latency_line(PART, f"{list_}: from any cursor", warm["deep"].p50, warm["deep"].p99, LIST_MS),
        latency_line(PART, newest, warm["newest"].p50, warm["newest"].p99, PAGE_MS),
        latency_line(PART, f"{rare} (one hit)", warm["rare"].p50, warm["rare"].p99, SEARCH_MS),
    ]
    for name, what in (
        ("half", "the start of rare words"),
        ("common", "a word of every second message"),
        ("unfinished", "the same, as the start of a word"),
    ):
        lines.append(info_line(PART, f"{what}, 20 newest hits", str(warm[name])))
    for name, taken in cold.items():
        lines.append(info_line(PART, f"cold, first read after opening: {name}", f"{taken:.2f} ms"))
    return lines


async def _timed(work: Awaitable[object]) -> float:
    start = perf_counter()
    await work
    return (perf_counter() - start) * 1e3


async def _cold(clients: SessionCorpus) -> dict[str, float]:
    """Run each read once, with the file's pages dropped from the system's cache and the store just opened."""
    reads: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
        "list": lambda store: store.sessions(None, PAGE),
        "newest page": lambda store: store.messages(clients.long_id, None, PAGE),
        "rare word": lambda store: store.search(RARE_WORDS[0], 20),
    }
    taken = {}
    for name, read in reads.items():
        _drop_cache(clients.folder / "holdfast.db")
        store = await SqliteStore.open(clients.folder)
        taken[name] = await _timed(read(store))
        await store.close()
    return taken


def _drop_cache(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


async def _warm(clients: SessionCorpus, reads: int) -> dict[str, Spread]:
    store = await SqliteStore.open(clients.folder)
    rng = random.Random(6)
    cursors = await _cursors(store, rng)

    async def each(make: Callable[[int], Awaitable[object]], count: int = reads) -> Spread:
        await make(0)
        rounds = [
            spread([await _timed(make(start + i)) for i in range(count)])
            for start in range(0, ROUNDS * count, count)
        ]
        return median_spread(rounds)

    found = {
        "first": await each(lambda i: store.sessions(None, PAGE)),
        "deep": await each(lambda i: store.sessions(rng.choice(cursors), PAGE)),
        "newest": await each(lambda i: store.messages(clients.long_id, None, PAGE)),
        # Another word each time, so that no index page is cached from the one before.
        "rare": await each(lambda i: store.search(f'"{RARE_WORDS[i % len(RARE_WORDS)]}"', 20)),
        "half": await each(lambda i: store.search("quillonar", 20)),
        "common": await each(lambda i: store.search('"the"', 20)),
        "unfinished": await each(lambda i: store.search("the", 20), reads // 10),
    }
    assert len(await store.search(RARE_WORDS[3], 20)) == 1, "the rare word is not where it was put"
    await store.close()
    return found


async def _cursors(store: SqliteStore, rng: random.Random) -> list[str]:
    """Return cursors from all over the list, reached by paging."""
    cursors: list[str] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(cursor, 200)
        cursor = page.cursor
        if cursor is None:
            return rng.sample(cursors, min(100, len(cursors)))
        cursors.append(cursor)
