"""Conversations over HTTP: create, list, read, change, delete; drafts, and how far each was read."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from litestar import Request, delete, get, patch, post
from litestar.params import FromPath, FromQuery, HeaderParameter, QueryParameter
from msgspec.structs import replace

from holdfast.agent.config.info import AgentDesk
from holdfast.domain.agents import MAIN, NoSuchAgent
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import Right
from holdfast.domain.errors import BadCursor, NoSuchSession, RunRefused, SeqMismatch
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import PAGE_SESSIONS_MAX, QUESTIONS_MAX
from holdfast.domain.state.rows import DebtRow
from holdfast.engine.drafts import Drafts
from holdfast.engine.engine import Engine
from holdfast.engine.workspaces import why_refused
from holdfast.http.authenticator import Visitor
from holdfast.http.errors import BadRequest, NotAllowed
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import NAME_CHARS_MAX, NewDraft, NewSession, SeenUpTo, SessionChange
from holdfast.http.schemas.responses import Draft, QuestionList, Session, SessionList, question_of, session_of
from holdfast.status import Look
from holdfast.store.ports import SessionPage, Snapshot, Store
from holdfast.store.session_status import Standing

IfMatch = Annotated[
    str | None,
    HeaderParameter(name="If-Match", description="The event that the conversation must still be at."),
]
_PAGE = 50
_CHOOSES: Right = "approve"
"""The right to choose the folder that tools work in."""


class SessionRoutes:
    """`/api/sessions` and each of them."""

    def __init__(self, engine: Engine, look: Look, agents: AgentDesk | None = None) -> None:
        self._engine = engine
        self._agents = agents
        self._look = look
        self._store = engine.store

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        one, listed = examples.SESSION, examples.SESSION_LIST
        named = "/api/sessions/{session_id:str}"
        begun = answers(201, Session, one, NoSuchSession, NoSuchAgent, NotAllowed, sends=True)
        refused = (NoSuchSession, NoSuchAgent, SeqMismatch, RunRefused, NotAllowed)
        changed = answers(200, Session, one, *refused, sends=True)
        return [
            post("/api/sessions", responses=begun)(self.begin),
            get("/api/sessions", responses=answers(200, SessionList, listed, BadCursor, BadRequest))(
                self.list_
            ),
            get(named, responses=answers(200, Session, one, NoSuchSession))(self.show),
            patch(named, responses=changed)(self.change),
            delete(named, responses=answers(204, None, None, NoSuchSession, SeqMismatch, BadRequest))(
                self.delete
            ),
        ]

    async def begin(
        self,
        request: Request[Visitor, Any, Any],
        data: Annotated[NewSession, body(*examples.NEW_SESSION)],
    ) -> Session:
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
    ) -> SessionList:
        """The conversations, the most recently active first; with `archived`, those that were put away.

        With `q`, those whose titles hold every word of it.
        """

        def read(snapshot: Snapshot) -> tuple[SessionPage, Mapping[SessionId, Standing]]:
            page = snapshot.sessions(cursor, limit, archived, q.split())
            return page, snapshot.standings([row.id for row in page.sessions])

        page, found = await self._store.snapshot(read)
        stand = [(row, found[row.id]) for row in page.sessions]
        listed = tuple(session_of(row, at.unread, at.pinned, opening=at.opening) for row, at in stand)
        return SessionList(listed, page.cursor)

    async def show(self, session_id: FromPath[str]) -> Session:
        """One conversation."""
        session = await self._session(SessionId(session_id))
        if self._agents is None:
            return session
        window = await self._agents.window(session.agent, session.model)
        answering = self._agents.model(session.agent, session.model)
        return replace(session, window_tokens=window, answering=answering)

    async def change(
        self,
        request: Request[Visitor, Any, Any],
        session_id: FromPath[str],
        data: Annotated[SessionChange, body(*examples.SESSION_CHANGE)],
        if_match: IfMatch = None,
    ) -> Session:
        """Rename it, put it away or bring it back, change its settings: all at once. Its pin comes last.

        Another folder needs the right to approve, and that nothing is to be done in the one it has.
        """
        await self._check_folder(request.user, data.workspace)
        await self._check_model(data.model or "")
        agent = await self._chosen_agent(request.user, data.agent)
        wanted = f.SessionConfigured(agent, data.model, data.workspace, data.resume, data.remember)
        expect = expected(if_match)
        await self._engine.verbs.change(SessionId(session_id), data.title, data.archived, wanted, expect)
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
        await self._engine.delete(SessionId(session_id), expected(if_match), notes == "delete")

    async def _check_model(self, name: str) -> None:
        # Kept and then not used would be worse than refused.
        if name and self._agents is not None:
            await self._agents.check_model(name)
        elif name and name != (used := (await self._look()).model):
            raise BadRequest(why=f"there is no model {name!r} here; {used!r} answers")

    async def _chosen_agent(self, who: Visitor, name: str | None) -> str | None:
        """An agent as conversations name it: `main` needs no name. Raises NoSuchAgent, NotAllowed.

        One that works in a folder, or asks nobody, is to be chosen only by those who may allow that.
        """
        if not name or name == MAIN or self._agents is None:
            return "" if name == MAIN else name
        agent = self._agents.one(name)
        if (agent.workspace or agent.approvals == "allow") and _CHOOSES not in who.rights:
            raise NotAllowed(right=_CHOOSES, name=who.name)
        return agent.name

    async def _check_folder(self, who: Visitor, workspace: str | None) -> None:
        """Raises NotAllowed, BadRequest. What lies in the folder is read without a question."""
        if workspace is not None and _CHOOSES not in who.rights:
            raise NotAllowed(right=_CHOOSES, name=who.name)
        if workspace:
            _check_folder(workspace, (await self._look()).data)

    async def _session(self, session_id: SessionId) -> Session:
        return await told(self._store, session_id)


async def told(store: Store, session_id: SessionId) -> Session:
    """A conversation as one answer tells of it. Raises NoSuchSession."""

    def read(snapshot: Snapshot) -> Session:
        head = snapshot.head(session_id)
        at = snapshot.standings((session_id,))[session_id]
        remembered_at = _remembered_at(snapshot.debts(session_id))
        notes = snapshot.count_notes(session_id)
        return session_of(at.row, at.unread, at.pinned, head, remembered_at, at.opening, notes)

    return await store.snapshot(read)


def _remembered_at(debts: Sequence[DebtRow]) -> Instant | None:
    """What was let be is not remembered, whatever was told before it."""
    over = [debt for debt in debts if debt.state in ("paid", "dropped")]
    return over[-1].started_at if over and over[-1].state == "paid" else None


def expected(if_match: str | None) -> Seq | None:
    """The number that If-Match names, if any. Raises BadRequest."""
    if if_match is None:
        return None
    number = if_match.strip().removeprefix('"').removesuffix('"')
    if not (number.isascii() and number.isdecimal()) or len(number) > 18:
        raise BadRequest(why=f"If-Match must be the number of an event, not {if_match[:40]!r}")
    return int(number)


def _check_folder(workspace: str, own: Path) -> None:
    if why := why_refused(own, workspace):
        raise BadRequest(why=f"workspace {why}")


_DRAFT = Draft("And the newest ones")


class DraftRoutes:
    """`/api/sessions/{session_id}/draft`."""

    def __init__(self, drafts: Drafts) -> None:
        self._drafts = drafts

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        path = "/api/sessions/{session_id:str}/draft"
        kept = answers(200, Draft, _DRAFT, NoSuchSession, sends=True)
        return [
            get(path, responses=answers(200, Draft, _DRAFT, NoSuchSession))(self.show),
            post(path, status_code=200, responses=kept)(self.keep),
        ]

    async def show(self, session_id: FromPath[str]) -> Draft:
        """What somebody was writing in this conversation; empty if there is nothing."""
        return Draft(await self._drafts.read(SessionId(session_id)))

    async def keep(
        self, session_id: FromPath[str], data: Annotated[NewDraft, body({"text": "And the newest ones"})]
    ) -> Draft:
        """Keep what is being written, in place of what was kept before; an empty text removes it."""
        return Draft(await self._drafts.keep(SessionId(session_id), data.text))


class AttentionRoutes:
    """`/api/questions`, and the mark of what was read. What is live of both is in the feed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        listed = answers(200, QuestionList, examples.QUESTION_LIST)
        seen = answers(200, Session, examples.SESSION, NoSuchSession, BadCursor, sends=True)
        return [
            get("/api/questions", responses=listed)(self.questions),
            post("/api/sessions/{session_id:str}/seen", status_code=200, responses=seen)(self.see),
        ]

    async def questions(self) -> QuestionList:
        """Everything that waits for a person, in all conversations."""
        found = await self._store.questions(QUESTIONS_MAX)
        # As many as are ever given: what is beyond them is not counted, only said to be there.
        return QuestionList(tuple(question_of(each) for each in found), len(found) == QUESTIONS_MAX)

    async def see(
        self, session_id: FromPath[str], data: Annotated[SeenUpTo, body(*examples.SEEN)]
    ) -> Session:
        """Say that everything up to an event was read. What was read stays so."""
        await self._store.see(SessionId(session_id), data.seq)
        return await told(self._store, SessionId(session_id))
