"""List, add, edit and forget memories over HTTP, and manage the queue of pending commits."""

from types import MappingProxyType
from typing import Annotated, Any

from litestar import delete, get, patch, post
from litestar.params import FromPath, FromQuery, QueryParameter

from holdfast.domain.errors import (
    BadCursor,
    CommitDecisionRefused,
    MemoryOff,
    NoSuchMemory,
    NoSuchQueuedCommit,
    NoSuchSession,
    ProviderCannot,
    ProviderFailure,
)
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PAGE_MEMORIES_MAX
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.memory import (
    COMMIT_ALL,
    MemoryChange,
    MemoryCommitRequest,
    MemoryCommitResult,
    MemoryHealth,
    MemoryItem,
    MemoryItemList,
    MemoryQueueEntry,
    MemoryQueueInfo,
    NewMemory,
    QueueEntryDecision,
    RetainedMemory,
    commit_result,
    memory_item,
    memory_item_list,
    queue_entry,
    retained_memory,
)
from holdfast.http.schemas.requests import NAME_CHARS_MAX
from holdfast.memory.info import MemoryService

MEMORY_PATH = "/api/memory"
_PAGE = 50
_AT = 1_760_000_000_000
_MEMORY = MemoryItem(
    "n_0cw8hk0a200z5c7f", "The user's reports go into the folder Reports.", "model", examples.SESSION_ID,
    "Tidy the downloads folder", 1, 1, _AT + 60_000, _AT + 60_000,
)  # fmt: skip
_LIST = MemoryItemList("notes", MemoryHealth(True, ""), (_MEMORY,), None, 1, _AT + 9_000, True)
_WAITING = MemoryQueueEntry(
    examples.SESSION_ID, "Tidy the downloads folder", 2, 2, 3, "failed", _AT + 9_000, 1, _AT + 39_000,
    "The model's server does not answer.", False,
)  # fmt: skip
_RETAINED = RetainedMemory(
    examples.SESSION_ID, "Tidy the downloads folder", 1, 1, 1, "This provider cannot forget."
)  # fmt: skip
_TEXT = MappingProxyType({"text": "The user's reports go into the folder Reports."})


class MemoryRoutes:
    """Serve `/api/memory`."""

    def __init__(self, service: MemoryService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        provider = (ProviderFailure, ProviderCannot, MemoryOff)
        named = f"{MEMORY_PATH}/{{memory_id:str}}"
        listed = response_specs(200, MemoryItemList, _LIST, BadCursor, ProviderFailure)
        edited = response_specs(200, MemoryItem, _MEMORY, NoSuchMemory, *provider, has_body=True)
        forgotten = response_specs(204, None, None, NoSuchMemory, *provider, has_body=True)
        committed = response_specs(
            200, MemoryCommitResult, MemoryCommitResult("paid", 2, ""), NoSuchSession, has_body=True
        )
        decided = response_specs(
            204, None, None, NoSuchSession, NoSuchQueuedCommit, CommitDecisionRefused, has_body=True
        )
        added = response_specs(201, MemoryItem, _MEMORY, *provider, has_body=True)
        waiting = response_specs(200, MemoryQueueInfo, MemoryQueueInfo((_WAITING,), (_RETAINED,)))
        return [
            get(MEMORY_PATH, responses=listed)(self.list_),
            post(MEMORY_PATH, responses=added)(self.add),
            patch(named, responses=edited)(self.edit),
            delete(named, responses=forgotten)(self.forget),
            get(f"{MEMORY_PATH}/waiting", responses=waiting)(self.pending_commits),
            post(f"{MEMORY_PATH}/commit", responses=committed, status_code=200)(self.commit),
            post(
                f"{MEMORY_PATH}/waiting/{{session_id:str}}/{{segment:int}}",
                responses=decided, status_code=204,
            )(self.decide),
        ]  # fmt: skip

    async def list_(
        self,
        q: Annotated[str, QueryParameter(max_length=NAME_CHARS_MAX)] = "",
        cursor: FromQuery[str | None] = None,
        limit: Annotated[int, QueryParameter(ge=1, le=PAGE_MEMORIES_MAX)] = _PAGE,
    ) -> MemoryItemList:
        """What is remembered, the newest first; with `q`, what holds every word of it.

        A provider that cannot show what it knows has an empty list, and says so in `health` and `shows`.
        """
        return memory_item_list(await self._service.list_memories(q, cursor, limit))

    async def add(self, data: Annotated[NewMemory, request_body(dict(_TEXT))]) -> MemoryItem:
        """Remember something, word for word."""
        return memory_item(await self._service.add(_require_text(data.text)), {})

    async def edit(
        self, memory_id: FromPath[str], data: Annotated[MemoryChange, request_body(dict(_TEXT))]
    ) -> MemoryItem:
        """Put something that is remembered into other words; a person has said it then."""
        memory = await self._service.edit(memory_id, _require_text(data.text))
        session_ids = (memory.origin.session_id,) if memory.origin.session_id else ()
        return memory_item(memory, await self._service.titles(session_ids))

    async def forget(self, memory_id: FromPath[str]) -> None:
        """Forget something: no conversation is told of it from now on."""
        await self._service.forget(memory_id)

    async def pending_commits(self) -> MemoryQueueInfo:
        """What waits to be remembered or forgotten, what is in the way, and what cannot be forgotten."""
        waiting, retained = await self._service.pending()
        return MemoryQueueInfo(tuple(map(queue_entry, waiting)), tuple(map(retained_memory, retained)))

    async def commit(
        self, data: Annotated[MemoryCommitRequest, request_body({})] = COMMIT_ALL
    ) -> MemoryCommitResult:
        """Have what waits remembered now, of one conversation or of all.

        Answers when that is done, or after half a minute; then it still goes on.
        """
        session_id = SessionId(data.session_id) if data.session_id is not None else None
        return commit_result(await self._service.commit(session_id))

    async def decide(
        self,
        session_id: FromPath[str],
        segment: FromPath[int],
        data: Annotated[QueueEntryDecision, request_body({"decision": "retry"}, {"decision": "drop"})],
    ) -> None:
        """A person's word on something that waits: try it again, take it as remembered, or let it be.

        `deleted` as it is shown: a conversation that was deleted and one that is there may have the same id.
        """
        await self._service.resolve(SessionId(session_id), segment, data.decision, data.deleted)


def _require_text(text: str) -> str:
    if not text.strip():
        raise BadRequest(why="the text is blank, so there is nothing to remember")
    return text
