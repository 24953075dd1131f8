"""Compare the cost of an append with the store's size, beside the JSON rewrite of a whole file.

Both sides take turns in one loop, inside the writer's thread: once with durability full, as promised, and
once with `normal`, where no sync hides the work.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter

from bench.conversations import Names, whole_turn
from bench.harness import BenchHarness, Spread, settle_disk, spread
from bench.peers import rewrite_json
from bench.session_corpus import TURNS_EACH, SessionCorpus, build_corpus
from bench.table import ResultLine, info_line, ratio_line
from bench.texts import English
from holdfast.domain.clock import SystemClock
from holdfast.domain.events import facts as f
from holdfast.domain.ids import MessageId, RunId, SessionId
from holdfast.store.ports import Append, Durability
from holdfast.store.sqlite.checkpoints import WAL_BYTES_MAX
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.sqlite.connection import WRITE_WAIT_S, StoreLocation
from holdfast.store.writer import PendingWrite

PART = "Flat"
LIMIT = 1.2
FEW_SESSIONS = 100
SAID, ANSWERED = "How is this to be done? " * 8, "It is done in three steps, each of them short. " * 25

Make = Callable[[], Append]


def measure(harness: BenchHarness) -> list[ResultLine]:
    scale = harness.scale
    many = build_corpus(harness, scale.crowd_sessions, scale.long_messages)
    few = build_corpus(harness, FEW_SESSIONS, 10)
    lines: list[ResultLine] = []
    with harness.folder("flat-many") as many_folder, harness.folder("flat-few") as few_folder:
        many.copy_to(many_folder)
        few.copy_to(few_folder)
        for durability in ("full", "normal"):
            settle_disk()
            with _writing(many_folder, durability) as in_many, _writing(few_folder, durability) as in_few:
                lines += _by_length(harness, many, in_many, durability)
                lines += _by_session_count(harness, many, few, in_many, in_few, durability)
    return [*lines, *_rewrites(harness)]


class _AppendSide:
    """One of two sides that take turns."""

    def __init__(self, committer: SqliteCommitter, make: Make) -> None:
        self._committer = committer
        self._make = make
        self._loop = asyncio.new_event_loop()
        self.ms: list[float] = []

    def once(self) -> None:
        write = PendingWrite(self._loop.create_future(), (self._make(),))
        start = perf_counter()
        results, _ = self._committer.commit([write])
        self.ms.append((perf_counter() - start) * 1e3)
        assert not isinstance(results[0], BaseException), results[0]

    def close(self) -> Spread:
        self._loop.close()
        return spread(self.ms)


@contextmanager
def _writing(folder: Path, durability: Durability) -> Iterator[SqliteCommitter]:
    place = StoreLocation(folder, durability, None, WRITE_WAIT_S)
    committer = SqliteCommitter(place, SystemClock(), lambda news: None, WAL_BYTES_MAX)
    try:
        yield committer
    finally:
        committer.close()


def _by_length(
    harness: BenchHarness, many: SessionCorpus, committer: SqliteCommitter, durability: Durability
) -> list[ResultLine]:
    short_id = many.session_id(many.sessions // 2)
    what = f"a session of {many.long_messages:,} messages, beside one of {TURNS_EACH * 2}"
    return [
        _compare(
            f"{what}: {kind} ({durability})", harness.scale.flat_appends,
            _AppendSide(committer, _maker(kind, lambda: many.long_id, durability)),
            _AppendSide(committer, _maker(kind, lambda: short_id, durability)),
        )
        for kind in ("a delta", "a whole turn")
    ]  # fmt: skip


def _by_session_count(
    harness: BenchHarness,
    many: SessionCorpus,
    few: SessionCorpus,
    in_many: SqliteCommitter,
    in_few: SqliteCommitter,
    durability: Durability,
) -> list[ResultLine]:
    rng = random.Random(9)

    def any_of(clients: SessionCorpus) -> Callable[[], SessionId]:
        return lambda: clients.session_id(rng.randint(1, clients.sessions))

    what = f"any of {many.sessions:,} sessions, beside any of {FEW_SESSIONS}"
    return [
        _compare(
            f"{what}: {kind} ({durability})", harness.scale.flat_appends,
            _AppendSide(in_many, _maker(kind, any_of(many), durability)),
            _AppendSide(in_few, _maker(kind, any_of(few), durability)),
        )
        for kind in ("a delta", "a whole turn")
    ]  # fmt: skip


def _maker(kind: str, pick: Callable[[], SessionId], durability: Durability) -> Make:
    names = _FreshNames(durability)
    turns = iter(range(1_000_000 if durability == "full" else 2_000_000, 1 << 30))

    def delta() -> Append:
        fact = f.TextAppended(RunId("r_0000000000000000"), MessageId("m_0000000000000000"), " something")
        return Append(pick(), (fact,))

    def turn() -> Append:
        return Append(pick(), whole_turn(names, next(turns), SAID, ANSWERED))

    return delta if kind == "a delta" else turn


class _FreshNames(Names):
    """Names later than those of all loaded sessions, as new ones would be."""

    def __init__(self, durability: Durability) -> None:
        super().__init__()
        self._series = "zf" if durability == "full" else "zn"

    def next(self, prefix: str) -> str:
        return f"{prefix}_{self._series}{id(self) % 10**6:06d}{super().next('')[-8:]}"


def _compare(what: str, count: int, large: _AppendSide, small: _AppendSide) -> ResultLine:
    for i in range(count):
        # Alternate the order: the second side finds warmer caches.
        for side in (large, small) if i % 2 else (small, large):
            side.once()
    ours, beside = large.close(), small.close()
    ratio = ours.p50 / beside.p50
    if what.endswith("(normal)"):
        return info_line(PART, what, str(ours), str(beside), ratio)
    return ratio_line(PART, what, ratio, LIMIT, str(ours), str(beside))


def _rewrites(harness: BenchHarness) -> list[ResultLine]:
    texts = English(4)
    pool = [texts.take_text(200 if i % 2 else 1_200) for i in range(500)]
    lines: list[ResultLine] = []
    with harness.folder("rewrite") as folder:
        first = 0.0
        for count in harness.scale.rewrites:
            roles = ("user", "assistant")
            messages = [{"role": roles[i % 2], "content": pool[i % 500]} for i in range(count)]
            settle_disk()
            taken = median(rewrite_json(folder / "session.json", messages) for _ in range(7))
            first = first or taken
            what = f"the whole-file JSON rewrite, {count:,} messages"
            lines.append(info_line(PART, what, f"p50 {taken:.2f} ms", "beside that of 10", taken / first))
    return lines
