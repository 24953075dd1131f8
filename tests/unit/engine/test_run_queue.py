"""So many runs are worked on at once; the others wait in line, in the order they came, and lose nothing."""

import asyncio
from pathlib import Path

from holdfast.domain.events import facts as f
from holdfast.domain.ids import MessageId
from holdfast.engine.session_commands import Accepted
from holdfast.models.ports import TextDelta
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import House, Lever, Line, calls, house, says


def held(word: str) -> tuple[asyncio.Event, list[Line]]:
    hold = asyncio.Event()
    return hold, [TextDelta(word), hold, *says(".")]


async def sent(here: House, count: int) -> list[Accepted]:
    return [await here.say(await here.begin(), str(number)) for number in range(count)]


async def asked(here: House, count: int) -> None:
    async def is_so() -> bool:
        return len(here.model.requests) >= count

    await here.until(is_so, f"{count} requests")


def order(here: House) -> list[str]:
    return [request.messages[-1].parts[0].text for request in here.model.requests]  # type: ignore[union-attr]


async def statuses(here: House, accepted: list[Accepted]) -> list[str]:
    return [(await here.run(each.run_id)).status for each in accepted]


async def test_runs_beyond_the_bound_wait_in_the_order_they_came(tmp_path: Path) -> None:
    async with house(tmp_path, at_once=2) as here:
        holds, steps = zip(*(held(str(number)) for number in range(6)), strict=True)
        here.model.steps = list(steps)
        runs = await sent(here, 6)
        await asked(here, 2)
        assert await statuses(here, runs) == ["running"] * 2 + ["accepted"] * 4
        assert (here.engine.runner.at_work, here.engine.runner.in_line) == (2, 4)
        # A look at everything that is open begins nothing that is in line already.
        await here.engine.recovery.sweep()
        assert (here.engine.runner.at_work, here.engine.runner.in_line) == (2, 4)
        for number in range(6):
            # The two that work at once may reach the model in either order: each is let go by its own hold.
            holds[order(here).index(str(number))].set()
            await here.until_run(runs[number].run_id, "completed")
            await asked(here, min(number + 3, 6))
        assert set(order(here)[:2]) == {"0", "1"} and order(here)[2:] == ["2", "3", "4", "5"]
        assert here.engine.runner.in_line == 0


async def test_one_conversation_with_much_to_do_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with house(tmp_path, at_once=1) as here:
        hold, first = held("a0")
        here.model.steps = [first]
        busy, other = await here.begin(), await here.begin()
        await here.say(busy, "a0")
        await asked(here, 1)
        await here.say(busy, "a1")
        await here.say(busy, "a2")
        await here.say(other, "b0")
        hold.set()
        await asked(here, 4)
        assert order(here) == ["a0", "b0", "a1", "a2"]


async def test_a_run_in_line_holds_no_lease_and_can_be_cancelled(tmp_path: Path) -> None:
    async with house(tmp_path, at_once=1) as here:
        hold, first = held("0")
        here.model.steps = [first]
        runs = await sent(here, 3)
        await asked(here, 1)
        waiting = runs[1].run_id
        assert waiting is not None
        await here.store.release(await here.store.claim(waiting, 1000))
        await here.engine.cancel(waiting)
        assert (await here.run(waiting)).status == "cancelled"
        hold.set()
        await here.until_run(runs[2].run_id, "completed")
        assert order(here) == ["0", "2"] and here.engine.runner.in_line == 0


async def test_a_run_in_line_that_another_process_began_and_left_is_recovered(tmp_path: Path) -> None:
    async with house(tmp_path, at_once=1) as here:
        hold, first = held("0")
        here.model.steps = [first, says(" and the rest")]
        await here.say(await here.begin(), "0")
        await asked(here, 1)
        session = await here.begin()
        waiting = (await here.say(session, "1")).run_id
        assert waiting is not None
        other = await SqliteStore.open(tmp_path)
        lease = await other.claim(waiting, 10_000)
        half = f.ModelStepStarted(waiting, 1, 1, MessageId("m_half"), "puppet")
        word = f.TextAppended(waiting, MessageId("m_half"), "Half")
        await other.append(Append(session, (f.RunStarted(waiting), half, word), fence=lease.fence))
        await other.close()
        hold.set()
        run = await here.until_run(waiting, "completed")
        assert run.attempts == 1
        assert [each[1:] for each in await here.text(session)] == [
            ("settled", "1"), ("interrupted", "Half"), ("interrupted", ""), ("settled", " and the rest"),
        ]  # fmt: skip


async def test_a_run_that_needs_a_person_gives_its_place_to_the_next(tmp_path: Path) -> None:
    lever = Lever("pull", "unsafe")
    async with house(tmp_path, lever, approvals="ask", at_once=1) as here:
        here.model.steps = [calls("pull"), says("one")]
        runs = await sent(here, 2)
        await here.until_run(runs[1].run_id, "completed")
        assert await statuses(here, runs) == ["waiting", "completed"]


async def test_what_waits_when_the_server_stops_is_taken_up_by_the_next_within_its_bound(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, at_once=2) as here:
        here.model.steps = [held(str(number))[1] for number in range(2)]
        runs = await sent(here, 30)
        await asked(here, 2)
    async with house(tmp_path, at_once=3, started=False) as here:
        assert await statuses(here, runs) == ["interrupted"] * 2 + ["accepted"] * 28
        most: list[int] = []
        stream = here.model.stream

        def watched(request, tools):  # type: ignore[no-untyped-def]
            most.append(here.engine.runner.at_work)
            return stream(request, tools)

        here.model.stream = watched  # type: ignore[method-assign]
        await here.engine.start()
        for each in runs:
            await here.until_run(each.run_id, "completed")
        assert len(here.model.requests) == 30 and max(most) <= 3


async def test_a_restart_with_many_interrupted_runs_does_not_begin_them_all_at_once(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.steps = [held(str(number))[1] for number in range(40)]
        runs = await sent(here, 40)
        await asked(here, 40)
    async with house(tmp_path, at_once=4, started=False) as here:
        holds, steps = zip(*(held(str(number)) for number in range(40)), strict=True)
        here.model.steps = list(steps)
        await here.engine.start()
        await asked(here, 4)

        async def all_in_line() -> bool:
            return here.engine.runner.in_line == 36

        await here.until(all_in_line)
        assert len(here.model.requests) == 4
        assert (await statuses(here, runs)).count("interrupted") == 36
        for hold in holds:
            hold.set()
        for each in runs:
            await here.until_run(each.run_id, "completed")
