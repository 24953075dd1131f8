"""Measure a single durable append, inside the writer's thread and from asyncio, beside a raw write+sync.

The raw write alternates with the append and has as many bytes as the store wrote to its log for it. Each sync
of a growing log costs more than one of an overwritten log, for both sides, so the table shows both.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter

import uvloop

from bench.commit_watch import FRAME_BYTES, WalMeter
from bench.conversations import Names, Stream, open_stream_facts, whole_turn
from bench.harness import BenchHarness, settle_disk, spread
from bench.peers import RawLog
from bench.table import TIMES, ResultLine, info_line, ratio_line
from holdfast.domain.clock import SystemClock
from holdfast.domain.events.codec import encode
from holdfast.domain.ids import IdGenerator
from holdfast.store.ports import Append, Fence
from holdfast.store.sqlite.checkpoints import WAL_BYTES_MAX
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.sqlite.connection import WRITE_WAIT_S, StoreLocation
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.leases import LeaseGrace, claim
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.writer import PendingWrite

PART = "A single durable append (durability full)"
TOKEN = " something"
DELTA_LOG_BYTES = 2 * FRAME_BYTES
"""The bytes that a delta adds to the log, as measured in the writer: a journal page and an index page."""


@dataclass
class AppendSamples:
    """Milliseconds of the store, of a raw write of the same log bytes, and of the bare event."""

    store_ms: list[float] = field(default_factory=list)
    raw_ms: list[float] = field(default_factory=list)
    bare_ms: list[float] = field(default_factory=list)
    log_bytes: list[int] = field(default_factory=list)


def measure(harness: BenchHarness) -> list[ResultLine]:
    lines: list[ResultLine] = []
    with harness.folder("single") as folder:
        settle_disk()
        for name, grown, reused in _on_a_thread(lambda: _measure_in_thread(harness, folder)):
            lines += _inside_lines(name, grown, reused)
    with harness.folder("single") as folder:
        settle_disk()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            lines += _end_to_end_lines(runner.run(_measure_end_to_end(harness, folder)))
    return lines


def _on_a_thread(
    work: Callable[[], list[tuple[str, AppendSamples, AppendSamples]]],
) -> list[tuple[str, AppendSamples, AppendSamples]]:
    """Run `work` on a new thread: the committer belongs to one thread."""
    answer: list[tuple[str, AppendSamples, AppendSamples]] = []
    thread = threading.Thread(target=lambda: answer.extend(work()))
    thread.start()
    thread.join()
    assert answer, "the thread failed"
    return answer


def _measure_in_thread(harness: BenchHarness, folder: Path) -> list[tuple[str, AppendSamples, AppendSamples]]:
    count = harness.scale.appends
    loop = asyncio.new_event_loop()
    place = StoreLocation(folder, "full", None, WRITE_WAIT_S)
    committer = SqliteCommitter(place, SystemClock(), lambda news: None, WAL_BYTES_MAX)
    stream, facts = open_stream_facts(IdGenerator(SystemClock()))

    def pending_write(append: Append) -> PendingWrite:
        return PendingWrite(loop.create_future(), (append,))

    def claimed(tx: object) -> object:
        assert isinstance(tx, Tx)
        return claim(
            tx,
            stream.step.run_id,
            IdGenerator(SystemClock()).process(),
            600_000,
            lambda process: False,
            LeaseGrace(),
        )

    committer.commit([pending_write(Append(stream.session_id, facts))])
    (results, _) = committer.commit([PendingWrite(loop.create_future(), work=claimed)])
    fence = Fence(stream.step.run_id, getattr(results[0], "epoch", 0))
    names = Names()
    turns = iter(range(2, 1 << 30))

    def delta() -> Append:
        return Append(stream.session_id, (stream.delta(TOKEN),), fence=fence)

    def turn() -> Append:
        facts = whole_turn(names, next(turns), "Is it so?" * 20, "It is. " * 150)
        return Append(stream.session_id, facts[:1])

    found = []
    raw, bare = RawLog(folder / "raw"), RawLog(folder / "bare")
    for name, make in (("a text delta", delta), ("a turn accepted", turn)):
        rounds = []
        for _ in range(2):
            samples = AppendSamples()
            _alternate(committer, lambda: pending_write(make()), raw, bare, samples, count)  # noqa: B023
            rounds.append(samples)
            # Copy the whole log into the file, so that what follows overwrites the old log.
            committer._checkpoints.passive(committer._connection())
            raw.rewind()
            bare.rewind()
        found.append((name, rounds[0], rounds[1]))
    committer.close()
    raw.close()
    bare.close()
    loop.close()
    return found


def _alternate(
    committer: SqliteCommitter,
    make: Callable[[], PendingWrite],
    raw: RawLog,
    bare: RawLog,
    samples: AppendSamples,
    count: int,
) -> None:
    meter = WalMeter()
    for _ in range(count):
        write = make()
        start = perf_counter()
        results, _ = committer.commit([write])
        taken = perf_counter() - start
        assert not isinstance(results[0], BaseException), results[0]
        wrote = meter.grown(committer)
        samples.store_ms.append(taken * 1e3)
        samples.log_bytes.append(wrote)
        samples.raw_ms.append(raw.put(b"x" * wrote))
        facts = write.appends[0].facts
        assert not callable(facts)
        samples.bare_ms.append(bare.put(b"".join(encode(fact)[2] for fact in facts)))


def _inside_lines(name: str, grown: AppendSamples, reused: AppendSamples) -> list[ResultLine]:
    lines = []
    for how, samples in (("log written over", reused), ("log still growing", grown)):
        ours, raw, bare = spread(samples.store_ms), spread(samples.raw_ms), spread(samples.bare_ms)
        wrote = f"raw write+sync of its {median(samples.log_bytes):,.0f} log bytes {raw}"
        what = f"inside the writer: {name}, {how}"
        if name == "a text delta":
            lines.append(ratio_line(PART, what, ours.p50 / raw.p50, 1.5, str(ours), wrote))
            note = f"raw write+sync of the event alone {bare}"
            lines.append(info_line(PART, "  beside the bare event", str(ours), note, ours.p50 / bare.p50))
        else:
            lines.append(info_line(PART, what, str(ours), wrote, ours.p50 / raw.p50))
    return lines


async def _measure_end_to_end(harness: BenchHarness, folder: Path) -> tuple[AppendSamples, AppendSamples]:
    store = await SqliteStore.open(folder, "full")
    stream, facts = open_stream_facts(IdGenerator(SystemClock()))
    await store.append(Append(stream.session_id, facts))
    fence = (await store.claim(stream.step.run_id, 600_000)).fence
    raw = RawLog(folder / "raw")
    grown = await _appends(store, stream, fence, raw, harness.scale.appends)
    # Long enough for the idle checkpoint: from here on the store overwrites its old log.
    await asyncio.sleep(0.5)
    raw.rewind()
    reused = await _appends(store, stream, fence, raw, harness.scale.appends)
    raw.close()
    await store.close()
    return grown, reused


async def _appends(
    store: SqliteStore, stream: Stream, fence: Fence, raw: RawLog, count: int
) -> AppendSamples:
    samples = AppendSamples()
    log_bytes = b"x" * DELTA_LOG_BYTES
    for _ in range(count):
        start = perf_counter()
        await store.append(Append(stream.session_id, (stream.delta(TOKEN),), fence=fence))
        samples.store_ms.append((perf_counter() - start) * 1e3)
        samples.raw_ms.append(raw.put(log_bytes))
    return samples


def _end_to_end_lines(found: tuple[AppendSamples, AppendSamples]) -> list[ResultLine]:
    lines = []
    for how, samples in (("log written over", found[1]), ("log still growing", found[0])):
        ours, raw = spread(samples.store_ms), spread(samples.raw_ms)
        ratio, extra = ours.p50 / raw.p50, ours.p50 - raw.p50
        measured, peer = f"{ours} (+{extra:.3f} ms)", f"raw write+sync of {DELTA_LOG_BYTES:,} bytes {raw}"
        what, met = f"end to end from asyncio: a text delta, {how}", ratio <= 3 or extra <= 0.4
        lines.append(ResultLine(PART, what, measured, f"≤ 3{TIMES} or +0.4 ms", peer, ratio, met))
    return lines
