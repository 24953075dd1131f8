"""What runs were told to be: kept as long as one that was told it can go on, and not much longer."""

from pathlib import Path

from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import instructions_digest
from holdfast.domain.limits import UNUSED_INSTRUCTIONS_AFTER_MS
from holdfast.engine.instructions import KIND, Instructions
from tests.support.in_process_app import House, Lever, calls, house, says

BRIEF = instructions_digest("Be brief.")


async def kept(here: House) -> set[str]:
    return set(await here.store.items(KIND))


async def pruned(here: House, clock: FakeClock, *waits_ms: int) -> set[str]:
    """What is there after several processes looked, with so long before each."""
    for wait_ms in waits_ms:
        clock.advance(wait_ms)
        await Instructions(here.store, clock).prune()
    return await kept(here)


async def test_what_only_ended_runs_were_told_goes_after_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        sent = await here.say(await here.begin(), "Hello")
        await here.until_run(sent.run_id, "completed")
        assert await pruned(here, clock, 0, 0, UNUSED_INSTRUCTIONS_AFTER_MS - 1) == {BRIEF}
        assert await Instructions(here.store, clock).find(BRIEF) == "Be brief.", "also while it is marked"
        assert await pruned(here, clock, 1) == set()


async def test_what_a_run_that_can_go_on_was_told_stays(tmp_path: Path) -> None:
    clock, lever = FakeClock(), Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask", clock=clock) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Done.")]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "waiting")
        long_ms = 2 * UNUSED_INSTRUCTIONS_AFTER_MS
        assert await pruned(here, clock, 0, long_ms, long_ms, long_ms) == {BRIEF}
        (tool,) = await here.store.tools(session_id, sent.run_id)
        await here.engine.resolve(sent.run_id, tool.id, "approve")
        await here.until_run(sent.run_id, "completed")
        assert await pruned(here, clock, 0) == {BRIEF}
        assert await pruned(here, clock, long_ms) == set()


async def test_what_a_new_run_is_told_again_is_there_whoever_let_go_of_it_meanwhile(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        session_id = await here.begin()
        await here.until_run((await here.say(session_id, "Hello")).run_id, "completed")
        assert await pruned(here, clock, 0, UNUSED_INSTRUCTIONS_AFTER_MS) == set()
        await here.until_run((await here.say(session_id, "Again")).run_id, "completed")
        assert await kept(here) == {BRIEF}


async def test_what_is_about_to_be_told_is_not_let_go_of(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        texts = Instructions(here.store, clock)
        digest = await texts.keep("Be long.")
        await pruned(here, clock, 0)
        clock.advance(UNUSED_INSTRUCTIONS_AFTER_MS)
        # Kept by a run that has not begun yet: nothing in the store tells of it but this.
        assert await texts.keep("Be long.") == digest
        assert digest in await pruned(here, clock, 0)
        assert await texts.find(digest) == "Be long."


async def test_a_mark_goes_when_an_open_run_was_told_it(tmp_path: Path) -> None:
    clock, lever = FakeClock(), Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask", clock=clock) as here:
        session_id = await here.begin()
        await here.until_run((await here.say(session_id, "Hello")).run_id, "completed")
        await pruned(here, clock, 0)
        here.model.steps = [calls("lever")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "waiting")
        assert await pruned(here, clock, 0) == {BRIEF}
        assert (await here.store.items(KIND))[BRIEF] == b"Be brief."


async def test_what_is_kept_is_there_though_a_clock_was_wrong_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        told = Instructions(here.store, clock)
        await told.keep("Be kind.")
        await told.prune()
        clock.advance(UNUSED_INSTRUCTIONS_AFTER_MS)
        await told.prune()
        clock.put_back(UNUSED_INSTRUCTIONS_AFTER_MS - 60_000)
        assert await told.find(await told.keep("Be kind.")) == "Be kind."


async def test_a_text_that_looks_marked_is_given_back_whole(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        told, text = Instructions(here.store, clock), "\0unused since 5\0Be kind."
        digest = await told.keep(text)
        assert await told.find(digest) == text
        await told.prune()
        assert await told.find(digest) == text, "also once it is marked"
