"""The status of sessions: unread turns, open questions, and notifications about both."""

import asyncio
import time

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import BadCursor, NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import (
    FEED_OPEN_MAX,
    FEED_SESSIONS_MAX,
    PURGE_AFTER_MS,
    QUESTION_ARGUMENTS_CHARS_MAX,
    SEEN_UPDATES_MAX,
    WATCH_SESSIONS_MAX,
)
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, TurnEvents, accept, created, turn_facts


async def create_session(store: Store, *facts: f.AnyFact, title: str = "") -> SessionId:
    new = created(title)
    await store.append(new)
    if facts:
        await store.append(Append(new.session_id, facts))
    return new.session_id


async def is_unread(store: Store, session_id: SessionId) -> bool:
    found = session_id in await store.unread([session_id])
    status = (await store.session_statuses([session_id]))[session_id]
    (listed,) = [each for each in (await store.overview()).statuses if each.row.id == session_id]
    assert found == status.unread == listed.unread
    return found


# What is unread.


async def test_an_answer_is_unread_until_it_was_seen(store: Store) -> None:
    story = TurnEvents()
    session_id = await create_session(store)
    assert not await is_unread(store, session_id)
    await store.append(Append(session_id, story.opening()))
    await store.append(Append(session_id, (f.ContextPrepared(story.run_id, "d"), story.text("Much"))))
    assert not await is_unread(store, session_id), "nothing but what the person's own message brought about"
    await store.append(Append(session_id, story.rest(".")))
    assert await is_unread(store, session_id)
    await store.mark_read(session_id, await store.head(session_id))
    assert not await is_unread(store, session_id)


async def test_a_mark_never_moves_back_and_never_past_the_newest_event(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1))
    head = await store.head(session_id)
    await store.mark_read(session_id, head)
    await store.mark_read(session_id, 1)
    assert not await is_unread(store, session_id)
    with pytest.raises(BadCursor):
        await store.mark_read(session_id, head + 1)
    with pytest.raises(NoSuchSession):
        await store.mark_read(IDS.session(), 0)
    await store.append(Append(session_id, turn_facts(2)))
    assert await is_unread(store, session_id)
    await store.mark_read(session_id, head)
    assert await is_unread(store, session_id)


async def test_sending_marks_the_session_as_read(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1))
    assert await is_unread(store, session_id)
    await store.append(accept(session_id, "And then?"))
    assert not await is_unread(store, session_id)


async def test_an_answer_that_comes_after_a_queued_message_is_unread(store: Store) -> None:
    first = TurnEvents()
    session_id = await create_session(store, *first.opening())
    await store.append(accept(session_id, "And then?"))
    assert not await is_unread(store, session_id)
    await store.append(Append(session_id, first.rest("Much.")))
    assert await is_unread(store, session_id)


async def test_titles_settings_and_the_archive_leave_nothing_to_read(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1))
    await store.mark_read(session_id, await store.head(session_id))
    changes = (f.SessionRenamed("x", "user"), f.SessionConfigured(model="demo"), f.SessionArchived(True))
    await store.append(Append(session_id, (*changes, f.SessionArchived(False))))
    assert not await is_unread(store, session_id)


async def test_what_failed_or_was_cut_off_is_to_be_read(store: Store) -> None:
    failed, cut_off = TurnEvents(), TurnEvents()
    one = await create_session(
        store, *failed.opening(), f.RunFailed(failed.run_id, f.Failure("x", "It broke."))
    )
    stopped = f.RunInterrupted(cut_off.run_id, 1, 1_000_001, IDS.message())
    two = await create_session(store, *cut_off.opening(), stopped)
    assert await is_unread(store, one)
    assert await is_unread(store, two)


async def test_copied_and_undone_turns_are_not_unread(store: Store) -> None:
    copied = f.TurnAccepted(IDS.turn(), 1, IDS.message(), (Text("Hello"),))
    answer = f.MessageSettled(1, 1, IDS.message(), "assistant", (Text("Hi"),), "")
    assert not await is_unread(store, await create_session(store, copied, answer))
    session_id = await create_session(store, *turn_facts(1))
    await store.append(Append(session_id, (f.TurnsUndone(1),)))
    assert not await is_unread(store, session_id)


async def test_marks_outlive_the_process_and_go_with_their_session(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    session_id = await create_session(store, *turn_facts(1))
    other = await create_session(store, *turn_facts(1))
    await store.mark_read(session_id, await store.head(session_id))
    await store.mark_read(other, await store.head(other))
    again = await home.open(clock)
    assert not await is_unread(again, session_id)
    assert set(await store.items("seen")) == {session_id, other}
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    with pytest.raises(NoSuchSession):
        await store.mark_read(session_id, 1)
    clock.advance(PURGE_AFTER_MS + 1)
    await store.append(Append(other, (f.SessionRenamed("x", "user"),)))
    await store.sweep()
    assert set(await store.items("seen")) == {other}


async def test_purging_a_deleted_session_keeps_the_mark_of_its_recreation(
    store: Store, clock: FakeClock
) -> None:
    session_id = await create_session(store, *turn_facts(1))
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    await store.append(created(session_id=session_id))
    await store.mark_read(session_id, 1)
    clock.advance(PURGE_AFTER_MS + 1)
    await store.sweep()
    assert set(await store.items("seen")) == {session_id}


async def test_read_marks_moved_by_other_processes_are_reported(store: Store, home: StoreHome) -> None:
    ids = [await create_session(store, *turn_facts(1)) for _ in range(3)]
    other = await home.open()
    number, _ = await other.mark_changes_since(0)
    assert await other.mark_changes_since(number) == (number, frozenset())
    await store.mark_read(ids[0], 1)
    await store.mark_read(ids[2], 1)
    await store.mark_read(ids[2], 1)
    assert await other.mark_changes_since(number) == (number + 2, frozenset({ids[0], ids[2]}))
    assert await other.mark_changes_since(number + 1) == (number + 2, frozenset({ids[2]}))
    assert await other.mark_changes_since(number + 3) == (number + 2, None), (
        "a number that was never given out"
    )


async def test_too_many_mark_moves_are_reported_as_unknown(store: Store) -> None:
    session_id = await create_session(
        store, *(f.SessionRenamed(str(n), "user") for n in range(SEEN_UPDATES_MAX + 5))
    )
    for seq in range(1, SEEN_UPDATES_MAX + 2):
        await store.mark_read(session_id, seq)
    assert await store.mark_changes_since(0) == (SEEN_UPDATES_MAX + 1, None)
    assert await store.mark_changes_since(1) == (SEEN_UPDATES_MAX + 1, frozenset({session_id}))


# What waits for an answer.


def approval_requested(story: TurnEvents, reason: str = "") -> list[f.AnyFact]:
    """Return a turn up to its open approval."""
    opened = [*story.opening(), story.message_settled(), story.tool_intended()]
    return [
        *opened,
        f.ApprovalRequested(story.run_id, story.call_id, reason),
        f.RunWaiting(story.run_id, "approval"),
    ]


async def test_an_open_approval_is_a_question_until_it_is_answered(store: Store, clock: FakeClock) -> None:
    story = TurnEvents()
    session_id = await create_session(store, title="Tidy")
    clock.advance(5_000)
    await store.append(Append(session_id, approval_requested(story, "It writes.")))
    (question,) = await store.questions(10)
    assert (question.session_id, question.run_id, question.call_id) == (
        session_id,
        story.run_id,
        story.call_id,
    )
    assert (question.kind, question.title, question.name) == ("approval", "Tidy", "shell")
    assert (question.arguments, question.reason) == ('{"command":"ls"}', "It writes.")
    assert question.asked_at == clock.now_ms() and not question.may_have_run
    survey = await store.overview()
    assert survey.questions == (question,)
    assert (await store.session_statuses([session_id]))[session_id].questions == (question,)
    answered = f.ApprovalResolved(story.run_id, story.call_id, "approve")
    await store.append(Append(session_id, (answered, f.RunResumed(story.run_id, "user", 0))))
    assert await store.questions(10) == []
    assert (await store.overview()).questions == ()
    assert (await store.session_statuses([session_id]))[session_id].questions == ()


async def test_what_the_agent_asks_is_a_question_with_its_choices(store: Store, clock: FakeClock) -> None:
    story = TurnEvents()
    session_id = await create_session(store, *story.opening(), story.message_settled(), story.tool_intended())
    clock.advance(5_000)
    asked = f.QuestionAsked(story.run_id, story.call_id, "Which?", ("One", "Two"), multiple=True)
    await store.append(Append(session_id, (asked, f.RunWaiting(story.run_id, "question"))))
    (question,) = await store.questions(10)
    assert (question.kind, question.call_id, question.asked_at) == ("question", story.call_id, clock.now_ms())
    assert (question.question, question.choices, question.multiple) == ("Which?", ("One", "Two"), True)
    assert (await store.session_statuses([session_id]))[session_id].questions == (question,)
    assert (await store.tools(session_id, story.run_id))[0].approval == "asked"
    answered = f.QuestionAnswered(story.run_id, story.call_id, choices=("Two",))
    await store.append(Append(session_id, (answered, f.RunResumed(story.run_id, "user", 0))))
    assert await store.questions(10) == [] and (await store.overview()).questions == ()
    assert (await store.tools(session_id, story.run_id))[0].approval == "answered"


async def test_a_question_about_an_in_doubt_call_says_it_may_have_run(store: Store) -> None:
    story = TurnEvents()
    opened = [*story.opening(), story.message_settled(), story.tool_intended(), story.tool_started()]
    doubt: list[f.AnyFact] = [
        f.ToolInDoubt(story.run_id, story.call_id),
        f.RunWaiting(story.run_id, "in_doubt"),
    ]
    session_id = await create_session(store, *opened, *doubt)
    (question,) = await store.questions(10)
    assert (question.kind, question.may_have_run, question.arguments) == (
        "in_doubt",
        True,
        '{"command":"ls"}',
    )
    await store.append(Append(session_id, (story.cancelled(),)))
    assert await store.questions(10) == []


async def test_the_arguments_are_the_newest_that_were_said_of_the_call(store: Store) -> None:
    story = TurnEvents()
    session_id = await create_session(store, *story.opening(), story.message_settled())
    intended = story.tool_intended()
    edited = f.ToolIntended(
        story.run_id, 1, intended.place, intended.message_id, story.call_id, "shell", '{"command":"pwd"}',
        "unsafe", True,
    )  # fmt: skip
    after: list[f.AnyFact] = [
        f.ToolStarted(story.run_id, story.call_id),
        f.ToolInDoubt(story.run_id, story.call_id),
    ]
    await store.append(Append(session_id, (intended, edited, *after, f.RunWaiting(story.run_id, "in_doubt"))))
    (question,) = await store.questions(10)
    assert question.arguments == '{"command":"pwd"}'


async def test_a_run_at_a_limit_is_a_question_about_the_run(store: Store) -> None:
    story = TurnEvents()
    waits = f.RunWaiting(story.run_id, "limit", "50 steps")
    session_id = await create_session(store, *story.opening(), story.message_settled(), waits)
    (question,) = await store.questions(10)
    assert (question.kind, question.reason, question.call_id) == ("limit", "50 steps", None)
    assert (await store.session_statuses([session_id]))[session_id].questions == (question,)


async def test_a_run_may_ask_several_things_and_the_oldest_question_is_first(
    store: Store, clock: FakeClock
) -> None:
    first, second = TurnEvents(), TurnEvents()
    one = await create_session(store, *approval_requested(first))
    clock.advance(1_000)
    opened = [*second.opening(), second.message_settled()]
    calls = [second.tool_intended(), second.tool_intended()]
    requests: list[f.AnyFact] = [f.ApprovalRequested(second.run_id, call.call_id) for call in calls]
    two = await create_session(store, *opened, *calls, *requests, f.RunWaiting(second.run_id, "approval"))
    found = await store.questions(10)
    assert [question.session_id for question in found] == [one, two, two]
    assert {question.call_id for question in found[1:]} == {call.call_id for call in calls}
    assert len(await store.questions(1)) == 1
    await store.append(Append(two, (f.ApprovalResolved(second.run_id, calls[0].call_id, "approve"),)))
    assert [question.call_id for question in await store.questions(10)] == [first.call_id, calls[1].call_id]


async def test_long_arguments_are_cut_and_say_so(store: Store) -> None:
    story = TurnEvents()
    long = '{"command":"' + "x" * QUESTION_ARGUMENTS_CHARS_MAX + '"}'
    opened = [*story.opening(), story.message_settled()]
    call = f.ToolIntended(story.run_id, 1, 2, story.message_id, IDS.call(), "shell", long, "unsafe")
    asked: list[f.AnyFact] = [
        f.ApprovalRequested(story.run_id, call.call_id),
        f.RunWaiting(story.run_id, "approval"),
    ]
    await create_session(store, *opened, call, *asked)
    (question,) = await store.questions(10)
    assert question.arguments_cut and question.arguments == long[:QUESTION_ARGUMENTS_CHARS_MAX]


async def test_a_deleted_session_asks_nothing(store: Store) -> None:
    session_id = await create_session(store, *approval_requested(TurnEvents()))
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    assert await store.questions(10) == []
    assert await store.session_statuses([session_id]) == {}
    assert (await store.overview()).statuses == ()


# The survey.


async def test_the_overview_has_the_newest_and_all_active_sessions(store: Store, clock: FakeClock) -> None:
    asking, working, failed = TurnEvents(), TurnEvents(), TurnEvents()
    old = [
        await create_session(store, *approval_requested(asking)),
        await create_session(store, *working.opening()),
        await create_session(
            store, *failed.opening(), f.RunFailed(failed.run_id, f.Failure("x", "It broke."))
        ),
    ]
    await store.append(Append(old[0], (f.SessionArchived(True),)))
    forgotten = await create_session(store, *turn_facts(1))
    clock.advance(1_000)
    new = [created() for _ in range(FEED_SESSIONS_MAX)]
    await store.append(*new)
    survey = await store.overview()
    found = [status.row.id for status in survey.statuses]
    assert len(found) == len(set(found)) == FEED_SESSIONS_MAX + 3
    assert set(found) == {*old, *(each.session_id for each in new)}
    assert forgotten not in found and survey.has_more
    by_id = {status.row.id: status for status in survey.statuses}
    assert [by_id[each].row.status for each in old] == ["needs_you", "working", "failed"]


async def test_the_overview_is_bounded_and_lists_questions_before_failures(
    store: Store, clock: FakeClock
) -> None:
    asking = await create_session(store, *approval_requested(TurnEvents()))
    clock.advance(60_000)
    for _ in range(FEED_OPEN_MAX // 50 + 1):
        stories = [TurnEvents() for _ in range(50)]
        await store.append(*(
            Append(IDS.session(), (
                f.SessionCreated(), *story.opening(), f.RunFailed(story.run_id, f.Failure("x", "It broke.")),
            )) for story in stories
        ))  # fmt: skip
    survey = await store.overview()
    assert len(survey.statuses) <= FEED_SESSIONS_MAX + FEED_OPEN_MAX
    assert survey.has_more
    assert asking in [status.row.id for status in survey.statuses]


async def test_a_small_overview_contains_every_session(store: Store) -> None:
    ids = [await create_session(store) for _ in range(3)]
    survey = await store.overview()
    assert {status.row.id for status in survey.statuses} == set(ids)
    assert not survey.has_more


# Watching.


async def test_a_watch_reports_every_change_except_deltas(store: Store) -> None:
    story, bell = TurnEvents(), asyncio.Event()
    session_id = await create_session(store, *story.opening())
    with store.watch(bell.set) as watch:
        assert watch.take_changed() == frozenset()
        await store.append(Append(session_id, (story.text("Much"),)))
        assert watch.take_changed() == frozenset() and not bell.is_set()
        await store.append(Append(session_id, story.rest(".")))
        assert bell.is_set() and watch.take_changed() == frozenset({session_id})
        assert watch.take_changed() == frozenset()
        bell.clear()
        await store.mark_read(session_id, await store.head(session_id))
        assert bell.is_set() and watch.take_changed() == frozenset({session_id})
        bell.clear()
        await store.mark_read(session_id, 1)
        assert not bell.is_set(), "a mark that stays where it is"


async def test_a_watch_reports_changes_by_other_processes(store: Store, home: StoreHome) -> None:
    other, bell = await home.open(), asyncio.Event()
    session_id = await create_session(store)
    with other.watch(bell.set) as watch:
        until = time.monotonic() + 30
        found: set[SessionId] = set()
        await store.append(Append(session_id, turn_facts(1)))
        while session_id not in found and time.monotonic() < until:
            bell.clear()
            found |= watch.take_changed() or set()
            if session_id not in found:
                await asyncio.wait_for(bell.wait(), 30)
        assert session_id in found


async def test_a_watch_that_is_never_read_asks_for_a_full_resync(store: Store) -> None:
    with store.watch(lambda: None) as watch:
        for _ in range(3):
            await store.append(*(created() for _ in range(WATCH_SESSIONS_MAX // 2)))
        assert watch.take_changed() is None
        assert watch.take_changed() == frozenset()
        await store.append(created())
        changed = watch.take_changed()
        assert changed is not None and len(changed) == 1


# Finding by title.


async def test_sessions_are_found_by_the_words_of_their_titles(store: Store, clock: FakeClock) -> None:
    ids = []
    for title in ("Über den Fluss", "the River", "A river, over the bridge", "Nothing"):
        clock.advance(1_000)
        ids.append(await create_session(store, title=title))

    async def found(*words: str, limit: int = 10) -> list[SessionId]:
        got: list[SessionId] = []
        cursor: str | None = None
        while True:
            page = await store.sessions(cursor, limit, False, words)
            got += [row.id for row in page.sessions]
            cursor = page.cursor
            if cursor is None:
                return got

    assert await found("RIVER") == await found("river", limit=1) == [ids[2], ids[1]]
    assert await found("river", "bridge") == [ids[2]]
    assert await found("über") == [ids[0]]
    assert await found("100%") == await found("_") == []
    assert await found() == list(reversed(ids))


async def test_a_title_word_is_found_beyond_many_other_titles(store: Store, clock: FakeClock) -> None:
    wanted = await create_session(store, title="needle")
    clock.advance(1_000)
    for _ in range(11):
        await store.append(*(created("hay") for _ in range(100)))
    page = await store.sessions(None, 2, False, ["needle"])
    assert [row.id for row in page.sessions] == [wanted] and page.cursor is None


# What it is called.


async def test_a_session_is_known_by_its_first_words_until_it_has_a_title(store: Store) -> None:
    session_id = await create_session(store)

    async def opening() -> str:
        found = (await store.session_statuses([session_id]))[session_id].opening
        (listed,) = [each for each in (await store.overview()).statuses if each.row.id == session_id]
        assert found == listed.opening
        return found

    assert await opening() == ""
    await store.append(accept(session_id, "\nLook at the third file\nand say why"))
    assert await opening() == "Look at the third file"
    await store.append(accept(session_id, "And now the fourth"))
    assert await opening() == "Look at the third file"
    await store.append(Append(session_id, (f.SessionRenamed("Slow files", "user"),)))
    assert await opening() == ""
