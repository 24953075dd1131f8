"""Measure how long streamed pieces wait until they are durable: a hundred runs, fifty pieces/s each.

Open loop: the clock decides when a piece is due, whatever happened to the one before. The bench reports the
wait since the piece was submitted and the wait since it was due; the difference is the load generator's own
lag, which it reports too. The peer is one thread with the same number of due events: it writes and syncs all
of them together.
"""

import asyncio
import random
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

import uvloop

from bench.commit_watch import ObservedCommits, observe_commits
from bench.conversations import ENGLISH, Stream, open_stream_facts
from bench.harness import BenchHarness, Spread, median_spread, percentile, settle_disk, spread
from bench.peers import RawLog, paced_batches
from bench.table import ResultLine, info_line, ratio_line
from bench.texts import English, tokens
from holdfast.domain.clock import SystemClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import encode
from holdfast.domain.events.stream_fold import StreamFold, settle_message
from holdfast.domain.ids import IdGenerator
from holdfast.store.ports import Append, AppendReceipt, Fence
from holdfast.store.sqlite.checkpoints import WAL_BYTES_MAX
from holdfast.store.sqlite.store import SqliteStore

PART = "100 producers at 50 events/s (durability full)"
PRODUCERS, PER_S = 100, 50
LIMIT = 8.0
SMALL_WAL_BYTES = 4_000_000
BURST_EVERY_S = 1.0
SETTLED_CHARS = 2_000


@dataclass
class ProducerLoad:
    """One window: (due, sent, durable) of each piece in seconds, the bursts, and the writer's work."""

    pieces: list[tuple[float, float, float]] = field(default_factory=list)
    bursts: list[tuple[float, float]] = field(default_factory=list)
    settled_ms: list[float] = field(default_factory=list)
    watched: ObservedCommits = field(default_factory=ObservedCommits)
    cpu_s: float = 0.0

    def record(self, due: float, sent: float, future: "asyncio.Future[tuple[AppendReceipt, ...]]") -> None:
        future.result()
        self.pieces.append((due, sent, time.perf_counter()))

    def from_sent(self) -> Spread:
        return spread([(done - sent) * 1e3 for _, sent, done in self.pieces])

    def from_due(self) -> Spread:
        return spread([(done - due) * 1e3 for due, _, done in self.pieces])

    def lag(self) -> Spread:
        return spread([(sent - due) * 1e3 for due, sent, _ in self.pieces])

    def sent_within(self, spans: Iterable[tuple[float, float]]) -> list[float]:
        """Return the waits of the pieces submitted during one of `spans`."""
        spans = list(spans)
        return [(d - s) * 1e3 for _, s, d in self.pieces if any(a <= s <= b for a, b in spans)]

    def waiting_within(self, spans: Iterable[tuple[float, float]]) -> list[float]:
        """Return the waits of the pieces that were waiting at any moment of one of `spans`."""
        spans = list(spans)
        return [(d - s) * 1e3 for _, s, d in self.pieces if any(a <= d and s <= b for a, b in spans)]


@dataclass(frozen=True)
class RawBaseline:
    """The peer: the time of each write+sync, and of each event's wait, on an overwritten log."""

    syncs: Spread
    waits: Spread
    growing: Spread


def measure(harness: BenchHarness) -> list[ResultLine]:
    raws: list[RawBaseline] = []
    loads: dict[str, list[ProducerLoad]] = {"plain": [], "checkpoint": [], "settling": []}
    for _ in range(harness.scale.rounds):
        with harness.folder("producers") as folder:
            settle_disk()
            raws.append(_raw(harness, folder))
        for name, windows in loads.items():
            with harness.folder("producers") as folder:
                settle_disk()
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    windows.append(runner.run(_window(name, folder, harness.scale.load_s)))
    raw = RawBaseline(
        median_spread([each.syncs for each in raws]),
        median_spread([each.waits for each in raws]),
        median_spread([each.growing for each in raws]),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        idle = runner.run(_generator_alone(min(2.0, harness.scale.load_s)))
    return [
        *_plain_lines(raw, loads["plain"]),
        *_checkpoint_lines(raw, loads["checkpoint"]),
        *_settling_lines(raw, loads["settling"]),
        *_cost_lines(loads["plain"], idle),
    ]


def _raw(harness: BenchHarness, folder: Path) -> RawBaseline:
    stream, _ = open_stream_facts(IdGenerator(SystemClock()))
    event = encode(stream.delta(" some"))[2]
    seconds = harness.scale.raw_s
    growing = RawLog(folder / "growing")
    grown, _ = paced_batches(growing, event, PRODUCERS * PER_S, seconds)
    growing.close()
    log = RawLog(folder / "raw")
    log.extend(len(event) * int(PRODUCERS * PER_S * seconds))
    syncs, waits = paced_batches(log, event, PRODUCERS * PER_S, seconds)
    log.close()
    return RawBaseline(spread(syncs), spread(waits), spread(grown))


async def _window(name: str, folder: Path, seconds: float) -> ProducerLoad:
    wal_bytes = SMALL_WAL_BYTES if name == "checkpoint" else WAL_BYTES_MAX
    store = await SqliteStore.open(folder, "full", wal_bytes_max=wal_bytes)
    streams, fences = await _open_streams(store, PRODUCERS)
    bursts = []
    if name == "settling":
        for _ in range(max(1, int((seconds - 0.5) / BURST_EVERY_S))):
            bursts.append(await _about_to_settle(store))
    await store.search("nothing", 1)
    await asyncio.sleep(0.3)
    load = ProducerLoad()
    pieces = tokens(English(3).take_text(4_000), ENGLISH.token, random.Random(3))
    with observe_commits() as load.watched:
        cpu = time.process_time()
        start = time.perf_counter() + 0.05
        await asyncio.gather(
            *(
                _produce(store, load, stream, fence, pieces, first, seconds)
                for stream, fence, first in zip(streams, fences, _phases(start), strict=True)
            ),
            _settle_in_bursts(store, load, bursts, start + 0.5),
        )
        await store.append(Append(streams[0].session_id, ()))
        load.cpu_s = time.process_time() - cpu
    await store.close()
    return load


async def _open_streams(store: SqliteStore, count: int) -> tuple[list[Stream], list[Fence]]:
    ids = IdGenerator(SystemClock())
    made = [open_stream_facts(ids) for _ in range(count)]
    await store.append(*(Append(stream.session_id, facts) for stream, facts in made))
    streams = [stream for stream, _ in made]
    return streams, [(await store.claim(s.step.run_id, 600_000)).fence for s in streams]


class _SubmittingStore(Protocol):
    """The part of a store that a producer needs."""

    async def wait_for_capacity(self) -> None: ...

    def submit(self, append: Append) -> "asyncio.Future[tuple[AppendReceipt, ...]]": ...


async def _produce(
    store: _SubmittingStore,
    load: ProducerLoad,
    stream: Stream,
    fence: Fence,
    pieces: Sequence[str],
    start: float,
    seconds: float,
) -> None:
    for count in range(int(PER_S * seconds)):
        due = start + count / PER_S
        delay = due - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        await store.wait_for_capacity()
        append = Append(stream.session_id, (stream.delta(pieces[count % len(pieces)]),), fence=fence)
        sent = time.perf_counter()
        store.submit(append).add_done_callback(partial(load.record, due, sent))


async def _about_to_settle(store: SqliteStore) -> list[Append]:
    """Return the appends that settle a hundred messages, after streaming all of them."""
    texts, rng = English(5), random.Random(5)
    ids = IdGenerator(SystemClock())
    appends = []
    for _ in range(PRODUCERS):
        stream, facts = open_stream_facts(ids)
        fold = StreamFold()
        for i, piece in enumerate(tokens(texts.take_text(SETTLED_CHARS), 40, rng)):
            delta = stream.delta(piece)
            fold.add(delta, i * 100)
            facts.append(delta)
        await store.append(Append(stream.session_id, facts))
        step = stream.step
        done: list[f.AnyFact] = [settle_message(step, fold)]
        done += [f.ModelStepSettled(step.run_id, step.message_id, "stop"), f.RunCompleted(step.run_id)]
        appends.append(Append(stream.session_id, done))
    return appends


async def _settle_in_bursts(
    store: SqliteStore, load: ProducerLoad, bursts: list[list[Append]], start: float
) -> None:
    for n, appends in enumerate(bursts):
        await asyncio.sleep(max(0.0, start + n * BURST_EVERY_S - time.perf_counter()))
        begun = time.perf_counter()
        await asyncio.gather(*(store.submit(append) for append in appends))
        ended = time.perf_counter()
        load.bursts.append((begun, ended))
        load.settled_ms.append((ended - begun) * 1e3)


class _NoOpStore:
    """A store that does nothing: what is left is the generator's own cost."""

    async def wait_for_capacity(self) -> None:
        return

    def submit(self, append: Append) -> "asyncio.Future[tuple[AppendReceipt, ...]]":
        future: asyncio.Future[tuple[AppendReceipt, ...]] = asyncio.get_running_loop().create_future()
        future.set_result(())
        return future


async def _generator_alone(seconds: float) -> ProducerLoad:
    ids, load = IdGenerator(SystemClock()), ProducerLoad()
    streams = [open_stream_facts(ids)[0] for _ in range(PRODUCERS)]
    cpu = time.process_time()
    start = time.perf_counter() + 0.05
    await asyncio.gather(
        *(
            _produce(_NoOpStore(), load, stream, Fence(stream.step.run_id, 1), (" some",), first, seconds)
            for stream, first in zip(streams, _phases(start), strict=True)
        )
    )
    load.cpu_s = time.process_time() - cpu
    return load


def _phases(start: float) -> list[float]:
    """Return each producer's starting time: spread evenly, so that they do not all submit at once."""
    return [start + i / (PRODUCERS * PER_S) for i in range(PRODUCERS)]


def _load_lines(loads: list[ProducerLoad], raw: RawBaseline, what: str) -> ResultLine:
    ours = median_spread([load.from_sent() for load in loads])
    return ratio_line(PART, what, ours.p99 / raw.syncs.p99, LIMIT, str(ours), f"raw write+sync {raw.syncs}")


def _plain_lines(raw: RawBaseline, loads: list[ProducerLoad]) -> list[ResultLine]:
    due = median_spread([load.from_due() for load in loads])
    lag = median_spread([load.lag() for load in loads])
    return [
        _load_lines(loads, raw, "submit → durable"),
        info_line(
            PART, "  from when it was due", str(due), f"raw, from due {raw.waits}", due.p99 / raw.waits.p99
        ),
        info_line(PART, "  the load generator's own lag", str(lag), f"raw on a growing file {raw.growing}"),
    ]


def _checkpoint_lines(raw: RawBaseline, loads: list[ProducerLoad]) -> list[ResultLine]:
    spans = [span for load in loads for span in load.watched.checkpoints]
    took = spread([(b - a) * 1e3 for a, b in spans] or [0.0])
    note = f"{len(spans)} checkpoints, each {took}"
    sent = [ms for load in loads for ms in load.sent_within(load.watched.checkpoints)]
    waiting = [ms for load in loads for ms in load.waiting_within(load.watched.checkpoints)]
    return [
        _load_lines(
            loads, raw, f"the same with a log bound of {SMALL_WAL_BYTES // 1_000_000} MB, whole window"
        ),
        *_during("  only those submitted while a checkpoint ran", sent, raw, note),
        *_during("  only those under way while one ran", waiting, raw, note),
    ]


def _settling_lines(raw: RawBaseline, loads: list[ProducerLoad]) -> list[ResultLine]:
    took = spread([ms for load in loads for ms in load.settled_ms])
    housekeep = max((b - a) * 1e3 for load in loads for a, b in load.watched.housekeeping)
    note = f"{took.count} bursts, each durable in {took}; the longest chore {housekeep:.1f} ms"
    waiting = [ms for load in loads for ms in load.waiting_within(load.bursts)]
    return [
        _load_lines(loads, raw, "the same while 100 messages settle at once, every second; whole window"),
        *_during("  only those under way while they settled", waiting, raw, note),
    ]


def _during(what: str, waits_ms: list[float], raw: RawBaseline, note: str) -> list[ResultLine]:
    """Return info lines for the pieces that met it: the promise is about all pieces of a window."""
    if not waits_ms:
        return [info_line(PART, what, "none", note)]
    found = spread(waits_ms)
    return [info_line(PART, what, f"{found} ({found.count:,} pieces)", note, found.p99 / raw.syncs.p99)]


def _cost_lines(loads: list[ProducerLoad], idle: ProducerLoad) -> list[ResultLine]:
    pieces = sum(len(load.pieces) for load in loads)
    cpu_ms = sum(load.cpu_s for load in loads) * 1e6 / pieces
    idle_ms = idle.cpu_s * 1e6 / len(idle.pieces)
    sizes = [weight for load in loads for _, _, weight in load.watched.commits]
    window_s = sum(load.pieces[-1][2] - load.pieces[0][1] for load in loads)
    checkpoints = [b - a for load in loads for a, b in load.watched.checkpoints]
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    batches = f"p50 {percentile(sizes, 50)}, p99 {percentile(sizes, 99)}, largest {max(sizes)} appends"
    return [
        info_line(
            PART, "CPU per 1,000 deltas, all threads", f"{cpu_ms:.0f} ms",
            f"the load generator alone {idle_ms:.0f} ms", cpu_ms / idle_ms,
        ),
        info_line(
            PART, "commits", f"{len(sizes) / window_s:.0f} a second; {batches}",
            f"{len(checkpoints)} checkpoints at the default bound",
        ),
        info_line(PART, "memory of the process so far, at most", f"{rss_mb:.0f} MB"),
    ]  # fmt: skip
