"""Build memory providers: the one that the settings select, and those of earlier owners."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import PROVIDER_HEALTH_S_MAX
from holdfast.domain.memories import Memory, MemoryPage, NoteRepository, Origin
from holdfast.domain.secrets import SecretMask
from holdfast.memory.embeddings import EmbeddingClient
from holdfast.memory.extraction_models import ExtractionModels, ModelReference
from holdfast.memory.ports import Health, Owner, OwnerGone, Provider, ProviderFailure, Segment
from holdfast.memory.provider_calls import call_with_timeout, catch_errors
from holdfast.memory.provider_resolver import owner_digest
from holdfast.memory.providers import installed
from holdfast.memory.providers.notes import NotesProvider
from holdfast.memory.providers.webhook import WebhookProvider
from holdfast.settings.secret_file import MEMORY_WEBHOOK_KEY_FILE, read_or_create_webhook_key
from holdfast.settings.settings import ConfigError, Settings

OFF = "off"
BUILT_IN = ("notes", "webhook", OFF)
CLOSE_S_MAX = 2.0
"""The server's stop waits this long for all providers to close."""
OPEN_S_MAX = 5.0
"""The server's start waits this long for the current provider to load."""


class MemoryProviders:
    """Build one provider for each owner and keep it until `close`.

    `notify` shows the operator a line of text.
    """

    def __init__(
        self,
        settings: Settings,
        note_repository: NoteRepository,
        models: ExtractionModels,
        clock: Clock,
        ids: IdGenerator,
        mask: SecretMask,
        notify: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._note_repository = note_repository
        self._models = models
        self._clock = clock
        self._ids = ids
        self._mask = mask
        self._notify = notify
        self._open_tasks: dict[str, asyncio.Task[Provider]] = {}
        self._embeddings: EmbeddingClient | None = None
        self.current = LazyProvider(settings.memory, self._open_current) if self.is_on else None

    @property
    def is_on(self) -> bool:
        return self._settings.memory != OFF

    @property
    def description(self) -> str:
        """Return the provider in words, for the start screen."""
        match self._settings.memory:
            case "notes":
                return (
                    "on"
                    if self.owner() is not None
                    else f"on, but {self._models.display_name} remembers nothing"
                )
            case "webhook":
                host = urlsplit(self._settings.memory_webhook_url).netloc.rpartition("@")[2]
                return f"webhook at {host}"
            case "off":
                return OFF
        return f"an installed provider, {self._settings.memory}"

    def check(self) -> None:
        """Raise ConfigError or NoSuchMemoryProvider if the settings select no valid provider."""
        name = self._settings.memory
        url, model = self._settings.memory_embedding_url, self._settings.memory_embedding_model
        if bool(url) != bool(model):
            given, missing = ("url", "model") if url else ("model", "url")
            problem = f"memory_embedding_{given} is set, so memory_embedding_{missing} must be set too"
            raise ConfigError(where="the settings", problem=problem)
        if name == "webhook" and not self._settings.memory_webhook_url:
            problem = "memory is webhook, so memory_webhook_url must be the address to send to"
            raise ConfigError(where="the settings", problem=problem)
        if name not in BUILT_IN and name not in installed.installed_names():
            raise installed.NoSuchMemoryProvider(
                name=name, known=", ".join((*BUILT_IN, *installed.installed_names()))
            )

    def owner(self) -> Owner | None:
        """Return the main agent with its current model; None as for `owner_for`."""
        return self._owner("", self._models.current)

    def owner_for(self, agent: str, model: str, address: str) -> Owner | None:
        """Return an owner for an agent with this model; None if memory is off or cannot use the model."""
        return self._owner(agent, lambda: self._models.reference_for(model, address))

    def _owner(self, agent: str, find_model: Callable[[], ModelReference | None]) -> Owner | None:
        name = self._settings.memory
        if not self.is_on:
            return None
        # A webhook receives the messages themselves, so it needs no model.
        model = find_model() if name != "webhook" else None
        if model is None:
            return None if name == "notes" else Owner(name, agent)
        return Owner(name, agent, model.model, model.address, model.key)

    async def open(self) -> None:
        """Open the current provider. Raises BadMemoryProvider, BadWebhookKey.

        A failure that may pass does not stop the start: `report_health` reports it.
        """
        if self._settings.memory == "webhook":
            with contextlib.suppress(OSError):
                await asyncio.to_thread(
                    read_or_create_webhook_key, self._settings.data / MEMORY_WEBHOOK_KEY_FILE, self._notify
                )
        elif self._settings.memory not in BUILT_IN:
            try:
                async with asyncio.timeout(OPEN_S_MAX):
                    await self._open_current()
            except installed.BadMemoryProvider as bad:
                if not isinstance(bad, installed.MemoryProviderNotReady):
                    raise
            except (OwnerGone, TimeoutError):
                pass

    async def report_health(self) -> None:
        """Notify the operator if the current provider is unhealthy."""
        provider = self.current
        if provider is None:
            return
        try:
            health = await call_with_timeout(Health, provider.health, PROVIDER_HEALTH_S_MAX)
        except HoldfastError as error:
            health = Health(False, str(error))
        if not health.ok:
            reason = self._mask.mask(health.detail).rstrip(".")
            self._notify(
                f"holdfast: Memory ({self.description}) does not work now: {reason}. What is said waits."
            )

    async def build(self, owner: Owner) -> Provider:
        """Return the provider of an owner, building it if needed. Raises OwnerGone."""
        if not self.is_on:
            raise OwnerGone(detail="memory is off")
        if owner.model:
            await self._models.check(owner)
        digest = owner_digest(owner)
        opening = self._open_tasks.get(digest)
        if opening is None:
            opening = self._open_tasks[digest] = asyncio.create_task(self._build_provider(owner))
            opening.add_done_callback(lambda done: self._forget_if_failed(digest, done))
        # Shielded: a caller that times out must not cancel the opening for later callers.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Close all providers. One that does not close in time is abandoned."""
        opening = list(self._open_tasks.values())
        opened = [each for each in opening if each.done() and not each.cancelled() and not each.exception()]
        for each in opening:
            each.cancel()
        closing = [asyncio.create_task(catch_errors(partial(_close, each.result()))) for each in opened]
        if opening:
            await asyncio.wait([*opening, *closing], timeout=CLOSE_S_MAX)
        if self._embeddings is not None:
            await self._embeddings.close()

    def _forget_if_failed(self, digest: str, opened: "asyncio.Task[Provider]") -> None:
        """Drop a failed opening, so that the next request tries again."""
        if opened.cancelled() or opened.exception() is not None:
            self._open_tasks.pop(digest, None)

    async def _open_current(self) -> Provider:
        return await self.build(self.owner() or Owner(self._settings.memory))

    async def _build_provider(self, owner: Owner) -> Provider:
        match owner.provider:
            case "notes":
                return await self._build_notes(owner)
            case "webhook":
                return await self._build_webhook()
        ask = self._models.ask_function(owner) if owner.model else None
        return await installed.open_installed_provider(
            owner.provider, self._settings.data, owner.options, ask, BUILT_IN
        )

    async def _build_notes(self, owner: Owner) -> Provider:
        url, name = self._settings.memory_embedding_url, self._settings.memory_embedding_model
        if url and self._embeddings is None:
            self._embeddings = EmbeddingClient(url, name, await self._models.key_for(url))
        ask, mask = self._models.ask_function(owner), self._mask.mask
        return NotesProvider(self._note_repository, ask, self._ids, self._clock, self._embeddings, mask, name)

    async def _build_webhook(self) -> Provider:
        url = self._settings.memory_webhook_url
        if not url:
            raise OwnerGone(detail="no webhook is set any more")
        try:
            path = self._settings.data / MEMORY_WEBHOOK_KEY_FILE
            secret = await asyncio.to_thread(read_or_create_webhook_key, path, self._notify)
        except (HoldfastError, OSError) as error:
            raise OwnerGone(detail=str(error).rstrip(".")) from error
        self._mask.add(secret)
        return WebhookProvider(url, secret, self._clock, self._ids.commit_key)


async def _close(provider: Provider) -> None:
    """Close a provider; that of an installed one may be a plain function."""
    closing: object = provider.close()
    if inspect.isawaitable(closing):
        await closing


class LazyProvider:
    """A provider that is opened at each call; raises ProviderFailure while none is available."""

    def __init__(self, name: str, open_provider: Callable[[], Awaitable[Provider]]) -> None:
        self._name = name
        self._open_provider = open_provider

    @property
    def name(self) -> str:
        return self._name

    @property
    def takes_key(self) -> bool:
        """Return False: commits go through the resolver, which asks the real provider."""
        return False

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return await (await self._resolve()).recall(query, scope, limit)

    async def commit(self, segment: Segment) -> str:
        return await (await self._resolve()).commit(segment)

    async def retract(self, key: str, receipt: str) -> None:
        await (await self._resolve()).retract(key, receipt)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        return await (await self._resolve()).remember(text, scope, origin, key)

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return await (await self._resolve()).list_(scope, words, cursor, limit)

    async def edit(self, memory_id: str, text: str) -> Memory:
        return await (await self._resolve()).edit(memory_id, text)

    async def forget(self, memory_id: str) -> None:
        await (await self._resolve()).forget(memory_id)

    async def health(self) -> Health:
        try:
            return await (await self._resolve()).health()
        except ProviderFailure as failure:
            return Health(False, str(failure.fields["detail"]))

    async def close(self) -> None:
        """Do nothing: MemoryProviders closes what it opened."""

    async def _resolve(self) -> Provider:
        try:
            return await self._open_provider()
        except OwnerGone as gone:
            raise ProviderFailure(detail=str(gone).rstrip(".")) from gone
