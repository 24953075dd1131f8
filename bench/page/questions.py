"""What is asked of the page, and the lines that answer it. Every figure is the median of the rounds."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median

from bench.page.answers import end
from bench.page.visit import Tab, Told, Visit
from bench.stage import percentile
from bench.table import Line, shown
from tools.page import BUILT
from tools.page_size import FIRST_LOAD_BYTES_MAX, compressed_bytes, first_load

RATE = 100
TABS = 10
OPEN_MS_MAX, TASK_MS_MAX, LAG_MS_MAX, ELEVENTH_MS_MAX = 200, 50, 250, 2_000
LATE_S_MAX = 60
"""How much longer an answer may take than it is written, before the bench gives up."""
SETTLING_MARKS = 4
"""Two seconds: at first a browser draws the tabs behind the one in front only once a second."""
OPENING = "a conversation of 10,000 messages"
STREAMING = f"{RATE} tokens/s into it"
TOGETHER = f"{TABS} tabs of it while it streams"


@dataclass(frozen=True)
class Scale:
    """How often each question is asked, and how long its answers are written."""

    rounds: int
    stream_s: int
    tabs_s: int


QUICK, FULL = Scale(1, 10, 8), Scale(3, 60, 20)


@dataclass
class Desk:
    """The long conversation in one browser. Each answer has a number of its own, which its marks carry."""

    visit: Visit
    session_id: str
    last_words: str
    scale: Scale
    say: Callable[[str], None]
    seeds: "count[int]" = field(default_factory=lambda: count(1))

    def rounds(self, what: str) -> range:
        self.say(f"[dim]{what}[/dim]")
        return range(self.scale.rounds)


def first_load_lines() -> list[Line]:
    files = first_load(BUILT)
    size, whole = compressed_bytes(files), sum(map(len, files.values()))
    return [Line(
        "first load", f"{len(files)} files, gzipped", f"{size / 1_000:.1f} kB",
        f"≤ {FIRST_LOAD_BYTES_MAX / 1_000:.0f} kB", f"not compressed {whole / 1_000:.0f} kB",
        met=size <= FIRST_LOAD_BYTES_MAX,
    )]  # fmt: skip


async def open_lines(desk: Desk) -> list[Line]:
    """Opening the conversation in a page that is there, and by a whole load of the page."""
    warm, cold = [], []
    for _ in desk.rounds("opening"):
        tab = await desk.visit.tab()
        await tab.ready()
        warm.append(await tab.goes_ms(desk.session_id, desk.last_words))
        await tab.page.close()
        tab = await desk.visit.tab(desk.session_id)
        cold.append(await tab.shows_ms(desk.last_words))
        await tab.page.close()
    return [
        _within(OPENING, "opened, its end painted", median(warm), OPEN_MS_MAX),
        shown(OPENING, "the same with a load of the whole page", f"{median(cold):.0f} ms"),
    ]


def _within(part: str, what: str, found_ms: float, limit_ms: int) -> Line:
    return Line(part, what, f"{found_ms:.0f} ms", f"≤ {limit_ms} ms", met=found_ms <= limit_ms)


async def live_lines(desk: Desk) -> list[Line]:
    seconds = desk.scale.stream_s
    tab = await desk.visit.tab(desk.session_id)
    await tab.shows_ms(desk.last_words)
    told, shares = [], []
    for _ in desk.rounds(f"streaming, {seconds} s each"):
        busy = await tab.busy_s()
        told.append(await _streamed(desk, tab, seconds))
        shares.append(100 * (await tab.busy_s() - busy) / seconds)
    desk.say(f"[dim]the same traced, then without an end to its block, {seconds} s each[/dim]")
    trace = await tab.trace()
    await _streamed(desk, tab, seconds)
    spent = await trace.end()
    unbroken = await _streamed(desk, tab, seconds, "!")
    await tab.page.close()
    tasks = median(len(each.tasks) for each in told)
    frame_ms = median(percentile(each.frames, 99) for each in told)
    return [
        Line(
            STREAMING, f"{seconds} s of Markdown: tasks above {TASK_MS_MAX} ms", f"{tasks:g}", "0",
            f"longest of all {_longest(told)}", met=tasks == 0,
        ),
        shown(
            STREAMING, "the longest task by the processor's clock", f"{max(spent):.1f} ms",
            "a round of its own, traced",
        ),
        shown(STREAMING, "time between frames, p99", f"{frame_ms:.1f} ms"),
        shown(STREAMING, "work of the page's main thread", f"{median(shares):.0f} % of a core"),
        shown(
            STREAMING, f"one piece of code without an end: tasks above {TASK_MS_MAX} ms",
            f"{len(unbroken.tasks)}", f"longest {_longest([unbroken])}",
        ),
    ]  # fmt: skip


async def _streamed(desk: Desk, tab: Tab, seconds: int, kind: str = "") -> Told:
    """What `tab` noted while an answer was written in it."""
    seed = next(desk.seeds)
    await tab.watch()
    await tab.ask(f"{seed}:{seconds * RATE}@{RATE}{kind}")
    await tab.shows_ms(f"mark-{seed}-0 ")
    await tab.answered(seconds + LATE_S_MAX)
    desk.last_words = end(seed)
    return await tab.told()


def _longest(told: Sequence[Told]) -> str:
    tasks = [task for each in told for task in each.tasks]
    return f"{max(tasks):.0f} ms" if tasks else f"below {TASK_MS_MAX} ms"


async def tab_lines(desk: Desk) -> list[Line]:
    lags, strays, loads = [], [], []
    for _ in desk.rounds(f"{TABS} tabs, {desk.scale.tabs_s} s each"):
        lag, different, load = await _together(desk)
        lags.append(lag)
        strays.append(different)
        loads.append(load)
    different = max(strays)
    return [
        Line(
            TOGETHER, "tabs that read otherwise in the end", f"{different} of {TABS + 1}", "0",
            met=different == 0,
        ),
        _within(TOGETHER, "the last tab behind the first, p99 of all marks", median(lags), LAG_MS_MAX),
        _within(TOGETHER, "an eleventh loads and shows what is written", median(loads), ELEVENTH_MS_MAX),
    ]  # fmt: skip


async def _together(desk: Desk) -> tuple[float, int, float]:
    """How far the tabs were apart, how many differ in the end, and how long the eleventh took to load."""
    tabs = [await desk.visit.tab(desk.session_id) for _ in range(TABS)]
    await asyncio.gather(*(tab.shows_ms(desk.last_words) for tab in tabs))
    seed = next(desk.seeds)
    await asyncio.gather(*(tab.follow(seed) for tab in tabs))
    await tabs[0].ask(f"{seed}:{desk.scale.tabs_s * RATE}@{RATE}")
    await tabs[0].shows_ms(f"mark-{seed}-2 ")
    eleventh = await desk.visit.tab(desk.session_id)
    load = await eleventh.shows_ms(f"mark-{seed}-")
    desk.last_words = end(seed)
    await asyncio.gather(*(tab.shows_ms(desk.last_words) for tab in [*tabs, eleventh]))
    await asyncio.gather(*(tab.answered(LATE_S_MAX) for tab in [*tabs, eleventh]))
    read = [await tab.reads() for tab in [*tabs, eleventh]]
    told = [await tab.told() for tab in tabs]
    for tab in [*tabs, eleventh]:
        await tab.page.close()
    assert desk.last_words in read[0][-1], read[0][-1]
    return percentile(_apart(told), 99), sum(each != read[0] for each in read), load


def _apart(told: Sequence[Told]) -> list[float]:
    """Of each mark, how long after the first tab the last one drew it; the beginning is left out."""
    marks = [each.marks for each in told]
    assert all(each.keys() == marks[0].keys() for each in marks), "a tab has missed a mark"
    steady = [name for name in marks[0] if int(name) >= SETTLING_MARKS]
    return [max(each[name] for each in marks) - min(each[name] for each in marks) for name in steady]
