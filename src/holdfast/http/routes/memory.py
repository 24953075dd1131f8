"""Memory over HTTP: what is remembered, what waits to be, and having it remembered now."""

from types import MappingProxyType
from typing import Annotated, Any

from litestar import delete, get, patch, post
from litestar.params import FromPath, FromQuery, QueryParameter

from holdfast.domain.errors import (
    BadCursor,
    DebtRefused,
    MemoryOff,
    NoSuchDebt,
    NoSuchMemory,
    NoSuchSession,
    ProviderCannot,
    ProviderFailure,
)
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PAGE_MEMORIES_MAX
from holdfast.http.errors import BadRequest
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.memory import (
    ALL_OF_THEM,
    CommitTold,
    DebtDecided,
    KeptMemory,
    Memory,
    MemoryChange,
    MemoryHealth,
    MemoryList,
    NewMemory,
    WaitingList,
    WaitingMemory,
    WantedCommit,
    kept_of,
    memory_list_of,
    memory_of,
    told_of,
    waiting_of,
)
from holdfast.http.schemas.requests import NAME_CHARS_MAX
from holdfast.memory.info import MemoryDesk

MEMORY_PATH = "/api/memory"
_PAGE = 50
_AT = 1_760_000_000_000
_ONE = Memory(
    "n_0cw8hk0a200z5c7f", "The user's reports go into the folder Reports.", "model", examples.SESSION_ID,
    "Tidy the downloads folder", 1, 1, _AT + 60_000, _AT + 60_000,
)  # fmt: skip
_LIST = MemoryList("notes", MemoryHealth(True, ""), (_ONE,), None, 1, _AT + 9_000, True)
_WAITING = WaitingMemory(
    examples.SESSION_ID, "Tidy the downloads folder", 2, 2, 3, "failed", _AT + 9_000, 1, _AT + 39_000,
    "The model's server does not answer.", False,
)  # fmt: skip
_KEPT = KeptMemory(
    examples.SESSION_ID, "Tidy the downloads folder", 1, 1, 1, "This provider cannot forget."
)  # fmt: skip
_TEXT = MappingProxyType({"text": "The user's reports go into the folder Reports."})


class MemoryRoutes:
    """`/api/memory`."""

    def __init__(self, desk: MemoryDesk) -> None:
        self._desk = desk

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        provider = (ProviderFailure, ProviderCannot, MemoryOff)
        named = f"{MEMORY_PATH}/{{memory_id:str}}"
        listed = answers(200, MemoryList, _LIST, BadCursor, ProviderFailure)
        edited = answers(200, Memory, _ONE, NoSuchMemory, *provider, sends=True)
        forgotten = answers(204, None, None, NoSuchMemory, *provider, sends=True)
        told = answers(200, CommitTold, CommitTold("paid", 2, ""), NoSuchSession, sends=True)
        decided = answers(204, None, None, NoSuchSession, NoSuchDebt, DebtRefused, sends=True)
        waiting = answers(200, WaitingList, WaitingList((_WAITING,), (_KEPT,)))
        return [
            get(MEMORY_PATH, responses=listed)(self.list_),
            post(MEMORY_PATH, responses=answers(201, Memory, _ONE, *provider, sends=True))(self.add),
            patch(named, responses=edited)(self.edit),
            delete(named, responses=forgotten)(self.forget),
            get(f"{MEMORY_PATH}/waiting", responses=waiting)(self.waiting),
            post(f"{MEMORY_PATH}/commit", responses=told, status_code=200)(self.commit),
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
    ) -> MemoryList:
        """What is remembered, the newest first; with `q`, what holds every word of it.

        A provider that cannot show what it knows has an empty list, and says so in `health` and `shows`.
        """
        return memory_list_of(await self._desk.known(q, cursor, limit))

    async def add(self, data: Annotated[NewMemory, body(dict(_TEXT))]) -> Memory:
        """Remember something, word for word."""
        return memory_of(await self._desk.add(_words(data.text)), {})

    async def edit(
        self, memory_id: FromPath[str], data: Annotated[MemoryChange, body(dict(_TEXT))]
    ) -> Memory:
        """Put something that is remembered into other words; a person has said it then."""
        memory = await self._desk.edit(memory_id, _words(data.text))
        of_it = (memory.origin.session_id,) if memory.origin.session_id else ()
        return memory_of(memory, await self._desk.titles(of_it))

    async def forget(self, memory_id: FromPath[str]) -> None:
        """Forget something: no conversation is told of it from now on."""
        await self._desk.forget(memory_id)

    async def waiting(self) -> WaitingList:
        """What waits to be remembered or forgotten, what is in the way, and what cannot be forgotten."""
        waiting, kept = await self._desk.waiting()
        return WaitingList(tuple(map(waiting_of, waiting)), tuple(map(kept_of, kept)))

    async def commit(self, data: Annotated[WantedCommit, body({})] = ALL_OF_THEM) -> CommitTold:
        """Have what waits remembered now, of one conversation or of all.

        Answers when that is done, or after half a minute; then it still goes on.
        """
        wanted = SessionId(data.session_id) if data.session_id is not None else None
        return told_of(await self._desk.commit(wanted))

    async def decide(
        self,
        session_id: FromPath[str],
        segment: FromPath[int],
        data: Annotated[DebtDecided, body({"decision": "retry"}, {"decision": "drop"})],
    ) -> None:
        """A person's word on something that waits: try it again, take it as remembered, or let it be.

        `deleted` as it is shown: a conversation that was deleted and one that is there may have the same id.
        """
        await self._desk.resolve(SessionId(session_id), segment, data.decision, data.deleted)


def _words(text: str) -> str:
    if not text.strip():
        raise BadRequest(why="the text is blank, so there is nothing to remember")
    return text
