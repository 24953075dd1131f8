"""People who talk, undo, clear and delete while a server with memory is killed.

The harness compares what their clients received with the final content of memory. Where a provider has no
idempotency keys, a person looks into it before they resolve a commit in doubt.
"""

import asyncio
import itertools
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec

from tests.crash.killer import RESUMES_MAX
from tests.support.memory_server_harness import MemoryServerHarness, memory_server_harness, turns_to_commit
from tests.support.recording_clients import TIMEOUT_S, ReceivedEvent, SessionRecorder
from tests.support.server_process import run_doctor
from tests.witness_memory.watching import call_errors

PEOPLE = "abcd"
KILL_POINTS = (
    "commit.before", "commit.before", "commit.after", "commit.after", "retract.before", "retract.after",
    "memory_commit_started", "memory_committed", "memory_commit_failed", "memory_in_doubt", "memory_resolved",
    "memory_forgotten", "run_completed", "run_completed", "turns_undone", "session_cleared", "turn_accepted",
    "text_appended", "",
)  # fmt: skip
"""Where a server is killed: inside the provider, at an event that a client receives, or at any time."""
WAIT_S_MAX = 0.5
GRACEFUL_SHARE = 0.1
"""How often the server is asked to end instead."""


class MemoryCrashFigures(msgspec.Struct):
    """The totals of a crash test, in one line."""

    kills: int = 0
    turns: int = 0
    """Turns that memory must hold at the end."""
    commits: int = 0
    repeated_commits: int = 0
    """Commits that were repeated under the same key."""
    in_doubt: int = 0
    retracted: int = 0
    deleted: int = 0
    wrong: list[str] = []

    def __str__(self) -> str:
        return (
            f"kills={self.kills} turns={self.turns} commits={self.commits} repeated={self.repeated_commits}"
            f" in_doubt={self.in_doubt} retracted={self.retracted} deleted={self.deleted}"
        )

    def add(self, other: "MemoryCrashFigures") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class MemoryCrashHarness:
    """People with one conversation each at a time."""

    def __init__(self, server_harness: MemoryServerHarness, rng: random.Random) -> None:
        self._server_harness = server_harness
        self._rng = rng
        self._is_stopping = False
        self._active_sessions: dict[str, SessionRecorder] = {}
        """The session of each person; abandoned sessions are idle."""
        self._retried: Counter[str] = Counter()
        self.deleted: set[str] = set()

    async def run(self, kills: int) -> None:
        async with asyncio.TaskGroup() as group:
            people = [group.create_task(self._run_user(name)) for name in PEOPLE]
            looking = group.create_task(self._resolve_loop())
            for _ in range(kills):
                await self._kill()
            self._is_stopping = True
            await asyncio.gather(*people)
            looking.cancel()
        await self._wait_until_idle()

    async def _run_user(self, name: str) -> None:
        session, number = await self._server_harness.create_session(), 0
        while not self._is_stopping or not number:
            number += 1
            self._active_sessions[name] = session
            await self._server_harness.send(session, f"My thing {name}{number} is called {name}-{number}.")
            session = await self._random_action(session)

    async def _random_action(self, session: SessionRecorder) -> SessionRecorder:
        """Do something between two messages; return the conversation that continues."""
        match self._rng.choices(("", "undo", "clear", "new", "delete", "ask"), (5, 2, 1, 2, 1, 3))[0]:
            case "undo" if stands := _live_turns(session):
                await self._server_harness.undo(session, self._rng.choice(stands[-2:]))
            case "clear":
                status, answer = await self._server_harness.request_until_answered(
                    "POST", f"/api/sessions/{session.session_id}/clear", {}
                )
                assert status in (200, 409), answer
                await session.wait_until(lambda: not _live_turns(session), "a clearing")
            case "new":
                return await self._server_harness.create_session(previous_session_id=session.session_id)
            case "delete":
                self.deleted.add(session.session_id)
                status, answer = await self._server_harness.request_until_answered(
                    "DELETE", f"/api/sessions/{session.session_id}"
                )
                assert status in (204, 404), answer
                return await self._server_harness.create_session()
            case "ask":
                self._server_harness.request_commit(session)
        return session

    async def _kill(self) -> None:
        server_harness, moment = self._server_harness, self._rng.choice(KILL_POINTS)
        left, wait_s = self._rng.choice((1, 1, 2)), self._rng.random() * WAIT_S_MAX
        await self._wait_for_progress()
        if self._rng.random() < GRACEFUL_SHARE:
            await asyncio.sleep(wait_s)
            await server_harness.server.shut_down()
        else:
            async with asyncio.TaskGroup() as group:
                dying = group.create_task(server_harness.server.wait_killed())
                await (self._kill_at_provider_point if "." in moment else self._kill_at_event)(
                    moment, left, wait_s, dying
                )
        await server_harness.server.start()

    async def _wait_for_progress(self) -> None:
        """Help a run that was interrupted too often: its budget is not what these tests check."""
        async with asyncio.timeout(TIMEOUT_S):
            for session in list(self._active_sessions.values()):
                for _ in itertools.repeat(None):
                    if await self._has_progress(session):
                        break
                    await asyncio.sleep(0.02)

    async def _has_progress(self, session: SessionRecorder) -> bool:
        """Return whether the server has progressed: a client may not have reconnected since the last kill."""
        status, page = await self._server_harness.request_until_answered(
            "GET", f"/api/sessions/{session.session_id}/messages?limit=1"
        )
        if status == 404:
            return True
        assert status == 200, page
        return (
            max(session.events, default=0) >= page["head"]
            and session.resumes_without_progress() < RESUMES_MAX
        )

    async def _kill_at_provider_point(
        self, moment: str, left: int, wait_s: float, dying: "asyncio.Task[None]"
    ) -> None:
        verb, _, point = moment.partition(".")
        self._server_harness.witness.set_order(verb, point, "kill")
        await asyncio.wait({dying}, timeout=wait_s)
        self._server_harness.witness.clear_order(verb, point)
        self._kill_unless_dead(dying)

    async def _kill_at_event(
        self, moment: str, left: int, wait_s: float, dying: "asyncio.Task[None]"
    ) -> None:
        """Kill the server now, while it is still busy with the next step."""

        def count_event(recorder: SessionRecorder, seen: ReceivedEvent) -> None:
            nonlocal left
            left -= seen.kind == moment
            if not left:
                self._kill_unless_dead(dying)

        watched = list(self._server_harness.sessions)
        for session in watched:
            session.watchers.append(count_event)
        await asyncio.wait({dying}, timeout=wait_s)
        for session in watched:
            session.watchers.remove(count_event)
        self._kill_unless_dead(dying)

    def _kill_unless_dead(self, dying: "asyncio.Task[None]") -> None:
        if not dying.done():
            with suppress(ProcessLookupError):
                self._server_harness.server.send_kill()

    async def _resolve_loop(self) -> None:
        while True:
            await self._resolve(await self._server_harness.pending_commits())
            await asyncio.sleep(0.3)

    async def _resolve(self, rows: list[dict[str, Any]]) -> None:
        """Resolve a commit in doubt: as done if memory holds it, else as one to retry."""
        for row in rows:
            if row["state"] != "in_doubt":
                continue
            is_held = row["from_turn"] in self._server_harness.witness.turns(row["session_id"])
            decision = "done" if is_held else "retry"
            self._retried[row["session_id"]] += decision == "retry"
            path = f"/api/memory/waiting/{row['session_id']}/{row['segment']}"
            status, answer = await self._server_harness.request("POST", path, {"decision": decision})
            assert status in (0, 204, 404, 409, 503), answer

    async def _wait_until_idle(self) -> None:
        """Without further kills, commit everything pending by requests."""
        async with asyncio.timeout(120):
            while rows := await self._server_harness.pending_commits():
                await self._resolve(rows)
                status, answer = await self._server_harness.request("POST", "/api/memory/commit", {})
                assert status == 200 and answer["outcome"] != "failed", answer

    def audit(self, takes_key: bool) -> MemoryCrashFigures:
        calls = self._server_harness.witness.calls("commit")
        asked = Counter(call.key for call in calls if call.stage == "asked")
        taken_back = {call.key for call in self._server_harness.witness.calls("retract", "did")}
        in_doubt = sum(len(session.of_kind("memory_in_doubt")) for session in self._server_harness.sessions)
        figures = MemoryCrashFigures(
            commits=len(asked), repeated_commits=asked.total() - len(asked), in_doubt=in_doubt,
            retracted=len(taken_back),
            deleted=len(self.deleted), wrong=call_errors(calls),
        )  # fmt: skip
        for talk in self._server_harness.sessions:
            self._audit_session(talk, figures)
        if takes_key:
            figures.wrong += [f"{each.body} is in no doubt" for each in self._seen("memory_in_doubt")]
        else:
            self._audit_repeats(asked, figures)
        return figures

    def _audit_session(self, session: SessionRecorder, figures: MemoryCrashFigures) -> None:
        """Check that memory holds every live turn once, with its messages, and nothing else.

        Of a deleted conversation memory may hold any turn, once: how many were committed is not known here.
        """
        held, due = self._server_harness.witness.turns(session.session_id), turns_to_commit(session)
        if session.session_id in self.deleted:
            due = {turn: text for turn, text in due.items() if turn in held}
        figures.turns += len(due)
        if held != Counter(due.keys()):
            figures.wrong.append(f"{session.session_id}: owed {sorted(due)}, held {sorted(held.elements())}")
        texts = [
            text
            for call in self._server_harness.witness.stored_commits()
            if call.session_id == session.session_id
            for text in call.texts
        ]
        figures.wrong += [
            f"{text!r} is not what memory was told" for text in due.values() if text not in texts
        ]

    def _audit_repeats(self, asked: Counter[str], figures: MemoryCrashFigures) -> None:
        """Check that a key was repeated only if a person asked for it."""
        for session in self._server_harness.sessions:
            keys = {
                call.key
                for call in self._server_harness.witness.calls("commit")
                if call.session_id == session.session_id
            }
            again = sum(asked[key] - 1 for key in keys)
            resolved = [seen.body["decision"] for seen in session.of_kind("memory_resolved")]
            allowed = resolved.count("retry")
            if session.session_id in self.deleted:  # Nobody is sent what happens to it from then on.
                allowed = self._retried[session.session_id]
            if again > allowed:
                figures.wrong.append(
                    f"{session.session_id}: told {again} times more, {allowed} times by request"
                )

    def _seen(self, kind: str) -> list[ReceivedEvent]:
        return [seen for session in self._server_harness.sessions for seen in session.of_kind(kind)]


def _live_turns(session: SessionRecorder) -> list[int]:
    """Return the completed turns that can still be undone."""
    cleared = max((seen.body["through_turn"] for seen in session.of_kind("session_cleared")), default=0)
    return sorted(turn for turn in turns_to_commit(session) if turn > cleared)


async def run_memory_crashes(seed: int, kills: int, takes_key: bool) -> MemoryCrashFigures:
    """Kill a server with memory this often during load, and return the figures."""
    async with memory_server_harness(takes_key, memory_idle_s="1", stop_grace_s="5") as server_harness:
        harness = MemoryCrashHarness(server_harness, random.Random(seed))
        await harness.run(kills)
        figures = harness.audit(takes_key)
        figures.kills = kills
        await server_harness.server.shut_down()
        report = await run_doctor(server_harness.server.folder)
        assert report["ok"], f"seed {seed}: {report}"
        await server_harness.server.start()
        assert not await server_harness.pending_commits(), "the end brought no new debts about"
        return figures
