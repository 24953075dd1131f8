"""The parts of server responses that the chat uses; it ignores other fields, so servers may add some."""

import msgspec

from holdfast.domain.events.codec import UnknownFact, decode
from holdfast.domain.events.facts import AnyFact, Failure, Role, ToolOutcome, WaitReason
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.state.rows import MessageStatus, RunStatus, SessionStatus, ToolState


class UsageData(msgspec.Struct, frozen=True):
    """Tokens, and millionths of a US dollar where a price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int | None = None
    written_tokens: int = 0
    estimated_tokens: int = 0


class SessionData(msgspec.Struct, frozen=True):
    id: str
    title: str
    status: SessionStatus
    updated_at: int
    turns: int
    usage: UsageData = UsageData()
    head: int | None = None
    agent: str = ""
    answering: str | None = None
    opening: str = ""


class SessionListData(msgspec.Struct, frozen=True):
    sessions: tuple[SessionData, ...]
    cursor: str | None = None


class AgentQuestionData(msgspec.Struct, frozen=True):
    """A question of the agent, with its choices, of which one or several may be chosen."""

    question: str
    choices: tuple[str, ...] = ()
    multiple: bool = False


class QuestionData(msgspec.Struct, frozen=True):
    """A question that waits for a person. `arguments_cut`: only the start of the arguments is here.

    `unanswered`: the number of messages queued behind a stopped answer. No server sends it.
    """

    session_id: str
    run_id: str
    kind: WaitReason
    reason: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    arguments_cut: bool = False
    asked: AgentQuestionData | None = None
    unanswered: int = 0


class QuestionListData(msgspec.Struct, frozen=True):
    questions: tuple[QuestionData, ...]


class ReceiptData(msgspec.Struct, frozen=True):
    turn_id: str
    run_id: str | None
    seq: int


class MessageData(msgspec.Struct, frozen=True):
    id: str
    role: Role
    status: MessageStatus
    live: bool
    turn: int = 0
    place: int = 0
    at: int = 0
    late: bool = False
    run_id: str | None = None
    parts: tuple[AnyPart, ...] = ()
    name: str | None = None
    state: ToolState | None = None
    outcome: ToolOutcome | None = None
    arguments: str | None = None
    ms: int | None = None


class RunData(msgspec.Struct, frozen=True):
    id: str
    status: RunStatus
    waiting: WaitReason | None = None
    failure: Failure | None = None
    usage: UsageData = UsageData()
    detail: str = ""


class MessagePageData(msgspec.Struct, frozen=True):
    """The newest messages at `head`, oldest first."""

    messages: tuple[MessageData, ...]
    runs: tuple[RunData, ...]
    head: int


class ModelData(msgspec.Struct, frozen=True):
    name: str
    why: str = ""


class ModelListData(msgspec.Struct, frozen=True):
    models: tuple[ModelData, ...]


class PromptData(msgspec.Struct, frozen=True):
    name: str
    about: str = ""


class PromptListData(msgspec.Struct, frozen=True):
    prompts: tuple[PromptData, ...] = ()


class AgentData(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    answers: bool = True


class AgentListData(msgspec.Struct, frozen=True):
    agents: tuple[AgentData, ...] = ()


class StoredFileData(msgspec.Struct, frozen=True):
    id: str
    name: str


class ProblemData(msgspec.Struct, frozen=True):
    """A problem document."""

    code: str = "error"
    detail: str = ""
    remedy: str = ""


class MemoryData(msgspec.Struct, frozen=True):
    text: str = ""


class MemoryListData(msgspec.Struct, frozen=True):
    memories: tuple[MemoryData, ...] = ()


class EventData(msgspec.Struct, frozen=True):
    """An event of the conversation that is followed."""

    seq: int
    at: int
    fact: AnyFact | UnknownFact


class FeedUpdate(msgspec.Struct, frozen=True):
    """The session in the feed, None if the feed omits it, and its open questions."""

    session: SessionData | None
    questions: tuple[QuestionData, ...]


class _EventHead(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str
    version: int = 1
    session_id: str = ""


class _FeedSnapshot(msgspec.Struct, frozen=True):
    sessions: tuple[SessionData, ...]
    questions: tuple[QuestionData, ...]


class _FeedChange(msgspec.Struct, frozen=True):
    session: SessionData
    questions: tuple[QuestionData, ...]


def read_frame(event: str, body: bytes, session_id: str) -> EventData | FeedUpdate | None:
    """Return what a stream's frame says about one session, if anything. Raises msgspec.ValidationError."""
    if event == "feed_snapshot":
        snapshot = msgspec.json.decode(body, type=_FeedSnapshot)
        session = next((each for each in snapshot.sessions if each.id == session_id), None)
        return FeedUpdate(
            session, tuple(each for each in snapshot.questions if each.session_id == session_id)
        )
    if event == "feed_changed":
        changed = msgspec.json.decode(body, type=_FeedChange)
        return FeedUpdate(changed.session, changed.questions) if changed.session.id == session_id else None
    if event.startswith("feed_"):
        return None
    head = msgspec.json.decode(body, type=_EventHead)
    return EventData(head.seq, head.at, decode(head.kind, head.version, body))
