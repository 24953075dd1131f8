"""Kill the real server at every step of receiving from a chat app and of delivering to it.

A test recognises a step by the requests to the app and by commits; nothing inside the server knows of it. At
the end everything is answered, once and in order, and repeated messages are labelled.
"""

import asyncio
import time

import pytest

from holdfast.domain.limits import RESUME_ATTEMPTS_STALLED_MAX
from tests.crash.chat_crash_harness import (
    ABANDONED_NOTICE,
    Channel,
    ChatCrashHarness,
    ChatRoom,
    Json,
    StrikeCondition,
    chat_crash_harness,
)
from tests.crash.writer_history import kill_count, run_seed
from tests.support.server_process import CommitGate, commit_gate
from tests.support.telegram_faults import DROPPED, NO_REPLY_AFTER, too_many_requests
from tests.support.turn_script import Script, ScriptStep

COMMITS_MAX = 60
"""More than the number of commits from an update to its answer."""
QUIET_S = 0.5
"""Nothing more is committed for an answer that has been shown for this long."""
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
    async with chat_crash_harness() as harness:
        for step in ("accepted", "answered", "kept"):
            room = harness.room("telegram")
            harness.kill_when(_at_receive_step(harness, room, step))
            await harness.send(room)
            await harness.send(room)
            await harness.wait_killed_and_restart()
            await harness.wait_for_answers(room)


def _at_receive_step(harness: ChatCrashHarness, room: ChatRoom, step: str) -> StrikeCondition:
    """Return the condition for a step of receiving: before or after the delivery, or its confirmation."""

    def is_now(at: str, method: str, asked: Json) -> bool:
        if method != "getUpdates" or not room.updates:
            return False
        if step == "kept":
            return at == "arrived" and int(asked.get("offset", 0)) > room.updates[-1]
        return at == step and room.updates[-1] in harness.telegram.sent_updates

    return is_now


async def test_updates_that_come_twice_and_out_of_order_before_and_after_a_kill_are_one_turn_each() -> None:
    async with chat_crash_harness(seed=7) as harness:
        harness.telegram.copies = 2
        room = harness.room("telegram")
        harness.kill_when(lambda at, method, asked: (at, method) == ("arrived", "sendMessage"))
        for _ in range(4):
            await harness.send(room)
        await harness.wait_killed_and_restart()
        for number in reversed(room.updates):
            harness.telegram.repeat_update(number)
        await harness.send(room)
        await harness.wait_for_answers(room)


async def test_killed_while_a_program_calls_in_the_repeated_call_is_one_turn() -> None:
    async with chat_crash_harness() as harness:
        room = harness.room("webhook")
        with commit_gate(harness.server.folder):
            # Nothing can be kept, so that nothing can have been promised.
            calling = asyncio.create_task(harness.send(room))
            await asyncio.sleep(0)
            await harness.server.kill()
        await harness.server.start()
        await calling
        # Promised, and nothing else done for it yet.
        await harness.send(room)
        await harness.kill_and_start()
        for script, webhook_id in zip(room.scripts, room.updates, strict=True):
            await harness.post_to_webhook(room, script.text, webhook_id)
        await harness.wait_for_answers(room)


# From the update to the answer, commit by commit.


async def test_killed_after_any_commit_between_an_update_and_its_answer_it_is_answered_once() -> None:
    """Begin a few commits further each time, as the seed says; `make crash` takes every one."""
    stride = 5 if kill_count() <= 20 else 1
    first = run_seed() % stride
    async with chat_crash_harness() as harness:
        for commits in range(first, COMMITS_MAX, stride):
            room = harness.room("telegram")
            with commit_gate(harness.server.folder) as gate:
                await harness.send(room, ScriptStep(2, pace_ms=0))
                is_over = await _allow_commits(harness, room, gate, commits)
                harness.server.send_kill()
            await harness.wait_killed()
            await harness.server.start()
            await harness.wait_for_answers(room)
            if is_over:
                return
        raise AssertionError("it was never answered before the kill")


async def _allow_commits(harness: ChatCrashHarness, room: ChatRoom, gate: CommitGate, commits: int) -> bool:
    """Allow this many commits, with the next one waiting. Return True if all is answered before."""
    for passed in range(commits + 1):
        quiet_since = time.monotonic()
        while not gate.has_waiter():
            if harness.mismatch(room):
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since > QUIET_S:
                return True
            await asyncio.sleep(0.005)
        if passed < commits:
            gate.allow_one_commit()
    return False


# Delivering.


@pytest.mark.parametrize("channel", ["telegram", "webhook"])
async def test_an_answer_that_waits_for_a_person_ends_when_somebody_writes_again(channel: Channel) -> None:
    async with chat_crash_harness() as harness:
        room = harness.room(channel)
        script = await _start_held_answer(harness, room)
        for resumed in range(RESUME_ATTEMPTS_STALLED_MAX):
            await harness.kill_and_start()
            await harness.wait_until(lambda before=resumed: _cues(harness, script) == before + 2)
        await harness.kill_and_start()
        await harness.wait_until(lambda: harness.texts(room)[-1] == "Interrupted by a server restart.")
        await harness.send(room)
        await harness.wait_for_answers(room)
        assert sum(ABANDONED_NOTICE in text for text in harness.texts(room)) == 1


async def test_killed_at_any_step_of_sending_an_answer_is_there_once_where_the_channel_can_detect_it() -> (
    None
):
    async with chat_crash_harness() as harness:
        for channel, step in STEPS:
            room = harness.room(channel)
            harness.kill_when(_at_write_step(room, SENDS[channel], step))
            await harness.send(room)
            await harness.send(room)
            await harness.wait_killed_and_restart()
            await harness.wait_for_answers(room)
            if channel == "telegram":
                assert harness.resent_count(room) <= 1
                assert harness.resent_count(room) == 1 or step == "answered", (
                    "whether it arrived, nobody knows"
                )


async def test_killed_before_an_answer_reached_telegram_it_is_sent_and_says_that_it_may_be_there() -> None:
    async with chat_crash_harness() as harness:
        room = harness.room("telegram")
        harness.telegram.add_faults("sendMessage", DROPPED)
        harness.kill_when(_at_write_step(room, "sendMessage", "arrived"))
        await harness.send(room)
        await harness.wait_killed_and_restart()
        await harness.wait_for_answers(room)
        assert (harness.resent_count(room), len(harness.telegram.shown(int(room.name)))) == (1, 1)


async def test_killed_at_any_step_of_editing_an_answer_ends_in_its_final_words() -> None:
    async with chat_crash_harness() as harness:
        for channel, step in STEPS:
            room = harness.room(channel)
            script = await _start_held_answer(harness, room)
            harness.kill_when(_at_write_step(room, EDITS[channel], step))
            harness.model_server.gate(script.name, 0, 20).is_open.set()
            await harness.wait_killed_and_restart()
            await harness.wait_for_answers(room)
            assert channel == "webhook" or harness.resent_count(room) == 0, "an edit is never in doubt"


async def test_killed_while_the_first_words_are_sent_the_answer_goes_on_after_them() -> None:
    channels: tuple[Channel, ...] = ("telegram", "webhook")
    async with chat_crash_harness() as harness:
        for channel in channels:
            room = harness.room(channel)
            harness.kill_when(_at_write_step(room, SENDS[channel], "accepted"))
            await _start_held_answer(harness, room, until_shown=False)
            await harness.wait_killed_and_restart()
            harness.model_server.open_all_gates()
            await harness.wait_for_answers(room)


async def test_killed_while_telegram_is_silent_limits_the_rate_or_hangs_up_nothing_is_lost() -> None:
    async with chat_crash_harness() as harness:
        harness.telegram.add_faults("sendMessage", NO_REPLY_AFTER, too_many_requests(3), DROPPED)
        rooms = [harness.room("telegram") for _ in range(3)]
        for room in rooms:
            await harness.send(room)
            await harness.send(room)
        tried = [room.name for room in rooms]
        await harness.wait_until(lambda: {call.room for call in harness.calls}.issuperset(tried))
        await harness.kill_and_start()
        await harness.wait_for_answers()


async def test_killed_again_while_it_makes_up_for_a_kill_it_sends_again_and_says_so_each_time() -> None:
    async with chat_crash_harness() as harness:
        room = harness.room("telegram")
        moment = _at_write_step(room, "sendMessage", "accepted")
        harness.kill_when(moment)
        await harness.send(room)
        await harness.wait_killed_and_restart(next_condition=moment)
        await harness.wait_killed_and_restart()
        await harness.wait_until(lambda: harness.resent_count(room) == 2)


async def test_a_chat_that_does_not_answer_when_the_server_is_killed_holds_up_no_other() -> None:
    async with chat_crash_harness() as harness:
        silent, other, program = harness.room("telegram"), harness.room("telegram"), harness.room("webhook")
        harness.telegram.add_faults("sendMessage", NO_REPLY_AFTER)
        await harness.send(silent)
        await harness.wait_until(lambda: harness.telegram.texts(int(silent.name)))
        await harness.send(other)
        await harness.send(program)
        await harness.wait_for_answers(other, program)
        await harness.kill_and_start()
        await harness.wait_for_answers(silent)


def _at_write_step(room: ChatRoom, method: str, step: str) -> StrikeCondition:
    """Return the condition for a step of writing in a chat."""

    def is_now(at: str, asked_for: str, asked: Json) -> bool:
        return (at, asked_for, str(asked.get("chat_id", asked.get("chat")))) == (step, method, room.name)

    return is_now


def _cues(harness: ChatCrashHarness, script: Script) -> int:
    """Return how often the model was asked for this answer."""
    return sum(cue.script == script for cue in harness.model_server.cues)


async def _start_held_answer(harness: ChatCrashHarness, room: ChatRoom, until_shown: bool = True) -> Script:
    """Start an answer that is held in its middle, with its first words in the chat."""
    script = await harness.send(room, ScriptStep(30, pace_ms=0), hold_at=20)
    if until_shown:
        await harness.wait_until(lambda: harness.shown(room))
    return script
