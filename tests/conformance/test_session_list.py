"""The list of sessions: most recently active first, in stable pages."""

from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PAGE_SESSIONS_MAX
from holdfast.domain.usage import Usage
from holdfast.store.ports import Append, Store
from tests.support.turn_events import IDS, TurnEvents, accept, created


async def create_sessions(store: Store, count: int, clock: FakeClock) -> list[SessionId]:
    ids: list[SessionId] = []
    for n in range(count):
        clock.advance(1_000)
        new = created(f"session {n}")
        await store.append(new)
        ids.append(new.session_id)
    return ids


async def list_all(store: Store, limit: int, archived: bool = False) -> list[SessionId]:
    found: list[SessionId] = []
    cursor: str | None = None
    while True:
        page = await store.sessions(cursor, limit, archived)
        found += [row.id for row in page.sessions]
        cursor = page.cursor
        if cursor is None:
            return found


async def test_the_most_recently_active_comes_first(store: Store, clock: FakeClock) -> None:
    ids = await create_sessions(store, 5, clock)
    clock.advance(1_000)
    await store.append(accept(ids[2], "hello"))
    expected = [ids[2], ids[4], ids[3], ids[1], ids[0]]
    for limit in (1, 2, 3, 5, 200):
        assert await list_all(store, limit) == expected


async def test_sessions_of_the_same_moment_are_all_listed_once(store: Store) -> None:
    ids = [created() for _ in range(25)]
    await store.append(*ids)
    found = await list_all(store, 4)
    assert sorted(found) == sorted(each.session_id for each in ids)
    assert len(found) == 25


async def test_pages_hold_still_while_others_are_active(store: Store, clock: FakeClock) -> None:
    ids = await create_sessions(store, 9, clock)
    first = await store.sessions(None, 3)
    clock.advance(1_000)
    await store.append(accept(ids[8], "seen already"))
    await store.append(accept(ids[0], "not seen yet"))
    await create_sessions(store, 1, clock)
    second = await store.sessions(first.cursor, 3)
    third = await store.sessions(second.cursor, 3)
    assert [row.id for row in first.sessions] == [ids[8], ids[7], ids[6]]
    assert [row.id for row in second.sessions] == [ids[5], ids[4], ids[3]]
    # What became active meanwhile is at the top of the list, not repeated at its end.
    assert [row.id for row in third.sessions] == [ids[2], ids[1]]


async def test_archived_sessions_have_a_list_of_their_own(store: Store, clock: FakeClock) -> None:
    ids = await create_sessions(store, 3, clock)
    await store.append(Append(ids[1], (f.SessionArchived(True),)))
    assert await list_all(store, 10) == [ids[2], ids[0]]
    assert await list_all(store, 10, archived=True) == [ids[1]]
    await store.append(Append(ids[1], (f.SessionArchived(False),)))
    assert await list_all(store, 10) == [ids[2], ids[1], ids[0]]
    assert await list_all(store, 10, archived=True) == []


async def test_only_activity_moves_a_session(store: Store, clock: FakeClock) -> None:
    (session_id,) = await create_sessions(store, 1, clock)
    story = TurnEvents()

    async def moves(*facts: f.AnyFact) -> bool:
        before = (await store.session(session_id)).updated_at
        clock.advance(1_000)
        await store.append(Append(session_id, facts))
        return (await store.session(session_id)).updated_at != before

    assert not await moves(f.SessionRenamed("x", "user"))
    assert not await moves(f.SessionConfigured(model="demo"))
    assert await moves(story.accepted())
    assert not await moves(story.started())
    assert not await moves(story.step_started())
    assert not await moves(story.text("text"), story.reasoning("text"))
    assert not await moves(story.message_settled(), story.step_settled())
    assert not await moves(story.tool_intended(), story.tool_started(), story.tool_output("x"))
    assert await moves(story.tool_settled())
    assert not await moves(f.SessionArchived(True), f.SessionArchived(False))
    assert not await moves(f.MemoryCommitted(1, "k", 1, 1))
    assert await moves(story.completed())


async def test_memory_events_do_not_change_the_session_list(store: Store, clock: FakeClock) -> None:
    (session_id,) = await create_sessions(store, 1, clock)
    story = TurnEvents()
    completed = f.RunCompleted(story.run_id, owed=True, owner="somebody")
    await store.append(
        Append(session_id, (*story.opening(), story.text("x"), story.message_settled(), completed))
    )
    await store.mark_read(session_id, await store.head(session_id))
    before = await store.session(session_id)
    failure = f.Failure("memory_failed", "It was away.")
    memory_facts: tuple[f.AnyFact, ...] = (
        f.MemoryCommitStarted(1, "k", ((1, 1),), "somebody", "d", 1, store.own_process),
        f.MemoryCommitFailed(1, "k", 1, 1, failure, clock.now_ms()),
        f.MemoryCommitStarted(1, "k", ((1, 1),), "somebody", "d", 2, store.own_process),
        f.MemoryInDoubt(1, "k", 1, 1),
        f.MemoryResolved(1, "retry"),
        f.MemoryCommitStarted(1, "k", ((1, 1),), "somebody", "d", 3, store.own_process),
        f.MemoryCommitted(1, "k", 1, 1, "r"),
        f.MemoryForgotten(1, "k", "cannot", failure),
    )
    for fact in memory_facts:
        clock.advance(1_000)
        await store.append(Append(session_id, (fact,)))
        assert await store.session(session_id) == before, fact
        assert not await store.unread([session_id]), fact
    assert [event.fact for event in await store.read(session_id, 0, 100)][-len(memory_facts) :] == list(
        memory_facts
    )
    assert {type(fact) for fact in memory_facts} == {
        kind for name, kind in f.FACTS_BY_KIND.items() if name.startswith("memory_")
    }


async def test_a_row_says_what_its_session_is_about(store: Store, clock: FakeClock) -> None:
    (session_id,) = await create_sessions(store, 1, clock)
    row = await store.session(session_id)
    assert (row.title, row.title_by, row.status, row.last_turn) == ("session 0", "user", "idle", 0)
    assert row.created_at == row.updated_at == clock.now_ms()
    await store.append(Append(session_id, (f.SessionRenamed("by a model", "model"),)))
    assert (await store.session(session_id)).title == "session 0"
    await store.append(Append(session_id, (f.SessionRenamed("by me", "user"),)))
    assert row.remember
    change = f.SessionConfigured(agent="a", model="m", workspace="w", resume="ask", remember=False)
    await store.append(Append(session_id, (change,)))
    row = await store.session(session_id)
    assert (row.title, row.agent, row.model, row.workspace, row.resume) == ("by me", "a", "m", "w", "ask")
    assert not row.remember
    assert (await store.sessions(None, 1)).sessions == (row,)


async def test_a_row_shows_the_run_and_what_it_used(store: Store, clock: FakeClock) -> None:
    (session_id,) = await create_sessions(store, 1, clock)
    story = TurnEvents()
    await store.append(Append(session_id, story.opening()))
    row = await store.session(session_id)
    assert (row.status, row.run_id) == ("working", story.run_id)
    await store.append(Append(session_id, (f.RunWaiting(story.run_id, "approval"),)))
    assert (await store.session(session_id)).status == "needs_you"
    again = f.RunResumed(story.run_id, "user", 0)
    used = story.step_settled(Usage(1, 2, 3, 4))
    await store.append(Append(session_id, (again, story.message_settled(), used)))
    row = await store.session(session_id)
    assert (row.status, row.usage) == ("working", Usage())
    failure = f.RunFailed(story.run_id, f.Failure("model_error", "It broke."))
    await store.append(Append(session_id, (failure,)))
    row = await store.session(session_id)
    assert (row.status, row.run_id, row.usage) == ("failed", None, Usage(1, 2, 3, 4))
    assert (await store.run(story.run_id))[1].failure == f.Failure("model_error", "It broke.")


async def test_relations_between_sessions_are_kept(store: Store) -> None:
    one, two, three = IDS.session(), IDS.session(), IDS.session()
    await store.append(
        Append(one, (f.SessionCreated(), f.SessionContinued(two))),
        Append(two, (f.SessionCreated(previous_session_id=one),)),
        Append(three, (f.SessionCreated(), f.SessionForked(one, 2, 0))),
    )
    assert (await store.session(one)).successor_session_id == two
    assert (await store.session(two)).previous_session_id == one
    assert (await store.session(three)).parent_session_id == one


async def test_a_page_of_the_list_is_bounded(store: Store) -> None:
    await store.append(*(created() for _ in range(PAGE_SESSIONS_MAX + 1)))
    assert len((await store.sessions(None, 100_000)).sessions) == PAGE_SESSIONS_MAX
