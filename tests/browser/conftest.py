"""One Chromium for all tests of a run, one event loop with it, and new visitors for each test."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.browser_driver import BrowserUser, ChatPage, SharedServer, chromium, sign_in

NewUser = Callable[[], Awaitable[BrowserUser]]
NewChat = Callable[..., Awaitable[ChatPage]]
HostServer = Callable[..., AbstractContextManager[SharedServer]]
FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """The browser's event loop is that of every test here."""
    with asyncio.Runner() as loop:
        yield loop


@pytest.fixture(scope="session")
def browser(runner: asyncio.Runner) -> Iterator[Browser]:
    stack = AsyncExitStack()
    yield runner.run(stack.enter_async_context(chromium()))
    runner.run(stack.aclose())


@contextmanager
def _user_sessions(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[list[BrowserUser]]:
    """Those who came; they leave afterwards, and in none of their pages may anything have gone wrong."""
    visitors: list[BrowserUser] = []

    async def leave() -> None:
        for number, visitor in enumerate(visitors):
            if request.node.stash.get(FAILED, False):
                name = re.sub(r"\W+", "-", request.node.name)
                await visitor.take_screenshots(f"{name}-{number}")
            await visitor.context.close()

    yield visitors
    runner.run(leave())
    assert [visitor.unexpected_errors for visitor in visitors] == [[] for _ in visitors]


@pytest.fixture
def welcome(
    request: pytest.FixtureRequest, runner: asyncio.Runner, browser: Browser, home: CliHarness
) -> Iterator[NewUser]:
    """Makes new visitors, who leave before the server does: a page that loses its server says so."""
    with _user_sessions(request, runner) as visitors:

        async def come() -> BrowserUser:
            visitors.append(BrowserUser(await browser.new_context()))
            return visitors[-1]

        yield come


@pytest.fixture
def visitor(runner: asyncio.Runner, welcome: NewUser) -> BrowserUser:
    return runner.run(welcome())  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def speaker() -> Iterator[ScriptedModelServer]:
    with scripted_model_server() as speaker:
        yield speaker


@pytest.fixture
def home(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    """The command, in a home of this test's own."""
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command


@pytest.fixture
def server(home: CliHarness) -> RunningServer:
    return home.serve("--port", "0")


@pytest.fixture(scope="session")
def host_server(
    runner: asyncio.Runner, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> HostServer:
    """Start a server that several tests share. A module may define its own `shared_server`."""

    @contextmanager
    def host(name: str, speaker: ScriptedModelServer, **environ: str) -> Iterator[SharedServer]:
        with cli_in(tmp_path_factory.mktemp(name), **(environ_for(speaker) | environ)) as command:
            server = command.serve("--port", "0")

            async def enter() -> SharedServer:
                visitor = BrowserUser(await browser.new_context())
                await sign_in(visitor, server.link)
                keys = await visitor.context.storage_state()
                await visitor.context.close()
                return SharedServer(server, keys)

            yield runner.run(enter())

    return host


@pytest.fixture(scope="session")
def shared_server(host_server: HostServer, speaker: ScriptedModelServer) -> Iterator[SharedServer]:
    """One server for all tests that neither stop it nor look at all that is there."""
    with host_server("shared_server", speaker) as shared_server:
        yield shared_server


@pytest.fixture
def new_chat(
    request: pytest.FixtureRequest, runner: asyncio.Runner, browser: Browser, shared_server: SharedServer
) -> Iterator[NewChat]:
    """Open new browsers that are signed in at `shared_server`, with the options of a browser context."""
    with _user_sessions(request, runner) as visitors:

        async def come(at: str = "", **options: Any) -> ChatPage:
            visitor = BrowserUser(
                await browser.new_context(storage_state=shared_server.storage_state, **options)
            )
            visitors.append(visitor)
            return await shared_server.open_chat(visitor, at)

        yield come


@pytest.fixture
def chat(runner: asyncio.Runner, new_chat: NewChat) -> ChatPage:
    return runner.run(new_chat())  # type: ignore[arg-type]
