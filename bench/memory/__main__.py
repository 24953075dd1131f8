"""`python -m bench.memory`: turns with a memory, slow or not, beside turns without; prints one table."""

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import aiohttp
import uvloop
from rich.console import Console

from bench.machine import OtherLoad, family_cpu_s
from bench.memory.conversations import MeasuredServer
from bench.memory.installed.slow_memory import SLOW_S
from bench.report import report
from bench.table import ResultLine, info_line, ratio_line
from bench.turn.processes import ROOT, running_process
from bench.turn.reader import BENCH_TOKEN
from holdfast.memory.providers.installed import FOLDER

TALKS = 6
TURNS = 200
PACE_S = 0.03
"""The pause between a turn and the next, on whichever side."""
RATIO_MAX = 1.1
NEAR_MS = 2.0
"""A difference below this is not noticeable."""
FIRST_MS_MAX = 250 + 25
"""The most that the turn that waits for a slow memory may add: the timeout, and one turn's noise."""
INSTALLED = Path(__file__).with_name("installed")
SIDES: Mapping[str, str] = MappingProxyType(
    {"off": "no memory", "notes": "the notes", "slow": f"a memory that takes {SLOW_S} s"}
)


@contextmanager
def _environs(folder: Path, model_port: int) -> Iterator[dict[str, dict[str, str]]]:
    """Yield the environment of each server, by memory: equal but for the memory."""
    environs: dict[str, dict[str, str]] = {}
    for memory in SIDES:
        own = folder / memory / "store"
        own.mkdir(mode=0o700, parents=True)
        (own / "token").write_text(BENCH_TOKEN)
        (own / "token").chmod(0o600)
        environs[memory] = {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{model_port}/v1", "OPENAI_API_KEY": "none",
            "HOLDFAST_DATA": str(own), "HOLDFAST_MODEL": "openai:15@400", "HOLDFAST_MEMORY": memory,
            "HOLDFAST_MEMORY_IDLE_S": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT, INSTALLED))),
        }  # fmt: skip
    yield environs


@asynccontextmanager
async def _sides(environs: Mapping[str, dict[str, str]]) -> AsyncIterator[dict[str, MeasuredServer]]:
    with ExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        headers = {"Authorization": f"Bearer {BENCH_TOKEN}"}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as http:
            sides: dict[str, MeasuredServer] = {}
            for memory, environ in environs.items():
                process = stack.enter_context(
                    running_process("-m", "holdfast", "serve", "--port", "0", env=environ)
                )
                sides[memory] = MeasuredServer(process, http)
                await sides[memory].create_sessions(TALKS)
            yield sides
            for side in sides.values():
                side.close()


async def measure(console: Console, turns: int) -> list[ResultLine]:
    with (
        TemporaryDirectory(prefix="holdfast-bench-", dir=Path(".cache")) as name,
        running_process("-m", "bench.memory.fake_model") as model,
        _environs(Path(name), model.port) as environs,
    ):
        async with _sides(environs) as sides:
            for side in sides.values():
                await side.turn(0)
            (Path(environs["slow"]["HOLDFAST_DATA"]) / FOLDER / "slow" / "slow").touch()
            for side in sides.values():
                # In this turn the memory turns out to be slow; reported apart, for the other memories too.
                side.first_slow_ms, _ = await side.turn(1)
            order = list(sides.values())
            for number in range(2, turns + 2):
                for side in order:
                    await side.timed_turn(number)
                    await asyncio.sleep(PACE_S)
                order.append(order.pop(0))
                if (number - 1) % 30 == 0:
                    console.print(f"{number - 1} of {turns} turns …")
            return [*_lines(sides), *await _meanwhile(sides)]


def _lines(sides: Mapping[str, MeasuredServer]) -> list[ResultLine]:
    lines: list[ResultLine] = []
    for memory in ("slow", "notes"):
        for what, is_whole in (("first token", False), ("completed", True)):
            ours, plain = (sides[each].times.figures(is_whole) for each in (memory, "off"))
            for name, mine, peer in zip(("p50", "p99", "worst"), ours, plain, strict=True):
                measured, beside = f"{mine:.1f} ms", f"without {peer:.1f} ms"
                part, row = SIDES[memory], f"send → {what}, {name}"
                if memory == "slow" and name != "worst":
                    near = mine - peer <= NEAR_MS
                    lines.append(ratio_line(part, row, mine / peer, RATIO_MAX, measured, beside, or_met=near))
                else:
                    lines.append(info_line(part, row, measured, beside, mine / peer))
    return lines


async def _meanwhile(sides: Mapping[str, MeasuredServer]) -> list[ResultLine]:
    segments = {memory: await side.committed_segments() for memory, side in sides.items()}
    slow, plain = sides["slow"].first_slow_ms, sides["off"].first_slow_ms
    return [
        ResultLine(
            "apart", "the turn at which it becomes slow: send → first token",
            f"{slow:.1f} ms", f"≤ {FIRST_MS_MAX} ms more",
            f"without {plain:.1f} ms; none waits for it again", slow / plain,
            slow - plain <= FIRST_MS_MAX,
        ),
        info_line("apart", "stretches told meanwhile: the slow memory", str(segments["slow"])),
        info_line("apart", "the same: the notes", str(segments["notes"])),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="30 turns: for trying a change")
    parser.add_argument("--json", type=Path, help="leave the figures here too")
    chosen = parser.parse_args()
    console = Console(width=None if Console().is_terminal else 150)
    Path(".cache").mkdir(exist_ok=True)
    other_load, turns = OtherLoad(family_cpu_s), 30 if chosen.quick else TURNS
    lines = uvloop.run(measure(console, turns))
    report(
        lines, f"{turns} turns in {TALKS} conversations each", console, other_load, chosen.quick, chosen.json
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
