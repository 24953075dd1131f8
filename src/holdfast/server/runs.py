"""The work on a turn, over HTTP: look at it, stop it, let it go on, answer what it asks."""

from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.errors import NoSuchRun, NoSuchTool, RunRefused, ToolRefused
from holdfast.domain.ids import CallId, RunId
from holdfast.engine.engine import Engine
from holdfast.server import examples
from holdfast.server.problem import BadRequest
from holdfast.server.shapes import Decided, Run, run_of
from holdfast.server.telling import answers, body


class RunRoutes:
    """`/api/runs` and what is below each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        base = "/api/runs/{run_id:str}"
        moved = answers(200, Run, examples.RUN, NoSuchRun, RunRefused, sends=True)
        decided = answers(200, Run, examples.RUN, NoSuchRun, NoSuchTool, RunRefused, ToolRefused, sends=True)
        return [
            get(base, responses=answers(200, Run, examples.RUN, NoSuchRun))(self.show),
            post(f"{base}/cancel", status_code=200, responses=moved)(self.cancel),
            post(f"{base}/resume", status_code=200, responses=moved)(self.resume),
            post(f"{base}/tools/{{call_id:str}}", status_code=200, responses=decided)(self.decide),
        ]

    async def show(self, run_id: FromPath[str]) -> Run:
        """One run."""
        session_id, row = await self._engine.store.run(RunId(run_id))
        return run_of(session_id, row)

    async def cancel(self, run_id: FromPath[str]) -> Run:
        """Stop it for good. What it has written so far is kept."""
        await self._engine.cancel(RunId(run_id))
        return await self.show(run_id)

    async def resume(self, run_id: FromPath[str]) -> Run:
        """Let an interrupted run go on, or a queued one begin."""
        await self._engine.resume(RunId(run_id))
        return await self.show(run_id)

    async def decide(
        self, run_id: FromPath[str], call_id: FromPath[str], data: Annotated[Decided, body(*examples.DECIDED)]
    ) -> Run:
        """Allow or deny a tool call; or say what to do about one that may have run."""
        if data.result is not None and data.decision != "mark_done":
            raise BadRequest(why="a result goes with mark_done")
        if data.reason is not None and data.decision != "deny":
            raise BadRequest(why="a reason goes with deny")
        text = data.result if data.result is not None else data.reason
        await self._engine.resolve(RunId(run_id), CallId(call_id), data.decision, text)
        return await self.show(run_id)
