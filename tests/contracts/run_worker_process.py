"""Another process that works on a run until it is killed or stopped.

`python -m tests.contracts.run_worker_process FOLDER STORY` accepts one message and carries it out. It prints
the session and the run, then what it is doing, one line each. STORY says what the model does:
  words    streams words for ever
  nothing  begins a step and says nothing
  tool     calls an unsafe lever and holds it down
  pure     calls a pure lever and holds it down
  again    accepts nothing: goes on with the one run that is there, and says nothing
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.ids import RunId, SessionId
from holdfast.models.ports import TextDelta
from tests.support.in_process_app import House, Lever, Line, calls, house

STEP_S = 0.004


async def live(folder: Path, story: str) -> None:
    lever = Lever("lever", "pure" if story == "pure" else "unsafe")
    lever.hold = asyncio.Event()
    async with house(folder, lever, started=False) as here:
        here.model.steps = _steps(story)
        if story == "words":
            _slow_down(here)
        session_id, run_id, seen = await (_find(here) if story == "again" else _begin(here))
        print(session_id, run_id, flush=True)
        await here.engine.start()
        async for event in here.store.tail(session_id, seen):
            print(event.kind, flush=True)


async def _begin(here: House) -> tuple[SessionId, RunId, int]:
    session_id = await here.begin()
    sent = await here.say(session_id, "Begin", key="resident")
    return session_id, sent.run_id, 0


async def _find(here: House) -> tuple[SessionId, RunId, int]:
    ((session_id, run),) = await here.store.active_runs()
    return session_id, run.id, len(await here.events(session_id))


def _steps(story: str) -> list[list[Line]]:
    match story:
        case "words":
            return [[TextDelta(f"w{i} ") for i in range(100_000)]]
        case "nothing" | "again":
            return [[asyncio.Event()]]
        case _:
            return [calls("lever")]


def _slow_down(here: House) -> None:
    spoken = here.model.stream

    async def stream(request, tools):  # type: ignore[no-untyped-def]
        async for delta in spoken(request, tools):
            await asyncio.sleep(STEP_S)
            yield delta

    here.model.stream = stream  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(live(Path(sys.argv[1]), sys.argv[2]))
