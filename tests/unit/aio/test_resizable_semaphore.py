"""Room for so many at a time: in order, and while their number changes."""

import asyncio

from holdfast.aio.resizable_semaphore import ResizableSemaphore


class WaitingTasks:
    """Those who come in turn, and who of them is in."""

    def __init__(self, slots: ResizableSemaphore) -> None:
        self.slots = slots
        self.inside: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def add(self, count: int) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._enter(len(self.tasks))))
        await self.settle()

    async def remove(self, count: int = 1) -> None:
        for _ in range(count):
            self.inside.pop(0)
            self.slots.release()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _enter(self, number: int) -> None:
        await self.slots.acquire()
        self.inside.append(number)


async def test_the_size_limits_holders_and_waiters_are_admitted_in_order() -> None:
    line = WaitingTasks(ResizableSemaphore(2))
    await line.add(1)
    assert not line.slots.is_full
    await line.add(4)
    assert line.inside == [0, 1]
    assert line.slots.is_full
    await line.remove()
    assert line.inside == [1, 2]
    await line.remove(2)
    assert line.inside == [3, 4]
    await line.remove(2)
    assert not line.slots.is_full


async def test_a_larger_size_admits_waiters() -> None:
    line = WaitingTasks(ResizableSemaphore(1))
    await line.add(4)
    line.slots.resize(3)
    await line.settle()
    assert line.inside == [0, 1, 2]


async def test_a_smaller_size_takes_effect_as_holders_release() -> None:
    line = WaitingTasks(ResizableSemaphore(3))
    await line.add(5)
    line.slots.resize(1)
    await line.settle()
    assert line.inside == [0, 1, 2]
    await line.remove(2)
    assert line.inside == [2]
    await line.remove()
    assert line.inside == [3]
    await line.remove()
    assert line.inside == [4]


async def test_a_cancelled_waiter_takes_no_slot() -> None:
    line = WaitingTasks(ResizableSemaphore(1))
    await line.add(3)
    line.tasks[1].cancel()
    await line.remove()
    assert line.inside == [2]
    await line.remove()
    assert not line.slots.is_full


async def test_a_slot_granted_to_a_cancelled_waiter_goes_to_the_next() -> None:
    line = WaitingTasks(ResizableSemaphore(1))
    await line.add(3)
    line.inside.pop(0)
    line.slots.release()
    line.tasks[1].cancel()
    await line.settle()
    assert line.inside == [2]
