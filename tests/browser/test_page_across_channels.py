"""One conversation, begun in Telegram, continued in the page, then in a terminal; each has its own server.

Everybody sees each answer while it is still being written, through whichever door it was asked for; and a
server reads the conversation back when, and only when, another has answered since. The model
knows nothing but what it is given: it can tell in one door what it was told in another.
"""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from playwright.async_api import expect

from tests.acceptance.conftest import CliHarness
from tests.support.api_client import ApiClient, api_client, scripted_model_server, stream_response
from tests.support.browser_driver import BrowserUser, ChatPage, sign_in
from tests.support.memory_model_server import MemoryModelServer, answer_from_facts
from tests.support.several_servers import (
    ADA,
    DELIVERY_S_MAX,
    CacheChecker,
    cli_with_bot,
    pair_chat,
    run_chat_command,
    serve_without_bot,
    wait_for_telegram_text,
    wait_until_idle,
)
from tests.support.telegram_api import TelegramApi, telegram_server_in_thread
from tests.support.tmux_terminal import Terminal, terminal

SHOWN_MS_MAX = 60_000
NOTED = "I see. Noted."
_LOOK_S, _LOOKS_MAX = 0.02, 15_000


@dataclass
class PausableModelServer(MemoryModelServer):
    """Says the first words of what it understands, and the rest when it may."""

    may_continue: threading.Event = field(default_factory=threading.Event)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else {}
        pieces = list(answer_from_facts(body) or ()) if body.get("tools") else []
        if not pieces:
            return await super().answer(request)
        self.requests.append(body)
        return await stream_response(request, self._pausing(pieces))

    async def _pausing(self, pieces: list[bytes]) -> AsyncIterator[bytes]:
        yield pieces[0]
        for _ in range(_LOOKS_MAX):
            if self.may_continue.is_set():
                break
            await asyncio.sleep(_LOOK_S)
        for piece in pieces[1:]:
            yield piece


@dataclass(frozen=True)
class ChannelClients:
    """Three doors to one conversation, the servers behind them in that order, and the model behind all."""

    telegram: TelegramApi
    chat: ChatPage
    screen: Terminal
    servers: tuple[ApiClient, ApiClient, ApiClient]
    model: PausableModelServer
    session: str
    cache_checker: CacheChecker

    async def send_in_telegram(self, said: str) -> None:
        self.telegram.post_message(ADA, said)

    async def send_in_page(self, said: str) -> None:
        await self.chat.send(said)

    async def send_in_terminal(self, said: str) -> None:
        await asyncio.to_thread(self.screen.type, said)

    async def turn(
        self, say: Callable[[str], Awaitable[object]], said: str, answer: str, quoted: str = ""
    ) -> None:
        """Say something through one door, and see it in all: the beginning of its answer while there is no
        more of that yet, then all of it. Telegram has a line about what was not `said` there."""
        before = len(self.telegram.texts(ADA))
        self.model.may_continue.clear()
        telling = asyncio.ensure_future(say(said))
        try:
            await self._wait_until_all_show(before, said, " ".join(answer.split()[:2]))
        finally:
            self.model.may_continue.set()
        await self._wait_until_all_show(before, said, answer)
        await wait_for_telegram_text(self.telegram, answer)
        await telling
        added = self.telegram.texts(ADA)[before:]
        assert [each.strip() for each in added] == ([quoted] if quoted else []) + [answer]
        for server in self.servers:
            await wait_until_idle(server, self.session)
        await self.cache_checker.check()

    async def _wait_until_all_show(self, before: int, said: str, words: str) -> None:
        await self.telegram.wait_until(
            lambda: words in "".join(self.telegram.texts(ADA)[before:]), DELIVERY_S_MAX
        )
        last = self.chat.turns.last
        await expect(last).to_contain_text(said, timeout=SHOWN_MS_MAX)
        await expect(last).to_contain_text(words, timeout=SHOWN_MS_MAX)
        await self.wait_for_terminal(rf"^> {re.escape(said)}\s+  {re.escape(words)}")

    async def wait_for_terminal(self, *wanted: str) -> None:
        await asyncio.to_thread(self.screen.wait_for_text, *wanted)


@pytest.fixture
def telegram() -> Iterator[TelegramApi]:
    with telegram_server_in_thread() as api:
        yield api


@pytest.fixture
def model() -> Iterator[PausableModelServer]:
    hesitant = PausableModelServer()
    with scripted_model_server(hesitant):
        yield hesitant


@pytest.fixture
def home(model: PausableModelServer, telegram: TelegramApi, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_with_bot(tmp_path, model, telegram) as command:
        yield command


async def _start_in_telegram(telegram: TelegramApi, model: PausableModelServer, api: ApiClient) -> str:
    """The conversation that Ada has begun by telling of her dog."""
    await pair_chat(api, telegram)
    model.may_continue.set()
    telegram.post_message(ADA, "My dog is called Rex.")
    await wait_for_telegram_text(telegram, NOTED)
    (listed,) = (await api.get("/api/sessions"))["sessions"]
    await wait_until_idle(api, listed["id"])
    return str(listed["id"])


@pytest.fixture
def clients(
    runner: asyncio.Runner, home: CliHarness, telegram: TelegramApi, model: PausableModelServer,
    visitor: BrowserUser,
    tmp_path: Path,
) -> Iterator[ChannelClients]:  # fmt: skip
    """All of them open; the conversation has been begun in Telegram."""
    of_terminal, of_page = serve_without_bot(home), serve_without_bot(home)
    addresses = [each.address for each in (home.serve("--port", "0"), of_page, of_terminal)]
    stack = AsyncExitStack()

    async def open_all() -> ChannelClients:
        one, two, three = [await stack.enter_async_context(api_client(each)) for each in addresses]
        session, readings = await _start_in_telegram(telegram, model, one), CacheChecker(one, two, three)
        await readings.check()
        page = await sign_in(visitor, of_page.link)
        await page.goto(f"{of_page.address}#{session}")
        screen = stack.enter_context(terminal(home.environ, tmp_path, "chat", session))
        return ChannelClients(
            telegram, ChatPage(page, visitor), screen, (one, two, three), model, session, readings
        )

    yield runner.run(open_all())
    runner.run(stack.aclose())


async def test_each_channel_shows_turns_of_the_others_and_reloads_only_after_their_changes(
    clients: ChannelClients, home: CliHarness
) -> None:
    # What was said before they came is there, and looking at it has nothing read back.
    await clients.chat.wait_for_text(NOTED)
    await clients.wait_for_terminal(r"^> My dog is called Rex\.", "^  I see", "· ready")
    await clients.turn(clients.send_in_telegram, "I like tea.", NOTED)

    # A name that is given in the page shows in the terminal, and is nothing that the model is shown.
    await clients.chat.message.fill("/title Many doors")
    await clients.chat.message.press("Enter")
    await clients.wait_for_terminal("^ Many doors")
    await clients.turn(clients.send_in_telegram, "What do I like?", "You told me that you like tea.")

    # It goes on in the page: that server reads it once, and the others nothing before they have to.
    from_page = "You (from the page): "
    asked, answer = "What is my dog called?", "You told me that your dog is called Rex."
    await clients.turn(clients.send_in_page, asked, answer, from_page + asked)
    await clients.turn(clients.send_in_page, "I live in Lisbon.", NOTED, from_page + "I live in Lisbon.")

    # Then in the terminal, and by a script, which is one more process and has the same server answer.
    from_terminal = "You (from the terminal): "
    asked, lisbon = "Where do I live?", "You told me that you live in Lisbon."
    await clients.turn(clients.send_in_terminal, asked, lisbon, from_terminal + asked)
    printed: list[str] = []

    async def run_script(said: str) -> None:
        printed.append(await run_chat_command(home, said, clients.session))

    await clients.turn(run_script, "My cat is called Tom.", NOTED, from_terminal + "My cat is called Tom.")
    assert printed == [NOTED + "\n"]

    # Back in each: once more it is read, for what the others have said, and held after that.
    asked, answer = "So, what is my cat called?", "You told me that your cat is called Tom."
    await clients.turn(clients.send_in_telegram, asked, answer)
    await clients.turn(clients.send_in_telegram, "And where do I live?", lisbon)
    asked = "Now what is my cat called?"
    await clients.turn(clients.send_in_page, asked, answer, from_page + asked)
    asked = "Again, where do I live?"
    await clients.turn(clients.send_in_terminal, asked, lisbon, from_terminal + asked)
    assert not clients.model.extractions, "what is known of Ada was read in the conversation"
    await expect(clients.chat.turns).to_have_count(11)
    assert set(clients.cache_checker.answering_servers) == {0, 1, 2}
