"""Measure the file's size for the text it holds, search included, once deltas are pruned.

Eight sessions at a time stream token by token, so that rows are mixed in the file as in real use. Then an
hour passes, the sweep prunes, the index catches up, and the log goes back into the file.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import uvloop

from bench.conversations import CHINESE, ENGLISH, ConversationGenerator, Shape
from bench.harness import BenchHarness
from bench.table import TIMES, ResultLine, info_line
from bench.texts import Chinese, English, Texts
from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import PRUNE_AFTER_MS
from holdfast.store.maintenance import SweepResult
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore

PART = "Size"
AT_ONCE = 8
TURNS_EACH = 10
TOKEN_MS = 20
_SHOWN_SHARE = 0.02


@dataclass(frozen=True)
class SizeResult:
    text_bytes: int
    file_bytes: int
    before_bytes: int
    """The size of file and log before the sweep."""
    swept: SweepResult
    tables: dict[str, tuple[int, int]]
    """The bytes of each table, and how many of them are unused."""
    kinds: dict[str, int]
    """The bytes of the bodies of each event kind."""
    turns: int


def measure(harness: BenchHarness) -> list[ResultLine]:
    lines: list[ResultLine] = []
    for name, texts, shape, limit in (
        ("English", English(8), ENGLISH, 2.5),
        ("Chinese", Chinese(8), CHINESE, 3.0),
    ):
        with (
            harness.folder("size") as folder,
            harness.console.status(f"Streaming {name} conversations"),
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            weighed = runner.run(_measure_size(folder, texts, shape, harness.scale.size_turns))
        lines += _lines(name, limit, weighed)
    return lines


async def _measure_size(folder: Path, texts: Texts, shape: Shape, turns: int) -> SizeResult:
    clock, rng = FakeClock(), random.Random(12)
    store = await SqliteStore.open(folder, "normal", clock=clock)
    ids = IdGenerator(clock, rng.getrandbits)
    text_bytes = 0
    for _ in range(max(1, turns // (AT_ONCE * TURNS_EACH))):
        generators = [ConversationGenerator(texts, shape, ids, clock, rng) for _ in range(AT_ONCE)]
        await _converse(store, generators, clock)
        text_bytes += sum(generator.text_bytes for generator in generators)
    before = (await store.totals()).store_bytes
    await store.search("nothing", 1)
    clock.advance(PRUNE_AFTER_MS + 1)
    swept = await store.sweep()
    await store.close()
    file = folder / "holdfast.db"
    tables = {name: (size, unused) for name, size, unused in _query(file, "by_table.sql")}
    kinds = dict(_query(file, "by_kind.sql"))
    return SizeResult(text_bytes, file.stat().st_size, before, swept, tables, kinds, turns)


async def _converse(store: SqliteStore, generators: list[ConversationGenerator], clock: FakeClock) -> None:
    """Stream all conversations at once, a tick of each per commit, until all their turns are over."""
    await store.append(*(Append(generator.session_id, generator.created()) for generator in generators))
    waiting = {generator: _turns(generator) for generator in generators}
    while waiting:
        clock.advance(TOKEN_MS)
        appends = []
        for generator, ticks in list(waiting.items()):
            facts = next(ticks, None)
            if facts is None:
                del waiting[generator]
            else:
                appends.append(Append(generator.session_id, facts))
        if appends:
            await store.append(*appends)


def _turns(generator: ConversationGenerator) -> Iterator[list[f.AnyFact]]:
    for number in range(1, TURNS_EACH + 1):
        yield from generator.turn(number)


def _query(file: Path, query: str) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute((Path(__file__).parent / query).read_text(encoding="utf-8")).fetchall()
    finally:
        db.close()


def _lines(name: str, limit: float, weighed: SizeResult) -> list[ResultLine]:
    ratio = weighed.file_bytes / weighed.text_bytes
    text_mb, file_mb = weighed.text_bytes / 1e6, weighed.file_bytes / 1e6
    before = f"file and log before the sweep {weighed.before_bytes / weighed.text_bytes:.1f}{TIMES}"
    what = f"{name}: file beside its text, {weighed.turns:,} turns"
    figures = f"{file_mb:.2f} MB for {text_mb:.2f} MB"
    assert weighed.swept.mismatched == 0, "deltas did not add up to their bodies"
    lines = [ResultLine(PART, what, figures, f"≤ {limit:g}{TIMES}", before, ratio, ratio <= limit)]
    tables = {name: sizes for name, sizes in weighed.tables.items() if not name.startswith("search")}
    found = [sizes for name, sizes in weighed.tables.items() if name.startswith("search")]
    tables["search, all of it"] = sum(size for size, _ in found), sum(unused for _, unused in found)
    for table, (size, unused) in sorted(tables.items(), key=lambda each: -each[1][0]):
        share = size / weighed.text_bytes
        if share >= _SHOWN_SHARE:
            figures = f"{size / 1e6:.2f} MB, {unused / size:.0%} of it empty"
            lines.append(info_line(PART, f"  {table}", figures, "beside the text", share))
    bodies = ((kind, size / weighed.text_bytes) for kind, size in weighed.kinds.items())
    figures = ", ".join(f"{kind} {share:.2f}" for kind, share in bodies if share >= _SHOWN_SHARE)
    whole = sum(weighed.kinds.values())
    lines.append(
        info_line(PART, "  bodies of events", figures, "beside the text", whole / weighed.text_bytes)
    )
    return lines
