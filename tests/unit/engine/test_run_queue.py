"""So many runs are worked on at once; the others wait in line, in the order they came, and lose nothing."""

import asyncio
from pathlib import Path

from holdfast.domain.events import facts as f
from holdfast.domain.ids import MessageId
from holdfast.engine.session_commands import AcceptedMessage
from holdfast.models.ports import TextDelta
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    StepAction,
    running_app,
    text_step,
    tool_call_step,
)


def held_step(word: str) -> tuple[asyncio.Event, list[StepAction]]:
    hold = asyncio.Event()
    return hold, [TextDelta(word), hold, *text_step(".")]


async def send_many(app: AppHarness, count: int) -> list[AcceptedMessage]:
    return [await app.send(await app.create_session(), str(number)) for number in range(count)]


async def wait_for_requests(app: AppHarness, count: int) -> None:
    async def has_requests() -> bool:
        return len(app.model.requests) >= count

    await app.wait_until(has_requests, f"{count} requests")


def request_order(app: AppHarness) -> list[str]:
    return [request.messages[-1].parts[0].text for request in app.model.requests]  # type: ignore[union-attr]


async def statuses(app: AppHarness, accepted: list[AcceptedMessage]) -> list[str]:
    return [(await app.run(each.run_id)).status for each in accepted]


async def test_runs_beyond_the_limit_wait_in_order_of_arrival(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_running=2) as app:
        holds, steps = zip(*(held_step(str(number)) for number in range(6)), strict=True)
        app.model.steps = list(steps)
        runs = await send_many(app, 6)
        await wait_for_requests(app, 2)
        assert await statuses(app, runs) == ["running"] * 2 + ["accepted"] * 4
        assert (app.engine.runner.running, app.engine.runner.waiting) == (2, 4)
        # A look at everything that is open begins nothing that is in line already.
        await app.engine.recovery.sweep()
        assert (app.engine.runner.running, app.engine.runner.waiting) == (2, 4)
        for number in range(6):
            # The two that work at once may reach the model in either order: each is let go by its own hold.
            holds[request_order(app).index(str(number))].set()
            await app.wait_for_run(runs[number].run_id, "completed")
            await wait_for_requests(app, min(number + 3, 6))
        assert set(request_order(app)[:2]) == {"0", "1"} and request_order(app)[2:] == ["2", "3", "4", "5"]
        assert app.engine.runner.waiting == 0


async def test_a_busy_conversation_does_not_block_others(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_running=1) as app:
        hold, first = held_step("a0")
        app.model.steps = [first]
        busy, other = await app.create_session(), await app.create_session()
        await app.send(busy, "a0")
        await wait_for_requests(app, 1)
        await app.send(busy, "a1")
        await app.send(busy, "a2")
        await app.send(other, "b0")
        hold.set()
        await wait_for_requests(app, 4)
        assert request_order(app) == ["a0", "b0", "a1", "a2"]


async def test_a_run_waiting_for_a_slot_holds_no_lease_and_can_be_cancelled(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_running=1) as app:
        hold, first = held_step("0")
        app.model.steps = [first]
        runs = await send_many(app, 3)
        await wait_for_requests(app, 1)
        waiting = runs[1].run_id
        assert waiting is not None
        await app.store.release(await app.store.claim(waiting, 1000))
        await app.engine.cancel(waiting)
        assert (await app.run(waiting)).status == "cancelled"
        hold.set()
        await app.wait_for_run(runs[2].run_id, "completed")
        assert request_order(app) == ["0", "2"] and app.engine.runner.waiting == 0


async def test_a_waiting_run_started_by_a_dead_process_is_recovered(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_running=1) as app:
        hold, first = held_step("0")
        app.model.steps = [first, text_step(" and the rest")]
        await app.send(await app.create_session(), "0")
        await wait_for_requests(app, 1)
        session = await app.create_session()
        waiting = (await app.send(session, "1")).run_id
        assert waiting is not None
        other = await SqliteStore.open(tmp_path)
        lease = await other.claim(waiting, 10_000)
        half = f.ModelStepStarted(waiting, 1, 1, MessageId("m_half"), "puppet")
        word = f.TextAppended(waiting, MessageId("m_half"), "Half")
        await other.append(Append(session, (f.RunStarted(waiting), half, word), fence=lease.fence))
        await other.close()
        hold.set()
        run = await app.wait_for_run(waiting, "completed")
        assert run.attempts == 1
        assert [each[1:] for each in await app.entry_texts(session)] == [
            ("settled", "1"), ("interrupted", "Half"), ("interrupted", ""), ("settled", " and the rest"),
        ]  # fmt: skip


async def test_a_run_waiting_for_a_person_releases_its_slot(tmp_path: Path) -> None:
    tool = FakeTool("pull", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask", max_running=1) as app:
        app.model.steps = [tool_call_step("pull"), text_step("one")]
        runs = await send_many(app, 2)
        await app.wait_for_run(runs[1].run_id, "completed")
        assert await statuses(app, runs) == ["waiting", "completed"]


async def test_runs_waiting_at_shutdown_are_resumed_within_the_limit_by_the_next_server(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path, max_running=2) as app:
        app.model.steps = [held_step(str(number))[1] for number in range(2)]
        runs = await send_many(app, 30)
        await wait_for_requests(app, 2)
    async with running_app(tmp_path, max_running=3, started=False) as app:
        assert await statuses(app, runs) == ["interrupted"] * 2 + ["accepted"] * 28
        most: list[int] = []
        stream = app.model.stream

        def watched(request, tools):  # type: ignore[no-untyped-def]
            most.append(app.engine.runner.running)
            return stream(request, tools)

        app.model.stream = watched  # type: ignore[method-assign]
        await app.engine.start()
        for each in runs:
            await app.wait_for_run(each.run_id, "completed")
        assert len(app.model.requests) == 30 and max(most) <= 3


async def test_a_restart_with_many_interrupted_runs_does_not_begin_them_all_at_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.steps = [held_step(str(number))[1] for number in range(40)]
        runs = await send_many(app, 40)
        await wait_for_requests(app, 40)
    async with running_app(tmp_path, max_running=4, started=False) as app:
        holds, steps = zip(*(held_step(str(number)) for number in range(40)), strict=True)
        app.model.steps = list(steps)
        await app.engine.start()
        await wait_for_requests(app, 4)

        async def all_in_line() -> bool:
            return app.engine.runner.waiting == 36

        await app.wait_until(all_in_line)
        assert len(app.model.requests) == 4
        assert (await statuses(app, runs)).count("interrupted") == 36
        for hold in holds:
            hold.set()
        for each in runs:
            await app.wait_for_run(each.run_id, "completed")
