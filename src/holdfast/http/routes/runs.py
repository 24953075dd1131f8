"""Show, cancel and resume runs over HTTP, and decide their tool calls."""

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.decisions.questions import Reply
from holdfast.domain.decisions.tools import is_complete
from holdfast.domain.errors import (
    AnswerRefused,
    CommandForbidden,
    NoSuchRun,
    NoSuchToolCall,
    RuleRefused,
    RunRefused,
    ToolRefused,
)
from holdfast.domain.ids import CallId, RunId
from holdfast.domain.shell.rules import ApprovalGrant
from holdfast.engine.engine import Engine
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import ToolCallDecision
from holdfast.http.schemas.responses import RunInfo, run_info


class RunRoutes:
    """Serve `/api/runs` and the paths below each run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        base = "/api/runs/{run_id:str}"
        moved = response_specs(200, RunInfo, examples.RUN, NoSuchRun, RunRefused, has_body=True)
        refusals = (
            NoSuchRun,
            NoSuchToolCall,
            RunRefused,
            ToolRefused,
            RuleRefused,
            CommandForbidden,
            AnswerRefused,
        )
        decided = response_specs(200, RunInfo, examples.RUN, *refusals, has_body=True)
        return [
            get(base, responses=response_specs(200, RunInfo, examples.RUN, NoSuchRun))(self.show),
            post(f"{base}/cancel", status_code=200, responses=moved)(self.cancel),
            post(f"{base}/resume", status_code=200, responses=moved)(self.resume),
            post(f"{base}/tools/{{call_id:str}}", status_code=200, responses=decided)(self.decide),
        ]

    async def show(self, run_id: FromPath[str]) -> RunInfo:
        """One run."""
        session_id, row = await self._engine.store.run(RunId(run_id))
        return run_info(session_id, row)

    async def cancel(self, run_id: FromPath[str]) -> RunInfo:
        """Stop it for good. What it has written so far is kept."""
        await self._engine.cancel(RunId(run_id))
        return await self.show(run_id)

    async def resume(self, run_id: FromPath[str]) -> RunInfo:
        """Let a run go on that was interrupted or waits at a limit, or a queued one begin."""
        await self._engine.resume(RunId(run_id))
        return await self.show(run_id)

    async def decide(
        self,
        run_id: FromPath[str],
        call_id: FromPath[str],
        data: Annotated[ToolCallDecision, request_body(*examples.TOOL_CALL_DECISION)],
    ) -> RunInfo:
        """Allow, change or deny a tool call, answer one that asks; or say what to do if it may have run."""
        allowed, run, call = parse_approval(data), RunId(run_id), CallId(call_id)
        if data.decision == "answer":
            await self._engine.answer(run, call, Reply(data.text or "", data.choices or ()))
        else:
            text = data.result if data.result is not None else data.reason
            await self._engine.resolve(run, call, data.decision, text, allowed)
        return await self.show(run_id)


def parse_approval(data: ToolCallDecision) -> ApprovalGrant:
    """Return the scope of an approval. Raises BadRequest if the fields do not go together."""
    if data.result is not None and data.decision != "mark_done":
        raise BadRequest(why="a result goes with mark_done")
    if data.reason is not None and data.decision != "deny":
        raise BadRequest(why="a reason goes with deny")
    approve_only = (("scope", data.scope), ("rule", data.rule), ("arguments", data.arguments))
    for name, value in approve_only:
        if value is not None and data.decision != "approve":
            raise BadRequest(why=f"{name} goes with approve")
    if (data.text is not None or data.choices is not None) and data.decision != "answer":
        raise BadRequest(why="text and choices go with answer")
    scope = data.scope or "once"
    if data.rule is not None and scope == "once":
        raise BadRequest(why="a rule goes with the scope session or always")
    return ApprovalGrant(scope, data.rule or "", _encode_arguments(data.arguments))


def _encode_arguments(arguments: dict[str, Any] | str | None) -> str | None:
    if arguments is None:
        return None
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
    if not is_complete(text):
        raise BadRequest(why="arguments: not one whole JSON object")
    return text
