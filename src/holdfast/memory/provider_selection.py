"""The memory provider in use: by the settings, or of an agent that committed turns earlier."""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import Ids
from holdfast.domain.limits import PROVIDER_HEALTH_S_MAX
from holdfast.domain.memories import Memory, MemoryPage, Notebook, Origin
from holdfast.domain.secrets import Mask
from holdfast.memory.embeddings import Embeddings
from holdfast.memory.extraction_models import Named, RememberedModels
from holdfast.memory.ports import Health, Owner, OwnerGone, Provider, ProviderFailure, Segment
from holdfast.memory.provider_calls import heard, in_time
from holdfast.memory.provider_resolver import digest_of
from holdfast.memory.providers import installed
from holdfast.memory.providers.notes import Notes
from holdfast.memory.providers.webhook import Webhook
from holdfast.settings.secret_file import FOR_MEMORY, webhook_key
from holdfast.settings.settings import ConfigError, Settings

OFF = "off"
BUILT_IN = ("notes", "webhook", OFF)
CLOSE_S_MAX = 2.0
"""How long the end of the server waits for all of them to close."""
OPEN_S_MAX = 5.0
"""How long the start of the server waits for the present one to be loaded."""


class Providers:
    """Makes the providers of owners, one for each, and keeps them until they are closed.

    `note` tells people something that they should know.
    """

    def __init__(
        self,
        settings: Settings,
        notebook: Notebook,
        models: RememberedModels,
        clock: Clock,
        ids: Ids,
        mask: Mask,
        note: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._notebook = notebook
        self._models = models
        self._clock = clock
        self._ids = ids
        self._mask = mask
        self._note = note
        self._opening: dict[str, asyncio.Task[Provider]] = {}
        self._embeddings: Embeddings | None = None
        self.present = Awaited(settings.memory, self._present) if self.is_on else None

    @property
    def is_on(self) -> bool:
        return self._settings.memory != OFF

    @property
    def described(self) -> str:
        """Who remembers, as people are told at the start."""
        match self._settings.memory:
            case "notes":
                return "on" if self.owner() is not None else f"on, but {self._models.who} remembers nothing"
            case "webhook":
                host = urlsplit(self._settings.memory_webhook_url).netloc.rpartition("@")[2]
                return f"webhook at {host}"
            case "off":
                return OFF
        return f"an installed provider, {self._settings.memory}"

    def check(self) -> None:
        """Raises ConfigError or NoSuchProvider for a memory that cannot be."""
        name = self._settings.memory
        url, model = self._settings.memory_embedding_url, self._settings.memory_embedding_model
        if bool(url) != bool(model):
            given, missing = ("url", "model") if url else ("model", "url")
            problem = f"memory_embedding_{given} is set, so memory_embedding_{missing} must be set too"
            raise ConfigError(where="the settings", problem=problem)
        if name == "webhook" and not self._settings.memory_webhook_url:
            problem = "memory is webhook, so memory_webhook_url must be the address to send to"
            raise ConfigError(where="the settings", problem=problem)
        if name not in BUILT_IN and name not in installed.names():
            raise installed.NoSuchProvider(name=name, known=", ".join((*BUILT_IN, *installed.names())))

    def owner(self) -> Owner | None:
        """The agent that every server has, as it is now; None as below."""
        return self._owner("", self._models.present)

    def owner_of(self, agent: str, model: str, address: str) -> Owner | None:
        """An agent whose model is that one; None where nothing is to be told, or it could not tell it."""
        return self._owner(agent, lambda: self._models.named(model, address))

    def _owner(self, agent: str, named: Callable[[], Named | None]) -> Owner | None:
        name = self._settings.memory
        if not self.is_on:
            return None
        # A webhook is told what was said as it was said: which model answered does not matter to it.
        model = named() if name != "webhook" else None
        if model is None:
            return None if name == "notes" else Owner(name, agent)
        return Owner(name, agent, model.model, model.address, model.key)

    async def open(self) -> None:
        """Have ready what others rely on from the start. Raises BadProvider, BadWebhookKey.

        What may come back later is no reason not to start: `report` tells of it.
        """
        if self._settings.memory == "webhook":
            with contextlib.suppress(OSError):
                await asyncio.to_thread(webhook_key, self._settings.data / FOR_MEMORY, self._note)
        elif self._settings.memory not in BUILT_IN:
            try:
                async with asyncio.timeout(OPEN_S_MAX):
                    await self._present()
            except installed.BadProvider as bad:
                if not isinstance(bad, installed.NotReady):
                    raise
            except (OwnerGone, TimeoutError):
                pass

    async def report(self) -> None:
        """Tell people once if whoever remembers is not well now."""
        provider = self.present
        if provider is None:
            return
        try:
            health = await in_time(Health, provider.health, PROVIDER_HEALTH_S_MAX)
        except HoldfastError as error:
            health = Health(False, str(error))
        if not health.ok:
            why = self._mask.whole(health.detail).rstrip(".")
            self._note(f"holdfast: Memory ({self.described}) does not work now: {why}. What is said waits.")

    async def build(self, owner: Owner) -> Provider:
        """The provider of an owner. Raises OwnerGone."""
        if not self.is_on:
            raise OwnerGone(detail="memory is off")
        if owner.model:
            await self._models.check(owner)
        digest = digest_of(owner)
        opening = self._opening.get(digest)
        if opening is None:
            opening = self._opening[digest] = asyncio.create_task(self._make(owner))
            opening.add_done_callback(lambda done: self._hear(digest, done))
        # Whoever has no patience goes away; it opens all the same, for those who come after.
        return await asyncio.shield(opening)

    async def close(self) -> None:
        """Let go of all of them. One that does not close in time, or at all, is left as it is."""
        opening = list(self._opening.values())
        over = [each for each in opening if each.done() and not each.cancelled() and not each.exception()]
        for each in opening:
            each.cancel()
        closing = [asyncio.create_task(heard(partial(_close, each.result()))) for each in over]
        if opening:
            await asyncio.wait([*opening, *closing], timeout=CLOSE_S_MAX)
        if self._embeddings is not None:
            await self._embeddings.close()

    def _hear(self, digest: str, opened: "asyncio.Task[Provider]") -> None:
        """One that could not be opened is tried again when it is next asked for."""
        if opened.cancelled() or opened.exception() is not None:
            self._opening.pop(digest, None)

    async def _present(self) -> Provider:
        return await self.build(self.owner() or Owner(self._settings.memory))

    async def _make(self, owner: Owner) -> Provider:
        match owner.provider:
            case "notes":
                return await self._notes(owner)
            case "webhook":
                return await self._webhook()
        ask = self._models.asking(owner) if owner.model else None
        return await installed.open_installed(
            owner.provider, self._settings.data, owner.options, ask, BUILT_IN
        )

    async def _notes(self, owner: Owner) -> Provider:
        url, name = self._settings.memory_embedding_url, self._settings.memory_embedding_model
        if url and self._embeddings is None:
            self._embeddings = Embeddings(url, name, await self._models.key_for(url))
        ask, mask = self._models.asking(owner), self._mask.whole
        return Notes(self._notebook, ask, self._ids, self._clock, self._embeddings, mask, name)

    async def _webhook(self) -> Provider:
        url = self._settings.memory_webhook_url
        if not url:
            raise OwnerGone(detail="no webhook is set any more")
        try:
            path = self._settings.data / FOR_MEMORY
            secret = await asyncio.to_thread(webhook_key, path, self._note)
        except (HoldfastError, OSError) as error:
            raise OwnerGone(detail=str(error).rstrip(".")) from error
        self._mask.learn(secret)
        return Webhook(url, secret, self._clock, self._ids.telling)


async def _close(provider: Provider) -> None:
    """An installed one may have a plain function for it."""
    closing: object = provider.close()
    if inspect.isawaitable(closing):
        await closing


class Awaited:
    """Stands where a provider does. That there is none just now is a failure of memory like any other."""

    def __init__(self, name: str, find: Callable[[], Awaitable[Provider]]) -> None:
        self._name = name
        self._find = find

    @property
    def name(self) -> str:
        return self._name

    @property
    def takes_key(self) -> bool:
        """Not to be relied on before it is there; whoever tells it asks for it by its owner."""
        return False

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return await (await self._found()).recall(query, scope, limit)

    async def commit(self, segment: Segment) -> str:
        return await (await self._found()).commit(segment)

    async def retract(self, key: str, receipt: str) -> None:
        await (await self._found()).retract(key, receipt)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        return await (await self._found()).remember(text, scope, origin, key)

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return await (await self._found()).list_(scope, words, cursor, limit)

    async def edit(self, memory_id: str, text: str) -> Memory:
        return await (await self._found()).edit(memory_id, text)

    async def forget(self, memory_id: str) -> None:
        await (await self._found()).forget(memory_id)

    async def health(self) -> Health:
        try:
            return await (await self._found()).health()
        except ProviderFailure as failure:
            return Health(False, str(failure.fields["detail"]))

    async def close(self) -> None:
        """It is whoever found it that closes it."""

    async def _found(self) -> Provider:
        try:
            return await self._find()
        except OwnerGone as gone:
            raise ProviderFailure(detail=str(gone).rstrip(".")) from gone
