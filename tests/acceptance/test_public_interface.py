"""What programs and people rely on stays as it is: nothing is renamed or lost by accident.

A new event, path, field, setting, command, error or metric belongs on the list beside this file. An item that
is there may leave only with a decision: clients of it break.
"""

from pathlib import Path

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import api_client
from tests.support.public_interface import public_interface

LIST = Path(__file__).with_name("public_interface.txt")


async def test_the_public_interface_is_the_recorded_one(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        found = public_interface(await api.get("/openapi.json"))
    recorded = LIST.read_text("utf-8").splitlines()
    assert sorted(set(recorded) - set(found)) == [], "lost, or no longer called so"
    assert sorted(set(found) - set(recorded)) == [], f"new: write them down in {LIST.name}"
