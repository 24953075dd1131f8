"""Call tools as the agent does, with real processes and real files."""

import asyncio
import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import CallId
from holdfast.tools.builtin import builtin_tools, tools_by_name
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.sandbox.sandbox import NO_SANDBOX, Sandbox


class ToolHarness:
    """A data folder (`store`), a workspace beside it and the built-in tools."""

    def __init__(
        self,
        folder: Path,
        environ: dict[str, str] | None = None,
        sandbox: Sandbox = NO_SANDBOX,
        store: Path | None = None,
    ) -> None:
        self.folder = folder
        self.store = store or folder / "store"
        self.workspace = folder / "workspace"
        self.sandbox = sandbox
        self.tools = tools_by_name(builtin_tools(self.store, environ, sandbox))
        self._calls = 0

    def prepare(self, **arguments: object) -> "RecordedCall":
        self._calls += 1
        return RecordedCall(
            CallId(f"c_{self._calls:016d}"), msgspec.json.encode(arguments).decode(), self.workspace
        )

    async def call(self, tool: str, **arguments: object) -> "RecordedCall":
        call = self.prepare(**arguments)
        call.result = await self.tools[tool].run(call.tool_run())
        return call

    def call_sync(self, tool: str, **arguments: object) -> "RecordedCall":
        return asyncio.run(self.call(tool, **arguments))

    def shell(self, command: str, **arguments: object) -> "RecordedCall":
        return self.call_sync("shell", command=command, **arguments)


class RecordedCall:
    """One call: its output with times, and its result."""

    def __init__(self, call_id: CallId, arguments: str, workspace: Path) -> None:
        self.id, self.arguments, self.workspace = call_id, arguments, workspace
        self.result: ToolResult | None = None
        self.pieces: list[tuple[float, str, str]] = []

    def tool_run(self) -> ToolRun:
        return ToolRun(self.id, self.arguments, self.workspace, self._emit)

    def _emit(self, text: str, stream: str) -> None:
        self.pieces.append((time.monotonic(), text, stream))

    @property
    def outcome(self) -> str:
        assert self.result is not None
        return self.result.outcome

    @property
    def text(self) -> str:
        """The text that the model reads."""
        if self.result is not None and self.result.parts is not None:
            return message_text(self.result.parts)
        return self.emitted()

    def emitted(self, *streams: str) -> str:
        return "".join(text for _, text, stream in self.pieces if not streams or stream in streams)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True


def read_pids(folder: Path, count: int, within_s: float = 30) -> list[int]:
    """Return the process ids in the files of `folder`, one in each, once there are `count`."""
    deadline = time.monotonic() + within_s
    while True:
        texts = [path.read_text() for path in folder.glob("*.pid")]
        if len(texts) >= count and all(text.endswith("\n") for text in texts):
            return [int(text) for text in texts]
        assert time.monotonic() < deadline, f"{len(texts)} of {count} processes have said who they are"
        time.sleep(0.005)


def wait_for_exit(pids: list[int], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while alive := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.005)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[ToolHarness]:
    before = open_files()
    yield ToolHarness(tmp_path)
    assert open_files() <= before, "a tool has left files open"


def open_files() -> int:
    """Count the open files of this process, without connections.

    Servers that all tests of a run share live in this process too, and their users may connect at any time.
    """
    names = os.listdir("/dev/fd")  # noqa: PTH208 - pathlib keeps one open while it lists
    return sum(not _is_connection(int(name)) for name in names)


def _is_connection(fd: int) -> bool:
    with contextlib.suppress(OSError):  # It has been closed: the one that `listdir` used, or a connection.
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as each:
                return each.family != socket.AF_UNIX
        return False
    return True
