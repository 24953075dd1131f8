"""The measurements of the page and their result lines. Every figure is the median of the rounds."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from bench.harness import percentile
from bench.page.answers import end
from bench.page.page_driver import PageVisit, Tab, TabRecording
from bench.table import ResultLine, info_line
from tools.page import BUILT
from tools.page_size import FIRST_LOAD_BYTES_MAX, compressed_bytes, first_load

RATE = 100
TABS = 10
OPEN_MS_MAX, TASK_MS_MAX, LAG_MS_MAX, ELEVENTH_MS_MAX = 200, 50, 250, 2_000
LATE_S_MAX = 60
"""An answer that takes this much longer than its stream fails the bench."""
SETTLING_MARKS = 4
"""Two seconds: at first a browser draws hidden tabs only once a second."""
OPEN_PART = "a conversation of 10,000 messages"
STREAM_PART = f"{RATE} tokens/s into it"
TABS_PART = f"{TABS} tabs of it while it streams"


@dataclass(frozen=True)
class Scale:
    """The number of repetitions, and the length of answers."""

    rounds: int
    stream_s: int
    tabs_s: int


QUICK, FULL = Scale(1, 10, 8), Scale(3, 60, 20)


@dataclass
class PageBench:
    """The long conversation in one browser. Each answer has its own number, which its marks carry."""

    visit: PageVisit
    session_id: str
    last_words: str
    scale: Scale
    print_progress: Callable[[str], None]
    seeds: "count[int]" = field(default_factory=lambda: count(1))

    def rounds(self, what: str) -> range:
        self.print_progress(f"[dim]{what}[/dim]")
        return range(self.scale.rounds)


def first_load_lines() -> list[ResultLine]:
    files = first_load(BUILT)
    size, whole = compressed_bytes(files), sum(map(len, files.values()))
    return [ResultLine(
        "first load", f"{len(files)} files, gzipped", f"{size / 1_000:.1f} kB",
        f"≤ {FIRST_LOAD_BYTES_MAX / 1_000:.0f} kB", f"not compressed {whole / 1_000:.0f} kB",
        is_met=size <= FIRST_LOAD_BYTES_MAX,
    )]  # fmt: skip


async def open_lines(bench: PageBench) -> list[ResultLine]:
    """Measure opening the conversation in a loaded page, and with a full page load."""
    warm, cold = [], []
    for _ in bench.rounds("opening"):
        tab = await bench.visit.tab()
        await tab.ready()
        warm.append(await tab.switch_ms(bench.session_id, bench.last_words))
        await tab.page.close()
        tab = await bench.visit.tab(bench.session_id)
        cold.append(await tab.load_ms(bench.last_words))
        await tab.page.close()
    return [
        _limit_line(OPEN_PART, "opened, its end painted", median(warm), OPEN_MS_MAX),
        info_line(OPEN_PART, "the same with a load of the whole page", f"{median(cold):.0f} ms"),
    ]


def _limit_line(part: str, what: str, found_ms: float, limit_ms: int) -> ResultLine:
    return ResultLine(part, what, f"{found_ms:.0f} ms", f"≤ {limit_ms} ms", is_met=found_ms <= limit_ms)


async def live_lines(bench: PageBench) -> list[ResultLine]:
    seconds = bench.scale.stream_s
    tab = await bench.visit.tab(bench.session_id)
    await tab.load_ms(bench.last_words)
    recordings, shares = [], []
    for _ in bench.rounds(f"streaming, {seconds} s each"):
        busy = await tab.busy_s()
        recordings.append(await _stream_answer(bench, tab, seconds))
        shares.append(100 * (await tab.busy_s() - busy) / seconds)
    bench.print_progress(f"[dim]the same traced, then without an end to its block, {seconds} s each[/dim]")
    trace = await tab.trace()
    await _stream_answer(bench, tab, seconds)
    spent = await trace.end()
    unbroken = await _stream_answer(bench, tab, seconds, "!")
    await tab.page.close()
    tasks = median(len(each.tasks) for each in recordings)
    frame_ms = median(percentile(each.frames, 99) for each in recordings)
    return [
        ResultLine(
            STREAM_PART, f"{seconds} s of Markdown: tasks above {TASK_MS_MAX} ms", f"{tasks:g}", "0",
            f"longest of all {_longest(recordings)}", is_met=tasks == 0,
        ),
        info_line(
            STREAM_PART, "the longest task by the processor's clock", f"{max(spent):.1f} ms",
            "a round of its own, traced",
        ),
        info_line(STREAM_PART, "time between frames, p99", f"{frame_ms:.1f} ms"),
        info_line(STREAM_PART, "work of the page's main thread", f"{median(shares):.0f} % of a core"),
        info_line(
            STREAM_PART, f"one piece of code without an end: tasks above {TASK_MS_MAX} ms",
            f"{len(unbroken.tasks)}", f"longest {_longest([unbroken])}",
        ),
    ]  # fmt: skip


async def _stream_answer(bench: PageBench, tab: Tab, seconds: int, kind: str = "") -> TabRecording:
    """Return the recording of `tab` while an answer streams in it."""
    seed = next(bench.seeds)
    await tab.watch()
    await tab.send(f"{seed}:{seconds * RATE}@{RATE}{kind}")
    await tab.load_ms(f"mark-{seed}-0 ")
    await tab.wait_for_answer(seconds + LATE_S_MAX)
    bench.last_words = end(seed)
    return await tab.recording()


def _longest(recordings: Sequence[TabRecording]) -> str:
    tasks = [task for each in recordings for task in each.tasks]
    return f"{max(tasks):.0f} ms" if tasks else f"below {TASK_MS_MAX} ms"


async def tab_lines(bench: PageBench) -> list[ResultLine]:
    lags, strays, loads = [], [], []
    for _ in bench.rounds(f"{TABS} tabs, {bench.scale.tabs_s} s each"):
        lag, different, load = await _compare_tabs(bench)
        lags.append(lag)
        strays.append(different)
        loads.append(load)
    different = max(strays)
    return [
        ResultLine(
            TABS_PART, "tabs that read otherwise in the end", f"{different} of {TABS + 1}", "0",
            is_met=different == 0,
        ),
        _limit_line(TABS_PART, "the last tab behind the first, p99 of all marks", median(lags), LAG_MS_MAX),
        _limit_line(TABS_PART, "an eleventh loads and shows what is written", median(loads), ELEVENTH_MS_MAX),
    ]  # fmt: skip


async def _compare_tabs(bench: PageBench) -> tuple[float, int, float]:
    """Return the lag between the tabs, how many differ in the end, and the load time of the eleventh."""
    tabs = [await bench.visit.tab(bench.session_id) for _ in range(TABS)]
    await asyncio.gather(*(tab.load_ms(bench.last_words) for tab in tabs))
    seed = next(bench.seeds)
    await asyncio.gather(*(tab.follow(seed) for tab in tabs))
    await tabs[0].send(f"{seed}:{bench.scale.tabs_s * RATE}@{RATE}")
    await tabs[0].load_ms(f"mark-{seed}-2 ")
    eleventh = await bench.visit.tab(bench.session_id)
    load = await eleventh.load_ms(f"mark-{seed}-")
    bench.last_words = end(seed)
    await asyncio.gather(*(tab.load_ms(bench.last_words) for tab in [*tabs, eleventh]))
    await asyncio.gather(*(tab.wait_for_answer(LATE_S_MAX) for tab in [*tabs, eleventh]))
    read = [await tab.read_texts() for tab in [*tabs, eleventh]]
    recordings = [await tab.recording() for tab in tabs]
    for tab in [*tabs, eleventh]:
        await tab.page.close()
    assert bench.last_words in read[0][-1], read[0][-1]
    return percentile(_tab_lags(recordings), 99), sum(each != read[0] for each in read), load


def _tab_lags(recordings: Sequence[TabRecording]) -> list[float]:
    """Return the lag of each mark from the first tab to the last; the beginning is left out."""
    marks = [each.marks for each in recordings]
    assert all(each.keys() == marks[0].keys() for each in marks), "a tab has missed a mark"
    steady = [name for name in marks[0] if int(name) >= SETTLING_MARKS]
    return [max(each[name] for each in marks) - min(each[name] for each in marks) for name in steady]
