"""The program as people start it: a real process, in an environment of its own."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

START_S_MAX = 20


@dataclass
class Reply:
    """What the server answered."""

    status: int
    content_type: str
    body: str
    headers: Mapping[str, str]


@dataclass
class Running:
    """A server that has printed its address."""

    process: subprocess.Popen[str]
    screen: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.screen[-1]

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def ask(self, path: str, method: str = "GET", **headers: str) -> Reply:
        request = urllib.request.Request(self.address.rstrip("/") + path, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return Reply(
                    answer.status, answer.headers["content-type"], answer.read().decode(), answer.headers
                )
        except urllib.error.HTTPError as refused:
            with refused:
                return Reply(
                    refused.code, refused.headers["content-type"], refused.read().decode(), refused.headers
                )


@dataclass
class Holdfast:
    """The `holdfast` command with its own home and data folder."""

    environ: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that ends by itself."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "holdfast", *words],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
        )

    def serve(self, *words: str) -> Running:
        """Start the server and wait for its address."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast", "serve", *words],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        running, until = Running(process), time.monotonic() + START_S_MAX
        assert process.stdout is not None
        for line in process.stdout:
            running.screen.append(line.rstrip("\n"))
            if line.startswith("http://"):
                return running
            assert time.monotonic() < until, running.screen
        assert process.stderr is not None
        raise AssertionError(f"the server ended: {process.stderr.read()}")


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[Holdfast]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}
    command = Holdfast(
        kept | {"XDG_DATA_HOME": str(tmp_path / "share"), "HOME": str(tmp_path), "COLUMNS": "100"}
    )
    yield command
    for process in command.started:
        if process.poll() is None:
            process.kill()
        process.communicate()
