"""Moving on to a new session: what was allowed goes along, and what is gone is told as what it is."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions.successor import SUMMED_UP
from holdfast.domain.errors import NoSuchSession, SessionMoved, SuccessorDeleted
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PURGE_AFTER_MS
from tests.support.in_process_app import House, Lever, calls, house, says
from tests.support.summarising_model import scribe, talk


async def purge(here: House, clock: FakeClock, session_id: SessionId) -> None:
    """Have nothing left of a conversation."""
    await here.engine.delete(session_id)
    await here.begin()  # The newest event of all stays.
    clock.advance(PURGE_AFTER_MS)
    await here.store.sweep()
    assert await here.store.buried(session_id) == 0


async def test_two_who_move_a_conversation_that_is_purged_meanwhile_reach_the_same_one(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        model.hold = asyncio.Event()
        movers = [asyncio.create_task(here.engine.moves.move_on(old)) for _ in range(3)]

        async def are_all_asking() -> bool:
            return len(model.asked) == len(movers)

        await here.until(are_all_asking)
        await purge(here, clock, old)
        model.hold.set()
        async with asyncio.timeout(30):
            (new,) = set(await asyncio.gather(*movers))
        assert [text for _, _, text in await here.text(new)][1] == SUMMED_UP + "They talked."
        assert len((await here.store.sessions(None, 10)).sessions) == 2, "that one, and the one beside it"


async def test_who_moves_a_conversation_after_another_has_and_it_was_purged_reaches_that_one(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        row, drafted = await here.store.session(old), await here.engine.summaries.draft(old, 0)
        first = await here.engine.moves._move(row, drafted)
        await purge(here, clock, old)
        with pytest.raises(SessionMoved) as moved:
            await here.engine.moves._move(row, drafted)
        assert moved.value.fields["successor"] == first


async def test_a_conversation_whose_successor_was_deleted_says_so_and_can_be_branched(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        new = await here.engine.moves.move_on(old)
        await talk(here, new, "two")
        newest = await here.engine.moves.move_on(old)
        assert newest == new, "it has gone on already"
        newest = await here.engine.moves.move_on(new)
        assert await here.engine.moves.move_on(old) == newest, "to where it is now"
        await here.engine.delete(newest)
        for deed in (here.say(old, "late"), here.engine.moves.move_on(old), here.engine.moves.where(old)):
            with pytest.raises(SuccessorDeleted) as told:
                await deed
            assert str(told.value) == f"Conversation {old} went on in {newest}, which was deleted."
        branch = await here.engine.verbs.fork(old)
        await talk(here, branch, "on we go")
        await here.engine.delete(new)
        await here.engine.delete(old)
        with pytest.raises(NoSuchSession) as gone:
            await here.say(old, "late")
        assert gone.value.code == "no_such_session" and gone.value.fields["session_id"] == old


async def test_what_was_allowed_in_a_conversation_is_allowed_where_it_goes_on(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here:
        model = scribe(here)
        old, other = await here.begin(), await here.begin()
        await talk(here, old, "one")
        allowed = await here.engine.permissions.add("lever", "*", old)
        elsewhere = await here.engine.permissions.add("lever", "*", other)
        new = await here.engine.moves.move_on(old)
        found = {rule.id: rule.session_id for rule in await here.engine.permissions.rules()}
        assert found == {allowed.id: new, elsewhere.id: other}
        model.steps = [calls("lever"), says("Done.")]
        sent = await here.say(old, "Go")
        assert sent.session_id == new
        await here.until_run(sent.run_id, "completed")
        assert lever.pulled == ["{}"]
        # Revoked, it is asked again.
        await here.engine.permissions.revoke(allowed.id)
        model.steps = [calls("lever")]
        await here.until_run((await here.say(new, "Again")).run_id, "waiting")


async def test_who_only_names_a_conversation_as_the_one_before_is_allowed_nothing_of_it(
    tmp_path: Path,
) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here:
        model = scribe(here)
        old = await here.begin()
        await here.engine.permissions.add("lever", "*", old)
        new = await here.engine.create(f.SessionCreated(previous_session_id=old))
        model.steps = [calls("lever")]
        await here.until_run((await here.say(new, "Go")).run_id, "waiting")
        assert lever.pulled == []


async def test_a_rule_that_is_revoked_while_the_conversation_moves_is_gone(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("lever", "unsafe"), approvals="ask") as here:
        old, new, permissions = await here.begin(), await here.begin(), here.engine.permissions
        for _ in range(20):
            rule = await permissions.add("lever", "*", old)
            await asyncio.gather(permissions.carry(old, new), permissions.revoke(rule.id))
            assert await permissions.rules() == []


async def test_what_was_allowed_in_a_conversation_that_is_deleted_while_it_moves_is_asked_again(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, Lever("lever", "unsafe"), approvals="ask") as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        await here.engine.permissions.add("lever", "*", old)
        model.hold = asyncio.Event()
        moving = asyncio.create_task(here.engine.moves.move_on(old))
        await asyncio.wait_for(model.asking.wait(), 30)
        await here.engine.delete(old)
        model.hold.set()
        new = await moving
        assert [rule.session_id for rule in await here.engine.permissions.rules()] == [old] and new != old
