"""The real server is killed at every step of receiving from a chat app and of delivering to it.

A step is known by what the app was asked and by what was committed; nothing inside the server knows of it. At
the end of each play everything that was said is answered, once and in order, and what was sent again says so.
"""

import asyncio
import time

import pytest

from holdfast.domain.limits import RESUME_ATTEMPTS_STALLED_MAX
from tests.crash.chat_crash_harness import LEFT, Channel, Json, Moment, Party, Room, party
from tests.crash.writer_history import kills_wanted, seed_of_run
from tests.support.server_process import Turnstile, turnstile
from tests.support.telegram_faults import DROPPED, SILENT_AFTER, flood
from tests.support.turn_script import Script, Step

COMMITS_MAX = 60
"""More than there are from an update to its answer."""
QUIET_S = 0.5
"""Nothing more is to be committed for an answer that has been shown for so long."""
SENDS = {"telegram": "sendMessage", "webhook": "message"}
STEPS: tuple[tuple[Channel, str], ...] = (
    ("telegram", "arrived"),
    ("telegram", "accepted"),
    ("telegram", "answered"),
    ("webhook", "accepted"),
    ("webhook", "answered"),
)
EDITS = {"telegram": "editMessageText", "webhook": "edit"}


# Receiving.


async def test_killed_at_any_step_of_receiving_from_telegram_a_message_is_one_turn() -> None:
    async with party() as guests:
        for step in ("accepted", "answered", "kept"):
            room = guests.room("telegram")
            guests.strike_at(_receiving(guests, room, step))
            await guests.say(room)
            await guests.say(room)
            await guests.struck()
            await guests.answered(room)


def _receiving(guests: Party, room: Room, step: str) -> Moment:
    """Once Telegram has told what was said: before and after that is on its way; or once it may forget it."""

    def is_now(at: str, method: str, asked: Json) -> bool:
        if method != "getUpdates" or not room.updates:
            return False
        if step == "kept":
            return at == "arrived" and int(asked.get("offset", 0)) > room.updates[-1]
        return at == step and room.updates[-1] in guests.telegram.told

    return is_now


async def test_updates_that_come_twice_and_out_of_order_before_and_after_a_kill_are_one_turn_each() -> None:
    async with party(seed=7) as guests:
        guests.telegram.copies = 2
        room = guests.room("telegram")
        guests.strike_at(lambda at, method, asked: (at, method) == ("arrived", "sendMessage"))
        for _ in range(4):
            await guests.say(room)
        await guests.struck()
        for number in reversed(room.updates):
            guests.telegram.tell_again(number)
        await guests.say(room)
        await guests.answered(room)


async def test_killed_while_a_program_calls_in_the_repeated_call_is_one_turn() -> None:
    async with party() as guests:
        room = guests.room("webhook")
        with turnstile(guests.server.folder):
            # Nothing can be kept, so that nothing can have been promised.
            calling = asyncio.create_task(guests.say(room))
            await asyncio.sleep(0)
            await guests.server.kill()
        await guests.server.start()
        await calling
        # Promised, and nothing else done for it yet.
        await guests.say(room)
        await guests.kill_and_start()
        for script, webhook_id in zip(room.said, room.updates, strict=True):
            await guests.call_in(room, script.text, webhook_id)
        await guests.answered(room)


# From the update to the answer, commit by commit.


async def test_killed_after_any_commit_between_an_update_and_its_answer_it_is_answered_once() -> None:
    """Each time a few commits further, from where the seed says; `make crash` takes every one."""
    stride = 5 if kills_wanted() <= 20 else 1
    first = seed_of_run() % stride
    async with party() as guests:
        for commits in range(first, COMMITS_MAX, stride):
            room = guests.room("telegram")
            with turnstile(guests.server.folder) as writers:
                await guests.say(room, Step(2, pace_ms=0))
                is_over = await _let_pass(guests, room, writers, commits)
                guests.server.strike()
            await guests.bury()
            await guests.server.start()
            await guests.answered(room)
            if is_over:
                return
        raise AssertionError("it was never answered before the kill")


async def _let_pass(guests: Party, room: Room, writers: Turnstile, commits: int) -> bool:
    """So many commits, and the next one is about to be made. True: there were no more, all is answered."""
    for passed in range(commits + 1):
        quiet_since = time.monotonic()
        while not writers.is_awaited():
            if guests.missing(room):
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > QUIET_S:
                return True
            await asyncio.sleep(0.005)
        if passed < commits:
            writers.let_one_pass()
    return False


# Delivering.


@pytest.mark.parametrize("channel", ["telegram", "webhook"])
async def test_an_answer_that_waits_for_a_person_ends_when_somebody_writes_again(channel: Channel) -> None:
    async with party() as guests:
        room = guests.room(channel)
        script = await _held_up(guests, room)
        for resumed in range(RESUME_ATTEMPTS_STALLED_MAX):
            await guests.kill_and_start()
            await guests.until(lambda before=resumed: _cues(guests, script) == before + 2)
        await guests.kill_and_start()
        await guests.until(lambda: guests.raw(room)[-1] == "Interrupted by a server restart.")
        await guests.say(room)
        await guests.answered(room)
        assert sum(LEFT in text for text in guests.raw(room)) == 1


async def test_killed_at_any_step_of_sending_an_answer_is_there_once_where_that_can_be_told() -> None:
    async with party() as guests:
        for channel, step in STEPS:
            room = guests.room(channel)
            guests.strike_at(_writing(room, SENDS[channel], step))
            await guests.say(room)
            await guests.say(room)
            await guests.struck()
            await guests.answered(room)
            if channel == "telegram":
                assert guests.again(room) <= 1
                assert guests.again(room) == 1 or step == "answered", "whether it arrived, nobody knows"


async def test_killed_before_an_answer_reached_telegram_it_is_sent_and_says_that_it_may_be_there() -> None:
    async with party() as guests:
        room = guests.room("telegram")
        guests.telegram.misbehave("sendMessage", DROPPED)
        guests.strike_at(_writing(room, "sendMessage", "arrived"))
        await guests.say(room)
        await guests.struck()
        await guests.answered(room)
        assert (guests.again(room), len(guests.telegram.shown(int(room.name)))) == (1, 1)


async def test_killed_at_any_step_of_editing_an_answer_ends_in_its_final_words() -> None:
    async with party() as guests:
        for channel, step in STEPS:
            room = guests.room(channel)
            script = await _held_up(guests, room)
            guests.strike_at(_writing(room, EDITS[channel], step))
            guests.actor.gate(script.name, 0, 20).opened.set()
            await guests.struck()
            await guests.answered(room)
            assert channel == "webhook" or guests.again(room) == 0, "an edit is never in doubt"


async def test_killed_while_the_first_words_are_sent_the_answer_goes_on_after_them() -> None:
    channels: tuple[Channel, ...] = ("telegram", "webhook")
    async with party() as guests:
        for channel in channels:
            room = guests.room(channel)
            guests.strike_at(_writing(room, SENDS[channel], "accepted"))
            await _held_up(guests, room, until_shown=False)
            await guests.struck()
            guests.actor.open_all()
            await guests.answered(room)


async def test_killed_while_telegram_is_silent_asks_for_patience_or_hangs_up_nothing_is_lost() -> None:
    async with party() as guests:
        guests.telegram.misbehave("sendMessage", SILENT_AFTER, flood(3), DROPPED)
        rooms = [guests.room("telegram") for _ in range(3)]
        for room in rooms:
            await guests.say(room)
            await guests.say(room)
        tried = [room.name for room in rooms]
        await guests.until(lambda: {call.room for call in guests.calls}.issuperset(tried))
        await guests.kill_and_start()
        await guests.answered()


async def test_killed_again_while_it_makes_up_for_a_kill_it_sends_again_and_says_so_each_time() -> None:
    async with party() as guests:
        room = guests.room("telegram")
        moment = _writing(room, "sendMessage", "accepted")
        guests.strike_at(moment)
        await guests.say(room)
        await guests.struck(and_then=moment)
        await guests.struck()
        await guests.until(lambda: guests.again(room) == 2)


async def test_a_chat_that_does_not_answer_when_the_server_is_killed_holds_up_no_other() -> None:
    async with party() as guests:
        silent, other, program = guests.room("telegram"), guests.room("telegram"), guests.room("webhook")
        guests.telegram.misbehave("sendMessage", SILENT_AFTER)
        await guests.say(silent)
        await guests.until(lambda: guests.telegram.texts(int(silent.name)))
        await guests.say(other)
        await guests.say(program)
        await guests.answered(other, program)
        await guests.kill_and_start()
        await guests.answered(silent)


def _writing(room: Room, method: str, step: str) -> Moment:
    """When the server writes in a chat in that way."""

    def is_now(at: str, asked_for: str, asked: Json) -> bool:
        return (at, asked_for, str(asked.get("chat_id", asked.get("chat")))) == (step, method, room.name)

    return is_now


def _cues(guests: Party, script: Script) -> int:
    """Return how often the model was asked for this answer."""
    return sum(cue.script == script for cue in guests.actor.cues)


async def _held_up(guests: Party, room: Room, until_shown: bool = True) -> Script:
    """An answer that stands in its middle, its first words in the chat already."""
    script = await guests.say(room, Step(30, pace_ms=0), hold_at=20)
    if until_shown:
        await guests.until(lambda: guests.shown(room))
    return script
