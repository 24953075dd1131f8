"""The folders that sessions' tools work in."""

import asyncio
from pathlib import Path
from typing import cast

from holdfast.domain.clock import FakeClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PURGE_AFTER_MS
from holdfast.engine.workspaces import remove_deleted_workspaces, sweep, workspace_path
from holdfast.store.ports import DELETED, Store
from tests.support.in_process_app import running_app
from tests.support.repeating_store import RepeatedDecisions
from tests.support.summarising_model import install_summarizing_model, run_turns


def workspace_with_file(folder: Path, session_id: SessionId) -> Path:
    """A session's own folder, with a file in it."""
    own = workspace_path(folder, session_id, "")
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("mine")
    return own


async def test_deleting_a_conversation_removes_only_its_own_workspace(tmp_path: Path) -> None:
    store, chosen = tmp_path / "store", tmp_path / "mine"
    async with running_app(store) as app:
        kept, gone = await app.create_session(), await app.create_session()
        for path in (workspace_path(store, kept, ""), workspace_path(store, gone, ""), chosen):
            path.mkdir(parents=True)
            (path / "notes.txt").write_text("mine")
        assert workspace_path(store, gone, str(chosen)) == chosen
        await app.engine.commands.delete(gone)
        assert await remove_deleted_workspaces(app.store, store) == 1
        assert sorted(path.name for path in (store / "workspaces").iterdir()) == [kept]
        assert (chosen / "notes.txt").read_text() == "mine"


async def test_a_workspace_of_an_undeleted_session_is_kept(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        unknown = workspace_with_file(tmp_path, app.ids.session())
        for _ in range(3):
            await sweep(app.store, tmp_path)
        assert (unknown / "notes.txt").read_text() == "mine"


async def test_a_workspace_is_removed_after_its_session_was_purged(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        gone = await app.create_session()
        await app.engine.delete(gone)
        await app.create_session()  # The newest event of all stays.
        clock.advance(PURGE_AFTER_MS)
        assert (await app.store.sweep()).sessions == 1
        own = workspace_with_file(tmp_path, gone)
        await sweep(app.store, tmp_path)
        assert not own.exists()
        assert await app.store.items(DELETED) == {}, "the record has done its work"


async def test_a_stopping_tool_leaves_no_workspace_behind(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        gone = await app.create_session()
        await app.engine.delete(gone)
        await app.create_session()
        await sweep(app.store, tmp_path)
        own = workspace_with_file(tmp_path, gone)
        clock.advance(PURGE_AFTER_MS)
        await sweep(app.store, tmp_path)
        assert not own.exists()


async def test_an_interrupted_workspace_removal_is_finished(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        gone = await app.create_session()
        own = workspace_with_file(tmp_path, gone)
        await app.engine.delete(gone)
        own.rename(own.with_name(f"{gone}.removed"))
        await sweep(app.store, tmp_path)
        assert list((tmp_path / "workspaces").iterdir()) == []


async def test_a_conversation_that_was_imported_again_keeps_its_folder(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        events = list(await app.store.read(session_id, 0, 100))
        own = workspace_with_file(tmp_path, session_id)
        await app.engine.delete(session_id)
        await app.store.import_session(session_id, events, cancel_open_runs=True)
        for _ in range(3):
            await sweep(app.store, tmp_path)
        assert (own / "notes.txt").read_text() == "mine"
        await app.engine.delete(session_id)
        await sweep(app.store, tmp_path)
        assert not own.exists()


async def test_a_workspace_not_moved_yet_moves_to_the_successor(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        new = await app.engine.continuation.continue_session(old)
        workspace_with_file(tmp_path, old)  # As a server that was killed during the move leaves it.
        await app.engine.delete(old)
        await sweep(app.store, tmp_path)
        assert (workspace_path(tmp_path, new, "") / "notes.txt").read_text() == "mine"
        assert not workspace_path(tmp_path, old, "").exists()


async def test_several_servers_that_sweep_at_once_remove_every_folder(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, running_app(tmp_path) as other:
        gone = [await app.create_session() for _ in range(5)]
        kept = workspace_with_file(tmp_path, await app.create_session())
        for session_id in gone:
            workspace_with_file(tmp_path, session_id)
            await app.engine.delete(session_id)
        await asyncio.gather(*(sweep(each.store, tmp_path) for each in (app, other, app, other)))
        assert list((tmp_path / "workspaces").iterdir()) == [kept]


async def test_a_read_only_workspace_is_removed_too(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        gone = await app.create_session()
        inner = workspace_with_file(tmp_path, gone) / "modules"
        inner.mkdir()
        (inner / "one").touch()
        inner.chmod(0o500)
        inner.parent.chmod(0o000)
        await app.engine.delete(gone)
        await sweep(app.store, tmp_path)
        assert list((tmp_path / "workspaces").iterdir()) == []


async def test_the_folder_of_a_session_that_is_created_again_during_the_sweep_stays(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        own = workspace_with_file(tmp_path, session_id)
        events = await app.store.read(session_id, 0, 100)
        await app.engine.delete(session_id)
        await app.store.sweep()

        class ImportsMeanwhile(RepeatedDecisions):
            async def successor(self, asked: SessionId) -> SessionId | None:
                await app.store.import_session(session_id, events)
                return None

        assert await remove_deleted_workspaces(cast(Store, ImportsMeanwhile(app.store)), tmp_path) == 0
        assert (own / "notes.txt").read_text() == "mine"


async def test_only_the_link_is_removed_when_a_workspace_is_a_link(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    async with running_app(store) as app:
        gone = await app.create_session()
        elsewhere.mkdir()
        (elsewhere / "notes.txt").write_text("mine")
        own = workspace_path(store, gone, "")
        own.parent.mkdir()
        own.symlink_to(elsewhere)
        await app.engine.delete(gone)
        await sweep(app.store, store)
        assert list(own.parent.iterdir()) == []
        assert (elsewhere / "notes.txt").read_text() == "mine"


def test_a_folder_in_the_data_folder_cannot_be_chosen_however_it_is_named(tmp_path: Path) -> None:
    store, session = tmp_path / "store", SessionId("s_0000000000000001")
    own = store / "workspaces" / session
    (store / "workspaces" / "s_0000000000000002").mkdir(parents=True)
    (tmp_path / "link").symlink_to(store / "workspaces")
    (tmp_path / "loop").symlink_to("loop")
    for chosen in (
        store, store / "workspaces" / "s_0000000000000002", store / "workspaces" / "..", own,
        tmp_path / "link" / "s_0000000000000002", tmp_path / "x" / ".." / "store", tmp_path / "loop",
    ):  # fmt: skip
        assert workspace_path(store, session, str(chosen)) == own
    assert workspace_path(store, session, str(tmp_path)) == tmp_path
    assert workspace_path(store, session, "a\0b") == own
