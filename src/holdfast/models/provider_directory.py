"""List every provider, and the models of those that are set up or found on this machine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import SecretMask
from holdfast.models.capabilities import documented_file_kinds, guess_file_kinds
from holdfast.models.catalog import ModelCatalog, Price
from holdfast.models.info import ModelInfo, ModelProviderInfo, PriceInfo
from holdfast.models.listing import ListedModel, ListingCache, ModelListing
from holdfast.models.local.info import LOCAL, LocalModelInfo
from holdfast.models.local.install_dir import MODEL_NAME, WINDOW_TOKENS
from holdfast.models.providers import PROVIDERS, ProviderAccess, SavedConnection, resolve_access
from holdfast.models.selection import is_model_server

LISTS_TIMEOUT_S = 1.0
"""Limit of waiting for lists. A list that arrives later is there for the next call."""
_PENDING = ModelListing(problem="Its list of models has not come yet.")


class ProviderDirectory:
    """List the providers and their models. `read_connections` reads the saved connections."""

    def __init__(
        self,
        environ: Mapping[str, str],
        read_connections: Callable[[], Mapping[str, SavedConnection]],
        catalog: ModelCatalog,
        mask: SecretMask,
        local_info: Callable[[], LocalModelInfo] | None = None,
    ) -> None:
        self._environ = environ
        self._read_connections = read_connections
        self._catalog = catalog
        self._mask = mask
        self._local_info = local_info
        self._listing_cache = ListingCache()
        self._fetches: dict[str, tuple[ProviderAccess, asyncio.Task[ModelListing]]] = {}

    async def list_providers(self) -> Sequence[ModelProviderInfo]:
        """Return every provider, in the order of detection."""
        saved = await asyncio.to_thread(self._read_connections)
        accesses = [resolve_access(provider, self._environ, saved) for provider in PROVIDERS]
        fetches = {
            access.provider.name: self._fetch_once(access) for access in accesses if _may_be_running(access)
        }
        if fetches:
            await asyncio.wait(fetches.values(), timeout=LISTS_TIMEOUT_S)
        own = [_local_model_info(self._local_info())] if self._local_info is not None else []
        return [
            *(self._provider_info(access, fetches.get(access.provider.name)) for access in accesses),
            *own,
        ]

    def _fetch_once(self, access: ProviderAccess) -> asyncio.Task[ModelListing]:
        """Return the task that fetches the provider's list; concurrent callers share it."""
        previous, fetch = self._fetches.get(access.provider.name, (None, None))
        if fetch is None or fetch.done() or previous != access:
            fetch = asyncio.create_task(self._fetch(access))
            self._fetches[access.provider.name] = access, fetch
        return fetch

    async def _fetch(self, access: ProviderAccess) -> ModelListing:
        try:
            return await self._listing_cache.get(access.endpoint(""))
        except HoldfastError as error:
            return ModelListing(problem=str(error))

    def _provider_info(
        self, access: ProviderAccess, fetch: asyncio.Task[ModelListing] | None
    ) -> ModelProviderInfo:
        listing = ModelListing() if fetch is None else fetch.result() if fetch.done() else _PENDING
        is_found = access.origin == "none" and is_model_server(listing)
        is_ready = access.origin != "none" or is_found
        models = listing.models if is_ready else ()
        return ModelProviderInfo(
            access.provider.name, access.provider.label, is_ready, "port" if is_found else access.origin,
            self._mask.mask_with_patterns(_display_url(access)), bool(access.key),
            access.key_from if access.origin == "environment" else "",
            access.provider.is_local, access.provider.base_url, access.provider.model,
            tuple(self._model_info(access, model) for model in models),
            self._mask.mask_with_patterns(listing.problem) if is_ready else "",
        )  # fmt: skip

    def _model_info(self, access: ProviderAccess, listed: ListedModel) -> ModelInfo:
        endpoint = access.endpoint(listed.name)
        entry, overrides = self._catalog.entry_for(endpoint), self._catalog.overrides_for(endpoint.name)
        takes = overrides.takes or listed.takes or documented_file_kinds(endpoint)
        window = overrides.window_tokens or listed.window_tokens or entry.window_tokens
        return ModelInfo(
            self._mask.mask(f"{access.provider.name}:{listed.name}"),
            window, listed.answer_tokens or entry.answer_tokens,
            tuple(sorted(takes or guess_file_kinds(listed.name))),
            _price_info(listed.price or entry.price), takes is None,
        )  # fmt: skip


def _local_model_info(info: LocalModelInfo) -> ModelProviderInfo:
    """Return the model that this server runs itself, as one more provider."""
    is_installed = info.state == "installed"
    model = ModelInfo(info.name, WINDOW_TOKENS, takes=("text",), price=PriceInfo(0, 0, 0))
    return ModelProviderInfo(
        LOCAL, "Local model", is_installed, "installed" if is_installed else "none", "", local=True,
        default_model=MODEL_NAME, models=(model,) if is_installed else (),
        problem=info.problem or ("" if is_installed else "It is not installed."),
    )  # fmt: skip


def _may_be_running(access: ProviderAccess) -> bool:
    """Return whether to query it for its list: it is set up, or it would run on this machine."""
    return access.origin != "none" or access.provider.is_local


def _display_url(access: ProviderAccess) -> str:
    try:
        return access.endpoint("").display_url
    except HoldfastError:
        return access.provider.base_url


def _price_info(price: Price | None) -> PriceInfo | None:
    if price is None:
        return None
    return PriceInfo(price.input, price.output, price.cached, price.written)
