"""The program as people start it: a real process, in an environment of its own."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.models.providers import PROVIDERS
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.auth_tokens import bearer_headers, register_token

START_S_MAX = 60


@dataclass
class HttpReply:
    """What the server answered."""

    status: int
    content_type: str
    body: str
    headers: Mapping[str, str]


@dataclass
class RunningServer:
    """A server that has printed its sign-in link; `token` is the one in its data folder."""

    process: subprocess.Popen[str]
    output_lines: list[str] = field(default_factory=list)
    token: str = ""
    folder: Path = Path()

    @property
    def link(self) -> str:
        return self.output_lines[-1]

    @property
    def code(self) -> str:
        """The one-time code in the link."""
        return self.link.partition("#code=")[2]

    @property
    def address(self) -> str:
        return self.link.partition("#")[0]

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def request(
        self,
        path: str,
        method: str = "GET",
        body: str | None = None,
        token: str | None = None,
        **headers: str,
    ) -> HttpReply:
        """Ask with the server's own token, unless another or none ("") is given."""
        sent = bearer_headers(self.token if token is None else token) | headers
        raw = None if body is None else body.encode()
        request = urllib.request.Request(self.address.rstrip("/") + path, raw, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return HttpReply(
                    answer.status, answer.headers["content-type"], answer.read().decode(), answer.headers
                )
        except urllib.error.HTTPError as refused:
            with refused:
                return HttpReply(
                    refused.code, refused.headers["content-type"], refused.read().decode(), refused.headers
                )


@dataclass
class CliHarness:
    """The `holdfast` command with its own home and data folder."""

    environ: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that ends by itself."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "holdfast", *arguments],
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
        )

    def serve(self, *arguments: str, program: Sequence[str] = ("-m", "holdfast")) -> RunningServer:
        """Start the server and wait for its address."""
        process = subprocess.Popen(
            [sys.executable, "-P", *program, "serve", *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        running, until = (
            RunningServer(process, folder=self._data_folder(arguments)),
            time.monotonic() + START_S_MAX,
        )
        assert process.stdout is not None
        for line in process.stdout:
            running.output_lines.append(line.rstrip("\n"))
            if line.startswith("http"):
                running.token = register_token(running.address, running.folder)
                return running
            assert time.monotonic() < until, running.output_lines
        assert process.stderr is not None
        raise AssertionError(f"the server ended: {process.stderr.read()}")

    def _data_folder(self, words: tuple[str, ...]) -> Path:
        if "--data" in words:
            return Path(words[words.index("--data") + 1])
        chosen = self.environ.get("HOLDFAST_DATA")
        return Path(chosen) if chosen else Path(self.environ["XDG_DATA_HOME"]) / "holdfast"


@contextmanager
def cli_in(folder: Path, **environ: str) -> Iterator[CliHarness]:
    """The command with `folder` as its home; what it started is gone afterwards."""
    search_variables = ("SEARXNG_URL", "BRAVE_API_KEY", "TAVILY_API_KEY")
    model_variables = (name for each in PROVIDERS for name in (*each.keys, each.url_variable))
    others = {"TELEGRAM_BOT_TOKEN", *search_variables, *model_variables}
    inherited = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("HOLDFAST_", "OPENAI_")) and name not in others
    }
    # Whatever a test connects, nothing leaves this machine.
    inherited["HOLDFAST_TELEGRAM_API_URL"] = "http://127.0.0.1:9"
    # On a slow machine, too, an answer is given what is remembered.
    inherited["HOLDFAST_MEMORY_RECALL_MS"] = "30000"
    inherited |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    own = {"XDG_DATA_HOME": str(folder / "share"), "HOME": str(folder), "COLUMNS": "100"}
    command = CliHarness(inherited | {"HOLDFAST_MODEL": "demo"} | own | environ)
    try:
        yield command
    finally:
        for process in command.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path) as command:
        yield command


@pytest.fixture(scope="module")
def speaker() -> Iterator[ScriptedModelServer]:
    """The model behind every answer."""
    with scripted_model_server() as speaker:
        yield speaker


@pytest.fixture(scope="module")
def server(speaker: ScriptedModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests of a module: each begins its own conversations."""
    with cli_in(tmp_path_factory.mktemp("home"), **environ_for(speaker)) as command:
        yield command.serve("--port", "0")


def environ_for(speaker: ScriptedModelServer) -> dict[str, str]:
    """What makes a server ask `speaker`."""
    return {"OPENAI_BASE_URL": speaker.url, "HOLDFAST_MODEL": "openai:small"}
