"""Another process that tells memory of one turn until it is killed.

`python -m tests.contracts.memory_worker_process FOLDER DIARY KEY POINT` completes one turn, prints the
session and tells the diary of it (which takes keys if KEY is `keyed`). It hangs at POINT: `owed` before
telling it, `before` or `after` the diary has written it down, `paid` once everything is done.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.fake_memory_providers import FileProvider, memory_harness


async def run_worker(folder: Path, diary: Path, keyed: bool, point: str) -> None:
    async with memory_harness(folder, FileProvider(diary, keyed, point)) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "My boat is called Vega.")
        print(session_id, flush=True)
        if point != "pending":
            await harness.scheduler.commit_pending(session_id)
        print(point, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run_worker(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "keyed", sys.argv[4]))
