"""The folders that sessions' tools work in."""

from pathlib import Path

from holdfast.engine.workspaces import clear_away, workspace_of
from tests.house import house


async def test_a_deleted_conversation_takes_its_own_folder_along_and_no_other(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        kept, gone = await here.begin(), await here.begin()
        chosen = tmp_path / "mine"
        for path in (workspace_of(tmp_path, kept, ""), workspace_of(tmp_path, gone, ""), chosen):
            path.mkdir(parents=True)
            (path / "notes.txt").write_text("mine")
        assert workspace_of(tmp_path, gone, str(chosen)) == chosen
        await here.engine.verbs.delete(gone)
        assert await clear_away(here.store, tmp_path) == 1
        assert sorted(path.name for path in (tmp_path / "workspaces").iterdir()) == [kept]
        assert (chosen / "notes.txt").read_text() == "mine"
