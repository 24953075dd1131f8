"""The real server is killed at every point at which telling memory can be cut off.

A point is reached by what clients are sent, by a provider that is told to hold on or to kill its own process,
and by taking turns with the server at the store's own write lock. Nothing inside the server knows of it.
"""

import asyncio

import pytest

from tests.support.memory_server_harness import Household, household
from tests.support.recording_clients import Memory
from tests.support.server_process import MISSED, TRIES_MAX, turnstile

DOG, HOME, TEA = "My dog is called Rex.", "I live in Lisbon.", "I like tea."
POINTS = ("before", "after")


async def _talk(home: Household, *said: str) -> Memory:
    talk = await home.begin()
    for text in said:
        await home.say(talk, text)
    return talk


@pytest.mark.parametrize("takes_key", [True, False])
async def test_killed_before_any_boundary_a_turn_is_remembered_at_the_next_start(takes_key: bool) -> None:
    async with household(takes_key) as home:
        talk = await _talk(home, DOG, TEA)
        assert not home.witness.calls("commit"), "nothing told anyone to tell it yet"
        await home.kill_and_start()
        await home.remembered(talk, 1, 2)
        (told,) = home.witness.held()
        assert DOG in told.texts and TEA in told.texts
        assert not talk.of_kind("memory_in_doubt"), "memory was never called, so nobody can doubt it"


async def test_killed_when_a_commit_has_begun_it_is_told_with_the_same_key() -> None:
    async with household() as home:
        talk = await _talk(home, DOG)
        home.witness.order("commit", "before", "pause")
        home.strike_at(talk, "memory_commit_started")
        home.ask_to_remember(talk)
        await home.server.bury()
        home.witness.lift("commit", "before")
        await home.server.start()
        await home.remembered(talk, 1)
        keys = {seen.body["key"] for seen in talk.of_kind("memory_commit_started")}
        assert keys == {call.key for call in home.witness.calls("commit")} and len(keys) == 1


@pytest.mark.parametrize("point", POINTS)
async def test_killed_inside_the_provider_what_takes_the_key_has_it_once(point: str) -> None:
    async with household() as home:
        talk = await _talk(home, DOG, TEA)
        home.witness.order("commit", point, "kill")
        home.ask_to_remember(talk)
        await home.buried_and_started()
        await home.remembered(talk, 1, 2)
        asked = home.witness.calls("commit", "asked")
        assert len(asked) == 2 and len({call.key for call in asked}) == 1
        assert len(home.witness.calls("commit", "knew")) == (1 if point == "after" else 0)


async def test_what_is_said_after_the_kill_joins_no_stretch_that_was_begun_before() -> None:
    async with household() as home:
        talk = await _talk(home, DOG, TEA)
        home.witness.order("commit", "after", "kill")
        home.ask_to_remember(talk)
        await home.server.bury()
        home.witness.order("commit", "before", "pause")
        await home.server.start()
        await home.witness.until(home.witness.waits_at("commit", "before"), "a second try")
        await home.say(talk, HOME)
        home.witness.lift("commit", "before")
        assert (await home.ask("POST", "/api/memory/commit", {}))[0] == 200
        await home.remembered(talk, 1, 2, 3)
        assert [call.turns for call in home.witness.held()] == [((1, 2),), ((3, 3),)]


@pytest.mark.parametrize("takes_key", [True, False])
async def test_killed_when_a_client_knows_that_it_is_remembered_nobody_is_told_again(takes_key: bool) -> None:
    async with household(takes_key) as home:
        talk = await _talk(home, DOG)
        home.strike_at(talk, "memory_committed")
        home.ask_to_remember(talk)
        await home.buried_and_started()
        await home.say(talk, TEA)
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        await home.remembered(talk, 1, 2)
        assert len(home.witness.calls("commit", "asked")) == 2, "once for each stretch"


async def test_killed_while_it_takes_up_what_was_left_it_takes_it_up_again() -> None:
    async with household() as home:
        talk = await _talk(home, DOG)
        await home.server.kill()
        for point in POINTS:
            home.witness.order("commit", point, "kill")
            await home.server.start_to_fall()
        await home.server.start()
        await home.remembered(talk, 1)
        assert len(home.witness.calls("commit", "asked")) == 3


@pytest.mark.parametrize("point", POINTS)
async def test_killed_while_a_graceful_stop_drains_nothing_is_forgotten(point: str) -> None:
    async with household() as home:
        talk = await _talk(home, DOG, TEA)
        home.witness.order("commit", point, "kill")
        home.server.ask_to_end()
        await home.buried_and_started()
        await home.remembered(talk, 1, 2)


async def test_a_graceful_stop_drains_and_leaves_nothing_for_the_next_start() -> None:
    async with household() as home:
        talk = await _talk(home, DOG)
        await home.server.end()
        assert home.witness.turns(talk.session_id) == {1: 1}
        await home.server.start()
        await home.remembered(talk, 1)
        assert len(home.witness.calls("commit", "asked")) == 1


@pytest.mark.parametrize(("takes_key", "point"), [(True, "before"), (True, "after"), (False, "after")])
async def test_killed_while_it_takes_back_what_was_undone_it_is_taken_back(
    takes_key: bool, point: str
) -> None:
    async with household(takes_key) as home:
        talk = await _talk(home, DOG, TEA)
        await home.ask_to_remember(talk)
        await home.remembered(talk, 1, 2)
        home.witness.order("retract", point, "kill")
        await home.undo(talk, 2)
        home.ask_to_remember(talk)
        await home.buried_and_started()
        await home.remembered(talk, 1)
        assert talk.of_kind("memory_forgotten")[-1].body["outcome"] == "done"


async def test_killed_when_a_client_knows_that_it_was_taken_back_the_rest_is_told_once() -> None:
    async with household() as home:
        talk = await _talk(home, DOG, TEA)
        await home.ask_to_remember(talk)
        home.witness.order("retract", "before", "pause")
        home.strike_at(talk, "memory_forgotten")
        await home.undo(talk, 2)
        home.ask_to_remember(talk)
        home.witness.lift("retract", "before")
        await home.buried_and_started()
        await home.remembered(talk, 1)


@pytest.mark.parametrize("point", POINTS)
async def test_undone_while_it_was_told_and_then_killed_only_what_stands_is_kept(point: str) -> None:
    async with household() as home:
        talk = await _talk(home, DOG, TEA)
        home.witness.order("commit", point, "pause")
        home.ask_to_remember(talk)
        await home.witness.until(home.witness.waits_at("commit", point), "a commit")
        await home.undo(talk, 2)
        await home.server.kill()
        home.witness.lift("commit", point)
        await home.server.start()
        await home.remembered(talk, 1)


async def test_killed_after_a_deletion_what_was_not_told_before_it_is_never_told() -> None:
    async with household() as home:
        talk = await _talk(home, DOG)
        await home.ask("DELETE", f"/api/sessions/{talk.session_id}")
        await home.kill_and_start()
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "nothing"
        assert home.witness.calls("commit") == [] and await home.waiting() == []
        assert (await home.ask("GET", f"/api/sessions/{talk.session_id}"))[0] == 404


async def test_killed_after_a_deletion_with_the_notes_memory_still_forgets_what_it_was_told() -> None:
    async with household() as home:
        talk = await _talk(home, DOG)
        await home.ask_to_remember(talk)
        await home.remembered(talk, 1)
        home.witness.order("retract", "before", "kill")
        await home.ask("DELETE", f"/api/sessions/{talk.session_id}?notes=delete")
        await home.buried_and_started()
        await home.witness.until(lambda: not home.witness.turns(talk.session_id), "nothing that is kept")
        await home.until_waiting(lambda rows: not rows, "an end of waiting")


@pytest.mark.parametrize(
    ("decision", "point"), [("retry", "before"), ("retry", "after"), ("done", "after"), ("drop", "before")]
)
async def test_killed_inside_one_without_keys_a_person_is_asked_and_has_the_last_word(
    decision: str, point: str
) -> None:
    async with household(takes_key=False) as home:
        talk = await _talk(home, DOG)
        home.witness.order("commit", point, "kill")
        home.ask_to_remember(talk)
        await home.buried_and_started()
        segment = await home.in_doubt(talk)
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "in_doubt"
        await home.kill_and_start()
        assert await home.in_doubt(talk) == segment
        assert len(home.witness.calls("commit", "asked")) == 1, "nobody said that it may be told again"
        path = f"/api/memory/waiting/{talk.session_id}/{segment}"
        status, answer = await home.ask("POST", path, {"decision": decision})
        assert status == 204, answer
        if decision == "retry":
            await home.witness.until(lambda: len(home.witness.calls("commit", "did")) > 0, "a second telling")
        await home.until_waiting(lambda rows: not rows, "an end of the doubt")
        did = (1 if point == "after" else 0) + (1 if decision == "retry" else 0)
        assert home.witness.turns(talk.session_id)[1] == did
        await home.say(talk, TEA)
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        assert home.witness.turns(talk.session_id)[2] == 1, "the conversation goes on being remembered"
        assert len(home.witness.calls("commit", "asked")) == (3 if decision == "retry" else 2)


async def test_where_in_doubt_means_retry_one_without_keys_is_told_again_without_a_question() -> None:
    async with household(takes_key=False, memory_in_doubt="retry") as home:
        talk = await _talk(home, DOG)
        home.witness.order("commit", "before", "kill")
        home.ask_to_remember(talk)
        await home.buried_and_started()
        await home.remembered(talk, 1)
        assert not any(row["state"] == "in_doubt" for row in await home.waiting())


# The same with the notes, which keep what they know in the store that is killed.


async def _facts(home: Household) -> list[str]:
    status, answer = await home.insist("GET", "/api/memory")
    assert status == 200, answer
    return [each["text"] for each in answer["memories"]]


async def _noted(home: Household, talk: Memory, *texts: str) -> None:
    """Until the notes hold exactly these, from `talk`, and nothing waits any more."""
    await home.until_waiting(lambda rows: not rows, "an end of waiting")
    _, answer = await home.insist("GET", "/api/memory")
    assert sorted(each["text"] for each in answer["memories"]) == sorted(texts)
    assert {each["session_id"] for each in answer["memories"]} <= {talk.session_id}


async def test_killed_before_any_boundary_the_notes_have_it_after_the_next_start() -> None:
    async with household(memory="notes") as home:
        talk = await _talk(home, DOG)
        await home.kill_and_start()
        await _noted(home, talk, "The user's dog is called Rex.")


@pytest.mark.parametrize("kind", ["memory_commit_started", "memory_committed"])
async def test_killed_when_a_client_is_told_of_a_commit_the_notes_have_each_fact_once(kind: str) -> None:
    async with household(memory="notes") as home:
        talk = await _talk(home, DOG, TEA)
        home.strike_at(talk, kind)
        home.ask_to_remember(talk)
        await home.buried_and_started()
        await _noted(home, talk, "The user's dog is called Rex.", "The user likes tea.")


async def test_killed_while_the_model_reads_it_for_the_notes_each_fact_is_there_once() -> None:
    async with household(memory="notes") as home:
        talk = await _talk(home, DOG, TEA)
        home.model.extraction.hangs = True
        home.ask_to_remember(talk)
        await home.witness.until(lambda: len(home.model.extractions) == 1, "a look for facts")
        await home.server.kill()
        home.model.extraction.hangs = False
        await home.server.start()
        await _noted(home, talk, "The user's dog is called Rex.", "The user likes tea.")


async def test_killed_between_the_notes_and_the_journal_each_fact_is_there_once() -> None:
    for _ in range(TRIES_MAX):
        async with household(memory="notes") as home:
            talk = await _talk(home, DOG, TEA)
            home.model.extraction.hangs = True
            home.ask_to_remember(talk)
            await home.witness.until(lambda home=home: len(home.model.extractions) == 1, "a look for facts")  # type: ignore[misc]
            with turnstile(home.server.folder) as writers:
                home.model.extraction.hangs = False
                async with asyncio.timeout(60):
                    while not await _facts(home):
                        if writers.is_awaited():
                            writers.let_one_pass()
                await home.server.kill()
            was_told = bool(talk.of_kind("memory_committed"))
            await home.server.start()
            await _noted(home, talk, "The user's dog is called Rex.", "The user likes tea.")
            if not was_told:
                return
    pytest.fail(MISSED)


async def test_killed_while_the_notes_take_back_what_was_undone_it_is_gone() -> None:
    async with household(memory="notes") as home:
        talk = await _talk(home, DOG, TEA)
        await home.ask_to_remember(talk)
        await _noted(home, talk, "The user's dog is called Rex.", "The user likes tea.")
        home.strike_at(talk, "turns_undone")
        undoing = home.beside(home.undo(talk, 2))
        await home.buried_and_started()
        await undoing
        await _noted(home, talk, "The user's dog is called Rex.")
