"""People who talk, take things back, begin anew and delete while a server that remembers is killed.

What each of them was told is held against what memory has in the end. Where memory does not know a key again,
somebody looks into it before saying whether it was told, as a person would.
"""

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

from tests.crash.killer import STALLED_MAX
from tests.support.memory_server_harness import Household, household, owed
from tests.support.recording_clients import PATIENCE_S, Memory, Seen
from tests.support.server_process import doctor
from tests.witness_memory.watching import faults

PEOPLE = "abcd"
MOMENTS = (
    "commit.before", "commit.before", "commit.after", "commit.after", "retract.before", "retract.after",
    "memory_commit_started", "memory_committed", "memory_commit_failed", "memory_in_doubt", "memory_resolved",
    "memory_forgotten", "run_completed", "run_completed", "turns_undone", "session_cleared", "turn_accepted",
    "text_appended", "",
)  # fmt: skip
"""At what a server is killed: inside the provider, at an event that a client is sent, or at any time."""
WAIT_S_MAX = 0.5
GRACEFUL = 0.1
"""How often it is asked to end instead."""


class Figures(msgspec.Struct):
    """What a run of kills comes to, in one line."""

    kills: int = 0
    turns: int = 0
    """Turns that memory is to know of in the end."""
    told: int = 0
    again: int = 0
    """Stretches that were told once more, under the same key."""
    in_doubt: int = 0
    taken_back: int = 0
    deleted: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"kills={self.kills} turns={self.turns} stretches={self.told} told_again={self.again}"
            f" in_doubt={self.in_doubt} taken_back={self.taken_back} deleted={self.deleted}"
        )

    def add(self, other: "Figures") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Mourners:
    """Everyone has one conversation at a time."""

    def __init__(self, home: Household, chance: random.Random) -> None:
        self._home = home
        self._chance = chance
        self._is_late = False
        self._talking: dict[str, Memory] = {}
        """Who is in which conversation; in those that they left nothing goes on."""
        self._retried: Counter[str] = Counter()
        self.deleted: set[str] = set()

    async def live_through(self, kills: int) -> None:
        async with asyncio.TaskGroup() as group:
            people = [group.create_task(self._live(name)) for name in PEOPLE]
            looking = group.create_task(self._look_after_doubts())
            for _ in range(kills):
                await self._kill()
            self._is_late = True
            await asyncio.gather(*people)
            looking.cancel()
        await self._until_quiet()

    async def _live(self, name: str) -> None:
        talk, number = await self._home.begin(), 0
        while not self._is_late or not number:
            number += 1
            self._talking[name] = talk
            await self._home.say(talk, f"My thing {name}{number} is called {name}-{number}.")
            talk = await self._act(talk)

    async def _act(self, talk: Memory) -> Memory:
        """What someone does between two messages; the conversation in which they go on."""
        match self._chance.choices(("", "undo", "clear", "new", "delete", "ask"), (5, 2, 1, 2, 1, 3))[0]:
            case "undo" if stands := _live_turns(talk):
                await self._home.undo(talk, self._chance.choice(stands[-2:]))
            case "clear":
                status, answer = await self._home.insist("POST", f"/api/sessions/{talk.session_id}/clear", {})
                assert status in (200, 409), answer
                await talk.until(lambda: not _live_turns(talk), "a clearing")
            case "new":
                return await self._home.begin(previous_session_id=talk.session_id)
            case "delete":
                self.deleted.add(talk.session_id)
                status, answer = await self._home.insist("DELETE", f"/api/sessions/{talk.session_id}")
                assert status in (204, 404), answer
                return await self._home.begin()
            case "ask":
                self._home.ask_to_remember(talk)
        return talk

    async def _kill(self) -> None:
        home, moment = self._home, self._chance.choice(MOMENTS)
        left, wait_s = self._chance.choice((1, 1, 2)), self._chance.random() * WAIT_S_MAX
        await self._spare_the_unlucky()
        if self._chance.random() < GRACEFUL:
            await asyncio.sleep(wait_s)
            await home.server.end()
        else:
            async with asyncio.TaskGroup() as group:
                dying = group.create_task(home.server.bury())
                await (self._at_order if "." in moment else self._at_event)(moment, left, wait_s, dying)
        await home.server.start()

    async def _spare_the_unlucky(self) -> None:
        """A run that was cut off too often is put to a person: its budget is not what is tested here."""
        async with asyncio.timeout(PATIENCE_S):
            for talk in list(self._talking.values()):
                for _ in itertools.repeat(None):
                    if await self._is_lucky(talk):
                        break
                    await asyncio.sleep(0.02)

    async def _is_lucky(self, talk: Memory) -> bool:
        """As the server knows it: whoever follows `talk` may not have come back since the last death."""
        status, page = await self._home.insist("GET", f"/api/sessions/{talk.session_id}/messages?limit=1")
        if status == 404:
            return True
        assert status == 200, page
        return max(talk.events, default=0) >= page["head"] and talk.stalled() < STALLED_MAX

    async def _at_order(self, moment: str, left: int, wait_s: float, dying: "asyncio.Task[None]") -> None:
        verb, _, point = moment.partition(".")
        self._home.witness.order(verb, point, "kill")
        await asyncio.wait({dying}, timeout=wait_s)
        self._home.witness.lift(verb, point)
        self._strike(dying)

    async def _at_event(self, moment: str, left: int, wait_s: float, dying: "asyncio.Task[None]") -> None:
        """Here and now, while the server is still busy with what comes next."""

        def watch(memory: Memory, seen: Seen) -> None:
            nonlocal left
            left -= seen.kind == moment
            if not left:
                self._strike(dying)

        watched = list(self._home.talks)
        for talk in watched:
            talk.watchers.append(watch)
        await asyncio.wait({dying}, timeout=wait_s)
        for talk in watched:
            talk.watchers.remove(watch)
        self._strike(dying)

    def _strike(self, dying: "asyncio.Task[None]") -> None:
        if not dying.done():
            with suppress(ProcessLookupError):
                self._home.server.strike()

    async def _look_after_doubts(self) -> None:
        while True:
            await self._resolve(await self._home.waiting())
            await asyncio.sleep(0.3)

    async def _resolve(self, rows: list[dict[str, Any]]) -> None:
        """Whoever finds it in memory says that it was told, whoever does not has it told again."""
        for row in rows:
            if row["state"] != "in_doubt":
                continue
            is_held = row["from_turn"] in self._home.witness.turns(row["session_id"])
            decision = "done" if is_held else "retry"
            self._retried[row["session_id"]] += decision == "retry"
            path = f"/api/memory/waiting/{row['session_id']}/{row['segment']}"
            status, answer = await self._home.ask("POST", path, {"decision": decision})
            assert status in (0, 204, 404, 409, 503), answer

    async def _until_quiet(self) -> None:
        """Nobody is killed any more: what is owed is told, at once as somebody asks for it."""
        async with asyncio.timeout(120):
            while rows := await self._home.waiting():
                await self._resolve(rows)
                status, answer = await self._home.ask("POST", "/api/memory/commit", {})
                assert status == 200 and answer["outcome"] != "failed", answer

    def audit(self, takes_key: bool) -> Figures:
        calls = self._home.witness.calls("commit")
        asked = Counter(call.key for call in calls if call.stage == "asked")
        taken_back = {call.key for call in self._home.witness.calls("retract", "did")}
        doubts = sum(len(talk.of_kind("memory_in_doubt")) for talk in self._home.talks)
        figures = Figures(
            told=len(asked), again=asked.total() - len(asked), in_doubt=doubts, taken_back=len(taken_back),
            deleted=len(self.deleted), wrong=faults(calls),
        )  # fmt: skip
        for talk in self._home.talks:
            self._audit_one(talk, figures)
        if takes_key:
            figures.wrong += [f"{each.body} is in no doubt" for each in self._seen("memory_in_doubt")]
        else:
            self._audit_unasked(asked, figures)
        return figures

    def _audit_one(self, talk: Memory, figures: Figures) -> None:
        """Every turn that stands is held once, with what was said in it; and nothing else is.

        Of a deleted conversation any of its turns may be held, once: how many were told before that is not
        known here.
        """
        held, due = self._home.witness.turns(talk.session_id), owed(talk)
        if talk.session_id in self.deleted:
            due = {turn: text for turn, text in due.items() if turn in held}
        figures.turns += len(due)
        if held != Counter(due.keys()):
            figures.wrong.append(f"{talk.session_id}: owed {sorted(due)}, held {sorted(held.elements())}")
        texts = [
            text
            for call in self._home.witness.held()
            if call.session_id == talk.session_id
            for text in call.texts
        ]
        figures.wrong += [
            f"{text!r} is not what memory was told" for text in due.values() if text not in texts
        ]

    def _audit_unasked(self, asked: Counter[str], figures: Figures) -> None:
        """No key may have been used again unless somebody said so."""
        for talk in self._home.talks:
            keys = {
                call.key for call in self._home.witness.calls("commit") if call.session_id == talk.session_id
            }
            again = sum(asked[key] - 1 for key in keys)
            resolved = [seen.body["decision"] for seen in talk.of_kind("memory_resolved")]
            allowed = resolved.count("retry")
            if talk.session_id in self.deleted:  # Nobody is sent what happens to it from then on.
                allowed = self._retried[talk.session_id]
            if again > allowed:
                figures.wrong.append(
                    f"{talk.session_id}: told {again} times more, {allowed} times by request"
                )

    def _seen(self, kind: str) -> list[Seen]:
        return [seen for talk in self._home.talks for seen in talk.of_kind(kind)]


def _live_turns(talk: Memory) -> list[int]:
    """Completed turns that can still be undone."""
    cleared = max((seen.body["through_turn"] for seen in talk.of_kind("session_cleared")), default=0)
    return sorted(turn for turn in owed(talk) if turn > cleared)


async def mourning(seed: int, kills: int, takes_key: bool) -> Figures:
    """What is left when a server that remembers was killed so often in the middle of things."""
    async with household(takes_key, memory_idle_s="1", stop_grace_s="5") as home:
        mourners = Mourners(home, random.Random(seed))
        await mourners.live_through(kills)
        figures = mourners.audit(takes_key)
        figures.kills = kills
        await home.server.end()
        report = await doctor(home.server.folder)
        assert report["ok"], f"seed {seed}: {report}"
        await home.server.start()
        assert not await home.waiting(), "the end brought no new debts about"
        return figures
