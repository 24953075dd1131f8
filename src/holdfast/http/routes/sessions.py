"""Create, list, read, change and delete conversations over HTTP; drafts, questions and read marks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from litestar import Request, delete, get, patch, post
from litestar.params import FromPath, FromQuery, HeaderParameter, QueryParameter
from msgspec.structs import replace

from holdfast.agent.config.info import AgentService
from holdfast.domain.agents import MAIN_AGENT, NoSuchAgent
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import Right
from holdfast.domain.errors import BadCursor, NoSuchSession, RunRefused, SeqMismatch
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import PAGE_SESSIONS_MAX, QUESTIONS_MAX
from holdfast.domain.state.rows import QueuedCommitRow
from holdfast.engine.drafts import Drafts
from holdfast.engine.engine import Engine
from holdfast.engine.workspaces import workspace_problem
from holdfast.http.authenticator import Principal
from holdfast.http.errors import BadRequest, NotAllowed
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import NAME_CHARS_MAX, NewDraft, NewSession, SeenUpTo, SessionChange
from holdfast.http.schemas.responses import (
    Draft,
    QuestionInfoList,
    SessionInfo,
    SessionInfoList,
    question_info,
    session_info,
)
from holdfast.status import GetServerStatus
from holdfast.store.ports import SessionPage, Snapshot, Store
from holdfast.store.session_status import SessionStatus

IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="The event that the conversation must still be at."),
]
_PAGE = 50
_CHOOSE_FOLDER_RIGHT: Right = "approve"
"""The right to choose the folder that tools work in."""


class SessionRoutes:
    """Serve `/api/sessions` and each session."""

    def __init__(
        self, engine: Engine, read_status: GetServerStatus, agents: AgentService | None = None
    ) -> None:
        self._engine = engine
        self._agents = agents
        self._read_status = read_status
        self._store = engine.store

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        one, listed = examples.SESSION, examples.SESSION_LIST
        named = "/api/sessions/{session_id:str}"
        begun = response_specs(201, SessionInfo, one, NoSuchSession, NoSuchAgent, NotAllowed, has_body=True)
        refused = (NoSuchSession, NoSuchAgent, SeqMismatch, RunRefused, NotAllowed)
        changed = response_specs(200, SessionInfo, one, *refused, has_body=True)
        return [
            post("/api/sessions", responses=begun)(self.create),
            get(
                "/api/sessions", responses=response_specs(200, SessionInfoList, listed, BadCursor, BadRequest)
            )(self.list_),
            get(named, responses=response_specs(200, SessionInfo, one, NoSuchSession))(self.show),
            patch(named, responses=changed)(self.change),
            delete(named, responses=response_specs(204, None, None, NoSuchSession, SeqMismatch, BadRequest))(
                self.delete
            ),
        ]

    async def create(
        self,
        request: Request[Principal, Any, Any],
        data: Annotated[NewSession, request_body(*examples.NEW_SESSION)],
    ) -> SessionInfo:
        """Begin a conversation. To choose its folder needs the right to approve."""
        previous = SessionId(data.previous_session_id) if data.previous_session_id is not None else None
        if previous is not None:
            await self._store.session(previous)
        await self._check_folder(request.user, data.workspace or None)
        await self._check_model(data.model)
        agent = await self._chosen_agent(request.user, data.agent)
        created = f.SessionCreated(
            data.title, agent or "", data.model, data.workspace, previous, data.remember
        )
        return await self._session(await self._engine.create(created))

    async def list_(
        self,
        cursor: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_SESSIONS_MAX)] = _PAGE,
        archived: FromQuery[bool] = False,
        q: Annotated[str, QueryParameter(max_length=NAME_CHARS_MAX)] = "",
    ) -> SessionInfoList:
        """The conversations, the most recently active first; with `archived`, those that were put away.

        With `q`, those whose titles hold every word of it.
        """

        def read(snapshot: Snapshot) -> tuple[SessionPage, Mapping[SessionId, SessionStatus]]:
            page = snapshot.sessions(cursor, limit, archived, q.split())
            return page, snapshot.session_statuses([row.id for row in page.sessions])

        page, statuses = await self._store.snapshot(read)
        rows = [(row, statuses[row.id]) for row in page.sessions]
        listed = tuple(session_info(row, at.unread, at.pinned, opening=at.opening) for row, at in rows)
        return SessionInfoList(listed, page.cursor)

    async def show(self, session_id: FromPath[str]) -> SessionInfo:
        """One conversation."""
        session = await self._session(SessionId(session_id))
        if self._agents is None:
            return session
        window = await self._agents.window_tokens(session.agent, session.model)
        answering = self._agents.model_name(session.agent, session.model)
        return replace(session, window_tokens=window, answering=answering)

    async def change(
        self,
        request: Request[Principal, Any, Any],
        session_id: FromPath[str],
        data: Annotated[SessionChange, request_body(*examples.SESSION_CHANGE)],
        if_match: IfMatch = None,
    ) -> SessionInfo:
        """Rename it, put it away or bring it back, change its settings: all at once. Its pin comes last.

        Another folder needs the right to approve, and that nothing is to be done in the one it has.
        """
        await self._check_folder(request.user, data.workspace)
        await self._check_model(data.model or "")
        agent = await self._chosen_agent(request.user, data.agent)
        configured = f.SessionConfigured(agent, data.model, data.workspace, data.resume, data.remember)
        expect = expected_seq(if_match)
        await self._engine.commands.change(
            SessionId(session_id), data.title, data.archived, configured, expect
        )
        if data.pinned is not None:
            await self._store.pin(SessionId(session_id), data.pinned)
        return await self._session(SessionId(session_id))

    async def delete(
        self,
        session_id: FromPath[str],
        if_match: IfMatch = None,
        notes: Annotated[
            Literal["keep", "delete"], QueryParameter(description="What becomes of the notes saved from it.")
        ] = "keep",
    ) -> None:
        """Delete it, stop its runs, and drop what is not in memory yet.

        With `notes=delete`, the notes that were saved from it are deleted too.
        """
        await self._engine.delete(SessionId(session_id), expected_seq(if_match), notes == "delete")

    async def _check_model(self, name: str) -> None:
        # Refused here, because a stored model that is not used would be worse.
        if name and self._agents is not None:
            await self._agents.check_model(name)
        elif name and name != (used := (await self._read_status()).model):
            raise BadRequest(why=f"there is no model {name!r} here; {used!r} answers")

    async def _chosen_agent(self, principal: Principal, name: str | None) -> str | None:
        """Return the agent's name as sessions store it: empty for `main`. Raises NoSuchAgent, NotAllowed.

        To choose an agent with a workspace or without approvals needs the right to approve.
        """
        if not name or name == MAIN_AGENT or self._agents is None:
            return "" if name == MAIN_AGENT else name
        agent = self._agents.get(name)
        if (agent.workspace or agent.approvals == "allow") and _CHOOSE_FOLDER_RIGHT not in principal.rights:
            raise NotAllowed(right=_CHOOSE_FOLDER_RIGHT, name=principal.name)
        return agent.name

    async def _check_folder(self, principal: Principal, workspace: str | None) -> None:
        """Raise NotAllowed or BadRequest if the caller may not choose the folder; tools read it freely."""
        if workspace is not None and _CHOOSE_FOLDER_RIGHT not in principal.rights:
            raise NotAllowed(right=_CHOOSE_FOLDER_RIGHT, name=principal.name)
        if workspace:
            _check_folder(workspace, (await self._read_status()).data)

    async def _session(self, session_id: SessionId) -> SessionInfo:
        return await load_session_info(self._store, session_id)


async def load_session_info(store: Store, session_id: SessionId) -> SessionInfo:
    """Return a session as a response describes it. Raises NoSuchSession."""

    def read(snapshot: Snapshot) -> SessionInfo:
        head = snapshot.head(session_id)
        status = snapshot.session_statuses((session_id,))[session_id]
        remembered_at = _remembered_at(snapshot.queued_commits(session_id))
        notes = snapshot.count_notes(session_id)
        return session_info(
            status.row, status.unread, status.pinned, head, remembered_at, status.opening, notes
        )

    return await store.snapshot(read)


def _remembered_at(queue: Sequence[QueuedCommitRow]) -> Instant | None:
    """Return when the newest finished commit started; None if that one was dropped."""
    finished = [entry for entry in queue if entry.state in ("committed", "dropped")]
    return finished[-1].started_at if finished and finished[-1].state == "committed" else None


def expected_seq(if_match: str | None) -> Seq | None:
    """Return the seq in If-Match, if any. Raises BadRequest."""
    if if_match is None:
        return None
    number = if_match.strip().removeprefix('"').removesuffix('"')
    if not (number.isascii() and number.isdecimal()) or len(number) > 18:
        raise BadRequest(why=f"If-Match must be the number of an event, not {if_match[:40]!r}")
    return int(number)


def _check_folder(workspace: str, own: Path) -> None:
    if why := workspace_problem(own, workspace):
        raise BadRequest(why=f"workspace {why}")


_DRAFT = Draft("And the newest ones")


class DraftRoutes:
    """Serve `/api/sessions/{session_id}/draft`."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        path = "/api/sessions/{session_id:str}/draft"
        kept = response_specs(200, Draft, _DRAFT, NoSuchSession, has_body=True)
        return [
            get(path, responses=response_specs(200, Draft, _DRAFT, NoSuchSession))(self.show),
            post(path, status_code=200, responses=kept)(self.save),
        ]

    async def show(self, session_id: FromPath[str]) -> Draft:
        """What somebody was writing in this conversation; empty if there is nothing."""
        return Draft(await self._drafts.read(SessionId(session_id)))

    async def save(
        self,
        session_id: FromPath[str],
        data: Annotated[NewDraft, request_body({"text": "And the newest ones"})],
    ) -> Draft:
        """Keep what is being written, in place of what was kept before; an empty text removes it."""
        return Draft(await self._drafts.save(SessionId(session_id), data.text))


class QuestionRoutes:
    """Serve `/api/questions` and read marks; the feed has their changes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        listed = response_specs(200, QuestionInfoList, examples.QUESTION_LIST)
        seen = response_specs(200, SessionInfo, examples.SESSION, NoSuchSession, BadCursor, has_body=True)
        return [
            get("/api/questions", responses=listed)(self.questions),
            post("/api/sessions/{session_id:str}/seen", status_code=200, responses=seen)(self.mark_read),
        ]

    async def questions(self) -> QuestionInfoList:
        """Everything that waits for a person, in all conversations."""
        found = await self._store.questions(QUESTIONS_MAX)
        # A full list is reported as cut; the questions beyond it are not counted.
        return QuestionInfoList(tuple(question_info(each) for each in found), len(found) == QUESTIONS_MAX)

    async def mark_read(
        self, session_id: FromPath[str], data: Annotated[SeenUpTo, request_body(*examples.SEEN)]
    ) -> SessionInfo:
        """Say that everything up to an event was read. What was read stays so."""
        await self._store.mark_read(SessionId(session_id), data.seq)
        return await load_session_info(self._store, SessionId(session_id))
