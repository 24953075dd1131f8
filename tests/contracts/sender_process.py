"""Another process that keeps sending to one conversation.

`python -m tests.contracts.sender_process FOLDER SESSION NAME` sends messages with keys, each after the answer
to the one before, until enough of them were stored in another conversation than the one they were sent to. It
prints the key, the conversation and the turn of each, then a dot, and waits to be killed.
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.ids import SessionId
from tests.support.in_process_app import running_app

MOVED, MESSAGES_MAX = 4, 400


async def run_sender(folder: Path, session_id: SessionId, name: str) -> None:
    moved = 0
    async with running_app(folder) as app:
        for number in range(MESSAGES_MAX):
            key = f"{name}-{number}"
            sent = await app.send(session_id, key, key=key)
            print(key, sent.session_id, sent.turn_id, flush=True)
            moved += sent.session_id != session_id
            await app.wait_for_run(sent.run_id, "completed")
            if moved == MOVED:
                break
            # A person draws breath too: there are moments in which nothing is under way.
            await asyncio.sleep(0.02)
        print(".", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(run_sender(Path(sys.argv[1]), SessionId(sys.argv[2]), sys.argv[3]))
