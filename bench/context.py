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

from bench.table import ResultLine, info_line, ms, print_table, ratio_line
from tests.support.in_process_app import running_app
from tests.support.small_window_model import ANSWER, USER_TEXT, WINDOW, SmallWindowModel, run_turn
from tests.support.summarising_model import install_model

PART = "Context"
LIMIT = 1.2
TURNS, QUICK_TURNS = 2_000, 400
AROUND = 100


async def measure(folder: Path, turns: int) -> list[ResultLine]:
    """Compare the turns up to about the hundredth with the last ones."""
    took: list[float] = []
    async with running_app(folder, summarise_above=0.7) as app:
        model = SmallWindowModel()
        install_model(app, model)
        session_id = await app.create_session()
        for n in range(turns):
            begun = perf_counter()
            await run_turn(app, session_id, USER_TEXT.format(n=n))
            took.append((perf_counter() - begun) * 1000)
        await app.engine.summaries.wait_idle(session_id)
    early, late = median(took[AROUND : 2 * AROUND]), median(took[-AROUND:])
    largest = max(model.counted) + ANSWER
    return [
        ratio_line(PART, f"Turn {turns:,} beside turn {AROUND}", late / early, LIMIT, ms(late), ms(early)),
        ratio_line(
            PART, "Largest request with its answer's room", largest / WINDOW, 1.0,
            f"{largest:,} tokens", f"window {WINDOW:,}",
        ),
        info_line(PART, "Summaries made", f"{model.summaries:,}"),
        info_line(PART, "Requests that were refused as too long", f"{model.rejections:,}"),
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
