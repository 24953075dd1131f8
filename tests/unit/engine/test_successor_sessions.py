"""Moving on to a new session: what was allowed goes along, and what is gone is told as what it is."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions.continuation import SUMMARY_INTRO
from holdfast.domain.errors import NoSuchSession, SessionMoved, SuccessorDeleted
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PURGE_AFTER_MS
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step
from tests.support.summarising_model import install_summarizing_model, run_turns


async def delete_and_purge(app: AppHarness, clock: FakeClock, session_id: SessionId) -> None:
    """Have nothing left of a conversation."""
    await app.engine.delete(session_id)
    await app.create_session()  # The newest event of all stays.
    clock.advance(PURGE_AFTER_MS)
    await app.store.sweep()
    assert await app.store.deleted_session_number(session_id) == 0


async def test_two_concurrent_moves_of_a_purged_conversation_reach_one_successor(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        model.hold = asyncio.Event()
        movers = [asyncio.create_task(app.engine.continuation.continue_session(old)) for _ in range(3)]

        async def are_all_asking() -> bool:
            return len(model.summarized_texts) == len(movers)

        await app.wait_until(are_all_asking)
        await delete_and_purge(app, clock, old)
        model.hold.set()
        async with asyncio.timeout(30):
            (new,) = set(await asyncio.gather(*movers))
        assert [text for _, _, text in await app.entry_texts(new)][1] == SUMMARY_INTRO + "They talked."
        assert len((await app.store.sessions(None, 10)).sessions) == 2, "that one, and the one beside it"


async def test_a_later_move_of_a_purged_conversation_reaches_the_first_successor(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        row, drafted = await app.store.session(old), await app.engine.summaries.draft(old, 0)
        first = await app.engine.continuation._start_successor(row, drafted)
        await delete_and_purge(app, clock, old)
        with pytest.raises(SessionMoved) as moved:
            await app.engine.continuation._start_successor(row, drafted)
        assert moved.value.fields["successor"] == first


async def test_a_conversation_whose_successor_was_deleted_says_so_and_can_be_branched(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        new = await app.engine.continuation.continue_session(old)
        await run_turns(app, new, "two")
        newest = await app.engine.continuation.continue_session(old)
        assert newest == new, "it has gone on already"
        newest = await app.engine.continuation.continue_session(new)
        assert await app.engine.continuation.continue_session(old) == newest, "to where it is now"
        await app.engine.delete(newest)
        for refused_call in (
            app.send(old, "late"),
            app.engine.continuation.continue_session(old),
            app.engine.continuation.current_session(old),
        ):
            with pytest.raises(SuccessorDeleted) as caught:
                await refused_call
            assert str(caught.value) == f"Conversation {old} went on in {newest}, which was deleted."
        branch = await app.engine.commands.fork(old)
        await run_turns(app, branch, "on we go")
        await app.engine.delete(new)
        await app.engine.delete(old)
        with pytest.raises(NoSuchSession) as gone:
            await app.send(old, "late")
        assert gone.value.code == "no_such_session" and gone.value.fields["session_id"] == old


async def test_session_rules_move_to_the_successor(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app:
        model = install_summarizing_model(app)
        old, other = await app.create_session(), await app.create_session()
        await run_turns(app, old, "one")
        allowed = await app.engine.permissions.add("lever", "*", old)
        elsewhere = await app.engine.permissions.add("lever", "*", other)
        new = await app.engine.continuation.continue_session(old)
        found = {rule.id: rule.session_id for rule in await app.engine.permissions.rules()}
        assert found == {allowed.id: new, elsewhere.id: other}
        model.steps = [tool_call_step("lever"), text_step("Done.")]
        sent = await app.send(old, "Go")
        assert sent.session_id == new
        await app.wait_for_run(sent.run_id, "completed")
        assert tool.run_arguments == ["{}"]
        # Revoked, it is asked again.
        await app.engine.permissions.revoke(allowed.id)
        model.steps = [tool_call_step("lever")]
        await app.wait_for_run((await app.send(new, "Again")).run_id, "waiting")


async def test_naming_a_previous_session_grants_none_of_its_rules(
    tmp_path: Path,
) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await app.engine.permissions.add("lever", "*", old)
        new = await app.engine.create(f.SessionCreated(previous_session_id=old))
        model.steps = [tool_call_step("lever")]
        await app.wait_for_run((await app.send(new, "Go")).run_id, "waiting")
        assert tool.run_arguments == []


async def test_a_rule_that_is_revoked_while_the_conversation_moves_is_gone(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("lever", "unsafe"), approvals="ask") as app:
        old, new, permissions = await app.create_session(), await app.create_session(), app.engine.permissions
        for _ in range(20):
            rule = await permissions.add("lever", "*", old)
            await asyncio.gather(permissions.move_to_successor(old, new), permissions.revoke(rule.id))
            assert await permissions.rules() == []


async def test_rules_of_a_session_deleted_while_moving_do_not_move(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path, FakeTool("lever", "unsafe"), approvals="ask") as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        await app.engine.permissions.add("lever", "*", old)
        model.hold = asyncio.Event()
        moving = asyncio.create_task(app.engine.continuation.continue_session(old))
        await asyncio.wait_for(model.summary_started.wait(), 30)
        await app.engine.delete(old)
        model.hold.set()
        new = await moving
        assert [rule.session_id for rule in await app.engine.permissions.rules()] == [old] and new != old
