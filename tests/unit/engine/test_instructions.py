"""What runs were told to be: kept as long as one that was told it can go on, and not much longer."""

from pathlib import Path

from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import instructions_digest
from holdfast.domain.limits import UNUSED_INSTRUCTIONS_AFTER_MS
from holdfast.engine.instructions import KIND, InstructionStore
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step

BRIEF = instructions_digest("Be brief.")


async def stored_instructions(app: AppHarness) -> set[str]:
    return set(await app.store.items(KIND))


async def pruned(app: AppHarness, clock: FakeClock, *waits_ms: int) -> set[str]:
    """What is there after several processes looked, with so long before each."""
    for wait_ms in waits_ms:
        clock.advance(wait_ms)
        await InstructionStore(app.store, clock).prune()
    return await stored_instructions(app)


async def test_instructions_used_only_by_ended_runs_are_pruned(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        sent = await app.send(await app.create_session(), "Hello")
        await app.wait_for_run(sent.run_id, "completed")
        assert await pruned(app, clock, 0, 0, UNUSED_INSTRUCTIONS_AFTER_MS - 1) == {BRIEF}
        assert await InstructionStore(app.store, clock).find(BRIEF) == "Be brief.", "also while it is marked"
        assert await pruned(app, clock, 1) == set()


async def test_instructions_of_an_open_run_are_kept(tmp_path: Path) -> None:
    clock, fake_tool = FakeClock(), FakeTool("lever", "unsafe")
    async with running_app(tmp_path, fake_tool, approvals="ask", clock=clock) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Done.")]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "waiting")
        long_ms = 2 * UNUSED_INSTRUCTIONS_AFTER_MS
        assert await pruned(app, clock, 0, long_ms, long_ms, long_ms) == {BRIEF}
        (tool,) = await app.store.tools(session_id, sent.run_id)
        await app.engine.resolve(sent.run_id, tool.id, "approve")
        await app.wait_for_run(sent.run_id, "completed")
        assert await pruned(app, clock, 0) == {BRIEF}
        assert await pruned(app, clock, long_ms) == set()


async def test_instructions_saved_again_survive_a_concurrent_prune(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        session_id = await app.create_session()
        await app.wait_for_run((await app.send(session_id, "Hello")).run_id, "completed")
        assert await pruned(app, clock, 0, UNUSED_INSTRUCTIONS_AFTER_MS) == set()
        await app.wait_for_run((await app.send(session_id, "Again")).run_id, "completed")
        assert await stored_instructions(app) == {BRIEF}


async def test_instructions_about_to_be_used_are_not_pruned(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        texts = InstructionStore(app.store, clock)
        digest = await texts.save("Be long.")
        await pruned(app, clock, 0)
        clock.advance(UNUSED_INSTRUCTIONS_AFTER_MS)
        # Kept by a run that has not begun yet: nothing in the store tells of it but this.
        assert await texts.save("Be long.") == digest
        assert digest in await pruned(app, clock, 0)
        assert await texts.find(digest) == "Be long."


async def test_an_unused_mark_is_removed_when_an_open_run_uses_the_text(tmp_path: Path) -> None:
    clock, tool = FakeClock(), FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask", clock=clock) as app:
        session_id = await app.create_session()
        await app.wait_for_run((await app.send(session_id, "Hello")).run_id, "completed")
        await pruned(app, clock, 0)
        app.model.steps = [tool_call_step("lever")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "waiting")
        assert await pruned(app, clock, 0) == {BRIEF}
        assert (await app.store.items(KIND))[BRIEF] == b"Be brief."


async def test_saved_instructions_survive_a_wrong_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        instructions = InstructionStore(app.store, clock)
        await instructions.save("Be kind.")
        await instructions.prune()
        clock.advance(UNUSED_INSTRUCTIONS_AFTER_MS)
        await instructions.prune()
        clock.rewind(UNUSED_INSTRUCTIONS_AFTER_MS - 60_000)
        assert await instructions.find(await instructions.save("Be kind.")) == "Be kind."


async def test_a_text_that_looks_like_a_mark_is_returned_whole(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        instructions, text = InstructionStore(app.store, clock), "\0unused since 5\0Be kind."
        digest = await instructions.save(text)
        assert await instructions.find(digest) == text
        await instructions.prune()
        assert await instructions.find(digest) == text, "also once it is marked"
