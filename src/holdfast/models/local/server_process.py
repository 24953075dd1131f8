"""Run llama.cpp's server as a process of its own, so that its crash is not one of ours."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

START_S_MAX = 120.0
"""Limit for loading and answering. A busy machine with a slow disk takes long."""
STOP_S_MAX = 3.0
LOG_CHARS_MAX = 4_000
"""Characters of the end of its log that are kept, in memory only."""
_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import llama_program; llama_program.main()"
_FOLDER = Path(__file__).parent
_CHUNK_BYTES = 8_192


class StartFailed(Exception):
    """The server has not started; the message says why."""


class LlamaServerConfig(msgspec.Struct, frozen=True):
    """The configuration of `llama_program.py`. `slots` is how many answers may run at once.

    Each slot has a window of its own.
    """

    library: str
    weights: str
    name: str
    key: str
    window_tokens: int
    threads: int
    slots: int = 1
    cache_mb: int = 128
    verbosity: int = 2
    template: str = ""

    def __repr__(self) -> str:
        return f"Order({self.name})"


class LlamaProcess:
    """The process. Once `start` has returned, `stop` must be awaited."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._log_tail = ""
        self._log_reader = asyncio.create_task(self._read_log())

    @classmethod
    async def start(cls, config: LlamaServerConfig, environ: Mapping[str, str]) -> "tuple[LlamaProcess, str]":
        """Return the process and its address, once it answers. Raises StartFailed; then nothing runs."""
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", "-c", _PROGRAM, str(_FOLDER),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd="/", env=dict(environ), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise StartFailed(f"it could not be started: {error}") from None
        started = cls(process)
        try:
            return started, await started._read_address(config)
        except BaseException:
            await started.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> str:
        """Wait until the process ends; return how it ended, in words."""
        code = await self._process.wait()
        await asyncio.wait({self._log_reader}, timeout=1.0)
        outcome = f"it ended with exit code {code}" if code >= 0 else f"it was ended by {_signal_name(-code)}"
        last = " ".join(self._log_tail.split("\n")[-3:]).strip()
        return f"{outcome}; it said: {last}" if last and code else outcome

    async def stop(self) -> None:
        """Make the process end, and wait for that. Kills it if it does not end by itself."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._log_reader.cancel()
        await asyncio.gather(self._log_reader, return_exceptions=True)

    async def _read_address(self, config: LlamaServerConfig) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            async with asyncio.timeout(START_S_MAX):
                with suppress(ConnectionError):  # The way it ended says more.
                    stdin.write(msgspec.json.encode(config) + b"\n")
                    await stdin.drain()
                line = (await stdout.readline()).decode().strip()
        except TimeoutError:
            raise StartFailed(f"it did not come up within {START_S_MAX:g} s") from None
        if not line.startswith("http://127.0.0.1:"):
            raise StartFailed(await self.wait())
        return line

    async def _read_log(self) -> None:
        """Read its log, so that a full pipe never blocks it, and keep the end."""
        stderr = self._process.stderr
        assert stderr is not None
        while chunk := await stderr.read(_CHUNK_BYTES):
            self._log_tail = (self._log_tail + chunk.decode("utf-8", "replace"))[-LOG_CHARS_MAX:]


def thread_count() -> int:
    """Return half of the cores that this process may use: the other half is for everything else."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // 2, 8))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
