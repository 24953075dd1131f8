"""Pages of a transcript: all messages in the order of turns and places, with their content."""

import asyncio

import pytest

from holdfast.domain.errors import BadCursor, NoSuchRun, NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.limits import PAGE_MESSAGES_MAX
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.domain.transcript.transcript import fold as fold_transcript
from holdfast.store.ports import Append, MessagePage, Store, StoredMessage
from tests.support.turn_events import IDS, TurnEvents, accept, created, turn_facts, turn_with_tool


async def create_session(store: Store, *facts: f.AnyFact) -> SessionId:
    new = created()
    await store.append(new)
    if facts:
        await store.append(Append(new.session_id, facts))
    return new.session_id


async def all_pages(store: Store, session_id: SessionId, limit: int) -> list[StoredMessage]:
    """Return every message, oldest first, by following the cursors."""
    found: list[StoredMessage] = []
    before: str | None = None
    while True:
        page: MessagePage = await store.messages(session_id, before, limit)
        assert len(page.messages) <= limit
        found[:0] = page.messages
        before = page.before
        if before is None:
            return found


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 200])
async def test_all_pages_together_are_everything(store: Store, limit: int) -> None:
    facts = [fact for turn in range(1, 6) for fact in turn_with_tool(turn)]
    session_id = await create_session(store, *facts)
    messages = await all_pages(store, session_id, limit)
    places = [(message.row.turn, message.row.place) for message in messages]
    assert places == [(turn, place) for turn in range(1, 6) for place in range(4)]
    roles = [message.row.role for message in messages]
    assert roles == ["user", "assistant", "tool", "assistant"] * 5


async def test_a_page_has_what_each_message_says(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1, "ask", ("an", "swer")))
    page = await store.messages(session_id, None, 10)
    assert page.head == 9 == await store.head(session_id)
    asked, answered = (message.events for message in page.messages)
    assert isinstance(asked[0].fact, f.TurnAccepted) and asked[0].fact.parts == (Text("ask"),)
    assert isinstance(answered[0].fact, f.MessageSettled) and answered[0].fact.parts == (Text("answer"),)
    assert len(asked) == len(answered) == 1


async def test_a_message_being_written_shows_its_deltas_so_far(store: Store) -> None:
    story = TurnEvents()
    session_id = await create_session(store, *story.opening())
    other = TurnEvents(1)
    other.step_started()
    deltas = [story.reasoning("hm"), story.text("one "), story.text("two")]
    noise = [f.SessionRenamed("x", "user"), other.text("not mine")]
    await store.append(Append(session_id, [deltas[0], noise[0], deltas[1], noise[1], deltas[2]]))
    message = (await store.messages(session_id, None, 10)).messages[-1]
    assert (message.row.status, message.row.body_seq) == ("streaming", 0)
    assert message.events[0].kind == "model_step_started"
    assert [event.fact for event in message.events[1:]] == deltas


async def test_a_tool_being_run_shows_its_output_so_far(store: Store) -> None:
    story = TurnEvents()
    facts = [
        *story.opening(),
        story.message_settled(),
        story.tool_intended(),
        story.tool_started(),
        story.tool_output("out"),
    ]
    session_id = await create_session(store, *facts)
    message = (await store.messages(session_id, None, 10)).messages[-1]
    assert (message.row.role, message.row.id) == ("tool", story.call_id)
    assert [event.kind for event in message.events] == ["tool_intended", "tool_output_appended"]


async def test_settling_replaces_what_was_streamed(store: Store) -> None:
    story = TurnEvents()
    session_id = await create_session(
        store, *story.opening(), story.text("draft"), story.message_settled_as("final")
    )
    (_, message) = (await store.messages(session_id, None, 10)).messages
    assert message.row.status == "settled"
    (event,) = message.events
    assert isinstance(event.fact, f.MessageSettled) and event.fact.parts == (Text("final"),)


async def test_the_newest_body_is_the_one_that_counts(store: Store) -> None:
    story = TurnEvents()
    facts = [*story.opening(), story.text("a"), story.message_settled(), story.message_settled_as("better")]
    session_id = await create_session(store, *facts)
    (_, message) = (await store.messages(session_id, None, 10)).messages
    (event,) = message.events
    assert isinstance(event.fact, f.MessageSettled) and event.fact.parts == (Text("better"),)
    assert len(await store.search("better", 10)) == 1


async def test_undone_and_cleared_turns_stay_readable_and_are_not_live(store: Store) -> None:
    facts = [fact for turn in (1, 2, 3, 4) for fact in turn_facts(turn)]
    session_id = await create_session(store, *facts, f.TurnsUndone(4), f.SessionCleared(2))
    messages = await all_pages(store, session_id, 3)
    assert [(m.row.turn, m.live) for m in messages] == [
        (1, False), (1, False), (2, False), (2, False), (3, True), (3, True), (4, False), (4, False),
    ]  # fmt: skip
    row = await store.session(session_id)
    assert (row.live_turns, row.last_turn) == (1, 4)


async def test_late_output_takes_its_place_and_is_marked(store: Store) -> None:
    story = TurnEvents()
    facts = [*story.opening(), story.text("lost"), story.cancelled()]
    session_id = await create_session(store, *facts)
    (_, before) = (await store.messages(session_id, None, 10)).messages
    assert before.row.status == "interrupted"
    assert [event.kind for event in before.events] == ["model_step_started", "text_appended"]
    await store.append(Append(session_id, (story.message_settled("recovered", late=True),)))
    (_, after) = (await store.messages(session_id, None, 10)).messages
    assert (after.row.status, after.row.late, after.row.place) == ("recovered", True, before.row.place)


async def test_recovered_output_stands_before_its_marker(store: Store) -> None:
    story = TurnEvents()
    notice = f.RunInterrupted(story.run_id, 1, 1_000_001, IDS.message())
    facts = [*story.opening(), notice, f.RecoveryPending(story.run_id, 1, 1_000_001)]
    session_id = await create_session(store, *facts)
    found = f.MessageSettled(
        1, 2, IDS.message(), "assistant", (Text("found"),), "", story.run_id, "recovered", late=True
    )
    done = f.RecoveryFinished(story.run_id, 1, 1_000_001, True)
    await store.append(Append(session_id, (found, done)))
    messages = (await store.messages(session_id, None, 10)).messages
    assert [(m.row.place, m.row.role) for m in messages[-2:]] == [(2, "assistant"), (1_000_001, "notice")]
    assert messages[-1].row.status == "recovered"
    assert messages[-1].events[0].fact == done


async def test_pages_and_the_events_after_them_read_as_the_whole_journal_does(store: Store) -> None:
    story = TurnEvents(3)
    facts = [*turn_with_tool(1), *turn_facts(2), f.TurnsUndone(2), *story.opening(), story.text("a")]
    session_id = await create_session(store, *facts)
    page = await store.messages(session_id, None, 100)
    tools = await store.tools(session_id, story.run_id)
    rest = [
        story.text("b"),
        story.message_settled(),
        story.tool_intended(),
        story.tool_output("c"),
        story.tool_settled(),
    ]
    await store.append(Append(session_id, rest))
    reading = TranscriptFold()
    reading.add_messages(page.messages, tools)
    for event in await store.read(session_id, page.head, 100):
        reading.add(event)
    whole = fold_transcript(await store.read(session_id, 0, 1_000))
    assert reading.transcript().turns == whole.turns


async def test_a_page_is_bounded(store: Store) -> None:
    copies = [
        f.TurnAccepted(IDS.turn(), turn, IDS.message(), (Text("x"),))
        for turn in range(1, PAGE_MESSAGES_MAX + 12)
    ]
    session_id = await create_session(store, *copies)
    page = await store.messages(session_id, None, 100_000)
    assert len(page.messages) == PAGE_MESSAGES_MAX
    rest = await store.messages(session_id, page.before, 100_000)
    assert [m.row.turn for m in rest.messages] == list(range(1, 12))
    assert rest.before is None


async def test_older_pages_stay_the_same_while_newer_messages_come(store: Store) -> None:
    session_id = await create_session(store, *(fact for turn in (1, 2, 3) for fact in turn_facts(turn)))
    newest = await store.messages(session_id, None, 2)
    await store.append(accept(session_id, "more"))
    older = await store.messages(session_id, newest.before, 2)
    assert [m.row.turn for m in older.messages] == [2, 2]
    assert [m.row.turn for m in newest.messages] == [3, 3]


async def test_no_reader_sees_the_middle_of_a_change(store: Store) -> None:
    session_id = await create_session(store)

    async def write() -> None:
        for turn in range(1, 60):
            await store.append(Append(session_id, turn_facts(turn)))

    writing = asyncio.ensure_future(write())
    while not writing.done():
        messages = (await store.messages(session_id, None, 200)).messages
        assert len(messages) % 2 == 0
        assert {m.row.status for m in messages} <= {"settled"}
    await writing


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.2.3", "-1.2", "1.9e9", "9" * 30 + ".1"])
async def test_what_is_not_a_cursor_is_refused(store: Store, cursor: str) -> None:
    session_id = await create_session(store)
    with pytest.raises(BadCursor):
        await store.messages(session_id, cursor, 10)
    with pytest.raises(BadCursor):
        await store.sessions(cursor, 10)


async def test_missing_sessions_and_runs_raise_distinct_errors(store: Store) -> None:
    unknown = IDS.session()
    with pytest.raises(NoSuchSession):
        await store.session(unknown)
    with pytest.raises(NoSuchSession):
        await store.messages(unknown, None, 10)
    with pytest.raises(NoSuchSession):
        await store.tools(unknown, RunId("r"))
    with pytest.raises(NoSuchRun):
        await store.run(RunId("r"))


async def test_runs_and_open_calls_are_found(store: Store) -> None:
    story, done = TurnEvents(2), TurnEvents(1)
    facts = [
        *done.opening(),
        *done.rest("x"),
        *story.opening(),
        story.message_settled(),
        story.tool_intended(),
    ]
    session_id = await create_session(store, *facts)
    other = await create_session(store, *TurnEvents().opening())
    runs = await store.open_runs()
    assert [(owner, run.turn) for owner, run in runs] == [(session_id, 2), (other, 1)]
    assert await store.active_runs() == runs
    assert await store.run(story.run_id) == runs[0]
    assert (await store.run(done.run_id))[1].status == "completed"
    (tool,) = await store.tools(session_id, story.run_id)
    assert (tool.id, tool.state, tool.effect) == (story.call_id, "intended", "unsafe")
    await store.append(Append(session_id, (story.tool_started(), story.tool_settled())))
    assert list(await store.tools(session_id, story.run_id)) == []


async def test_totals_count_what_there_is(store: Store) -> None:
    before = await store.totals()
    assert (before.sessions, before.events) == (0, 0)
    await create_session(store, *turn_facts(1))
    after = await store.totals()
    assert (after.sessions, after.events) == (before.sessions + 1, before.events + 8)
    assert after.store_bytes > 0 and after.format >= 1


async def test_the_runs_of_some_turns_are_read_in_their_order(store: Store) -> None:
    facts = [fact for turn in range(1, 6) for fact in turn_facts(turn, "ask", ("answer",))]
    session_id = await create_session(store, *facts)
    runs = await store.runs(session_id, 2, 4)
    assert [(run.turn, run.status) for run in runs] == [(n, "completed") for n in (2, 3, 4)]
    assert list(await store.runs(session_id, 6, 9)) == []
    with pytest.raises(NoSuchSession):
        await store.runs(IDS.session(), 1, 1)


async def test_a_run_that_waits_for_a_person_is_open_and_not_active(store: Store) -> None:
    story = TurnEvents()
    session_id = await create_session(store, *story.opening())
    await store.append(Append(session_id, (f.RunWaiting(story.run_id, "approval"),)))
    assert [run.id for _, run in await store.open_runs()] == [story.run_id]
    assert await store.active_runs() == []
    await store.append(Append(session_id, (f.RunResumed(story.run_id, "user", 0),)))
    assert [run.id for _, run in await store.active_runs()] == [story.run_id]


async def test_what_runs_were_given_is_read_from_a_turn_on(store: Store) -> None:
    stories = [TurnEvents(turn) for turn in range(1, 5)]
    session_id = await create_session(store)
    for story in stories:
        given = (f"of turn {story.turn}",)
        opened = (story.accepted(), story.started())
        given_to_it = f.ContextPrepared(story.run_id, "digest", given)
        await store.append(Append(session_id, (*opened, given_to_it, story.step_started())))
    for first in range(1, 5):
        facts = [event.fact for event in await store.prepared_contexts(session_id, first)]
        assert [fact.run_id for fact in facts if isinstance(fact, f.ContextPrepared)] == [
            story.run_id for story in stories[first - 1 :]
        ]
    assert list(await store.prepared_contexts(session_id, 9)) == []
    *_, last = await store.prepared_contexts(session_id, 1)
    assert len(await store.prepared_contexts(session_id, 2, last.seq)) == len(stories) - 2
    with pytest.raises(NoSuchSession):
        await store.prepared_contexts(SessionId("s_none"), 1)
