"""Room for so many at a time: in order, and while their number changes."""

import asyncio

from holdfast.aio.resizable_semaphore import ResizableSemaphore


class Line:
    """Those who come in turn, and who of them is in."""

    def __init__(self, slots: ResizableSemaphore) -> None:
        self.slots = slots
        self.inside: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def come(self, count: int) -> None:
        for _ in range(count):
            self.tasks.append(asyncio.create_task(self._enter(len(self.tasks))))
        await self.settle()

    async def leave(self, count: int = 1) -> None:
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


async def test_so_many_are_let_in_and_the_others_in_their_order() -> None:
    line = Line(ResizableSemaphore(2))
    await line.come(1)
    assert not line.slots.is_full
    await line.come(4)
    assert line.inside == [0, 1]
    assert line.slots.is_full
    await line.leave()
    assert line.inside == [1, 2]
    await line.leave(2)
    assert line.inside == [3, 4]
    await line.leave(2)
    assert not line.slots.is_full


async def test_more_room_lets_those_in_who_wait() -> None:
    line = Line(ResizableSemaphore(1))
    await line.come(4)
    line.slots.resize(3)
    await line.settle()
    assert line.inside == [0, 1, 2]


async def test_less_room_is_reached_as_they_leave() -> None:
    line = Line(ResizableSemaphore(3))
    await line.come(5)
    line.slots.resize(1)
    await line.settle()
    assert line.inside == [0, 1, 2]
    await line.leave(2)
    assert line.inside == [2]
    await line.leave()
    assert line.inside == [3]
    await line.leave()
    assert line.inside == [4]


async def test_who_gives_up_waiting_takes_no_place() -> None:
    line = Line(ResizableSemaphore(1))
    await line.come(3)
    line.tasks[1].cancel()
    await line.leave()
    assert line.inside == [2]
    await line.leave()
    assert not line.slots.is_full


async def test_a_place_given_to_one_who_has_just_given_up_goes_to_the_next() -> None:
    line = Line(ResizableSemaphore(1))
    await line.come(3)
    line.inside.pop(0)
    line.slots.release()
    line.tasks[1].cancel()
    await line.settle()
    assert line.inside == [2]
