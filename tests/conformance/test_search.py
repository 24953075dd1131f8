"""Search: live messages with every word of the query, as of the moment of the call."""

import asyncio

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import BadQuery, NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Reasoning, Text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SEARCH_HITS_MAX, SNIPPET_CHARS
from holdfast.store.ports import Append, SearchHit, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, TurnEvents, accept, created, turn_facts


async def create_session(store: Store, *facts: f.AnyFact, title: str = "") -> SessionId:
    new = created(title)
    await store.append(new)
    if facts:
        await store.append(Append(new.session_id, facts))
    return new.session_id


def highlighted(hit: SearchHit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("harbour", True),
        ("HARBOUR", True),
        ("quiet harbour", True),
        ("harb", True),
        ("arbour", False),
        ("harbour storm", False),
        ('"quiet harbour"', True),
        ('"harbour quiet"', False),
        ("会议", True),
        ("明天会议", True),
        ("议会", False),
        ("getUserName", True),
        ("username", True),
        ("user_name", True),
        ("user_age", False),
        ("parse_config_file", True),
        ("config", True),
        ("naïve", True),
        ("naive", True),
        ("HTTP_404", True),
    ],
)
async def test_words_identifiers_and_chinese_are_found(store: Store, query: str, found: bool) -> None:
    text = "A quiet harbour. 明天会议在三点。 Call getUserName, then parse_config_file: naïve HTTP_404."
    await create_session(store, *turn_facts(1, text, ("nothing",)))
    assert bool(await store.search(query, 10)) is found


async def test_a_hit_has_its_location_and_a_marked_snippet(store: Store, clock: FakeClock) -> None:
    session_id = await create_session(
        store, *turn_facts(1, "Where is the lighthouse?", ("East.",)), title="Coast"
    )
    (hit,) = await store.search("lighthouse", 10)
    assert (hit.session_id, hit.title, hit.turn, hit.place, hit.role) == (session_id, "Coast", 1, 0, "user")
    assert hit.at == clock.now_ms()
    assert hit.snippet == "Where is the lighthouse?"
    assert highlighted(hit) == ["lighthouse"]


async def test_a_snippet_is_short_and_shows_the_words_found(store: Store) -> None:
    text = "filler " * 500 + "the needle and the thread " + "filler " * 500
    await create_session(store, *turn_facts(1, text))
    (hit,) = await store.search("needle thread", 10)
    assert len(hit.snippet) <= SNIPPET_CHARS
    assert highlighted(hit) == ["needle", "thread"]


async def test_answers_and_tool_output_are_found_but_not_thinking(store: Store) -> None:
    story = TurnEvents()
    facts = [*story.opening(), story.reasoning("pondering"), story.text("cormorant"), story.message_settled()]
    facts += [
        story.tool_intended(),
        story.tool_output("kittiwake\n"),
        story.tool_settled(),
        story.completed(),
    ]
    await create_session(store, *facts)
    assert [hit.role for hit in await store.search("cormorant", 10)] == ["assistant"]
    assert [hit.role for hit in await store.search("kittiwake", 10)] == ["tool"]
    assert await store.search("pondering", 10) == []


async def test_the_newest_comes_first_up_to_the_limit(store: Store) -> None:
    session_id = await create_session(store)
    for n in range(12):
        await store.append(accept(session_id, f"gull number {n}"))
    hits = await store.search("gull", 5)
    assert [hit.turn for hit in hits] == [12, 11, 10, 9, 8]
    assert len(await store.search("gull", 100_000)) == 12 <= SEARCH_HITS_MAX


async def test_search_within_one_session_finds_nothing_of_the_others(store: Store) -> None:
    one, other, silent = [await create_session(store) for _ in range(3)]
    for n in range(6):
        await store.append(accept(one if n % 2 else other, f"gull number {n}"))
    assert [hit.snippet for hit in await store.search("gull", 10, one)] == [
        f"gull number {n}" for n in (5, 3, 1)
    ]
    assert [hit.session_id for hit in await store.search("gull", 2, other)] == [other, other]
    assert await store.search("gull", 10, silent) == []
    with pytest.raises(NoSuchSession):
        await store.search("gull", 10, IDS.session())
    await store.append(Append(one, (f.TurnsUndone(2),)))
    assert [hit.turn for hit in await store.search("gull", 10, one)] == [1]
    await store.append(Append(one, (f.SessionDeleted(),)))
    with pytest.raises(NoSuchSession):
        await store.search("gull", 10, one)


async def test_search_sees_what_was_just_committed(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    other = await home.open()
    for n in range(30):
        await (store if n % 2 else other).append(accept(session_id, f"puffin{n} here"))
        assert len(await store.search(f"puffin{n}", 10)) == 1
        assert len(await other.search(f"puffin{n}", 10)) == 1


async def test_search_beside_writers_finds_all_that_was_acknowledged(store: Store) -> None:
    session_id = await create_session(store)
    done: list[int] = []

    async def write(base: int) -> None:
        for n in range(base, base + 40):
            await store.append(accept(session_id, f"tern{n}"))
            done.append(n)

    writing = asyncio.gather(write(0), write(100))
    while not writing.done():
        expected = list(done)
        if expected:
            assert len(await store.search(f"tern{expected[-1]}", 10)) == 1
        await asyncio.sleep(0)
    await writing


async def test_what_is_undone_cleared_or_replaced_is_not_found(store: Store) -> None:
    story = TurnEvents(3, "third")
    facts = [*turn_facts(1, "first osprey"), *turn_facts(2, "second osprey"), *story.opening()]
    facts += [story.text("draft osprey"), story.message_settled(), story.message_settled_as("final")]
    session_id = await create_session(store, *facts)
    assert [hit.turn for hit in await store.search("osprey", 10)] == [2, 1]
    await store.append(Append(session_id, (f.SessionCleared(1),)))
    assert [hit.turn for hit in await store.search("osprey", 10)] == [2]
    await store.append(Append(session_id, (f.TurnsUndone(2),)))
    assert await store.search("osprey", 10) == []
    assert await store.search("final", 10) == []


async def test_live_hits_are_found_behind_many_undone_ones(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1, "petrel alive"))
    copies = [
        f.TurnAccepted(IDS.turn(), turn, IDS.message(), (Text("petrel dead"),)) for turn in range(2, 60)
    ]
    await store.append(Append(session_id, (*copies, f.TurnsUndone(2))))
    assert [hit.turn for hit in await store.search("petrel", 3)] == [1]


async def test_a_deleted_session_is_not_found(store: Store) -> None:
    session_id = await create_session(store, *turn_facts(1, "the last auk"))
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    assert await store.search("auk", 10) == []


@pytest.mark.parametrize("query", ["", "  ", "?!", '""', "*", "_"])
async def test_a_query_without_words_is_refused(store: Store, query: str) -> None:
    with pytest.raises(BadQuery):
        await store.search(query, 10)


@pytest.mark.parametrize(
    "query", ['"', "a AND b", "NEAR(", "x*y", "col:x", "-x", "(", "'; DROP", "^x", "a OR", "{a b}", "\x00a"]
)
async def test_no_query_breaks_the_search(store: Store, query: str) -> None:
    await create_session(store, *turn_facts(1, "a b x y near col or and drop"))
    try:
        hits = await store.search(query, 10)
    except BadQuery:
        return
    assert all(isinstance(hit, SearchHit) for hit in hits)


async def test_only_the_words_of_a_message_are_searched(store: Store) -> None:
    session_id = await create_session(store, title="albatross")
    parts = (Reasoning("hidden skua"), Text("plain words"))
    copy = f.TurnAccepted(IDS.turn(), 1, IDS.message(), (Text("x"),))
    body = f.MessageSettled(1, 1, IDS.message(), "assistant", parts, "")
    await store.append(Append(session_id, (copy, body)))
    assert await store.search("skua", 10) == []
    assert await store.search("albatross", 10) == []
    assert len(await store.search("plain", 10)) == 1
