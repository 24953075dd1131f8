"""Define the requests to a memory webhook, their ids, and its answers.

Requests are signed as Standard Webhooks defines it. docs/memory.md describes the format for receivers.
"""

import hashlib
import re
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from holdfast.domain.clock import INSTANT_MAX
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import RECEIPT_CHARS_MAX
from holdfast.domain.memories import Memory, MemoryAuthor, MemoryPage, Origin
from holdfast.memory.ports import Segment, SegmentMessage

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Time = Annotated[int, msgspec.Meta(ge=0, le=INSTANT_MAX)]
_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
T = TypeVar("T")


# Requests.


class WebhookCommit(msgspec.Struct, frozen=True, tag="memory.commit"):
    """A segment, with the same fields."""

    key: str
    session_id: str
    title: str
    scope: str
    turns: Ranges
    messages: tuple[SegmentMessage, ...]


class WebhookRetract(msgspec.Struct, frozen=True, tag="memory.retract"):
    key: str
    receipt: str


class WebhookRemember(msgspec.Struct, frozen=True, tag="memory.remember"):
    key: str
    text: str
    scope: str
    origin: Origin


class WebhookRecall(msgspec.Struct, frozen=True, tag="memory.recall"):
    query: str
    scope: str
    limit: int


class WebhookList(msgspec.Struct, frozen=True, tag="memory.list"):
    scope: str
    words: str
    cursor: str | None
    limit: int


class WebhookEdit(msgspec.Struct, frozen=True, tag="memory.edit"):
    memory_id: str
    text: str


class WebhookForget(msgspec.Struct, frozen=True, tag="memory.forget"):
    memory_id: str


class WebhookHealthCheck(msgspec.Struct, frozen=True, tag="memory.health"):
    pass


WebhookRequest: TypeAlias = (
    WebhookCommit
    | WebhookRetract
    | WebhookRemember
    | WebhookRecall
    | WebhookList
    | WebhookEdit
    | WebhookForget
    | WebhookHealthCheck
)


def commit_request(segment: Segment) -> WebhookCommit:
    return WebhookCommit(
        segment.key, segment.session_id, segment.title, segment.scope, segment.turns, segment.messages
    )


def request_id(request: WebhookRequest, new_id: str) -> str:
    """Return the id that a request shares with its retries.

    A retraction has another id than its commit, because receivers may skip an id that they have seen. An id
    contains no full stop, because the signed content is separated by full stops.
    """
    match request:
        case WebhookCommit() | WebhookRemember():
            return _safe_id(request.key)
        case WebhookRetract():
            return f"retract_{_safe_id(request.key)}"
    return new_id


def _safe_id(key: str) -> str:
    if _PLAIN_ID.fullmatch(key):
        return key
    return "x_" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


# Answers.


class WebhookReceipt(msgspec.Struct, frozen=True):
    receipt: Annotated[str, msgspec.Meta(max_length=RECEIPT_CHARS_MAX)]


class _Origin(msgspec.Struct, frozen=True):
    by: MemoryAuthor = "model"
    session_id: str | None = None
    from_turn: _Whole = 0
    through_turn: _Whole = 0


class WebhookMemory(msgspec.Struct, frozen=True):
    """A memory from a receiver; only `id` and `text` are required."""

    id: _Name
    text: str
    origin: _Origin = _Origin()
    made_at: _Time = 0
    changed_at: _Time = 0
    key: str = ""

    def memory(self) -> Memory:
        origin = self.origin
        session_id = SessionId(origin.session_id or "")
        where = Origin(origin.by, session_id, origin.from_turn, origin.through_turn)
        return Memory(self.id, self.text, where, self.made_at, self.changed_at, self.key)


class WebhookMemoryPage(msgspec.Struct, frozen=True):
    memories: tuple[WebhookMemory, ...]
    cursor: str | None = None

    def page(self) -> MemoryPage:
        return MemoryPage(tuple(each.memory() for each in self.memories), self.cursor or None)


class WebhookError(msgspec.Struct, frozen=True):
    """The optional body of an answer that is not 2xx."""

    code: str = ""
    detail: str = ""


def parse_error(body: bytes) -> WebhookError:
    """Return the error in an answer; an empty one if the body has another form."""
    try:
        return msgspec.json.decode(body, type=WebhookError)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return WebhookError()
