"""Does a turn cost the same however long the conversation is? `python -m bench.context`

An engine in one process, a model with a window of 32,000 tokens that answers at once, older messages summed
up as they come: what is measured is the server's own work for a turn, early in a conversation and late in it.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console

from bench.table import Line, at_most, ms, print_table, shown
from tests.support.in_process_app import house
from tests.support.small_window_model import ANSWER, SAID, WINDOW, Narrow, turn
from tests.support.summarising_model import put_in_place

PART = "Context"
LIMIT = 1.2
TURNS, QUICK_TURNS = 2_000, 400
AROUND = 100


async def measure(folder: Path, turns: int) -> list[Line]:
    """The turns up to the hundredth-or-so beside the last ones."""
    took: list[float] = []
    async with house(folder, summarise_above=0.7) as here:
        model = Narrow()
        put_in_place(here, model)
        session_id = await here.begin()
        for n in range(turns):
            begun = perf_counter()
            await turn(here, session_id, SAID.format(n=n))
            took.append((perf_counter() - begun) * 1000)
        await here.engine.summaries.settled(session_id)
    early, late = median(took[AROUND : 2 * AROUND]), median(took[-AROUND:])
    largest = max(model.counted) + ANSWER
    return [
        at_most(PART, f"Turn {turns:,} beside turn {AROUND}", late / early, LIMIT, ms(late), ms(early)),
        at_most(
            PART, "Largest request with its answer's room", largest / WINDOW, 1.0,
            f"{largest:,} tokens", f"window {WINDOW:,}",
        ),
        shown(PART, "Summaries made", f"{model.summed_up:,}"),
        shown(PART, "Requests that were refused as too long", f"{model.refused:,}"),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_TURNS} turns instead of {TURNS:,}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-context-") as folder:
        lines = asyncio.run(measure(Path(folder), QUICK_TURNS if asked.quick else TURNS))
    print_table(lines, "A long conversation", Console())


if __name__ == "__main__":
    main()
