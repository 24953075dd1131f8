"""Send, read, undo, retry, edit and search messages over HTTP, and fork or compact a conversation."""

from typing import Annotated, Any

from litestar import get, post
from litestar.params import FromPath, FromQuery, QueryParameter

from holdfast.domain.decisions.compaction import last_covered
from holdfast.domain.errors import (
    BadCursor,
    BadQuery,
    Busy,
    KeyReused,
    NoSuchSession,
    NoSuchTurn,
    NothingToRestore,
    NothingToSummarise,
    RestoreRefused,
    RunRefused,
    SeqMismatch,
    SessionMoved,
    SuccessorDeleted,
    SummaryFailed,
    SummaryRefused,
)
from holdfast.domain.events.facts import ContextPrepared, SessionCompacted
from holdfast.domain.files import FileNotSupported, NoSuchFile, UnsupportedFile
from holdfast.domain.ids import CallId, SessionId, TurnId
from holdfast.domain.limits import PAGE_MESSAGES_MAX, SEARCH_HITS_MAX
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.engine.conversation_page import ConversationPage
from holdfast.engine.engine import Engine
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.routes.files import message_parts
from holdfast.http.routes.sessions import IfMatch, expected_seq, load_session_info
from holdfast.http.schemas.requests import LAST_TURN, EditedTurn, NewTurn, TurnSelection
from holdfast.http.schemas.responses import (
    MessageList,
    MessageMatch,
    MessageMatchList,
    SessionInfo,
    Summary,
    TurnReceipt,
    message_info,
    run_info,
    turn_receipt,
)

_PAGE = 50
_HITS = 20
TurnSelectionBody = Annotated[TurnSelection, request_body(*examples.TURN_SELECTION)]


class TurnRoutes:
    """Serve the paths below a session that concern its messages, and the search over all sessions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        base = "/api/sessions/{session_id:str}"
        changed = (NoSuchSession, NoSuchTurn, SeqMismatch, RunRefused, SessionMoved)
        receipt = response_specs(202, TurnReceipt, examples.RECEIPT, *changed, has_body=True)
        files = (NoSuchFile, UnsupportedFile, FileNotSupported)
        edited = response_specs(202, TurnReceipt, examples.RECEIPT, *changed, *files, has_body=True)
        session = response_specs(200, SessionInfo, examples.SESSION, *changed, has_body=True)
        refused = (NothingToRestore, RestoreRefused)
        restored = response_specs(200, SessionInfo, examples.SESSION, *changed, *refused, has_body=True)
        gone = (NoSuchSession, SuccessorDeleted)
        sent = response_specs(
            202, TurnReceipt, examples.RECEIPT, *gone, KeyReused, Busy, *files, has_body=True
        )
        read = response_specs(200, MessageList, examples.MESSAGE_LIST, NoSuchSession, BadCursor, BadRequest)
        forked = response_specs(201, SessionInfo, examples.SESSION, *changed, has_body=True)
        summed_up = (NoSuchSession, NothingToSummarise, SummaryRefused, SummaryFailed)
        compacted = response_specs(
            200, SessionInfo, examples.SESSION, *summed_up, RunRefused, SessionMoved, has_body=True
        )
        continued = response_specs(
            201, SessionInfo, examples.SESSION, *summed_up, SuccessorDeleted, Busy, has_body=True
        )
        found = response_specs(
            200, MessageMatchList, examples.MESSAGE_MATCH_LIST, BadQuery, BadRequest, NoSuchSession
        )
        return [
            post(f"{base}/turns", status_code=202, responses=sent)(self.send),
            get(f"{base}/messages", responses=read)(self.messages),
            post(f"{base}/undo", status_code=200, responses=session)(self.undo),
            post(f"{base}/restore", status_code=200, responses=restored)(self.restore),
            post(f"{base}/retry", status_code=202, responses=receipt)(self.retry),
            post(f"{base}/edit", status_code=202, responses=edited)(self.edit),
            post(f"{base}/fork", status_code=201, responses=forked)(self.fork),
            post(f"{base}/clear", status_code=200, responses=session)(self.clear),
            post(f"{base}/compact", status_code=200, responses=compacted)(self.compact),
            post(f"{base}/continue", status_code=201, responses=continued)(self.continue_session),
            get("/api/search", responses=found)(self.search),
        ]

    async def send(
        self, session_id: FromPath[str], data: Annotated[NewTurn, request_body(*examples.NEW_TURN)]
    ) -> TurnReceipt:
        """Send a message. It is on disk when this answers; the answer to it comes as events.

        One that calls a prompt, `/name` and more, says what the prompt says.
        """
        name, text = SessionId(session_id), self._engine.expand_prompt(data.text)
        if text != data.text and data.key is not None:
            # The prompt may have changed since; the same key is still the same message.
            earlier = await self._engine.find_accepted(name, data.key)
            if earlier is not None:
                return turn_receipt(earlier)
        parts = await message_parts(self._store, text, data.attachments)
        return turn_receipt(await self._engine.send(name, parts, data.key, data.if_busy))

    async def messages(
        self,
        session_id: FromPath[str],
        before: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_MESSAGES_MAX)] = _PAGE,
    ) -> MessageList:
        """The newest messages, or with `before` those before a page."""
        name = SessionId(session_id)
        page = await self._engine.messages(name, before, limit)
        fold = TranscriptFold()
        fold.add_messages(page.messages, page.tools)
        approvals = {str(tool.id): tool.approval for tool in page.tools}
        questions = {
            question.call_id: question for question in page.questions if question.call_id is not None
        }
        memories = memories_by_message(page)
        turns = fold.transcript().turns
        begun = [turn.turn for turn in turns if turn.entries and turn.entries[0].place == 0]
        versions = page.history.versions(begun) if page.history is not None else {}
        removed = page.history.removed if page.history is not None else {}
        messages = tuple(
            message_info(
                turn,
                entry,
                approvals.get(entry.id, ""),
                questions.get(CallId(entry.id)),
                memories.get(entry.id, ()),
                versions.get(turn.turn, ()),
                removed.get(turn.turn),
            )
            for turn in turns
            for entry in turn.entries
        )
        runs = tuple(run_info(name, run) for run in page.runs)
        return MessageList(messages, runs, page.head, page.before, _summary(page))

    async def undo(
        self, session_id: FromPath[str], data: TurnSelectionBody = LAST_TURN, if_match: IfMatch = None
    ) -> SessionInfo:
        """Undo a turn and all after it."""
        turn_id = TurnId(data.turn_id) if data.turn_id is not None else None
        await self._engine.commands.undo(SessionId(session_id), turn_id, expected_seq(if_match))
        return await self._session(SessionId(session_id))

    async def restore(
        self, session_id: FromPath[str], data: TurnSelectionBody = LAST_TURN, if_match: IfMatch = None
    ) -> SessionInfo:
        """Restore a removed turn, with all before it and those removed with it, in place of what followed."""
        turn_id = TurnId(data.turn_id) if data.turn_id is not None else None
        await self._engine.commands.restore(SessionId(session_id), turn_id, expected_seq(if_match))
        return await self._session(SessionId(session_id))

    async def retry(
        self, session_id: FromPath[str], data: TurnSelectionBody = LAST_TURN, if_match: IfMatch = None
    ) -> TurnReceipt:
        """Undo a turn and all after it, and ask the same again."""
        turn_id = TurnId(data.turn_id) if data.turn_id is not None else None
        return turn_receipt(
            await self._engine.replace(SessionId(session_id), turn_id, None, expected_seq(if_match))
        )

    async def edit(
        self,
        session_id: FromPath[str],
        data: Annotated[EditedTurn, request_body(*examples.EDITED_TURN)],
        if_match: IfMatch = None,
    ) -> TurnReceipt:
        """Undo a turn and all after it, and ask something else."""
        turn_id = TurnId(data.turn_id) if data.turn_id is not None else None
        parts = await message_parts(self._store, self._engine.expand_prompt(data.text), data.attachments)
        return turn_receipt(
            await self._engine.replace(SessionId(session_id), turn_id, parts, expected_seq(if_match))
        )

    async def fork(
        self, session_id: FromPath[str], data: TurnSelectionBody = LAST_TURN, if_match: IfMatch = None
    ) -> SessionInfo:
        """Begin a conversation with a copy of this one, up to a turn."""
        turn_id = TurnId(data.turn_id) if data.turn_id is not None else None
        fork = self._engine.commands.fork(SessionId(session_id), turn_id, expected_seq(if_match))
        return await self._session(await fork)

    async def clear(self, session_id: FromPath[str], if_match: IfMatch = None) -> SessionInfo:
        """No longer show the model what was said so far; it stays readable."""
        await self._engine.clear(SessionId(session_id), expected_seq(if_match))
        return await self._session(SessionId(session_id))

    async def compact(self, session_id: FromPath[str]) -> SessionInfo:
        """Have the model sum up all but the newest messages, and show it that instead. They stay readable."""
        await self._engine.summaries.summarise(SessionId(session_id))
        return await self._session(SessionId(session_id))

    async def continue_session(self, session_id: FromPath[str]) -> SessionInfo:
        """Go on in a new conversation that begins with a summary of this one: the answer is the new one.

        What waits here waits there from now on, and what is sent here later is kept there.
        """
        return await self._session(await self._engine.continuation.continue_session(SessionId(session_id)))

    async def search(
        self,
        q: FromQuery[str],
        limit: Annotated[int, QueryParameter(ge=1, le=SEARCH_HITS_MAX)] = _HITS,
        session: FromQuery[str | None] = None,
    ) -> MessageMatchList:
        """The messages that hold every word of `q`, of all conversations or of one."""
        hits = await self._store.search(q, limit, SessionId(session) if session is not None else None)
        return MessageMatchList(
            tuple(
                MessageMatch(
                    hit.session_id, hit.title, hit.turn, hit.place, hit.message_id, hit.role, hit.at,
                    hit.snippet, hit.marks,
                )
                for hit in hits
            )
        )  # fmt: skip

    async def _session(self, session_id: SessionId) -> SessionInfo:
        return await load_session_info(self._store, session_id)


def memories_by_message(page: ConversationPage) -> dict[str, tuple[str, ...]]:
    """Return the memories given to each run on the page, by the id of the run's first answer there.

    A run without an answer has them at the message that began the turn: their event is before the page's
    `head`, so no stream from there brings them.
    """
    facts = [event.fact for event in page.prepared if isinstance(event.fact, ContextPrepared)]
    brought = {fact.run_id: fact.memories for fact in facts if fact.memories}
    rows = [message.row for message in reversed(page.messages)]
    begins = {row.turn: row.id for row in rows if row.place == 0}
    first = {run.id: begins[run.turn] for run in page.runs if run.turn in begins}
    first |= {row.run_id: row.id for row in rows if row.role == "assistant" and row.run_id is not None}
    return {first[run]: memories for run, memories in brought.items() if run in first}


def _summary(page: ConversationPage) -> Summary | None:
    event = page.summary
    if event is None or not isinstance(event.fact, SessionCompacted):
        return None
    return Summary(last_covered(event.fact), event.fact.summary, event.at)
