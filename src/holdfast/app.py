"""Put the parts together: the only module that knows which of them are real."""

import asyncio
import errno
import importlib
import os
import secrets
import sys
from collections.abc import Callable, Mapping
from functools import partial
from random import random
from typing import Annotated, NoReturn
from urllib.parse import urlsplit

import msgspec
import typer

from holdfast import __version__
from holdfast.agent.config.files import AgentFiles, PromptFiles
from holdfast.agent.config.service import AgentDesk, AgentReader
from holdfast.agent.context_cache import ContextCache
from holdfast.agent.factory import Making
from holdfast.agent.instructions import WorkspaceGuide
from holdfast.agent.model_step import Asking
from holdfast.agent.registry import Switchboard
from holdfast.agent.tool_execution import Calls
from holdfast.channels.access import Porter
from holdfast.channels.commands import Asked
from holdfast.channels.pairing import Pairing
from holdfast.channels.service import Called, Channels, Makes, TelegramBot
from holdfast.channels.webhook import Webhook
from holdfast.channels.worker import Gateway
from holdfast.cli.agents import agents as agents_commands
from holdfast.cli.backup import backup
from holdfast.cli.channels import channels
from holdfast.cli.chat.command import chat
from holdfast.cli.command_context import note
from holdfast.cli.doctor import doctor
from holdfast.cli.help import runnable
from holdfast.cli.link import link
from holdfast.cli.local import local as local_commands
from holdfast.cli.masked_output import cover_output
from holdfast.cli.password import password
from holdfast.cli.restore import restore
from holdfast.cli.rules import rules
from holdfast.cli.serve import serve
from holdfast.cli.server_access import local_token
from holdfast.cli.sessions.commands import sessions
from holdfast.cli.tokens import tokens
from holdfast.cli.wiring import Staff, Wiring
from holdfast.domain.agents import OPTIONAL_TOOLS
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.decisions.allowance import Allowance
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.domain.ids import Ids
from holdfast.domain.mcp import BadMcpServer, expanded
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.domain.shell.denylist import Forbidden
from holdfast.domain.urls import BadUrl
from holdfast.domain.webhook_signing import PREFIX as KEY_PREFIX
from holdfast.domain.webhook_signing import key_of
from holdfast.engine.backups import Backups
from holdfast.engine.engine import Engine
from holdfast.engine.memory_queue import StoreLedger
from holdfast.engine.permissions import Permissions
from holdfast.engine.resume_policy import OfAgents
from holdfast.engine.workspaces import why_closed, why_refused, workspace_of
from holdfast.hardening import harden
from holdfast.http.server import HttpDoor
from holdfast.mcp.service import McpServers, Wanted
from holdfast.mcp.spawn_context import Yard
from holdfast.memory.extraction_models import RememberedModels
from holdfast.memory.memory import MemoryOffice
from holdfast.memory.provider_selection import Providers
from holdfast.models.catalog import read_known
from holdfast.models.connection_file import usable_connections
from holdfast.models.factory import Shop, made_as
from holdfast.models.local.model import LocalModel
from holdfast.models.local.place import Place
from holdfast.models.local.server import Llama
from holdfast.models.local.service import LocalDesk
from holdfast.models.masking import MaskedModel
from holdfast.models.overrides import said_in
from holdfast.models.providers import flaw_of
from holdfast.models.service import Models, chosen
from holdfast.settings.secret_file import FOR_CHANNEL, webhook_key
from holdfast.settings.service import Desk
from holdfast.settings.settings import FILE_NAME, ConfigError, Settings
from holdfast.store.ports import Store
from holdfast.store.sqlite.data_dir import SqlitePremises
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.writer import favour_threads
from holdfast.tools.builtin import Joined, builtin_tools, by_name, web_tools
from holdfast.tools.files.file_changer import Restorer
from holdfast.tools.files.pdf_text import PdfTexts
from holdfast.tools.masking import MaskedTool, masked_tools
from holdfast.tools.ports import Tool
from holdfast.tools.recall import Recall
from holdfast.tools.remember import Remember
from holdfast.tools.sandbox.protected_paths import Vault
from holdfast.tools.sandbox.sandbox import Confinement, Walls, confine
from holdfast.tools.shell import clean_environment


def main() -> None:
    """Run the command line. An error of ours is told in a sentence and what to do about it; exit code 1."""
    favour_threads()
    # Whatever is started from here on inherits no secret.
    environ = harden(os.environ)
    wiring = wire(environ)
    cover_output(wiring.mask)
    try:
        runnable(command_line(wiring))(prog_name="holdfast")
    except HoldfastError as error:
        _fail(error)
    except OSError as error:
        # Whatever else a file can do is told by who opened it; standard output is opened by nobody.
        if error.errno != errno.ENOSPC:
            raise
        _fail(DiskFull(path="this command's output"))


def _fail(error: HoldfastError) -> NoReturn:
    print(f"holdfast: {error}", file=sys.stderr)
    if error.advice:
        print(error.advice, file=sys.stderr)
    sys.exit(1)


def wire(environ: Mapping[str, str]) -> Wiring:
    """The real parts."""
    mask = Mask(secrets_in(environ))

    async def hire(store: Store, settings: Settings, address: str) -> Staff:
        clock = SystemClock()
        return await _hire(_Given(store, settings, address, environ, mask, clock, Ids(clock)))

    def reception(store: Store, settings: Settings) -> Porter:
        return Porter(_pairing(store), settings, environ)

    def written(settings: Settings) -> AgentReader:
        tools = by_name(builtin_tools(settings.data, environ))
        saved, place = usable_connections(settings.data), Place(settings.data)

        def flaw(model: str) -> str:
            return flaw_of(model, environ, saved, place.is_installed)

        read = _written(settings, tools, SystemClock(), mask, lambda line: None)
        return AgentReader(*read, lambda: tools, flaw)

    open_door = partial(HttpDoor.open, mask=mask.shapes)

    def local(settings: Settings) -> LocalDesk:
        return LocalDesk(
            settings.data, environ, mask.shapes, lambda: secrets.token_hex(4), named=settings.model
        )

    return Wiring(
        SqliteStore.open, open_door, SqlitePremises(), hire, reception, written, local, environ, mask
    )


class _Given(msgspec.Struct, frozen=True):
    """What all who answer are made from, beside each other. `address` is where the server listens."""

    store: Store
    settings: Settings
    address: str
    environ: Mapping[str, str]
    mask: Mask
    clock: Clock
    ids: Ids


async def _hire(given: _Given) -> Staff:
    """Everyone who answers, not at work yet. Raises ConfigError, and as `Providers.check` does."""
    store, settings, mask, clock = given.store, given.settings, given.mask, given.clock
    if settings.auth == "on":
        mask.learn(local_token(settings.data))
    local, shop = _models(given, lambda: board.renew())
    memory = _memory(given, lambda: board)
    (model, why), confinement = await asyncio.gather(
        chosen(settings, given.environ, mask, shop), asyncio.to_thread(_confine, given)
    )
    mcp = _mcp(given, confinement.walls)
    tools = Joined(_built_in(given, confinement.walls, memory), mcp)
    crew, prompts = _written(settings, tools, clock, mask, keeps=True)
    permissions = Permissions(store, clock, given.ids, settings.never_run, mask.whole)
    asking = Asking(clock, given.ids, tools, random)
    calls = Calls(tools, settings.approvals, clock, permissions.rules, settings.never_run, confinement.gaps)

    def apply(changed: Settings) -> None:
        calls.change(changed.approvals, changed.never_run)
        permissions.forbidden = Forbidden(changed.never_run)
        board.allow(_allowance(changed))
        engine.change(changed.resume, changed.runs_at_once, changed.summarise_above / 100)

    desk = Desk(settings, apply, mask.whole)
    contexts = ContextCache(clock, memory.evict)
    guide = WorkspaceGuide(Vault(settings.data), mask.whole)
    pdfs = PdfTexts(confinement.walls)
    making = Making(tools, asking, calls, memory, guide, lambda: _allowance(desk.settings), clock, pdfs)
    board = Switchboard(
        making.agent, MaskedModel(model, mask), mask.shapes(why), names=bool(model.profile.address),
        rebuilt=lambda: contexts.count("configuration"), crew=crew.spec, open_model=shop.model,
        tools=tools,
    )  # fmt: skip
    engine = _engine(given, board, contexts, permissions, memory, crew, prompts)
    models = Models(desk, board, given.environ, mask, shop, local.told)
    agents = AgentDesk(
        crew, prompts, board, store.session, partial(workspace_of, settings.data), lambda: tools,
        partial(why_refused, settings.data), models.flaw,
    )  # fmt: skip
    backups = Backups(store, settings.data)
    asked = Asked(board.model_of, memory.told_of if memory.is_on else None, prompts.listed, agents.all)
    channels = await _channels(given, engine, asked)

    async def dismiss() -> None:
        await local.cancel()
        await memory.close()
        await board.close()

    return Staff(
        engine, board, desk, models, backups, memory, channels, agents, dismiss,
        confinement.made_of, confinement.gaps, mcp, local,
    )  # fmt: skip


def _engine(
    given: _Given,
    board: Switchboard,
    contexts: ContextCache,
    permissions: Permissions,
    memory: MemoryOffice,
    crew: AgentFiles,
    prompts: PromptFiles,
) -> Engine:
    """Who carries out turns, not started yet."""
    settings = given.settings
    return Engine(
        given.store, given.clock, given.ids, board.of, settings.data, settings.resume,
        lambda session, said: board.of(session).ask_title(said), settings.runs_at_once, contexts,
        given.mask.whole, permissions, memory.boundary, OfAgents(crew.resume, crew.workspace),
        expand=prompts.expand, files=Restorer(Vault(settings.data)),
        summarise_above=settings.summarise_above / 100,
    )  # fmt: skip


def _models(given: _Given, renew: Callable[[], None]) -> tuple[LocalDesk, Shop]:
    """The local model, whose server runs while it is open somewhere, and where all models come from.

    Raises ConfigError.
    """
    settings, environ, mask = given.settings, given.environ, given.mask
    # Words that end as a secret begins are held back until the next: no word ends like this one begins.
    key = "~" + secrets.token_urlsafe(32)
    mask.learn(key)
    llama = Llama(Place(settings.data), clean_environment(environ), key)

    def opened() -> LocalModel:
        return LocalModel(llama, lambda endpoint: made_as(endpoint, LocalModel.profile))

    desk = LocalDesk(
        settings.data, environ, mask.shapes, lambda: secrets.token_hex(4), llama, installed=renew
    )
    known = read_known(said_in(settings))
    return desk, Shop(environ, partial(usable_connections, settings.data), mask, known, opened)


def _built_in(given: _Given, walls: Walls, memory: MemoryOffice) -> Mapping[str, Tool]:
    """The tools that come with the server. Raises ConfigError."""
    settings, environ, mask = given.settings, given.environ, given.mask
    own = (Remember(memory.presence), Recall(memory.presence)) if memory.is_on else ()
    mask.learn(*secrets_in({"SEARXNG_URL": settings.searxng_url}))
    try:
        web = web_tools(
            settings.fetch_allow, urlsplit(given.address).port or 0, settings.searxng_url, environ
        )
    except BadUrl as error:
        raise ConfigError(where="fetch_allow", problem=str(error)) from None
    return by_name(masked_tools((*builtin_tools(settings.data, environ, walls), *web, *own), mask))


def _written(
    settings: Settings,
    tools: Mapping[str, Tool],
    clock: Clock,
    mask: Mask,
    say: Callable[[str], None] = note,
    keeps: bool = False,
) -> tuple[AgentFiles, PromptFiles]:
    """What people have written of agents and prompts; what is wrong with it now is among their problems."""
    crew = AgentFiles(
        settings.data, lambda: {*tools, *OPTIONAL_TOOLS}, clock, say, mask.whole,
        partial(why_closed, settings.data), keeps,
    )  # fmt: skip
    crew.read_all()
    prompts = PromptFiles(settings.data, clock, say, mask.whole)
    prompts.files.read_all()
    return crew, prompts


def _mcp(given: _Given, walls: Walls) -> McpServers:
    """The MCP servers that are set up, not reached yet. Raises ConfigError."""
    settings, environ, mask = given.settings, given.environ, given.mask
    wanted = []
    for server in settings.mcp:
        try:
            reached, secret = expanded(server, environ)
        except BadMcpServer as error:
            raise ConfigError(where=settings.data / FILE_NAME, problem=str(error)) from None
        mask.learn(*secret)
        wanted.append(Wanted(server, reached))
    yard = Yard(settings.data, environ, walls, secrets.token_hex(4))
    return McpServers(
        wanted, yard, lambda tool: MaskedTool(tool, mask), given.clock, random, mask.shapes, __version__
    )


def _memory(given: _Given, board: Callable[[], Switchboard]) -> MemoryOffice:
    """Who remembers and who tells it. `board` is asked for later than this. Raises as `Providers.check`."""
    store, settings, mask = given.store, given.settings, given.mask
    models = RememberedModels(board, settings.data, given.environ, mask)
    providers = Providers(settings, store, models, given.clock, given.ids, mask, note)
    providers.check()
    ledger = StoreLedger(store)
    return MemoryOffice(
        providers, ledger, store.session, ledger.titles, given.clock, given.ids,
        settings.memory_in_doubt, settings.memory_idle_s, settings.memory_recall_ms / 1000, random,
        mask.whole,
    )  # fmt: skip


def _pairing(store: Store) -> Pairing:
    return Pairing(store, SystemClock(), secrets.randbits)


async def _channels(given: _Given, engine: Engine, asked: Asked) -> Channels:
    """The chat apps that are set up, not served yet."""
    store, settings, clock, mask = given.store, given.settings, given.clock, given.mask

    def telegram(token: str) -> TelegramBot:
        try:
            # Takes its time, and is of no use to those who have no bot.
            part = importlib.import_module("holdfast.channels.telegram.channel")
        except ImportError:
            problem = "python-telegram-bot is not installed; install holdfast[telegram]"
            raise ConfigError(where="telegram", problem=problem) from None
        bot: TelegramBot = part.Telegram(
            token, store, clock, api_url=settings.telegram_api_url, mode=settings.telegram,
            webhook_url=settings.public_url and f"{settings.public_url.rstrip('/')}/api/channels/telegram",
        )  # fmt: skip
        return bot

    def webhook() -> Called | None:
        if not settings.channel_webhook_url:
            return None
        written = webhook_key(settings.data / FOR_CHANNEL, note)
        mask.learn(written, written.removeprefix(KEY_PREFIX))
        return Webhook(
            settings.channel_webhook_url, key_of(written), store, clock, lambda: secrets.token_hex(16)
        )

    pairing = _pairing(store)
    gateway = Gateway(store, engine, (), pairing, clock, given.ids, random, asked)
    channels = Channels(gateway, pairing, settings, given.environ, mask, Makes(telegram, webhook))
    await channels.open()
    return channels


def _confine(given: _Given) -> Confinement:
    parts = urlsplit(given.address)
    assert parts.hostname is not None, f"{given.address} is where the server listens"
    assert parts.port is not None, f"{given.address} is where the server listens"
    return confine(given.settings.data, parts.hostname, parts.port)


def _allowance(settings: Settings) -> Allowance:
    return Allowance(
        settings.run_steps_max,
        settings.run_tokens_max,
        round(settings.run_cost_usd_max * 1_000_000),
        settings.run_time_s_max,
    )


def command_line(wiring: Wiring) -> typer.Typer:
    """Every command, each from its own file in `cli`, over the parts in `wiring`."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback(help="A self-hosted agent server that never loses a turn.")
    def root(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True)
        ] = False,
    ) -> None:
        context.obj = wiring

    for command in (serve, chat, link, password, doctor, backup, restore):
        app.command()(command)
    app.add_typer(tokens(), name="tokens")
    app.add_typer(rules(), name="rules")
    app.add_typer(agents_commands(), name="agents")
    app.add_typer(sessions(), name="sessions")
    app.add_typer(channels(), name="channels")
    app.add_typer(local_commands(), name="local")
    return app


def _say_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit
