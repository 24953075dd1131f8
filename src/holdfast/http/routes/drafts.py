"""The draft of a conversation over HTTP: what was typed on one screen is there on the next."""

from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId
from holdfast.engine.drafts import Drafts
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import NewDraft
from holdfast.http.schemas.responses import Draft

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
