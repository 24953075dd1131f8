"""A page of a conversation has everything up to its `head`: a stream that begins there brings the rest."""

from functools import partial
from pathlib import Path

from holdfast.domain.events.facts import ContextPrepared
from holdfast.engine.conversation_page import read_page
from holdfast.http.routes.turns import memories_by_message
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import TurnEvents, created, turn_facts

NOTES = ("The user's dog is called Rex.",)


async def test_a_page_includes_recalled_memories_from_their_event_on(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new = created()
    await store.append(new)
    await store.append(Append(new.session_id, turn_facts(1)))
    story = TurnEvents(2)
    asked = story.accepted()
    steps = (
        (asked, ()),
        (story.started(), ()),
        (ContextPrepared(story.run_id, "digest", NOTES), (asked.message_id, NOTES)),
        (story.step_started(), (story.message_id, NOTES)),
        *((fact, (story.message_id, NOTES)) for fact in story.rest("Rex.")),
    )
    for fact, brought in steps:
        await store.append(Append(new.session_id, (fact,)))
        read = partial(read_page, session_id=new.session_id, before=None, limit=10)
        page = await store.snapshot(read)
        assert memories_by_message(page) == (dict([brought]) if brought else {}), type(fact).__name__
    earlier = await store.snapshot(
        lambda snapshot: read_page(snapshot, new.session_id, before="2.0", limit=10)
    )
    assert memories_by_message(earlier) == {}
    await store.close()
