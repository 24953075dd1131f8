"""Kill the real server at every point at which a commit can be interrupted.

A test reaches a point by the events of clients, by a provider that pauses or kills its own process, and by
holding the store's own write lock. Nothing inside the server knows of it.
"""

import asyncio

import pytest

from tests.support.memory_server_harness import MemoryServerHarness, memory_server_harness
from tests.support.recording_clients import SessionRecorder
from tests.support.server_process import ATTEMPTS_MAX, MISSED_COMMIT, commit_gate

DOG, HOME, TEA = "My dog is called Rex.", "I live in Lisbon.", "I like tea."
POINTS = ("before", "after")


async def _create_session_with(harness: MemoryServerHarness, *said: str) -> SessionRecorder:
    session = await harness.create_session()
    for text in said:
        await harness.send(session, text)
    return session


@pytest.mark.parametrize("takes_key", [True, False])
async def test_killed_before_any_boundary_a_turn_is_remembered_at_the_next_start(takes_key: bool) -> None:
    async with memory_server_harness(takes_key) as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        assert not harness.witness.calls("commit"), "nothing told anyone to tell it yet"
        await harness.kill_and_start()
        await harness.wait_until_remembered(talk, 1, 2)
        (commit,) = harness.witness.stored_commits()
        assert DOG in commit.texts and TEA in commit.texts
        assert not talk.of_kind("memory_in_doubt"), "memory was never called, so nobody can doubt it"


async def test_killed_when_a_commit_has_begun_it_is_retried_with_the_same_key() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG)
        harness.witness.set_order("commit", "before", "pause")
        harness.kill_at_event(talk, "memory_commit_started")
        harness.request_commit(talk)
        await harness.server.wait_killed()
        harness.witness.clear_order("commit", "before")
        await harness.server.start()
        await harness.wait_until_remembered(talk, 1)
        keys = {seen.body["key"] for seen in talk.of_kind("memory_commit_started")}
        assert keys == {call.key for call in harness.witness.calls("commit")} and len(keys) == 1


@pytest.mark.parametrize("point", POINTS)
async def test_killed_inside_the_provider_what_takes_the_key_has_it_once(point: str) -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.witness.set_order("commit", point, "kill")
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        await harness.wait_until_remembered(talk, 1, 2)
        asked = harness.witness.calls("commit", "asked")
        assert len(asked) == 2 and len({call.key for call in asked}) == 1
        assert len(harness.witness.calls("commit", "knew")) == (1 if point == "after" else 0)


async def test_what_is_said_after_the_kill_joins_no_stretch_that_was_begun_before() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.witness.set_order("commit", "after", "kill")
        harness.request_commit(talk)
        await harness.server.wait_killed()
        harness.witness.set_order("commit", "before", "pause")
        await harness.server.start()
        await harness.witness.wait_until(harness.witness.is_waiting_at("commit", "before"), "a second try")
        await harness.send(talk, HOME)
        harness.witness.clear_order("commit", "before")
        assert (await harness.request("POST", "/api/memory/commit", {}))[0] == 200
        await harness.wait_until_remembered(talk, 1, 2, 3)
        assert [call.turns for call in harness.witness.stored_commits()] == [((1, 2),), ((3, 3),)]


@pytest.mark.parametrize("takes_key", [True, False])
async def test_killed_when_a_client_knows_of_a_commit_it_is_not_repeated(takes_key: bool) -> None:
    async with memory_server_harness(takes_key) as harness:
        talk = await _create_session_with(harness, DOG)
        harness.kill_at_event(talk, "memory_committed")
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        await harness.send(talk, TEA)
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        await harness.wait_until_remembered(talk, 1, 2)
        assert len(harness.witness.calls("commit", "asked")) == 2, "once for each stretch"


async def test_killed_while_it_takes_up_what_was_left_it_takes_it_up_again() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG)
        await harness.server.kill()
        for point in POINTS:
            harness.witness.set_order("commit", point, "kill")
            await harness.server.start_and_wait_killed()
        await harness.server.start()
        await harness.wait_until_remembered(talk, 1)
        assert len(harness.witness.calls("commit", "asked")) == 3


@pytest.mark.parametrize("point", POINTS)
async def test_killed_while_a_graceful_stop_drains_nothing_is_forgotten(point: str) -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.witness.set_order("commit", point, "kill")
        harness.server.terminate()
        await harness.wait_killed_and_start()
        await harness.wait_until_remembered(talk, 1, 2)


async def test_a_graceful_stop_drains_and_leaves_nothing_for_the_next_start() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG)
        await harness.server.shut_down()
        assert harness.witness.turns(talk.session_id) == {1: 1}
        await harness.server.start()
        await harness.wait_until_remembered(talk, 1)
        assert len(harness.witness.calls("commit", "asked")) == 1


@pytest.mark.parametrize(("takes_key", "point"), [(True, "before"), (True, "after"), (False, "after")])
async def test_killed_while_it_takes_back_what_was_undone_it_is_taken_back(
    takes_key: bool, point: str
) -> None:
    async with memory_server_harness(takes_key) as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        await harness.request_commit(talk)
        await harness.wait_until_remembered(talk, 1, 2)
        harness.witness.set_order("retract", point, "kill")
        await harness.undo(talk, 2)
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        await harness.wait_until_remembered(talk, 1)
        assert talk.of_kind("memory_forgotten")[-1].body["outcome"] == "done"


async def test_killed_when_a_client_knows_of_a_retraction_the_rest_is_committed_once() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        await harness.request_commit(talk)
        harness.witness.set_order("retract", "before", "pause")
        harness.kill_at_event(talk, "memory_forgotten")
        await harness.undo(talk, 2)
        harness.request_commit(talk)
        harness.witness.clear_order("retract", "before")
        await harness.wait_killed_and_start()
        await harness.wait_until_remembered(talk, 1)


@pytest.mark.parametrize("point", POINTS)
async def test_undone_during_a_commit_and_then_killed_only_the_remaining_turns_are_kept(point: str) -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.witness.set_order("commit", point, "pause")
        harness.request_commit(talk)
        await harness.witness.wait_until(harness.witness.is_waiting_at("commit", point), "a commit")
        await harness.undo(talk, 2)
        await harness.server.kill()
        harness.witness.clear_order("commit", point)
        await harness.server.start()
        await harness.wait_until_remembered(talk, 1)


async def test_killed_after_a_deletion_uncommitted_turns_are_never_committed() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG)
        await harness.request("DELETE", f"/api/sessions/{talk.session_id}")
        await harness.kill_and_start()
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "nothing"
        assert harness.witness.calls("commit") == [] and await harness.pending_commits() == []
        assert (await harness.request("GET", f"/api/sessions/{talk.session_id}"))[0] == 404


async def test_killed_after_a_deletion_with_the_notes_memory_still_forgets_every_commit() -> None:
    async with memory_server_harness() as harness:
        talk = await _create_session_with(harness, DOG)
        await harness.request_commit(talk)
        await harness.wait_until_remembered(talk, 1)
        harness.witness.set_order("retract", "before", "kill")
        await harness.request("DELETE", f"/api/sessions/{talk.session_id}?notes=delete")
        await harness.wait_killed_and_start()
        await harness.witness.wait_until(
            lambda: not harness.witness.turns(talk.session_id), "nothing that is kept"
        )
        await harness.wait_for_pending(lambda rows: not rows, "an end of waiting")


@pytest.mark.parametrize(
    ("decision", "point"), [("retry", "before"), ("retry", "after"), ("done", "after"), ("drop", "before")]
)
async def test_killed_inside_one_without_keys_a_person_is_asked_and_has_the_last_word(
    decision: str, point: str
) -> None:
    async with memory_server_harness(takes_key=False) as harness:
        talk = await _create_session_with(harness, DOG)
        harness.witness.set_order("commit", point, "kill")
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        segment = await harness.wait_for_in_doubt(talk)
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "in_doubt"
        await harness.kill_and_start()
        assert await harness.wait_for_in_doubt(talk) == segment
        assert len(harness.witness.calls("commit", "asked")) == 1, "nobody said that it may be told again"
        path = f"/api/memory/waiting/{talk.session_id}/{segment}"
        status, answer = await harness.request("POST", path, {"decision": decision})
        assert status == 204, answer
        if decision == "retry":
            await harness.witness.wait_until(
                lambda: len(harness.witness.calls("commit", "did")) > 0, "a second telling"
            )
        await harness.wait_for_pending(lambda rows: not rows, "an end of the doubt")
        did = (1 if point == "after" else 0) + (1 if decision == "retry" else 0)
        assert harness.witness.turns(talk.session_id)[1] == did
        await harness.send(talk, TEA)
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        assert harness.witness.turns(talk.session_id)[2] == 1, "the conversation goes on being remembered"
        assert len(harness.witness.calls("commit", "asked")) == (3 if decision == "retry" else 2)


async def test_with_in_doubt_retry_a_provider_without_keys_is_called_again_without_a_question() -> None:
    async with memory_server_harness(takes_key=False, memory_in_doubt="retry") as harness:
        talk = await _create_session_with(harness, DOG)
        harness.witness.set_order("commit", "before", "kill")
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        await harness.wait_until_remembered(talk, 1)
        assert not any(row["state"] == "in_doubt" for row in await harness.pending_commits())


# The same with the notes, which keep what they know in the store that is killed.


async def _facts(harness: MemoryServerHarness) -> list[str]:
    status, answer = await harness.request_until_answered("GET", "/api/memory")
    assert status == 200, answer
    return [each["text"] for each in answer["memories"]]


async def _wait_for_notes(harness: MemoryServerHarness, session: SessionRecorder, *texts: str) -> None:
    """Wait until the notes hold exactly these, from `talk`, and nothing is pending."""
    await harness.wait_for_pending(lambda rows: not rows, "an end of waiting")
    _, answer = await harness.request_until_answered("GET", "/api/memory")
    assert sorted(each["text"] for each in answer["memories"]) == sorted(texts)
    assert {each["session_id"] for each in answer["memories"]} <= {session.session_id}


async def test_killed_before_any_boundary_the_notes_have_it_after_the_next_start() -> None:
    async with memory_server_harness(memory="notes") as harness:
        talk = await _create_session_with(harness, DOG)
        await harness.kill_and_start()
        await _wait_for_notes(harness, talk, "The user's dog is called Rex.")


@pytest.mark.parametrize("kind", ["memory_commit_started", "memory_committed"])
async def test_killed_when_a_client_receives_a_commit_event_the_notes_have_each_fact_once(kind: str) -> None:
    async with memory_server_harness(memory="notes") as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.kill_at_event(talk, kind)
        harness.request_commit(talk)
        await harness.wait_killed_and_start()
        await _wait_for_notes(harness, talk, "The user's dog is called Rex.", "The user likes tea.")


async def test_killed_while_the_model_reads_it_for_the_notes_each_fact_is_there_once() -> None:
    async with memory_server_harness(memory="notes") as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        harness.model.extraction.hangs = True
        harness.request_commit(talk)
        await harness.witness.wait_until(lambda: len(harness.model.extractions) == 1, "a look for facts")
        await harness.server.kill()
        harness.model.extraction.hangs = False
        await harness.server.start()
        await _wait_for_notes(harness, talk, "The user's dog is called Rex.", "The user likes tea.")


async def test_killed_between_the_notes_and_the_journal_each_fact_is_there_once() -> None:
    for _ in range(ATTEMPTS_MAX):
        async with memory_server_harness(memory="notes") as harness:
            talk = await _create_session_with(harness, DOG, TEA)
            harness.model.extraction.hangs = True
            harness.request_commit(talk)
            await harness.witness.wait_until(
                lambda home=harness: len(home.model.extractions) == 1, "a look for facts"
            )  # type: ignore[misc]
            with commit_gate(harness.server.folder) as gate:
                harness.model.extraction.hangs = False
                async with asyncio.timeout(60):
                    while not await _facts(harness):
                        if gate.has_waiter():
                            gate.allow_one_commit()
                await harness.server.kill()
            was_committed = bool(talk.of_kind("memory_committed"))
            await harness.server.start()
            await _wait_for_notes(harness, talk, "The user's dog is called Rex.", "The user likes tea.")
            if not was_committed:
                return
    pytest.fail(MISSED_COMMIT)


async def test_killed_while_the_notes_take_back_what_was_undone_it_is_gone() -> None:
    async with memory_server_harness(memory="notes") as harness:
        talk = await _create_session_with(harness, DOG, TEA)
        await harness.request_commit(talk)
        await _wait_for_notes(harness, talk, "The user's dog is called Rex.", "The user likes tea.")
        harness.kill_at_event(talk, "turns_undone")
        undoing = harness.run_in_background(harness.undo(talk, 2))
        await harness.wait_killed_and_start()
        await undoing
        await _wait_for_notes(harness, talk, "The user's dog is called Rex.")
