"""At most one task for each key: started, waited for and stopped together."""

import asyncio

from holdfast.aio.keyed_tasks import KeyedTasks


async def test_a_task_cancelled_before_it_ran_is_not_waited_for() -> None:
    tasks, begun = KeyedTasks("testing"), asyncio.Event()

    async def work() -> None:
        begun.set()

    tasks.start("here", work())
    await tasks.stop_all()
    assert not begun.is_set()
    async with asyncio.timeout(5):
        await tasks.wait_until_empty()


async def test_waiting_until_empty_includes_tasks_started_meanwhile() -> None:
    tasks, done = KeyedTasks("testing"), asyncio.Event()

    async def last() -> None:
        await asyncio.sleep(0)
        done.set()

    async def first() -> None:
        tasks.start("here", last())

    tasks.start("here", first())
    await tasks.wait_until_empty()
    assert done.is_set()
    assert "here" not in tasks


async def test_stopping_one_task_leaves_the_others_and_reports_every_end() -> None:
    ended: list[tuple[str, bool]] = []
    tasks, go = (
        KeyedTasks("testing", lambda key, task: ended.append((key, task.cancelled()))),
        asyncio.Event(),
    )

    async def work() -> None:
        await go.wait()

    tasks.start("here", work())
    tasks.start("there", work())
    await tasks.stop("here")
    await tasks.stop("nowhere")
    assert ended == [("here", True)]
    assert len(tasks) == 1
    go.set()
    await tasks.wait_until_empty()
    assert ended == [("here", True), ("there", False)]
