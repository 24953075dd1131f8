"""`python -m bench.page`: prints one table. Linux only (it reads /proc)."""

import argparse
import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench.machine import OtherLoad, family_cpu_s
from bench.page.answers import settled_answer
from bench.page.measurements import (
    FULL,
    QUICK,
    PageBench,
    Scale,
    first_load_lines,
    live_lines,
    open_lines,
    tab_lines,
)
from bench.page.page_driver import page_visit
from bench.report import report
from bench.table import ResultLine
from bench.turn.history import write_long_history
from bench.turn.processes import running_process

MESSAGES = 10_000


async def measure(console: Console, scale: Scale, other_load: OtherLoad) -> list[ResultLine]:
    with TemporaryDirectory(prefix="holdfast-bench-", dir=Path(".cache")) as name:
        folder = Path(name) / "data"
        session_id = await write_long_history(folder, MESSAGES, settled_answer)
        with running_process("-m", "bench.page.fake_model") as model:
            env = {
                "OPENAI_BASE_URL": f"http://127.0.0.1:{model.port}/v1", "OPENAI_API_KEY": "none",
                "HOLDFAST_DATA": str(folder), "HOLDFAST_MODEL": "openai:markdown",
            }  # fmt: skip
            with running_process("-m", "holdfast", "serve", "--port", "0", env=env) as server:
                async with page_visit(server) as visit:
                    bench = PageBench(
                        visit, session_id, f"That was number {MESSAGES // 2}.", scale, console.print
                    )
                    lines = first_load_lines()
                    lines += await open_lines(bench)
                    lines += await live_lines(bench)
                    lines += await tab_lines(bench)
                    other_load.stop()
                    assert not visit.wrongs, visit.wrongs
                    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="one round, 10 s of streaming: for trying a change"
    )
    parser.add_argument("--json", type=Path, help="leave the figures here too")
    chosen = parser.parse_args()
    # Wide enough for its rows when the output is not a terminal.
    console = Console(width=None if Console().is_terminal else 160)
    Path(".cache").mkdir(exist_ok=True)
    other_load = OtherLoad(family_cpu_s)
    lines = asyncio.run(measure(console, QUICK if chosen.quick else FULL, other_load))
    report(lines, "The page, in Chromium", console, other_load, chosen.quick, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
