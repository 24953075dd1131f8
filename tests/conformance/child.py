"""Another process of the conformance suite: it opens the content of a test and does one thing with it.

It prints `ready` once the store is open, then a line for each step. A line on its input lets it continue.
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.events import facts as f
from holdfast.domain.ids import RunId, SessionId
from holdfast.store.ports import Append, Store
from tests.conformance.factories import FACTORIES
from tests.support.turn_events import accept


def write_line(*words: object) -> None:
    print(*words, flush=True)


async def read_line() -> str:
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def rename(store: Store, session: str, count: str) -> None:
    """Rename the session for each line read, and print the seq."""
    for n in range(int(count)):
        await read_line()
        (receipt,) = await store.append(Append(SessionId(session), (f.SessionRenamed(f"{n}", "user"),)))
        write_line(receipt.last_seq)


async def send(store: Store, session: str, count: str) -> None:
    """Send turns as fast as they are stored."""
    for n in range(int(count)):
        await store.append(accept(SessionId(session), f"turn {n} of another process"))
    write_line("sent")


async def claim(store: Store, run_id: str, lease_ms: str) -> None:
    """Claim a run, print the epoch, and hold the lease until a line is read."""
    lease = await store.claim(RunId(run_id), int(lease_ms))
    write_line(lease.epoch)
    await read_line()


COMMANDS = (rename, send, claim)


async def main(factory: str, place: str, command: str, *words: str) -> None:
    home = FACTORIES[factory](Path(place))
    store = await home.open()
    write_line("ready")
    await next(known for known in COMMANDS if known.__name__ == command)(store, *words)
    await home.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
