"""Calls that would fail as things are: nobody is asked about one, and none is begun for it."""

from pathlib import Path

import msgspec
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.secrets import Mask
from holdfast.domain.state.rows import ToolRow
from holdfast.models.ports import CallDelta
from holdfast.tools.files.edit_file import EditFile
from holdfast.tools.files.file_changer import Changing
from holdfast.tools.files.write_file import WriteFile
from holdfast.tools.masking import masked_tools
from holdfast.tools.sandbox.protected_paths import Vault
from tests.support.in_process_app import House, Lever, Line, calls, house, says


def tools(folder: Path) -> tuple[EditFile, WriteFile]:
    changing = Changing(folder, Vault(folder))
    return EditFile(changing), WriteFile(changing)


def edit(path: str, old: str = "old", **more: object) -> list[Line]:
    arguments = {"path": path, "old_text": old, "new_text": "new", **more}
    return calls("edit_file", msgspec.json.encode(arguments).decode())


def write(path: str) -> list[Line]:
    return calls("write_file", msgspec.json.encode({"path": path, "content": "old"}).decode())


def workspace(folder: Path, session_id: SessionId) -> Path:
    place = folder / "workspaces" / session_id
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (edit("gone"), "there is no `gone`"),
        (edit("gone/deeper"), "there is no `gone/deeper`"),
        (edit("file", "nowhere to be found"), "old_text is not there"),
        (edit("twice"), "old_text is there more than once"),
        (edit("../file"), "is outside the workspace"),
        (edit("/etc/passwd", "root"), "is outside the workspace"),
        (edit("folder"), "is a folder"),
        (write("folder"), "is a folder"),
        (write("../file"), "is outside the workspace"),
        (write("file/below"), "is not a folder"),
    ],
)
async def test_a_change_that_would_fail_fails_at_once_and_nobody_is_asked(
    tmp_path: Path, step: list[Line], said: str
) -> None:
    async with house(tmp_path, approvals="ask", others=tools(tmp_path)) as here:
        session_id = await here.begin()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        (place / "twice").write_text("old old")
        (place / "folder").mkdir()
        here.model.steps = [step, says("I see.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        assert said in str(here.model.requests[-1].messages[-1])
        found = [type(event.fact) for event in await here.store.read(session_id, 0, 1_000)]
        assert f.ApprovalRequested not in found and f.ToolStarted not in found
        assert sorted(each.name for each in place.iterdir()) == ["file", "folder", "twice"]


@pytest.mark.parametrize("step", [edit("file"), edit("twice", replace_all=True), write("new/deep/file")])
async def test_a_change_that_can_be_made_is_put_to_a_person(tmp_path: Path, step: list[Line]) -> None:
    async with house(tmp_path, approvals="ask", others=tools(tmp_path)) as here:
        session_id = await here.begin()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        (place / "twice").write_text("old old")
        here.model.steps = [step]
        (tool,) = await _asked(here, session_id)
        assert (tool.state, tool.approval) == ("intended", "requested")
        assert sorted(each.name for each in place.iterdir()) == ["file", "twice"]


async def test_a_first_file_can_be_written_where_there_is_no_workspace_yet(tmp_path: Path) -> None:
    async with house(tmp_path, approvals="ask", others=tools(tmp_path)) as here:
        session_id = await here.begin()
        here.model.steps = [write("file")]
        (tool,) = await _asked(here, session_id)
        assert tool.approval == "requested"


async def test_a_change_of_what_the_call_before_it_makes_is_not_judged_too_early(tmp_path: Path) -> None:
    async with house(tmp_path, approvals="ask", others=tools(tmp_path)) as here:
        session_id = await here.begin()
        call, end = write("file")
        here.model.steps = [[call, *_second(edit("file")), end], says("Done.")]
        first, second = await _asked(here, session_id)
        assert (first.approval, second.approval) == ("requested", "requested")
        for tool in (first, second):
            assert tool.run_id is not None
            await here.engine.resolve(tool.run_id, tool.id, "approve")
        await here.until_run(first.run_id, "completed")
        assert (tmp_path / "workspaces" / session_id / "file").read_text() == "new"


async def test_what_has_changed_by_the_time_it_is_allowed_is_looked_at_again(tmp_path: Path) -> None:
    async with house(tmp_path, approvals="ask", others=tools(tmp_path)) as here:
        session_id = await here.begin()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        here.model.steps = [edit("file"), says("I see.")]
        (tool,) = await _asked(here, session_id)
        (place / "file").write_text("other")
        assert tool.run_id is not None
        await here.engine.resolve(tool.run_id, tool.id, "approve")
        await here.until_run(tool.run_id, "completed")
        assert "old_text is not there" in str(here.model.requests[-1].messages[-1])
        assert (place / "file").read_text() == "other"


async def test_what_would_fail_is_told_without_known_secrets(tmp_path: Path) -> None:
    (edit_file, _) = masked_tools(tools(tmp_path), Mask(("hunter2hunter2",)))
    arguments = '{"path": "hunter2hunter2", "old_text": "a", "new_text": "b"}'
    found = await edit_file.foreseen(arguments, tmp_path / "workspaces" / "x")  # type: ignore[attr-defined]
    assert found.startswith("there is no") and "hunter2" not in found
    (lever,) = masked_tools((Lever("lever", "unsafe"),), Mask(("hunter2hunter2",)))
    assert await lever.foreseen("{}", tmp_path) == ""  # type: ignore[attr-defined]


def _second(step: list[Line]) -> list[Line]:
    return [msgspec.structs.replace(each, index=1) for each in step if isinstance(each, CallDelta)]


async def _asked(here: House, session_id: SessionId) -> list[ToolRow]:
    """The calls of a run that waits."""
    sent = await here.say(session_id, "Go")
    assert sent.run_id is not None
    await here.until_run(sent.run_id, "waiting")
    return list(await here.store.tools(session_id, sent.run_id))
