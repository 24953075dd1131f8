"""Following conversations: everything once, in order, from any cursor, however slow or sudden the reader."""

import asyncio
import os
import signal
import socket
from pathlib import Path

import aiohttp

from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.store.ports import Append
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client, next_event, wait_until
from tests.support.in_process_app import running_app
from tests.support.in_process_server import http_server, raw_request


async def test_a_stream_replays_and_then_follows(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "First"))["run_id"])
        following = asyncio.ensure_future(api.events_through(session, 0, "turns_undone"))
        await api.wait_for_run((await api.send(session, "count 20"))["run_id"])
        await api.post(f"/api/sessions/{session}/undo", {})
        frames = await following
        assert [int(frame.id) for frame in frames] == list(range(1, len(frames) + 1))
        assert all(frame.event == frame.data["kind"] for frame in frames)
        assert all(int(frame.id) == frame.data["seq"] for frame in frames)
        assert frames[0].event == "session_created"
        text = "".join(frame.data["text"] for frame in frames if frame.event == "text_appended")
        assert text == "First " + "".join(f"{n} " for n in range(20))


async def test_a_stream_resumes_exactly_at_any_cursor(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session(title="Named, so that nobody else names it")
        await api.wait_for_run((await api.send(session, "count 10"))["run_id"])
        await api.request("PATCH", f"/api/sessions/{session}", {"archived": True})
        whole = await api.events_through(session, 0, "session_archived")
        for after in (0, 1, len(whole) // 2, len(whole) - 1):
            rest = await api.events_through(session, after, "session_archived")
            assert [frame.data for frame in rest] == [frame.data for frame in whole[after:]]
            named = await api.events_through(session, 0, "session_archived", Last_Event_ID=str(after))
            assert named[0].id == str(after + 1), "the header wins over the query"


async def test_several_conversations_in_one_stream_each_with_its_own_cursor(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        sessions = [await api.create_session(title=str(n)) for n in range(3)]
        path = "/api/stream?" + "&".join(f"session={each}:{n % 2}" for n, each in enumerate(sessions))
        seen: dict[str, list[int]] = {session: [] for session in sessions}
        ended: set[str] = set()
        async with api.stream(path) as frames:
            for session in sessions:
                await api.send(session, "count 10")
            async for frame in frames:
                if frame.event:
                    session_id, _, seq = frame.id.partition(":")
                    assert frame.data["session_id"] == session_id
                    assert frame.data["seq"] == int(seq)
                    seen[session_id].append(int(seq))
                if frame.event == "run_completed":
                    ended.add(frame.data["session_id"])
                if ended == set(sessions):
                    break
        for n, session in enumerate(sessions):
            assert seen[session] == list(range(1 + n % 2, 1 + n % 2 + len(seen[session])))

        last = {"Last_Event_ID": f"{sessions[0]}:{seen[sessions[0]][-1] - 1}"}
        async with api.stream(f"/api/stream?session={sessions[0]}:0", **last) as frames:
            await anext(frames)
            assert (await next_event(frames)).id == f"{sessions[0]}:{seen[sessions[0]][-1]}"


async def test_a_stream_ends_when_its_conversation_is_deleted(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        async with api.stream(f"/api/sessions/{session}/events") as frames:
            await anext(frames)
            assert (await next_event(frames)).event == "session_created", "it follows"
            await api.request("DELETE", f"/api/sessions/{session}")
            assert [frame.event async for frame in frames if frame.event][-1] == "session_deleted"


async def metric_value(api: ApiClient, name: str) -> int:
    lines = (await api.get("/metrics")).decode().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


async def wait_for_metric(api: ApiClient, name: str, wanted: int) -> None:
    async def has_value() -> bool:
        return await metric_value(api, name) == wanted

    await wait_until(has_value)


async def test_an_idle_stream_sends_heartbeats_without_an_id(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=0.3) as api:
        session = await api.create_session()
        async with api.stream(f"/api/sessions/{session}/events?after=1") as frames:
            await anext(frames)
            for _ in range(6):
                beat = await anext(frames)
                assert (beat.id, beat.event, beat.comment) == ("", "", "still here")
            await app.engine.commands.rename(SessionId(session), "Now")
            assert (await next_event(frames)).event == "session_renamed"


async def test_a_disconnected_reader_is_released_at_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=60) as api:
        session = await api.create_session()
        for _ in range(3):
            async with api.stream(f"/api/sessions/{session}/events") as frames:
                await anext(frames)
                assert await metric_value(api, "holdfast_subscribers") == 1
            await wait_for_metric(api, "holdfast_subscribers", 0)
        assert not app.store._hub._by_session


async def test_a_stalled_reader_is_disconnected_and_blocks_nobody(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=0.5) as api:
        session = await app.create_session()
        port = int(api.address.rpartition(":")[2])
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", port))
            stuck.sendall(raw_request(f"/api/sessions/{session}/events"))
            await wait_for_metric(api, "holdfast_subscribers", 1)
            reading = asyncio.ensure_future(api.events_through(session, 0, "session_archived"))
            title = "x" * 150_000
            for n in range(100):
                # Past any title's limit: what a long conversation streams, without having one.
                await app.store.append(Append(session, (f.SessionRenamed(f"{n}{title}", "user"),)))
            await app.store.append(Append(session, (f.SessionArchived(),)))
            frames = await reading
            assert [frame.data["seq"] for frame in frames] == list(range(1, 103))
            await wait_for_metric(api, "holdfast_streams_cut_off_total", 1)
            await wait_for_metric(api, "holdfast_subscribers", 0)


async def test_many_readers_of_one_conversation_all_see_everything(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=5) as api:
        session = await app.create_session()
        readers = [
            asyncio.ensure_future(api.events_through(session, 0, "session_archived")) for _ in range(50)
        ]
        await wait_for_metric(api, "holdfast_subscribers", 50)
        for n in range(50):
            await app.engine.commands.rename(session, f"{n}")
        await app.engine.commands.archive(session, True)
        for frames in await asyncio.gather(*readers):
            assert [frame.data["seq"] for frame in frames] == list(range(1, 53))


async def test_a_stopping_server_ends_streams_with_a_complete_http_response(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, heartbeat_s=5) as api:
        session = await app.create_session()
        async with api.session.get(f"{api.address}/api/sessions/{session}/events") as answer:
            await answer.content.readline()
            os.kill(os.getpid(), signal.SIGTERM)
            rest = await asyncio.wait_for(answer.content.read(), 30)
            assert b"session_created" in rest
        try:
            async with api.session.get(f"{api.address}/health/live") as answer:
                assert answer.status in (200, 503)
        except aiohttp.ClientError:
            pass
