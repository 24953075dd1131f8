"""One Chromium for all tests of a run, one event loop with it, and new visitors for each test."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.acceptance.conftest import Holdfast, Running, environ_of, living_in
from tests.support.api_client import Speaker, speaking
from tests.support.browser_driver import Chat, Inn, Visitor, chromium, sign_in

Welcome = Callable[[], Awaitable[Visitor]]
Guest = Callable[..., Awaitable[Chat]]
Hosting = Callable[..., AbstractContextManager[Inn]]
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
def _visiting(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[list[Visitor]]:
    """Those who came; they leave afterwards, and in none of their pages may anything have gone wrong."""
    visitors: list[Visitor] = []

    async def leave() -> None:
        for number, visitor in enumerate(visitors):
            if request.node.stash.get(FAILED, False):
                name = re.sub(r"\W+", "-", request.node.name)
                await visitor.shoot(f"{name}-{number}")
            await visitor.context.close()

    yield visitors
    runner.run(leave())
    assert [visitor.wrongs for visitor in visitors] == [[] for _ in visitors]


@pytest.fixture
def welcome(
    request: pytest.FixtureRequest, runner: asyncio.Runner, browser: Browser, home: Holdfast
) -> Iterator[Welcome]:
    """Makes new visitors, who leave before the server does: a page that loses its server says so."""
    with _visiting(request, runner) as visitors:

        async def come() -> Visitor:
            visitors.append(Visitor(await browser.new_context()))
            return visitors[-1]

        yield come


@pytest.fixture
def visitor(runner: asyncio.Runner, welcome: Welcome) -> Visitor:
    return runner.run(welcome())  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def speaker() -> Iterator[Speaker]:
    with speaking() as speaker:
        yield speaker


@pytest.fixture
def home(speaker: Speaker, tmp_path: Path) -> Iterator[Holdfast]:
    """The command, in a home of this test's own."""
    with living_in(tmp_path, **environ_of(speaker)) as command:
        yield command


@pytest.fixture
def server(home: Holdfast) -> Running:
    return home.serve("--port", "0")


@pytest.fixture(scope="session")
def hosting(runner: asyncio.Runner, browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Hosting:
    """Opens a server that several tests share; a module that has an `inn` of its own has its guests there."""

    @contextmanager
    def host(name: str, speaker: Speaker, **environ: str) -> Iterator[Inn]:
        with living_in(tmp_path_factory.mktemp(name), **(environ_of(speaker) | environ)) as command:
            server = command.serve("--port", "0")

            async def enter() -> Inn:
                visitor = Visitor(await browser.new_context())
                await sign_in(visitor, server.link)
                keys = await visitor.context.storage_state()
                await visitor.context.close()
                return Inn(server, keys)

            yield runner.run(enter())

    return host


@pytest.fixture(scope="session")
def inn(hosting: Hosting, speaker: Speaker) -> Iterator[Inn]:
    """One server for all tests that neither stop it nor look at all that is there."""
    with hosting("inn", speaker) as inn:
        yield inn


@pytest.fixture
def guest(
    request: pytest.FixtureRequest, runner: asyncio.Runner, browser: Browser, inn: Inn
) -> Iterator[Guest]:
    """Makes new browsers that are signed in at the inn, each at an empty page; options are a context's."""
    with _visiting(request, runner) as visitors:

        async def come(at: str = "", **options: Any) -> Chat:
            visitor = Visitor(await browser.new_context(storage_state=inn.keys, **options))
            visitors.append(visitor)
            return await inn.open(visitor, at)

        yield come


@pytest.fixture
def chat(runner: asyncio.Runner, guest: Guest) -> Chat:
    return runner.run(guest())  # type: ignore[arg-type]
