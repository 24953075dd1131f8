"""The witness as a test sees it: its calls, its content, and its next orders."""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tests.witness_memory.installed.witness_memory import Call

INSTALLED = Path(__file__).with_name("installed")
"""The folder in which the provider is installed; a server with it on its path finds the provider."""
TIMEOUT_S = 60.0


class WitnessMonitor:
    """Read and order through the witness's folder; the server's process is another."""

    def __init__(self, folder: Path, takes_key: bool = True) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if not takes_key:
            (folder / "no_keys").write_text("a key is just a word\n")

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment of a server that uses it as memory."""
        path = os.pathsep.join(filter(None, (str(INSTALLED), os.environ.get("PYTHONPATH"))))
        return {"PYTHONPATH": path, "WITNESS_MEMORY": str(self._folder)}

    def set_order(self, verb: str, point: str, what: str) -> None:
        """Set an order until it is cleared; see the witness for what there is."""
        draft = self._folder / f"{verb}.{point}.draft"
        draft.write_text(what)
        draft.rename(self._folder / f"{verb}.{point}")

    def clear_order(self, verb: str, point: str) -> None:
        (self._folder / f"{verb}.{point}").unlink(missing_ok=True)

    def clear_orders(self) -> None:
        for path in self._folder.glob("*.*"):
            if path.suffix in (".before", ".after"):
                path.unlink()

    def calls(self, verb: str = "", stage: str = "") -> list[Call]:
        path = self._folder / "calls.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        found = [msgspec.json.decode(line, type=Call) for line in lines]
        return [call for call in found if verb in ("", call.verb) and stage in ("", call.stage)]

    def stored_commits(self) -> list[Call]:
        """Return the commits that were not retracted; a segment that was stored twice is there twice."""
        held: list[Call] = []
        for call in self.calls(stage="did"):
            if call.verb == "commit":
                held.append(call)
            elif call.verb == "retract":
                held = [each for each in held if each.key != call.key]
        return held

    def turns(self, session_id: str) -> Counter[int]:
        """Return how often it holds each turn of a conversation."""
        return Counter(
            turn
            for call in self.stored_commits()
            if call.session_id == session_id
            for first, last in call.turns
            for turn in range(first, last + 1)
        )

    def is_waiting_at(self, verb: str, point: str, times: int = 1) -> Callable[[], bool]:
        return lambda: sum(call.point == point for call in self.calls(verb, "waits")) >= times

    async def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for _ in itertools.repeat(None):
                    if condition():
                        return
                    await asyncio.sleep(0.01)
        except TimeoutError:
            last = [(call.verb, call.stage, call.key, call.turns) for call in self.calls()[-20:]]
            raise AssertionError(f"{what} did not come about; the witness saw … {last}") from None


def call_errors(calls: Sequence[Call]) -> list[str]:
    """Check that the same key is always the same segment, message for message."""
    first: dict[str, Call] = {}
    wrong: list[str] = []
    for call in calls:
        if call.verb != "commit" or call.stage == "waits":
            continue
        before = first.setdefault(call.key, call)
        if (before.turns, before.ids, before.digest) != (call.turns, call.ids, call.digest):
            wrong.append(f"{call.key} was {before.turns} {before.ids}, is {call.turns} {call.ids}")
        if not call.key or not call.ids or not all(call.ids):
            wrong.append(f"{call} says too little")
    return wrong
