"""The end of a conversation read back from the store, as the model's context is made from."""

from holdfast.domain.changes import ReadBack
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.limits import PAGE_MESSAGES_MAX
from holdfast.domain.summaries import covered_through
from holdfast.domain.transcript import TranscriptFold
from holdfast.store.ports import MessagePage, Store

FIRST_PAGE_MESSAGES = 32


async def read_back(store: Store, session_id: SessionId, run_id: RunId | None, chars_max: int) -> ReadBack:
    """The newest pages, small ones first: until there is more than any context can hold, or a summary stands
    for the rest. `run_id` is the run whose open calls are told.
    """
    summary, head = await store.summary(session_id)
    through = covered_through(summary)
    heads: set[Seq] = {head}
    fold, before, chars, limit, first = TranscriptFold(), None, 0, FIRST_PAGE_MESSAGES, 0
    calls = await store.tools(session_id, run_id) if run_id is not None else ()
    while True:
        page = await store.messages(session_id, before, limit)
        fold.add_page(page.messages, calls)
        chars += _size(page)
        heads.add(page.head)
        first = page.messages[0].row.turn if page.messages else first
        before, limit = page.before, min(2 * limit, PAGE_MESSAGES_MAX)
        if before is None or chars > chars_max or first <= through:
            break
    fold.begin_at(first if before is not None else 0, summary)
    # What those turns were given is no message; without it a later request would begin differently.
    for event in await store.prepared(session_id, first):
        fold.add(event)
    return ReadBack(fold, heads.pop() if len(heads) == 1 else None, chars, before is None)


def _size(page: MessagePage) -> int:
    return sum(len(event.body) for message in page.messages for event in message.events)
