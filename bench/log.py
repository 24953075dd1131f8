"""`python -m bench.log`: the promises of the log, one table."""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from bench import pages, producers, scaling, single, size
from bench.harness import FULL, QUICK, BenchHarness
from bench.machine import OTHERS_CORES_MAX, OtherLoad, describe_machine
from bench.table import ResultLine, print_table, write_json
from holdfast.store.writer import shorten_thread_switches

QUESTIONS: Mapping[str, Callable[[BenchHarness], list[ResultLine]]] = MappingProxyType({
    "single": single.measure,
    "producers": producers.measure,
    "size": size.measure,
    "flat": scaling.measure,
    "pages": pages.measure,
})  # fmt: skip
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "bench"


def main() -> None:
    options = _parser().parse_args()
    shorten_thread_switches()  # The product does the same when it starts.
    cache = Path(os.environ.get("BENCH_DIR", CACHE))
    # Wide enough for its rows when the output is not a terminal.
    console = Console(width=None if Console().is_terminal else 200)
    stage = BenchHarness(cache, QUICK if options.quick else FULL, console)
    started, other_load = time.perf_counter(), OtherLoad()
    lines: list[ResultLine] = []
    for name in options.only or QUESTIONS:
        begun = time.perf_counter()
        lines += QUESTIONS[name](stage)
        stage.print_progress(f"{name}: {time.perf_counter() - begun:.0f} s")
    others = round(other_load.cores(), 2)
    title = "The log beside its peers" + (" (quick: too small to say much)" if options.quick else "")
    print_table(lines, title, console, doubtful=others > OTHERS_CORES_MAX)
    if others > OTHERS_CORES_MAX:
        console.print(
            f"[red bold]Others kept {others} cores busy meanwhile: no yes or no here can be believed. "
            "Run it again on a quiet machine.[/red bold]"
        )
    machine = {
        **describe_machine(),
        "folder": str(cache),
        "quick": options.quick,
        "seconds": round(time.perf_counter() - started),
        "others_cores": others,
    }
    stage.print_progress(", ".join(f"{name} {value}" for name, value in machine.items()))
    if options.json:
        write_json(lines, machine, cache / "log.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small version, in less than a minute")
    parser.add_argument("--json", action="store_true", help="also write log.json into the bench folder")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, metavar="QUESTION", help=", ".join(QUESTIONS))
    return parser


if __name__ == "__main__":
    main()
