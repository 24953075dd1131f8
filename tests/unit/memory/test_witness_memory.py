"""The memory that crash tests ask what it was told is a memory like any other, found like any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.memory.conformance import ProviderCases, segment
from holdfast.memory.ports import Provider
from tests.witness_memory.installed.witness_memory import WitnessMemory
from tests.witness_memory.watching import WitnessMonitor, call_errors


class TestKnowingKeys(ProviderCases):
    recallable = False
    takes_key = True

    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    async def provider(self) -> Provider:
        WitnessMonitor(self._folder, self.takes_key)
        return WitnessMemory(self._folder)


class TestKnowingNoKeys(TestKnowingKeys):
    takes_key = False


def test_it_is_found_as_an_installed_package(tmp_path: Path) -> None:
    asked = "from holdfast.memory.providers.installed import installed_names; print(*installed_names())"
    found = subprocess.run(
        [sys.executable, "-P", "-c", asked], env=os.environ | WitnessMonitor(tmp_path).environ,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "witness" in found.stdout.split()


@pytest.mark.parametrize(("takes_key", "times"), [(True, 1), (False, 2)])
async def test_it_holds_what_it_committed_and_did_not_retract(
    tmp_path: Path, takes_key: bool, times: int
) -> None:
    witness = WitnessMonitor(tmp_path, takes_key)
    memory = WitnessMemory(tmp_path)
    for _ in range(2):
        await memory.commit(segment("o_1", "One."))
    await memory.commit(segment("o_2", "Two.", turn=2))
    (session_id,) = {call.session_id for call in witness.stored_commits()}
    assert witness.turns(session_id) == {1: times, 2: 1}
    await memory.retract("o_1", "")
    assert witness.turns(session_id) == {2: 1} and call_errors(witness.calls()) == []


async def test_a_key_that_means_two_things_is_a_fault(tmp_path: Path) -> None:
    memory, witness = WitnessMemory(tmp_path), WitnessMonitor(tmp_path)
    await memory.commit(segment("o_1", "One."))
    await memory.commit(segment("o_1", "Another."))
    assert call_errors(witness.calls())
