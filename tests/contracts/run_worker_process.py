"""Another process that works on a run until it is killed or stopped.

`python -m tests.contracts.run_worker_process FOLDER STORY` accepts one message and runs it. It prints the
session and the run, then its progress, one line each. STORY says what the model does:
  words    streams words for ever
  nothing  begins a step and says nothing
  tool     calls an unsafe tool that blocks
  pure     calls a pure tool that blocks
  again    accepts nothing: continues the one run in the store, and says nothing
"""

import asyncio
import sys
from pathlib import Path

from holdfast.domain.ids import RunId, SessionId
from holdfast.models.ports import TextDelta
from tests.support.in_process_app import AppHarness, FakeTool, StepAction, running_app, tool_call_step

STEP_S = 0.004


async def run_worker(folder: Path, story: str) -> None:
    tool = FakeTool("lever", "pure" if story == "pure" else "unsafe")
    tool.hold = asyncio.Event()
    async with running_app(folder, tool, started=False) as app:
        app.model.steps = _steps(story)
        if story == "words":
            _slow_down(app)
        session_id, run_id, seen = await (_find(app) if story == "again" else _start_session(app))
        print(session_id, run_id, flush=True)
        await app.engine.start()
        async for event in app.store.tail(session_id, seen):
            print(event.kind, flush=True)


async def _start_session(app: AppHarness) -> tuple[SessionId, RunId, int]:
    session_id = await app.create_session()
    sent = await app.send(session_id, "Begin", key="resident")
    return session_id, sent.run_id, 0


async def _find(app: AppHarness) -> tuple[SessionId, RunId, int]:
    ((session_id, run),) = await app.store.active_runs()
    return session_id, run.id, len(await app.event_kinds(session_id))


def _steps(story: str) -> list[list[StepAction]]:
    match story:
        case "words":
            return [[TextDelta(f"w{i} ") for i in range(100_000)]]
        case "nothing" | "again":
            return [[asyncio.Event()]]
        case _:
            return [tool_call_step("lever")]


def _slow_down(app: AppHarness) -> None:
    spoken = app.model.stream

    async def stream(request, tools):  # type: ignore[no-untyped-def]
        async for delta in spoken(request, tools):
            await asyncio.sleep(STEP_S)
            yield delta

    app.model.stream = stream  # type: ignore[method-assign]


if __name__ == "__main__":
    asyncio.run(run_worker(Path(sys.argv[1]), sys.argv[2]))
