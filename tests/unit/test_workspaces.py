"""The folders that sessions' tools work in."""

from pathlib import Path

from holdfast.domain.ids import SessionId
from holdfast.engine.workspaces import clear_away, workspace_of
from tests.house import house


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
