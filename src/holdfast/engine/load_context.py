"""Load the end of a conversation from the store, from which the agent builds the model's context."""

from collections.abc import Sequence

from holdfast.domain.decisions.compaction import covered_through
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.limits import PAGE_MESSAGES_MAX
from holdfast.domain.state.changes import LoadedContext
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.store.ports import Store, StoredMessage

FIRST_PAGE_MESSAGES = 32


async def load_context(
    store: Store, session_id: SessionId, run_id: RunId | None, chars_max: int
) -> LoadedContext:
    """Load the newest pages, small ones first, until they exceed the context or reach a summary.

    Only live messages count towards `chars_max`. The context includes the open calls of `run_id`.
    """
    summary, head = await store.summary(session_id)
    through = covered_through(summary)
    heads: set[Seq] = {head}
    fold, before, limit, first, size_bytes, live_bytes = TranscriptFold(), None, FIRST_PAGE_MESSAGES, 0, 0, 0
    calls = await store.tools(session_id, run_id) if run_id is not None else ()
    while True:
        page = await store.messages(session_id, before, limit)
        fold.add_messages(page.messages, calls)
        size_bytes += _size(page.messages)
        live_bytes += _size([message for message in page.messages if message.live])
        heads.add(page.head)
        first = page.messages[0].row.turn if page.messages else first
        before, limit = page.before, min(2 * limit, PAGE_MESSAGES_MAX)
        if before is None or live_bytes > chars_max or first <= through:
            break
    fold.begin_at(first if before is not None else 0, summary)
    # Instructions and memories are no messages; without them a later request would begin differently.
    for event in await store.prepared_contexts(session_id, first):
        fold.add(event)
    return LoadedContext(fold, heads.pop() if len(heads) == 1 else None, size_bytes, before is None)


def _size(messages: Sequence[StoredMessage]) -> int:
    return sum(len(event.body) for message in messages for event in message.events)
