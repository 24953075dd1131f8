"""Read one page of a conversation, with all parts of the HTTP answer, in one snapshot."""

from collections.abc import Sequence

import msgspec

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.state.rows import MessageRow, RunRow, ToolRow
from holdfast.domain.transcript.removals import TurnHistory
from holdfast.store.ports import Snapshot, StoredMessage
from holdfast.store.session_status import OpenQuestion

_AWAITS_PERSON = frozenset({"requested", "asked"})


class ConversationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of messages and what belongs to them, all as of `head`.

    `tools` are the open calls on the page. `questions` is empty unless one of them waits for a person.
    `prepared` has the context that the runs on the page were given. Only the newest page has the `summary`
    that stands for older turns. `history` is None if no turn was ever removed.
    """

    messages: tuple[StoredMessage, ...]
    head: Seq
    before: str | None
    runs: Sequence[RunRow]
    tools: Sequence[ToolRow]
    questions: Sequence[OpenQuestion]
    prepared: Sequence[Event]
    summary: Event | None
    history: TurnHistory | None

    @property
    def pending_runs(self) -> frozenset[RunId]:
        """Return the interrupted runs whose output recovery still awaits."""
        return frozenset(m.row.run_id for m in self.messages if m.row.status == "pending" and m.row.run_id)


def read_page(snapshot: Snapshot, session_id: SessionId, before: str | None, limit: int) -> ConversationPage:
    """Return the newest page, or the one before the cursor `before`. Raises NoSuchSession, BadCursor."""
    page = snapshot.messages(session_id, before, limit)
    rows = [message.row for message in page.messages]
    open_runs = {
        row.run_id for row in rows if row.role == "tool" and row.status in ("streaming", "interrupted")
    }
    tools = [tool for run in open_runs if run is not None for tool in snapshot.tools(session_id, run)]
    return ConversationPage(
        messages=page.messages,
        head=page.head,
        before=page.before,
        runs=snapshot.runs(session_id, rows[0].turn, rows[-1].turn) if rows else (),
        tools=tools,
        questions=_questions(snapshot, session_id)
        if any(t.approval in _AWAITS_PERSON for t in tools)
        else (),
        prepared=_prepared(snapshot, session_id, rows, is_newest=before is None),
        summary=snapshot.summary(session_id)[0] if before is None else None,
        history=_history(snapshot, session_id),
    )


def _history(snapshot: Snapshot, session_id: SessionId) -> TurnHistory | None:
    removals = snapshot.removals(session_id)
    return TurnHistory(snapshot.turns(session_id), removals) if removals else None


def _prepared(
    snapshot: Snapshot, session_id: SessionId, rows: Sequence[MessageRow], is_newest: bool
) -> Sequence[Event]:
    """Return the context of the page's runs. On the newest page, a run may not have an answer yet."""
    if is_newest:
        return snapshot.prepared_contexts(session_id, rows[0].turn) if rows else ()
    answers = [row for row in rows if row.role == "assistant"]
    if not answers:
        return ()
    return snapshot.prepared_contexts(session_id, answers[0].turn, max(row.first_seq for row in answers))


def _questions(snapshot: Snapshot, session_id: SessionId) -> Sequence[OpenQuestion]:
    status = snapshot.session_statuses([session_id]).get(session_id)
    return status.questions if status is not None else ()
