"""The real server is killed at any moment, many times over, while people talk to it through chat apps that
misbehave: nothing that was said is lost, nothing is answered twice, every answer ends in its final words, in
order, and what may be there twice says so.

The seed decides what goes wrong and at what the server is killed; the machine, how far it has come by then.
"""

import asyncio
import random
import time

import pytest

from tests.crash.chat_crash_harness import Json, Moment, Party, Room, party
from tests.crash.writer_history import kills_wanted, seed_of_run
from tests.support.telegram_faults import BROKEN, BROKEN_AFTER, DROPPED, DROPPED_AFTER, flood
from tests.support.turn_script import Step

KILLS_EACH = 40
"""How often one server is bereaved, so that conversations do not grow for ever."""
METHODS = ("getUpdates", "sendMessage", "sendMessage", "editMessageText", "message", "message", "edit", "")
"""What is being asked of an app when the server is killed; the empty one stands for any time at all."""
STEPS = ("arrived", "accepted", "answered")
WAIT_S_MAX = 1.0
FAULTS = (DROPPED, DROPPED_AFTER, BROKEN, BROKEN_AFTER, flood(1))
PROGRAM_FAULTS = ("dropped", (503, {}), (429, {"retry-after": "1"}))


async def test_a_killed_server_loses_no_message_answers_none_twice_and_delivers_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began = seed_of_run(), kills_wanted(), time.monotonic()
    kills = turns = again = 0
    while kills < wanted:
        chance = random.Random(seed + kills)
        async with party(seed + kills) as guests:
            await _talk_and_kill(guests, chance, min(KILLS_EACH, wanted - kills))
        kills += guests.kills
        turns += sum(len(room.said) for room in guests.rooms)
        again += sum(guests.again(room) for room in guests.rooms if room.channel == "telegram")
    assert turns >= kills, "too little was said to prove anything"
    with capsys.disabled():
        took_s = time.monotonic() - began
        print(f"\nchats: seed={seed} kills={kills} turns={turns} sent again={again} ({took_s:.1f} s)")


async def _talk_and_kill(guests: Party, chance: random.Random, kills: int) -> None:
    rooms = [guests.room("telegram") for _ in range(3)] + [guests.room("webhook") for _ in range(2)]
    is_late = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(_talk(guests, room, random.Random(chance.random()), is_late))
        for _ in range(kills):
            _misbehave(guests, chance)
            moment = _moment(chance.choice(METHODS), chance.choice(STEPS), chance.choice((1, 1, 2, 4)))
            await guests.strike_within(chance.random() * WAIT_S_MAX, moment)
        is_late.set()


async def _talk(guests: Party, room: Room, chance: random.Random, is_late: asyncio.Event) -> None:
    """Say something, wait for the answers, and go on until it is late."""
    while not is_late.is_set() or not room.said:
        for _ in range(chance.choice((1, 1, 2, 3))):
            script = await guests.say(room, Step(chance.randint(1, 40), pace_ms=chance.choice((0, 5, 20))))
            if room.channel == "webhook" and chance.random() < 0.3:
                await guests.call_in(room, script.text, room.updates[-1])
        await guests.answered(room)
        if room.channel == "telegram" and chance.random() < 0.5:
            guests.telegram.tell_again(chance.choice(room.updates))


def _misbehave(guests: Party, chance: random.Random) -> None:
    guests.telegram.copies = chance.choice((1, 2))
    # One thing at a time: an app that fails again and again is rightly let alone for minutes.
    guests.telegram.behave()
    guests.program.behave()
    if chance.random() < 0.5:
        guests.telegram.misbehave(
            chance.choice(("sendMessage", "editMessageText", "getUpdates")), chance.choice(FAULTS)
        )
    if chance.random() < 0.3:
        guests.program.misbehave(chance.choice(("message", "edit")), chance.choice(PROGRAM_FAULTS))


def _moment(method: str, step: str, times: int) -> Moment:
    left = times

    def is_now(at: str, asked_for: str, asked: Json) -> bool:
        nonlocal left
        left -= (at, asked_for) == (step, method)
        return left <= 0

    return is_now
