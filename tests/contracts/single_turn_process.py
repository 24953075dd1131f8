"""Another process that sends one message to a conversation and waits for the answer.

`python -m tests.contracts.single_turn_process FOLDER SESSION TEXT ANSWER`
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.ids import SessionId
from tests.support.in_process_app import running_app, text_step


async def run_single_turn(folder: Path, session_id: SessionId, text: str, answer: str) -> None:
    async with running_app(folder, started=False) as app:
        app.model.steps = [text_step(answer)]
        sent = await app.send(session_id, text)
        await app.wait_for_run(sent.run_id, "completed")


if __name__ == "__main__":
    asyncio.run(run_single_turn(Path(sys.argv[1]), SessionId(sys.argv[2]), sys.argv[3], sys.argv[4]))
