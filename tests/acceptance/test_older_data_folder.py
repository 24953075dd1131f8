"""Data of an older version: a backup of format 6 restores, opens, and reads the same."""

from pathlib import Path
from typing import Any

from tests.acceptance.conftest import CliHarness
from tests.support.api_client import ApiClient, api_client
from tests.support.older_data import recorded_answers, write_backup
from tests.support.server_process import run_doctor, server_process

NO_MODEL = "http://127.0.0.1:9/v1"


async def test_a_backup_of_format_6_restores_and_every_conversation_reads_the_same(
    holdfast: CliHarness, tmp_path: Path
) -> None:
    backup, data = tmp_path / "backup.tar", tmp_path / "data"
    write_backup(backup)
    restored = holdfast.run("restore", str(backup), "--data", str(data))
    assert restored.returncode == 0, restored.stderr
    recorded = recorded_answers()
    assert sum(path.endswith("/messages?limit=200") for path in recorded) == 7
    async with server_process(data, NO_MODEL, memory="off") as server, api_client(server.address) as api:
        for path, answer in recorded.items():
            found = (
                await read_events(api, path, len(answer)) if path.endswith("/events") else await api.get(path)
            )
            assert differences(answer, found) == [], path
        await server.shut_down()
    assert (await run_doctor(data))["ok"]
    assert [path.name.split("-")[1] for path in (data / "backups").glob("*.db")] == ["6"]


async def read_events(api: ApiClient, path: str, count: int) -> list[list[Any]]:
    """Return the first `count` events as [id, kind, body]."""
    found: list[list[Any]] = []
    async with api.stream(f"{path}?after=0") as frames:
        async for frame in frames:
            if frame.event and frame.id:
                found.append([frame.id, frame.event, frame.data])
            if len(found) == count:
                break
    return found


def differences(recorded: Any, found: Any, where: str = "") -> list[str]:
    """Return where `found` differs; fields that a newer version added are no difference."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        return [
            each
            for name, value in recorded.items()
            for each in differences(value, found.get(name), f"{where}.{name}")
        ]
    if isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        pairs = enumerate(zip(recorded, found, strict=True))
        return [each for n, (one, other) in pairs for each in differences(one, other, f"{where}[{n}]")]
    return [] if recorded == found else [f"{where}: {recorded!r} became {found!r}"]


def test_a_difference_is_found_and_a_new_field_is_none() -> None:
    recorded = {"rows": [{"id": 1, "text": "a"}]}
    assert differences(recorded, {"rows": [{"id": 1, "text": "a", "new": True}], "more": 1}) == []
    assert differences(recorded, {"rows": [{"id": 1, "text": "b"}]}) == [".rows[0].text: 'a' became 'b'"]
    assert differences(recorded, {"rows": []}) and differences(recorded, {})
