"""What needs a person, over HTTP: the questions that wait, and how far a conversation was read."""

from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.errors import BadCursor, NoSuchSession
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import QUESTIONS_MAX
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers, body
from holdfast.http.routes.sessions import told
from holdfast.http.schemas.requests import SeenUpTo
from holdfast.http.schemas.responses import QuestionList, Session, question_of
from holdfast.store.ports import Store


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
