"""The folders that sessions' tools work in."""

import asyncio
from pathlib import Path
from typing import cast

from holdfast.domain.clock import FakeClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PURGE_AFTER_MS
from holdfast.engine.workspaces import clear_away, sweep, workspace_of
from holdfast.store.ports import DELETED, Store
from tests.support.in_process_app import house
from tests.support.repeating_store import RepeatedDecisions
from tests.support.summarising_model import scribe, talk


def given_files(folder: Path, session_id: SessionId) -> Path:
    """A session's own folder, with a file in it."""
    own = workspace_of(folder, session_id, "")
    own.mkdir(parents=True)
    (own / "notes.txt").write_text("mine")
    return own


async def test_a_deleted_conversation_takes_its_own_folder_along_and_no_other(tmp_path: Path) -> None:
    store, chosen = tmp_path / "store", tmp_path / "mine"
    async with house(store) as here:
        kept, gone = await here.begin(), await here.begin()
        for path in (workspace_of(store, kept, ""), workspace_of(store, gone, ""), chosen):
            path.mkdir(parents=True)
            (path / "notes.txt").write_text("mine")
        assert workspace_of(store, gone, str(chosen)) == chosen
        await here.engine.verbs.delete(gone)
        assert await clear_away(here.store, store) == 1
        assert sorted(path.name for path in (store / "workspaces").iterdir()) == [kept]
        assert (chosen / "notes.txt").read_text() == "mine"


async def test_the_folder_of_a_session_that_this_store_never_deleted_stays(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        unknown = given_files(tmp_path, here.ids.session())
        for _ in range(3):
            await sweep(here.store, tmp_path)
        assert (unknown / "notes.txt").read_text() == "mine"


async def test_a_folder_goes_also_when_its_session_was_purged_before(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        gone = await here.begin()
        await here.engine.delete(gone)
        await here.begin()  # The newest event of all stays.
        clock.advance(PURGE_AFTER_MS)
        assert (await here.store.sweep()).sessions == 1
        own = given_files(tmp_path, gone)
        await sweep(here.store, tmp_path)
        assert not own.exists()
        assert await here.store.items(DELETED) == {}, "the record has done its work"


async def test_a_tool_that_is_being_stopped_leaves_no_folder_behind(tmp_path: Path) -> None:
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        gone = await here.begin()
        await here.engine.delete(gone)
        await here.begin()
        await sweep(here.store, tmp_path)
        own = given_files(tmp_path, gone)
        clock.advance(PURGE_AFTER_MS)
        await sweep(here.store, tmp_path)
        assert not own.exists()


async def test_a_removal_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        gone = await here.begin()
        own = given_files(tmp_path, gone)
        await here.engine.delete(gone)
        own.rename(own.with_name(f"{gone}.removed"))
        await sweep(here.store, tmp_path)
        assert list((tmp_path / "workspaces").iterdir()) == []


async def test_a_conversation_that_was_imported_again_keeps_its_folder(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        events = list(await here.store.read(session_id, 0, 100))
        own = given_files(tmp_path, session_id)
        await here.engine.delete(session_id)
        await here.store.adopt(session_id, events, closes=True)
        for _ in range(3):
            await sweep(here.store, tmp_path)
        assert (own / "notes.txt").read_text() == "mine"
        await here.engine.delete(session_id)
        await sweep(here.store, tmp_path)
        assert not own.exists()


async def test_a_folder_that_was_not_moved_along_goes_to_the_conversation_that_went_on(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        new = await here.engine.moves.move_on(old)
        given_files(tmp_path, old)  # As a server that was killed during the move leaves it.
        await here.engine.delete(old)
        await sweep(here.store, tmp_path)
        assert (workspace_of(tmp_path, new, "") / "notes.txt").read_text() == "mine"
        assert not workspace_of(tmp_path, old, "").exists()


async def test_several_servers_that_sweep_at_once_remove_every_folder(tmp_path: Path) -> None:
    async with house(tmp_path) as here, house(tmp_path) as other:
        gone = [await here.begin() for _ in range(5)]
        kept = given_files(tmp_path, await here.begin())
        for session_id in gone:
            given_files(tmp_path, session_id)
            await here.engine.delete(session_id)
        await asyncio.gather(*(sweep(each.store, tmp_path) for each in (here, other, here, other)))
        assert list((tmp_path / "workspaces").iterdir()) == [kept]


async def test_a_folder_that_may_not_be_written_to_goes_too(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        gone = await here.begin()
        inner = given_files(tmp_path, gone) / "modules"
        inner.mkdir()
        (inner / "one").touch()
        inner.chmod(0o500)
        inner.parent.chmod(0o000)
        await here.engine.delete(gone)
        await sweep(here.store, tmp_path)
        assert list((tmp_path / "workspaces").iterdir()) == []


async def test_the_folder_of_a_session_that_is_created_again_during_the_sweep_stays(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        own = given_files(tmp_path, session_id)
        events = await here.store.read(session_id, 0, 100)
        await here.engine.delete(session_id)
        await here.store.sweep()

        class ImportsMeanwhile(RepeatedDecisions):
            async def successor(self, asked: SessionId) -> SessionId | None:
                await here.store.adopt(session_id, events)
                return None

        assert await clear_away(cast(Store, ImportsMeanwhile(here.store)), tmp_path) == 0
        assert (own / "notes.txt").read_text() == "mine"


async def test_of_a_link_in_the_place_of_a_folder_only_the_link_goes(tmp_path: Path) -> None:
    store, elsewhere = tmp_path / "store", tmp_path / "elsewhere"
    async with house(store) as here:
        gone = await here.begin()
        elsewhere.mkdir()
        (elsewhere / "notes.txt").write_text("mine")
        own = workspace_of(store, gone, "")
        own.parent.mkdir()
        own.symlink_to(elsewhere)
        await here.engine.delete(gone)
        await sweep(here.store, store)
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
        assert workspace_of(store, session, str(chosen)) == own
    assert workspace_of(store, session, str(tmp_path)) == tmp_path
    assert workspace_of(store, session, "a\0b") == own
