"""JSON bodies of responses, and the functions that build them from the store's rows."""

from typing import Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Effect, Failure, ResumeMode, Role, ToolOutcome, WaitReason
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.files import FileKind
from holdfast.domain.ids import Seq
from holdfast.domain.shell import rules
from holdfast.domain.state.rows import (
    Approval,
    MessageStatus,
    RunRow,
    RunStatus,
    SessionRow,
    SessionStatus,
    ToolState,
)
from holdfast.domain.transcript.removals import TurnRemoval
from holdfast.domain.transcript.transcript import Entry, Turn
from holdfast.domain.usage import Usage
from holdfast.engine.session_commands import AcceptedMessage
from holdfast.models.info import ModelProviderInfo
from holdfast.store import session_status


class RuleInfo(msgspec.Struct, frozen=True):
    """Calls that are allowed without asking, in one conversation or, with null, in all."""

    id: str
    tool: str
    pattern: str
    session_id: str | None
    created_at: Instant


class RuleList(msgspec.Struct, frozen=True):
    """The oldest first."""

    rules: tuple[RuleInfo, ...]


class UsageInfo(msgspec.Struct, frozen=True):
    """Tokens, and millionths of a US dollar as far as prices are known; null: not at all.

    Of the input, so many were read from the provider's cache, and so many written to it. Of all, so many are
    estimated here, because the provider told none.
    """

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_micros: int | None
    written_tokens: int = 0
    estimated_tokens: int = 0


class SessionInfo(msgspec.Struct, frozen=True):
    """A conversation. `unread`: something was said in it that nobody has read, as far as is known.

    `pinned`: it is to be kept at the top of the list. `remember`: memory is told of what is said in it from
    now on. `head` is the number of its newest event; `remembered_at` is when memory was told the newest that
    it was to be told, null unless it took that in; `notes` is how many notes were saved from it. A list has
    none of the three. `window_tokens` is how much the model that answers in it reads at once, `answering`
    that model's name, where it alone was asked for. `opening` is how the first message in it begins, until it
    has a title.
    """

    id: str
    title: str
    status: SessionStatus
    created_at: Instant
    updated_at: Instant
    archived: bool
    turns: int
    agent: str
    model: str
    workspace: str
    resume: ResumeMode | None
    run_id: str | None
    previous_session_id: str | None
    parent_session_id: str | None
    successor_session_id: str | None
    usage: UsageInfo
    unread: bool
    pinned: bool
    remember: bool
    head: Seq | None = None
    remembered_at: Instant | None = None
    window_tokens: int | None = None
    answering: str | None = None
    opening: str = ""
    notes: int | None = None


class SessionInfoList(msgspec.Struct, frozen=True):
    """A page, the most recently active first. `cursor` asks for the next one; null: there is none."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None


class Draft(msgspec.Struct, frozen=True):
    """What is being written in a conversation and was not sent."""

    text: str


class AgentQuestion(msgspec.Struct, frozen=True):
    """What the agent asks a person: answered in words, or where there are choices by one of them.

    `multiple`: or by several.
    """

    question: str
    choices: tuple[str, ...]
    multiple: bool


class QuestionInfo(msgspec.Struct, frozen=True):
    """Something that waits for a person: approval, in_doubt, question are about a call, others about the run.

    `arguments` is JSON text; where `arguments_cut`, only its beginning, and the conversation's messages have
    all of it. `may_have_run`: the server stopped during the call. `workspace` is empty for a conversation's
    own folder. `asked` is what the agent asks.
    """

    session_id: str
    title: str
    workspace: str
    run_id: str
    kind: WaitReason
    asked_at: Instant
    reason: str
    call_id: str | None
    name: str | None
    arguments: str | None
    arguments_cut: bool
    effect: Effect | None
    may_have_run: bool
    asked: AgentQuestion | None = None


class QuestionInfoList(msgspec.Struct, frozen=True):
    """The oldest first. `more`: there are others, which come up as these are answered."""

    questions: tuple[QuestionInfo, ...]
    more: bool


class FeedSnapshot(msgspec.Struct, frozen=True):
    """What a feed begins with, in place of all that was known before. `more`: the list has others."""

    sessions: tuple[SessionInfo, ...]
    questions: tuple[QuestionInfo, ...]
    more: bool


class FeedChanged(msgspec.Struct, frozen=True):
    """A conversation as it is now, and all that it asks."""

    session: SessionInfo
    questions: tuple[QuestionInfo, ...]


class FeedRemoved(msgspec.Struct, frozen=True):
    session_id: str


class TurnReceipt(msgspec.Struct, frozen=True):
    """The message is on disk, as the event `seq`. The same key again gives the same receipt.

    `session_id` is the conversation that it is in: another than it was sent to, where that one went on.
    """

    turn_id: str
    run_id: str | None
    seq: Seq
    session_id: str


class RemovedTurn(msgspec.Struct, frozen=True):
    """The event that removed a turn, whether another version took its place, and the turn before (0: none).

    Turns with the same `seq` are restored together.
    """

    seq: Seq
    replaced: bool
    after: int


class MessageInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the conversation, as it reads at the page's `head`.

    A tool's entry has the call's id; `message_id` is the message that made the call. `arguments` is what it
    runs with where a person changed what that message says; `reason` is to be known before it is allowed;
    `ms` is how long it ran. `model` is the one that writes an answer; `memories` is what memory brought to a
    run, at the first of its answers on the page, or at the message that begins the turn while there is none.
    `context_tokens` is how many its provider counted in all that it was sent for this answer; `began_at` is
    when it was asked for that, where that is known: `at` is when the answer ended. The message that begins a
    turn has `removed` where the turn can be restored, and `versions`, the turns of all its versions, where it
    has several and is the first of them on the page.
    """

    id: str
    role: Role
    status: MessageStatus
    turn: int
    place: int
    live: bool
    late: bool
    at: Instant
    run_id: str | None
    parts: tuple[AnyPart, ...]
    turn_id: str | None = None
    continues: str | None = None
    message_id: str | None = None
    name: str | None = None
    state: ToolState | None = None
    approval: Literal["requested", "approve", "deny", "asked", "answered", "closed"] | None = None
    outcome: ToolOutcome | None = None
    arguments: str | None = None
    reason: str | None = None
    model: str | None = None
    ms: int | None = None
    memories: tuple[str, ...] = ()
    asked: AgentQuestion | None = None
    context_tokens: int | None = None
    began_at: Instant | None = None
    versions: tuple[str, ...] = ()
    removed: RemovedTurn | None = None


class RunInfo(msgspec.Struct, frozen=True):
    """The work done for a turn. `detail` is the limit that it waits at; resuming lets it go on past that.

    `steers` is the run that a queued one is told to before the next step of that; null: it waits for its own.
    """

    id: str
    session_id: str
    turn: int
    status: RunStatus
    waiting: WaitReason | None
    failure: Failure | None
    attempts: int
    started_at: Instant | None
    ended_at: Instant | None
    usage: UsageInfo
    steps: int
    detail: str = ""
    steers: str | None = None


class Summary(msgspec.Struct, frozen=True):
    """What stands for the turns up to `through_turn` when the model is asked; they stay readable."""

    through_turn: int
    text: str
    at: Instant


class MessageList(msgspec.Struct, frozen=True):
    """The newest page, oldest message first, and the runs of its turns.

    Follow the events after `head`; `before` asks for the page before this one. Only the newest page has the
    `summary`, if one stands.
    """

    messages: tuple[MessageInfo, ...]
    runs: tuple[RunInfo, ...]
    head: Seq
    before: str | None
    summary: Summary | None = None


class MessageMatch(msgspec.Struct, frozen=True):
    """A message that holds the words; `marks` are the [start, end) of them within `snippet`."""

    session_id: str
    title: str
    turn: int
    place: int
    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class MessageMatchList(msgspec.Struct, frozen=True):
    """The newest first."""

    hits: tuple[MessageMatch, ...]


class UploadedFile(msgspec.Struct, frozen=True):
    """A file that is kept. Its id is the SHA-256 of its content; its type is what the content shows."""

    id: str
    name: str
    media_type: str
    size_bytes: int


class ActiveModel(msgspec.Struct, frozen=True):
    """A model that answers, why it is that one, and which files it takes. `in_use`: where none was chosen.

    `takes_guessed`: nothing but the model's name suggests what it takes.
    """

    name: str
    why: str
    in_use: bool = True
    takes: tuple[FileKind, ...] = ()
    takes_guessed: bool = False


class AvailableModels(msgspec.Struct, frozen=True):
    """First the model that answers where none was chosen, and who offers those that can be.

    Of two, the other is the server's own, which agents have that name none: here `main` names one.
    """

    models: tuple[ActiveModel, ...]
    providers: tuple[ModelProviderInfo, ...] = ()


class ServerHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ready` also says what commands are confined by, and what that does not protect here.

    `problems` are what is wrong with agents and prompts that people wrote, and with connections.
    """

    status: Literal["live", "ready"]
    confinement: str = ""
    unprotected: tuple[str, ...] | None = None
    problems: tuple[str, ...] = ()


def usage_info(usage: Usage) -> UsageInfo:
    return UsageInfo(
        usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost_micros,
        usage.written_tokens, usage.estimated_tokens,
    )  # fmt: skip


def session_info(
    row: SessionRow,
    unread: bool,
    pinned: bool,
    head: Seq | None = None,
    remembered_at: Instant | None = None,
    opening: str = "",
    notes: int | None = None,
) -> SessionInfo:
    return SessionInfo(
        row.id, row.title, row.status, row.created_at, row.updated_at, row.archived, row.live_turns,
        row.agent, row.model, row.workspace, row.resume, row.run_id, row.previous_session_id,
        row.parent_session_id, row.successor_session_id, usage_info(row.usage), unread,
        pinned, row.remember, head, remembered_at, opening=opening, notes=notes,
    )  # fmt: skip


def question_info(question: session_status.OpenQuestion) -> QuestionInfo:
    return QuestionInfo(
        question.session_id, question.title, question.workspace, question.run_id, question.kind,
        question.asked_at, question.reason, question.call_id, question.name or None,
        question.arguments if question.call_id else None, question.arguments_cut, question.effect,
        question.may_have_run, agent_question(question),
    )  # fmt: skip


def agent_question(question: session_status.OpenQuestion) -> AgentQuestion | None:
    if not question.question:
        return None
    return AgentQuestion(question.question, question.choices, question.multiple)


def run_info(session_id: str, row: RunRow) -> RunInfo:
    return RunInfo(
        row.id, session_id, row.turn, row.status, row.waiting, row.failure, row.attempts, row.started_at,
        row.ended_at, usage_info(row.usage), row.steps, row.detail, row.steers,
    )  # fmt: skip


def turn_receipt(accepted: AcceptedMessage) -> TurnReceipt:
    return TurnReceipt(accepted.turn_id, accepted.run_id, accepted.seq, accepted.session_id)


def rule_info(rule: rules.Rule) -> RuleInfo:
    return RuleInfo(rule.id, rule.tool, rule.pattern, rule.session_id, rule.created_at)


def _removed_turn(removal: TurnRemoval | None) -> RemovedTurn | None:
    return RemovedTurn(removal.seq, removal.replaced, removal.after) if removal is not None else None


def message_info(
    turn: Turn,
    entry: Entry,
    approval: Approval = "",
    question: session_status.OpenQuestion | None = None,
    memories: tuple[str, ...] = (),
    versions: tuple[str, ...] = (),
    removal: TurnRemoval | None = None,
) -> MessageInfo:
    is_first_entry = entry.place == 0
    return MessageInfo(
        entry.id, entry.role, entry.status, entry.turn, entry.place, turn.live, entry.late, entry.at,
        entry.run_id or (turn.run_id if entry.role == "user" else None), entry.parts, turn.id or None,
        entry.continues, entry.message_id or None, entry.name or None, entry.state, approval or None,
        entry.outcome, entry.arguments or None, (question.reason if question else "") or None,
        entry.model or None, entry.ms or None, memories, agent_question(question) if question else None,
        entry.weight[1] if len(entry.weight) == 2 else None, entry.began_at or None,
        versions if is_first_entry else (), _removed_turn(removal) if is_first_entry else None,
    )  # fmt: skip
