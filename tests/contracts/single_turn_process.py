"""Another process that says one thing in a conversation and sees it answered.

`python -m tests.contracts.single_turn_process FOLDER SESSION TEXT ANSWER`
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.ids import SessionId
from tests.support.in_process_app import house, says


async def speak(folder: Path, session_id: SessionId, text: str, answer: str) -> None:
    async with house(folder, started=False) as here:
        here.model.steps = [says(answer)]
        sent = await here.say(session_id, text)
        await here.until_run(sent.run_id, "completed")


if __name__ == "__main__":
    asyncio.run(speak(Path(sys.argv[1]), SessionId(sys.argv[2]), sys.argv[3], sys.argv[4]))
