"""Build the server and the command line from their parts, the only module that chooses them."""

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
from holdfast.agent.config.service import AgentFileService, AgentReader
from holdfast.agent.context_cache import ContextCache
from holdfast.agent.factory import AgentFactory
from holdfast.agent.instructions import WorkspaceGuide
from holdfast.agent.model_step import ModelStep
from holdfast.agent.registry import AgentRegistry
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.channels.access import StoredChannelAccess
from holdfast.channels.commands import CommandSources
from holdfast.channels.pairing import Pairing
from holdfast.channels.service import CallableChannel, ChannelFactories, RunningChannelService, TelegramBot
from holdfast.channels.webhook import WebhookChannel
from holdfast.channels.worker import ChannelWorkers
from holdfast.cli.agents import agents as agents_commands
from holdfast.cli.backup import backup
from holdfast.cli.channels import channels
from holdfast.cli.chat.command import chat
from holdfast.cli.command_context import print_stderr
from holdfast.cli.dependencies import App, Dependencies
from holdfast.cli.doctor import doctor
from holdfast.cli.help import build_command
from holdfast.cli.link import link
from holdfast.cli.local import local as local_commands
from holdfast.cli.masked_output import mask_output
from holdfast.cli.password import password
from holdfast.cli.restore import restore
from holdfast.cli.rules import rules
from holdfast.cli.serve import serve
from holdfast.cli.server_access import local_token
from holdfast.cli.sessions.commands import sessions
from holdfast.cli.tokens import tokens
from holdfast.domain.agents import OPTIONAL_TOOLS
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.decisions.run_limits import RunLimits
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.domain.ids import IdGenerator
from holdfast.domain.mcp import BadMcpServer, expand_variables
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.domain.shell.denylist import Denylist
from holdfast.domain.urls import InvalidUrl
from holdfast.domain.webhook_signing import KEY_PREFIX as KEY_PREFIX
from holdfast.domain.webhook_signing import decode_key
from holdfast.engine.backups import Backups
from holdfast.engine.engine import Engine
from holdfast.engine.memory_queue import StoreMemoryQueue
from holdfast.engine.permissions import Permissions
from holdfast.engine.resume_policy import AgentDefaults
from holdfast.engine.workspaces import forbidden_reason, workspace_path, workspace_problem
from holdfast.hardening import harden
from holdfast.http.server import UvicornHttpServer
from holdfast.mcp.service import McpServerConfig, McpServers
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.memory.extraction_models import ExtractionModels
from holdfast.memory.memory import MemoryRuntime
from holdfast.memory.provider_selection import MemoryProviders
from holdfast.models.catalog import load_catalog
from holdfast.models.connection_file import read_connections_or_empty
from holdfast.models.factory import ModelFactory, build_local_client
from holdfast.models.local.install_dir import LocalModelDir
from holdfast.models.local.model import LocalModel
from holdfast.models.local.server import LlamaServer
from holdfast.models.local.service import LlamaModelService
from holdfast.models.masking import MaskedModel
from holdfast.models.overrides import read_overrides
from holdfast.models.providers import unavailable_reason
from holdfast.models.service import ModelConnectionService, resolve_model
from holdfast.settings.secret_file import CHANNEL_WEBHOOK_KEY_FILE, read_or_create_webhook_key
from holdfast.settings.service import FileSettingsService
from holdfast.settings.settings import FILE_NAME, ConfigError, Settings
from holdfast.store.ports import Store
from holdfast.store.sqlite.data_dir import SqliteDataDir
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.writer import shorten_thread_switches
from holdfast.tools.builtin import ToolSet, builtin_tools, tools_by_name, web_tools
from holdfast.tools.files.file_changer import WorkspaceFileRestorer
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.masking import MaskedTool, masked_tools
from holdfast.tools.ports import Tool
from holdfast.tools.recall import RecallTool
from holdfast.tools.remember import RememberTool
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from holdfast.tools.sandbox.sandbox import Sandbox, SandboxReport, detect_sandbox
from holdfast.tools.shell import clean_environment


def main() -> None:
    """Run the command line. Print one of our errors with its advice, and exit with code 1."""
    shorten_thread_switches()
    # Processes that start from here on inherit no secret.
    environ = harden(os.environ)
    dependencies = build_dependencies(environ)
    mask_output(dependencies.mask)
    try:
        build_command(command_line(dependencies))(prog_name="holdfast")
    except HoldfastError as error:
        _fail(error)
    except OSError as error:
        # Code that opens a file handles its other errors; standard output is open from the start.
        if error.errno != errno.ENOSPC:
            raise
        _fail(DiskFull(path="this command's output"))


def _fail(error: HoldfastError) -> NoReturn:
    print(f"holdfast: {error}", file=sys.stderr)
    if error.advice:
        print(error.advice, file=sys.stderr)
    sys.exit(1)


def build_dependencies(environ: Mapping[str, str]) -> Dependencies:
    """Return the dependencies of the commands."""
    mask = SecretMask(find_secrets(environ))

    async def build_app(store: Store, settings: Settings, address: str) -> App:
        clock = SystemClock()
        return await _build_app(
            _Dependencies(store, settings, address, environ, mask, clock, IdGenerator(clock))
        )

    def channel_access(store: Store, settings: Settings) -> StoredChannelAccess:
        return StoredChannelAccess(_pairing(store), settings, environ)

    def agent_reader(settings: Settings) -> AgentReader:
        tools = tools_by_name(builtin_tools(settings.data, environ))
        saved, place = read_connections_or_empty(settings.data), LocalModelDir(settings.data)

        def reason_for(model: str) -> str:
            return unavailable_reason(model, environ, saved, place.is_installed)

        read = _agent_files(settings, tools, SystemClock(), mask, lambda line: None)
        return AgentReader(*read, lambda: tools, reason_for)

    open_server = partial(UvicornHttpServer.open, mask=mask.mask_with_patterns)

    def local(settings: Settings) -> LlamaModelService:
        return LlamaModelService(
            settings.data,
            environ,
            mask.mask_with_patterns,
            lambda: secrets.token_hex(4),
            configured_model=settings.model,
        )

    return Dependencies(
        SqliteStore.open,
        open_server,
        SqliteDataDir(),
        build_app,
        channel_access,
        agent_reader,
        local,
        environ,
        mask,
    )


class _Dependencies(msgspec.Struct, frozen=True):
    """The common dependencies of a server's parts. `address` is where it listens."""

    store: Store
    settings: Settings
    address: str
    environ: Mapping[str, str]
    mask: SecretMask
    clock: Clock
    ids: IdGenerator


async def _build_app(deps: _Dependencies) -> App:
    """Build a server, not started yet. Raises ConfigError, and as `MemoryProviders.check` does."""
    store, settings, mask, clock = deps.store, deps.settings, deps.mask, deps.clock
    if settings.auth == "on":
        mask.add(local_token(settings.data))
    local, model_factory = _models(deps, lambda: registry.reset_models())
    memory = _memory(deps, lambda: registry)
    (model, why), sandbox_report = await asyncio.gather(
        resolve_model(settings, deps.environ, mask, model_factory), asyncio.to_thread(_build_sandbox, deps)
    )
    mcp = _mcp_servers(deps, sandbox_report.sandbox)
    tools = ToolSet(_builtin_tools(deps, sandbox_report.sandbox, memory), mcp)
    agent_files, prompts = _agent_files(settings, tools, clock, mask, keep_copies=True)
    permissions = Permissions(store, clock, deps.ids, settings.never_run, mask.mask)
    model_step = ModelStep(clock, deps.ids, tools, random)
    tool_executor = ToolExecutor(
        tools, settings.approvals, clock, permissions.rules, settings.never_run, sandbox_report.gaps
    )

    def apply(changed: Settings) -> None:
        tool_executor.set_policy(changed.approvals, changed.never_run)
        permissions.denylist = Denylist(changed.never_run)
        registry.set_run_limits(_run_limits(changed))
        engine.reconfigure(changed.resume, changed.runs_at_once, changed.summarise_above / 100)

    settings_service = FileSettingsService(settings, apply, mask.mask)
    contexts = ContextCache(clock, memory.evict)
    pdfs = PdfTextExtractor(sandbox_report.sandbox)
    agent_factory = AgentFactory(
        tools, model_step, tool_executor, memory, WorkspaceGuide(ProtectedPaths(settings.data), mask.mask),
        lambda: _run_limits(settings_service.settings), clock, pdfs,
    )  # fmt: skip
    registry = AgentRegistry(
        agent_factory.build, MaskedModel(model, mask), mask.mask_with_patterns(why),
        can_complete=bool(model.profile.address), on_rebuild=lambda: contexts.count_rebuild("configuration"),
        load_spec=agent_files.spec, open_model=model_factory.build, tools=tools,
    )  # fmt: skip
    engine = _engine(deps, registry, contexts, permissions, memory, agent_files, prompts)
    models = ModelConnectionService(settings_service, registry, deps.environ, mask, model_factory, local.info)
    agents = AgentFileService(
        agent_files, prompts, registry, store.session, partial(workspace_path, settings.data), lambda: tools,
        partial(workspace_problem, settings.data), models.unavailable_reason,
    )  # fmt: skip
    backups = Backups(store, settings.data)
    command_info = CommandSources(
        registry.model_for, memory.memories_text if memory.is_on else None, prompts.descriptions, agents.all
    )
    channels = await _channels(deps, engine, command_info)

    async def close() -> None:
        await local.cancel_install()
        await memory.close()
        await registry.close()

    return App(
        engine, registry, settings_service, models, backups, memory, channels, agents, close,
        sandbox_report.description, sandbox_report.gaps, mcp, local,
    )  # fmt: skip


def _engine(
    deps: _Dependencies,
    registry: AgentRegistry,
    contexts: ContextCache,
    permissions: Permissions,
    memory: MemoryRuntime,
    agent_files: AgentFiles,
    prompts: PromptFiles,
) -> Engine:
    """Build the engine, not started yet."""
    settings = deps.settings
    return Engine(
        deps.store, deps.clock, deps.ids, registry.handle_for, settings.data, settings.resume,
        lambda session, text: registry.handle_for(session).generate_title(text), settings.runs_at_once,
        contexts, deps.mask.mask, permissions, memory.schedule_commit,
        AgentDefaults(agent_files.resume_policy, agent_files.workspace),
        expand_prompt=prompts.expand, files=WorkspaceFileRestorer(ProtectedPaths(settings.data)),
        summarise_above=settings.summarise_above / 100,
    )  # fmt: skip


def _models(deps: _Dependencies, on_installed: Callable[[], None]) -> tuple[LlamaModelService, ModelFactory]:
    """Build the manager of the local model, whose server runs while it is in use, and the model factory.

    Raises ConfigError.
    """
    settings, environ, mask = deps.settings, deps.environ, deps.mask
    # The mask holds back text that may begin a secret; no word ends with the key's first character.
    key = "~" + secrets.token_urlsafe(32)
    mask.add(key)
    local_server = LlamaServer(LocalModelDir(settings.data), clean_environment(environ), key)

    def open_local_model() -> LocalModel:
        return LocalModel(local_server, lambda endpoint: build_local_client(endpoint, LocalModel.profile))

    local_service = LlamaModelService(
        settings.data,
        environ,
        mask.mask_with_patterns,
        lambda: secrets.token_hex(4),
        local_server,
        on_installed=on_installed,
    )
    catalog = load_catalog(read_overrides(settings))
    return local_service, ModelFactory(
        environ, partial(read_connections_or_empty, settings.data), mask, catalog, open_local_model
    )


def _builtin_tools(deps: _Dependencies, sandbox: Sandbox, memory: MemoryRuntime) -> Mapping[str, Tool]:
    """Return the tools that come with the server. Raises ConfigError."""
    settings, environ, mask = deps.settings, deps.environ, deps.mask
    memory_tools = (RememberTool(memory.client), RecallTool(memory.client)) if memory.is_on else ()
    mask.add(*find_secrets({"SEARXNG_URL": settings.searxng_url}))
    try:
        web = web_tools(settings.fetch_allow, urlsplit(deps.address).port or 0, settings.searxng_url, environ)
    except InvalidUrl as error:
        raise ConfigError(where="fetch_allow", problem=str(error)) from None
    return tools_by_name(
        masked_tools((*builtin_tools(settings.data, environ, sandbox), *web, *memory_tools), mask)
    )


def _agent_files(
    settings: Settings,
    tools: Mapping[str, Tool],
    clock: Clock,
    mask: SecretMask,
    notify: Callable[[str], None] = print_stderr,
    keep_copies: bool = False,
) -> tuple[AgentFiles, PromptFiles]:
    """Read the files of agents and prompts; their `problems` return what is wrong with them."""
    agent_files = AgentFiles(
        settings.data, lambda: {*tools, *OPTIONAL_TOOLS}, clock, notify, mask.mask,
        partial(forbidden_reason, settings.data), keep_copies,
    )  # fmt: skip
    agent_files.read_all()
    prompts = PromptFiles(settings.data, clock, notify, mask.mask)
    prompts.files.read_all()
    return agent_files, prompts


def _mcp_servers(deps: _Dependencies, sandbox: Sandbox) -> McpServers:
    """Return the configured MCP servers, not connected yet. Raises ConfigError."""
    settings, environ, mask = deps.settings, deps.environ, deps.mask
    configs = []
    for server in settings.mcp:
        try:
            expanded_server, secret_values = expand_variables(server, environ)
        except BadMcpServer as error:
            raise ConfigError(where=settings.data / FILE_NAME, problem=str(error)) from None
        mask.add(*secret_values)
        configs.append(McpServerConfig(server, expanded_server))
    spawn_context = McpSpawnContext(settings.data, environ, sandbox, secrets.token_hex(4))
    return McpServers(
        configs,
        spawn_context,
        lambda tool: MaskedTool(tool, mask),
        deps.clock,
        random,
        mask.mask_with_patterns,
        __version__,
    )


def _memory(deps: _Dependencies, registry: Callable[[], AgentRegistry]) -> MemoryRuntime:
    """Build the memory. It calls `registry` only later. Raises as `MemoryProviders.check` does."""
    store, settings, mask = deps.store, deps.settings, deps.mask
    models = ExtractionModels(registry, settings.data, deps.environ, mask)
    providers = MemoryProviders(settings, store, models, deps.clock, deps.ids, mask, print_stderr)
    providers.check()
    memory_queue = StoreMemoryQueue(store)
    return MemoryRuntime(
        providers, memory_queue, store.session, memory_queue.titles, deps.clock, deps.ids,
        settings.memory_in_doubt, settings.memory_idle_s, settings.memory_recall_ms / 1000, random,
        mask.mask,
    )  # fmt: skip


def _pairing(store: Store) -> Pairing:
    return Pairing(store, SystemClock(), secrets.randbits)


async def _channels(
    deps: _Dependencies, engine: Engine, command_info: CommandSources
) -> RunningChannelService:
    """Open the configured channels, not served yet."""
    store, settings, clock, mask = deps.store, deps.settings, deps.clock, deps.mask

    def telegram(token: str) -> TelegramBot:
        try:
            # Slow to import, and of no use without a bot.
            module = importlib.import_module("holdfast.channels.telegram.channel")
        except ImportError:
            problem = "python-telegram-bot is not installed; install holdfast[telegram]"
            raise ConfigError(where="telegram", problem=problem) from None
        bot: TelegramBot = module.Telegram(
            token, store, clock, api_url=settings.telegram_api_url, mode=settings.telegram,
            webhook_url=settings.public_url and f"{settings.public_url.rstrip('/')}/api/channels/telegram",
        )  # fmt: skip
        return bot

    def webhook() -> CallableChannel | None:
        if not settings.channel_webhook_url:
            return None
        key_text = read_or_create_webhook_key(settings.data / CHANNEL_WEBHOOK_KEY_FILE, print_stderr)
        mask.add(key_text, key_text.removeprefix(KEY_PREFIX))
        return WebhookChannel(
            settings.channel_webhook_url, decode_key(key_text), store, clock, lambda: secrets.token_hex(16)
        )

    pairing = _pairing(store)
    workers = ChannelWorkers(store, engine, (), pairing, clock, deps.ids, random, command_info)
    channels = RunningChannelService(
        workers, pairing, settings, deps.environ, mask, ChannelFactories(telegram, webhook)
    )
    await channels.open()
    return channels


def _build_sandbox(deps: _Dependencies) -> SandboxReport:
    parts = urlsplit(deps.address)
    assert parts.hostname is not None, f"{deps.address} is where the server listens"
    assert parts.port is not None, f"{deps.address} is where the server listens"
    return detect_sandbox(deps.settings.data, parts.hostname, parts.port)


def _run_limits(settings: Settings) -> RunLimits:
    return RunLimits(
        settings.run_steps_max,
        settings.run_tokens_max,
        round(settings.run_cost_usd_max * 1_000_000),
        settings.run_time_s_max,
    )


def command_line(dependencies: Dependencies) -> typer.Typer:
    """Return the commands, each from its own file in `cli`, with their `dependencies`."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback(help="A self-hosted agent server that never loses a turn.")
    def root(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", help="Say the version.", callback=_print_version, is_eager=True)
        ] = False,
    ) -> None:
        context.obj = dependencies

    for command in (serve, chat, link, password, doctor, backup, restore):
        app.command()(command)
    app.add_typer(tokens(), name="tokens")
    app.add_typer(rules(), name="rules")
    app.add_typer(agents_commands(), name="agents")
    app.add_typer(sessions(), name="sessions")
    app.add_typer(channels(), name="channels")
    app.add_typer(local_commands(), name="local")
    return app


def _print_version(requested: bool) -> None:
    if requested:
        print(f"holdfast {__version__}")
        raise typer.Exit
