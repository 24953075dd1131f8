"""Kill the real server at random moments while people talk to it through faulty chat apps.

No message is lost, none is answered twice, every answer ends in its final words, in order, and what may be a
repetition is labelled. The seed chooses faults and kills; the machine decides how far the server has come.
"""

import asyncio
import random
import time

import pytest

from tests.crash.chat_crash_harness import (
    ChatCrashHarness,
    ChatRoom,
    Json,
    StrikeCondition,
    chat_crash_harness,
)
from tests.crash.writer_history import kill_count, run_seed
from tests.support.telegram_faults import BROKEN, BROKEN_AFTER, DROPPED, DROPPED_AFTER, too_many_requests
from tests.support.turn_script import ScriptStep

KILLS_EACH = 40
"""How often one server is killed, so that conversations do not grow without limit."""
METHODS = ("getUpdates", "sendMessage", "sendMessage", "editMessageText", "message", "message", "edit", "")
"""The request to an app at which the server is killed; the empty one stands for any time."""
STEPS = ("arrived", "accepted", "answered")
WAIT_S_MAX = 1.0
FAULTS = (DROPPED, DROPPED_AFTER, BROKEN, BROKEN_AFTER, too_many_requests(1))
PROGRAM_FAULTS = ("dropped", (503, {}), (429, {"retry-after": "1"}))


async def test_a_killed_server_loses_no_message_answers_none_twice_and_delivers_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began = run_seed(), kill_count(), time.monotonic()
    kills = turns = again = 0
    while kills < wanted:
        rng = random.Random(seed + kills)
        async with chat_crash_harness(seed + kills) as harness:
            await _chat_and_kill(harness, rng, min(KILLS_EACH, wanted - kills))
        kills += harness.kills
        turns += sum(len(room.scripts) for room in harness.rooms)
        again += sum(harness.resent_count(room) for room in harness.rooms if room.channel == "telegram")
    assert turns >= kills, "too little was said to prove anything"
    with capsys.disabled():
        took_s = time.monotonic() - began
        print(f"\nchats: seed={seed} kills={kills} turns={turns} sent again={again} ({took_s:.1f} s)")


async def _chat_and_kill(harness: ChatCrashHarness, rng: random.Random, kills: int) -> None:
    rooms = [harness.room("telegram") for _ in range(3)] + [harness.room("webhook") for _ in range(2)]
    is_late = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for room in rooms:
            group.create_task(_chat_loop(harness, room, random.Random(rng.random()), is_late))
        for _ in range(kills):
            _inject_faults(harness, rng)
            moment = _moment(rng.choice(METHODS), rng.choice(STEPS), rng.choice((1, 1, 2, 4)))
            await harness.kill_within(rng.random() * WAIT_S_MAX, moment)
        is_late.set()


async def _chat_loop(
    guests: ChatCrashHarness, room: ChatRoom, rng: random.Random, is_late: asyncio.Event
) -> None:
    """Send messages and wait for the answers until the deadline."""
    while not is_late.is_set() or not room.scripts:
        for _ in range(rng.choice((1, 1, 2, 3))):
            script = await guests.send(room, ScriptStep(rng.randint(1, 40), pace_ms=rng.choice((0, 5, 20))))
            if room.channel == "webhook" and rng.random() < 0.3:
                await guests.post_to_webhook(room, script.text, room.updates[-1])
        await guests.wait_for_answers(room)
        if room.channel == "telegram" and rng.random() < 0.5:
            guests.telegram.repeat_update(rng.choice(room.updates))


def _inject_faults(harness: ChatCrashHarness, rng: random.Random) -> None:
    harness.telegram.copies = rng.choice((1, 2))
    # One thing at a time: an app that fails again and again is rightly let alone for minutes.
    harness.telegram.clear_faults()
    harness.webhook.clear_faults()
    if rng.random() < 0.5:
        harness.telegram.add_faults(
            rng.choice(("sendMessage", "editMessageText", "getUpdates")), rng.choice(FAULTS)
        )
    if rng.random() < 0.3:
        harness.webhook.add_faults(rng.choice(("message", "edit")), rng.choice(PROGRAM_FAULTS))


def _moment(method: str, step: str, times: int) -> StrikeCondition:
    left = times

    def is_now(at: str, asked_for: str, asked: Json) -> bool:
        nonlocal left
        left -= (at, asked_for) == (step, method)
        return left <= 0

    return is_now
