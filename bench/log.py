"""`python -m bench.log`: the promises of the log, one table."""

import argparse
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from bench import flat, pages, producers, single, size
from bench.machine import OTHERS_CORES_MAX, Bystanders, described
from bench.stage import FULL, QUICK, Stage
from bench.table import Line, print_table, write_json
from holdfast.store.writer import favour_threads

QUESTIONS: Mapping[str, Callable[[Stage], list[Line]]] = MappingProxyType({
    "single": single.measure,
    "producers": producers.measure,
    "size": size.measure,
    "flat": flat.measure,
    "pages": pages.measure,
})  # fmt: skip
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "bench"


def main() -> None:
    options = _parser().parse_args()
    favour_threads()  # As the product does when it starts.
    cache = Path(os.environ.get("BENCH_DIR", CACHE))
    # Wide enough for its rows when nobody looks at it through a terminal.
    console = Console(width=None if Console().is_terminal else 200)
    stage = Stage(cache, QUICK if options.quick else FULL, console)
    started, bystanders = time.perf_counter(), Bystanders()
    lines: list[Line] = []
    for name in options.only or QUESTIONS:
        begun = time.perf_counter()
        lines += QUESTIONS[name](stage)
        stage.say(f"{name}: {time.perf_counter() - begun:.0f} s")
    others = round(bystanders.cores(), 2)
    title = "The log beside its peers" + (" (quick: too small to say much)" if options.quick else "")
    print_table(lines, title, console, doubtful=others > OTHERS_CORES_MAX)
    if others > OTHERS_CORES_MAX:
        console.print(
            f"[red bold]Others kept {others} cores busy meanwhile: no yes or no here can be believed. "
            "Run it again on a quiet machine.[/red bold]"
        )
    machine = {
        **described(),
        "folder": str(cache),
        "quick": options.quick,
        "seconds": round(time.perf_counter() - started),
        "others_cores": others,
    }
    stage.say(", ".join(f"{name} {value}" for name, value in machine.items()))
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
