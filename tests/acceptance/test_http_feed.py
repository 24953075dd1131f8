"""What needs the owner, live: the same list and the same questions in every browser, and after a kill."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.limits import FEED_OPEN_MAX, FEED_SESSIONS_MAX
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, SseFrame, api_client, wait_until
from tests.support.in_process_app import running_app
from tests.support.in_process_server import http_server, raw_request
from tests.support.turn_events import created

FEED = "/api/stream?feed=true"


class FeedClient:
    """What a page makes of the feed: the list, the questions, and every change of them in order."""

    def __init__(self, frames: AsyncIterator[SseFrame]) -> None:
        self._frames = frames
        self.sessions: dict[str, dict[str, Any]] = {}
        self.questions: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.statuses: list[tuple[str, str]] = []
        self.snapshots: list[dict[str, Any]] = []

    async def wait_until(self, condition: Callable[["FeedClient"], object], timeout_s: float = 60) -> None:
        """Read on until it is so."""
        async with asyncio.timeout(timeout_s):
            while not (self.snapshots and condition(self)):
                await self.read_one()

    async def read_one(self) -> None:
        frame = await anext(self._frames)
        if frame.event.startswith("feed_"):
            assert frame.id == "", "a feed moves nobody's cursor"
            self._apply(frame)

    def _apply(self, frame: SseFrame) -> None:
        if frame.event == "feed_snapshot":
            self.snapshots.append(frame.data)
            self.sessions = {}
            for row in frame.data["sessions"]:
                self._put(row)
            self._ask(frame.data["questions"], None)
        elif frame.event == "feed_changed":
            self._put(frame.data["session"])
            self._ask(frame.data["questions"], frame.data["session"]["id"])
        else:
            assert frame.event == "feed_removed"
            self.sessions.pop(frame.data["session_id"], None)
            self._ask([], frame.data["session_id"])

    def _put(self, row: dict[str, Any]) -> None:
        before = self.sessions.get(row["id"], {}).get("status")
        self.sessions[row["id"]] = row
        if row["status"] != before:
            self.statuses.append((row["id"], row["status"]))

    def _ask(self, questions: list[dict[str, Any]], session: str | None) -> None:
        """These are all the questions there are, or all of one conversation."""
        now = {each["call_id"] or each["run_id"]: each for each in questions}
        assert len(now) == len(questions), "each is asked once"
        before = {
            name: each for name, each in self.questions.items() if session in (None, each["session_id"])
        }
        self.asked += [("asked", name) for name in now if name not in before]
        self.asked += [("answered", name) for name in before if name not in now]
        self.questions = {name: each for name, each in self.questions.items() if name not in before} | now

    def session_row(self, session: str) -> list[str]:
        return [status for name, status in self.statuses if name == session]

    def status(self, session: str) -> str | None:
        status: str | None = self.sessions.get(session, {}).get("status")
        return status

    def open_questions_of(self, session: str) -> list[dict[str, Any]]:
        return [each for each in self.questions.values() if each["session_id"] == session]


@asynccontextmanager
async def feed_client(api: ApiClient, path: str = FEED) -> AsyncIterator[FeedClient]:
    async with api.stream(path) as frames:
        yield FeedClient(frames)


def is_in_order(found: list[str], *expected: str) -> bool:
    """Whether `found` is `expected` with some left out: what changes twice within a moment is told once."""
    rest: Iterator[str] = iter(expected)
    return all(each in rest for each in found)


async def start_pending_approval(api: ApiClient, command: str, **body: Any) -> tuple[str, str]:
    """A conversation that waits for a yes to a command, and its run."""
    session = await api.create_session(**body)
    run = (await api.send(session, f"run {command}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    return session, run


async def decide(api: ApiClient, run: str, call: str, **body: Any) -> None:
    await api.post(f"/api/runs/{run}/tools/{call}", body)
    assert api.status == 200


async def wait_for_metric(api: ApiClient, name: str, wanted: int) -> None:
    async def has_value() -> bool:
        lines = (await api.get("/metrics")).decode().splitlines()
        return int(next(line for line in lines if line.startswith(f"{name} ")).split()[1]) == wanted

    await wait_until(has_value)


# What a feed begins with.


async def test_a_feed_begins_with_the_list_and_every_question(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        quiet = await api.create_session(title="Quiet")
        asking, run = await start_pending_approval(api, "echo one", title="Asking")
        async with api.stream(FEED) as frames:
            first = await anext(frame async for frame in frames if frame.event)
        assert (first.event, first.id) == ("feed_snapshot", "")
        rows = {row["id"]: row for row in first.data["sessions"]}
        listed = (await api.get("/api/sessions?limit=200"))["sessions"]
        for row in listed:
            assert rows[row["id"]] == row
        assert rows[quiet]["status"] == "idle" and rows[asking]["status"] == "needs_you"
        (question,) = [each for each in first.data["questions"] if each["session_id"] == asking]
        assert question["run_id"] == run and question["title"] == "Asking"
        assert question["kind"] == "approval" and question["name"] == "shell"
        assert question["arguments"] == '{"command":"echo one"}' and not question["arguments_cut"]
        assert question["asked_at"] <= time.time() * 1000 and not question["may_have_run"]
        asked = await api.get("/api/questions")
        assert [each for each in asked["questions"] if each["session_id"] == asking] == [question]
        await api.post(f"/api/runs/{run}/cancel")
        left = (await api.get("/api/questions"))["questions"]
        assert asking not in [each["session_id"] for each in left]


async def test_a_feed_and_sessions_share_one_connection(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session(title="Both")
        seen: list[SseFrame] = []
        async with api.stream(f"/api/stream?session={session}:0&feed=true") as frames:
            await api.send(session, "count 20")
            async for frame in frames:
                if frame.event:
                    seen.append(frame)
                rows = [each.data["session"] for each in seen if each.event == "feed_changed"]
                ended = [each for each in seen if each.event == "run_completed"]
                if ended and any(row["id"] == session and row["turns"] and row["unread"] for row in rows):
                    break
        assert seen[0].event == "feed_snapshot"
        events = [frame for frame in seen if not frame.event.startswith("feed_")]
        assert [frame.id for frame in events] == [f"{session}:{n}" for n in range(1, len(events) + 1)]
        assert len([frame for frame in seen if frame.event == "feed_snapshot"]) == 1


async def test_a_feed_continues_after_a_followed_session_is_deleted(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        doomed, other = await api.create_session(), await api.create_session()
        async with feed_client(api, f"/api/stream?session={doomed}:0&feed=true") as page:
            await page.wait_until(lambda page: doomed in page.sessions)
            await api.request("DELETE", f"/api/sessions/{doomed}")
            await page.wait_until(lambda page: doomed not in page.sessions)
            await api.request("PATCH", f"/api/sessions/{other}", {"title": "Still here"})
            await page.wait_until(lambda page: page.sessions[other]["title"] == "Still here")


async def test_an_invalid_feed_request_is_refused(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        for path in ("/api/stream", "/api/stream?feed=false", "/api/stream?feed=yes"):
            assert (await api.get(path))["code"] == "bad_request" and api.status == 400
        assert (await api.get("/api/stream?feed=true&session=s_0000000000000000:0"))["status"] == 404


# What changes.


async def test_the_feed_shows_working_waiting_and_idle(
    server: RunningServer, speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    async with api_client(server.address) as api, feed_client(api) as one, feed_client(api) as two:
        for page in (one, two):
            await page.wait_until(lambda page: True)
        session = await api.create_session(title="Watched")
        with speaker.pausing_count(20):
            await api.send(session, "count 40")
            for page in (one, two):
                await page.wait_until(lambda page: page.status(session) == "working")
        for page in (one, two):
            await page.wait_until(lambda page: page.status(session) == "idle")
        go = tmp_path / "go"
        run = (await api.send(session, f"run until [ -e {go} ]; do sleep 0.02; done; echo done"))["run_id"]
        for page in (one, two):
            await page.wait_until(lambda page: page.open_questions_of(session))
            assert page.status(session) == "needs_you"
        (question,) = one.open_questions_of(session)
        assert two.open_questions_of(session) == [question]
        await decide(api, run, question["call_id"], decision="approve")
        for page in (one, two):
            await page.wait_until(lambda page: page.status(session) == "working")
            assert page.open_questions_of(session) == [], "answered in the same moment"
        go.touch()
        for page in (one, two):
            await page.wait_until(lambda page: page.status(session) == "idle")
            assert is_in_order(
                page.session_row(session),
                "idle",
                "working",
                "idle",
                "working",
                "needs_you",
                "working",
                "idle",
            )
            about = [what for what, name in page.asked if name == question["call_id"]]
            assert about == ["asked", "answered"], "once each, in each browser"
            assert len(page.snapshots) == 1


async def test_of_two_concurrent_answers_one_is_accepted_and_both_browsers_see_it(
    server: RunningServer,
) -> None:
    async with api_client(server.address) as api, feed_client(api) as one, feed_client(api) as two:
        session, run = await start_pending_approval(api, "echo two")
        for page in (one, two):
            await page.wait_until(lambda page: page.open_questions_of(session))
        call = one.open_questions_of(session)[0]["call_id"]
        path, yes, no = f"/api/runs/{run}/tools/{call}", {"decision": "approve"}, {"decision": "deny"}

        async def answer(body: dict[str, str]) -> int:
            async with api.session.post(api.address + path, json=body) as got:
                return got.status

        assert sorted(await asyncio.gather(answer(yes), answer(no))) == [200, 409]
        for page in (one, two):
            await page.wait_until(
                lambda page: not page.open_questions_of(session) and page.status(session) == "idle"
            )
            assert [what for what, name in page.asked if name == call] == ["asked", "answered"]


async def test_the_feed_shows_renames_archiving_and_deletion(server: RunningServer) -> None:
    async with api_client(server.address) as api, feed_client(api) as page:
        await page.wait_until(lambda page: True)
        session = await api.create_session(title="Before")
        await page.wait_until(lambda page: session in page.sessions)
        await api.request("PATCH", f"/api/sessions/{session}", {"title": "After"})
        await page.wait_until(lambda page: page.sessions[session]["title"] == "After")
        await api.request("PATCH", f"/api/sessions/{session}", {"archived": True})
        await page.wait_until(lambda page: page.sessions[session]["archived"])
        await api.request("DELETE", f"/api/sessions/{session}")
        await page.wait_until(lambda page: session not in page.sessions)


async def test_deleting_a_conversation_removes_its_question_from_the_feed(server: RunningServer) -> None:
    async with api_client(server.address) as api, feed_client(api) as page:
        session, _ = await start_pending_approval(api, "echo three")
        await page.wait_until(lambda page: page.open_questions_of(session))
        await api.request("DELETE", f"/api/sessions/{session}")
        await page.wait_until(lambda page: session not in page.sessions)
        assert page.open_questions_of(session) == []


# What is unread.


async def test_an_answer_is_unread_until_marked_seen(server: RunningServer) -> None:
    async with api_client(server.address) as api, feed_client(api) as page:
        session = await api.create_session(title="Read me")
        path = f"/api/sessions/{session}"
        assert not (await api.get(path))["unread"]
        await api.wait_for_run((await api.send(session, "Hello"))["run_id"])
        await page.wait_until(lambda page: page.sessions.get(session, {}).get("unread"))
        found = await api.get(path)
        assert found["unread"]
        listed = (await api.get("/api/sessions?limit=200"))["sessions"]
        assert [row["unread"] for row in listed if row["id"] == session] == [True]
        assert (await api.post(f"{path}/seen", {"seq": found["head"] + 1000}))["code"] == "bad_cursor"
        assert (await api.post(f"{path}/seen", {"seq": -1}))["code"] == "bad_request"
        assert (await api.get(path))["unread"], "what was refused has changed nothing"
        assert not (await api.post(f"{path}/seen", {"seq": found["head"]}))["unread"]
        await page.wait_until(lambda page: not page.sessions[session]["unread"])
        assert not (await api.post(f"{path}/seen", {"seq": 1}))["unread"], "it never moves back"
        await api.wait_for_run((await api.send(session, "And again"))["run_id"])
        await page.wait_until(lambda page: page.sessions[session]["unread"])
        receipt = await api.send(session, "hold")
        await api.wait_for_streaming_text(session, "Well")
        assert not (await api.get(path))["unread"], "who writes has read"
        await api.post(f"/api/runs/{receipt['run_id']}/cancel")
        assert (await api.post("/api/sessions/s_0000000000000000/seen", {"seq": 1}))["status"] == 404


# Several processes, one after the other and side by side.


@pytest.fixture
def home(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command


async def test_a_question_survives_a_kill_and_is_asked_once(home: CliHarness) -> None:
    first = home.serve("--port", "0")
    async with api_client(first.address) as api:
        session, run = await start_pending_approval(api, "echo survived", title="Survivor")
        before = (await api.get("/api/questions"))["questions"]
        assert len(before) == 1
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait(30)
    second = home.serve("--port", "0")
    async with api_client(second.address) as api, feed_client(api) as one, feed_client(api) as two:
        for page in (one, two):
            await page.wait_until(lambda page: True)
            assert page.snapshots[0]["questions"] == before
            assert page.status(session) == "needs_you"
        await decide(api, run, before[0]["call_id"], decision="approve")
        await api.wait_for_run(run)
        for page in (one, two):
            await page.wait_until(lambda page: page.status(session) == "idle")
            assert page.asked == [("asked", before[0]["call_id"]), ("answered", before[0]["call_id"])]
        assert (await api.message_texts(session))[-1][2].startswith("It said: ")


async def test_changes_by_one_server_appear_in_the_feed_of_another(home: CliHarness) -> None:
    here, there = home.serve("--port", "0"), home.serve("--port", "0")
    async with (
        api_client(here.address) as api,
        api_client(there.address) as other,
        feed_client(other) as page,
    ):
        await page.wait_until(lambda page: True)
        session, run = await start_pending_approval(api, "echo far", title="Far")
        await page.wait_until(lambda page: page.open_questions_of(session))
        await decide(api, run, page.open_questions_of(session)[0]["call_id"], decision="deny", reason="No.")
        await api.wait_for_run(run)
        await page.wait_until(
            lambda page: page.status(session) == "idle" and page.sessions[session]["unread"]
        )
        assert page.open_questions_of(session) == []
        head = (await api.get(f"/api/sessions/{session}"))["head"]
        began = time.monotonic()
        await api.post(f"/api/sessions/{session}/seen", {"seq": head})
        await page.wait_until(lambda page: not page.sessions[session]["unread"])
        print(f"seen in the other process after {(time.monotonic() - began) * 1000:.0f} ms")
        assert not (await other.get(f"/api/sessions/{session}"))["unread"]
        await api.request("DELETE", f"/api/sessions/{session}")
        await page.wait_until(lambda page: session not in page.sessions)


# Many conversations.


async def test_a_feed_of_ten_thousand_conversations_starts_fast_and_is_bounded(home: CliHarness) -> None:
    folder = Path(home.environ["XDG_DATA_HOME"]) / "holdfast"
    store = await SqliteStore.open(folder, "normal")
    for n in range(100):
        await store.append(*(created(f"Conversation {n}.{m}") for m in range(100)))
    await store.close()
    running = home.serve("--port", "0")
    async with api_client(running.address) as api:
        assert len((await api.get("/api/sessions?limit=200"))["sessions"]) == 200
        began = time.monotonic()
        async with feed_client(api) as page:
            await page.wait_until(lambda page: True)
            print(f"a snapshot among 10,000 took {(time.monotonic() - began) * 1000:.0f} ms")
            assert FEED_SESSIONS_MAX <= len(page.sessions) <= FEED_SESSIONS_MAX + FEED_OPEN_MAX
            assert page.snapshots[0]["more"]
            old = (await api.get("/api/sessions?q=Conversation%200.1&limit=200"))["sessions"][-1]["id"]
            assert old not in page.sessions
            await api.request("PATCH", f"/api/sessions/{old}", {"title": "Woken"})
            await page.wait_until(lambda page: old in page.sessions)
            assert page.sessions[old]["title"] == "Woken"


async def test_sessions_are_searched_by_title_in_pages(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        for n in range(5):
            await api.create_session(title=f"Zebra crossing {n}")
        await api.create_session(title="A zebra")
        found: list[str] = []
        cursor = ""
        for _ in range(10):
            page = await api.get(f"/api/sessions?q=CROSSING+zebra&limit=2{cursor}")
            found += [row["title"] for row in page["sessions"]]
            if page["cursor"] is None:
                break
            cursor = f"&cursor={page['cursor']}"
        assert found == [f"Zebra crossing {n}" for n in reversed(range(5))]
        assert (await api.get("/api/sessions?q=unicorn"))["sessions"] == []
        await api.get("/api/sessions?q=" + "x" * 201)
        assert api.status == 400


async def test_a_stalled_feed_reader_is_disconnected_and_blocks_nobody(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=0.5) as api:
        ids = [await app.create_session() for _ in range(20)]
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", int(api.address.rpartition(":")[2])))
            stuck.sendall(raw_request(FEED))
            await wait_for_metric(api, "holdfast_subscribers", 1)
            async with feed_client(api) as page:
                for n in range(5):
                    for session in ids:
                        # Past any title's limit: what many changes add up to.
                        long = f.SessionRenamed(f"{n}" + "x" * 150_000, "user")
                        await app.store.append(Append(session, (long,)))
                await page.wait_until(
                    lambda page: all(page.sessions[each]["title"].startswith("4") for each in ids)
                )
                await wait_for_metric(api, "holdfast_streams_cut_off_total", 1)
                await app.engine.commands.rename(ids[0], "Short again")
                await page.wait_until(lambda page: page.sessions[ids[0]]["title"] == "Short again")
        await wait_for_metric(api, "holdfast_subscribers", 0)


async def test_a_closed_feed_leaves_no_tasks_or_subscriptions(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        for _ in range(3):
            async with feed_client(api) as page:
                await page.wait_until(lambda page: True)
                await wait_for_metric(api, "holdfast_subscribers", 1)
            await wait_for_metric(api, "holdfast_subscribers", 0)
