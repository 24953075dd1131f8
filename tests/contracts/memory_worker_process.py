"""Another process that commits one turn to memory until it is killed.

`python -m tests.contracts.memory_worker_process FOLDER LOG KEY POINT` completes one turn, prints the session
and commits it to the file LOG (with idempotency keys if KEY is `keyed`). It hangs at POINT: `owed` before the
commit, `before` or `after` the provider has written it, `paid` once everything is done.
"""

import asyncio
import sys
from pathlib import Path

from tests.support.fake_memory_providers import FileProvider, memory_harness


async def run_worker(folder: Path, log_file: Path, keyed: bool, point: str) -> None:
    async with memory_harness(folder, FileProvider(log_file, keyed, point)) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "My boat is called Vega.")
        print(session_id, flush=True)
        if point != "pending":
            await harness.scheduler.commit_pending(session_id)
        print(point, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run_worker(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "keyed", sys.argv[4]))
