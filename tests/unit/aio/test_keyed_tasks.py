"""At most one task for each key: started, waited for and stopped together."""

import asyncio

from holdfast.aio.keyed_tasks import KeyedTasks


async def test_what_is_cancelled_before_it_began_is_not_waited_for() -> None:
    tasks, begun = KeyedTasks("testing"), asyncio.Event()

    async def work() -> None:
        begun.set()

    tasks.begin("here", work())
    await tasks.stop_all()
    assert not begun.is_set()
    async with asyncio.timeout(5):
        await tasks.drained()


async def test_what_follows_at_once_in_the_same_chat_is_waited_for_too() -> None:
    tasks, done = KeyedTasks("testing"), asyncio.Event()

    async def last() -> None:
        await asyncio.sleep(0)
        done.set()

    async def first() -> None:
        tasks.begin("here", last())

    tasks.begin("here", first())
    await tasks.drained()
    assert done.is_set()
    assert "here" not in tasks


async def test_one_chat_is_stopped_and_the_others_go_on_and_each_end_is_told() -> None:
    ended: list[tuple[str, bool]] = []
    tasks, go = (
        KeyedTasks("testing", lambda key, task: ended.append((key, task.cancelled()))),
        asyncio.Event(),
    )

    async def work() -> None:
        await go.wait()

    tasks.begin("here", work())
    tasks.begin("there", work())
    await tasks.stop("here")
    await tasks.stop("nowhere")
    assert ended == [("here", True)]
    assert len(tasks) == 1
    go.set()
    await tasks.drained()
    assert ended == [("here", True), ("there", False)]
