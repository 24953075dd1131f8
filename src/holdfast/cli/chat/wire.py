"""What the chat reads of a server's answers: the fields it uses, and no more, so that others may be added."""

import msgspec

from holdfast.domain.events.codec import Unknown, decode
from holdfast.domain.events.facts import AnyFact, Failure, Role, ToolOutcome, Waiting
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.state.rows import MessageStatus, RunStatus, SessionStatus, ToolState


class Used(msgspec.Struct, frozen=True):
    """Tokens, and millionths of a US dollar where a price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int | None = None
    written_tokens: int = 0
    estimated_tokens: int = 0


class Session(msgspec.Struct, frozen=True):
    id: str
    title: str
    status: SessionStatus
    updated_at: int
    turns: int
    usage: Used = Used()
    head: int | None = None
    agent: str = ""
    answering: str | None = None
    opening: str = ""


class SessionList(msgspec.Struct, frozen=True):
    sessions: tuple[Session, ...]
    cursor: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """What the agent wants to know; in words, or by one of its choices, or by several."""

    question: str
    choices: tuple[str, ...] = ()
    multiple: bool = False


class Question(msgspec.Struct, frozen=True):
    """Something that waits for a person. `arguments_cut`: only their beginning is here.

    `unanswered`: how many messages wait because the answer before them was stopped. No server sends it.
    """

    session_id: str
    run_id: str
    kind: Waiting
    reason: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    arguments_cut: bool = False
    asked: Asked | None = None
    unanswered: int = 0


class QuestionList(msgspec.Struct, frozen=True):
    questions: tuple[Question, ...]


class Receipt(msgspec.Struct, frozen=True):
    turn_id: str
    run_id: str | None
    seq: int


class Message(msgspec.Struct, frozen=True):
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


class Run(msgspec.Struct, frozen=True):
    id: str
    status: RunStatus
    waiting: Waiting | None = None
    failure: Failure | None = None
    usage: Used = Used()
    detail: str = ""


class Page(msgspec.Struct, frozen=True):
    """The newest messages, the oldest of them first, as they read at `head`."""

    messages: tuple[Message, ...]
    runs: tuple[Run, ...]
    head: int


class UsedModel(msgspec.Struct, frozen=True):
    name: str
    why: str = ""


class ModelList(msgspec.Struct, frozen=True):
    models: tuple[UsedModel, ...]


class Prompt(msgspec.Struct, frozen=True):
    name: str
    about: str = ""


class PromptList(msgspec.Struct, frozen=True):
    prompts: tuple[Prompt, ...] = ()


class Agent(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    answers: bool = True


class AgentList(msgspec.Struct, frozen=True):
    agents: tuple[Agent, ...] = ()


class StoredFile(msgspec.Struct, frozen=True):
    id: str
    name: str


class Problem(msgspec.Struct, frozen=True):
    """An error as a server tells it."""

    code: str = "error"
    detail: str = ""
    remedy: str = ""


class Memory(msgspec.Struct, frozen=True):
    text: str = ""


class MemoryList(msgspec.Struct, frozen=True):
    memories: tuple[Memory, ...] = ()


class Happened(msgspec.Struct, frozen=True):
    """An event of the conversation that is followed."""

    seq: int
    at: int
    fact: AnyFact | Unknown


class Listed(msgspec.Struct, frozen=True):
    """How the conversation stands in the list, and all that it asks; None: the list does not say."""

    session: Session | None
    questions: tuple[Question, ...]


class _Head(msgspec.Struct, frozen=True):
    seq: int
    at: int
    kind: str
    version: int = 1
    session_id: str = ""


class _Snapshot(msgspec.Struct, frozen=True):
    sessions: tuple[Session, ...]
    questions: tuple[Question, ...]


class _Changed(msgspec.Struct, frozen=True):
    session: Session
    questions: tuple[Question, ...]


def read_frame(event: str, body: bytes, session_id: str) -> Happened | Listed | None:
    """What a frame of a stream says of one conversation. Raises msgspec.ValidationError."""
    if event == "feed_snapshot":
        told = msgspec.json.decode(body, type=_Snapshot)
        session = next((each for each in told.sessions if each.id == session_id), None)
        return Listed(session, tuple(each for each in told.questions if each.session_id == session_id))
    if event == "feed_changed":
        changed = msgspec.json.decode(body, type=_Changed)
        return Listed(changed.session, changed.questions) if changed.session.id == session_id else None
    if event.startswith("feed_"):
        return None
    head = msgspec.json.decode(body, type=_Head)
    return Happened(head.seq, head.at, decode(head.kind, head.version, body))
