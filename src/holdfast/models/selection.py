"""Select the model that answers: by the setting, else by a key, a local model server, or the demo.

The functions receive plain values. Each selection comes with its reason, as a sentence for people.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.models.catalog import ModelCatalog
from holdfast.models.connection_check import check_connection
from holdfast.models.demo import DemoModel
from holdfast.models.endpoint import OPENAI_URL, Endpoint, Secret
from holdfast.models.factory import build_model
from holdfast.models.listing import ModelListing, fetch_listing
from holdfast.models.ports import Model
from holdfast.models.providers import (
    PROVIDERS,
    ProviderAccess,
    SavedConnection,
    access_from_environment,
    build_endpoint,
    find_provider,
    is_on_this_machine,
    parse_model_name,
    resolve_access,
)

PROBE_TIMEOUT_S = 0.15
"""Limit for each model server that may run on this machine; all are queried at once."""
LIST_TIMEOUT_S = 5.0
"""Limit for the model list of a server that somebody configured."""
DEMO_REASON = (
    "No key and no local model server found: the scripted demo answers. To connect a model, set a key such "
    "as OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, install a tiny model with `holdfast local "
    "install`, or open Settings in the page."
)
_NO_CONNECTIONS: Mapping[str, SavedConnection] = MappingProxyType({})


class LocalServer(msgspec.Struct, frozen=True):
    """A kind of model server, its usual loopback port, and the provider of its models.

    `url` replaces the usual address, if it is set.
    """

    kind: str
    port: int
    provider: str = "openai"
    url: str = ""

    @property
    def endpoint(self) -> Endpoint:
        """Return its endpoint. Raises BadModelUrl."""
        provider = find_provider(self.provider)
        if self.url and provider is not None:
            return build_endpoint(provider, self.url, "", "", provider.url_variable)
        return Endpoint(f"http://127.0.0.1:{self.port}/v1", "", Secret(""), provider=self.provider)


class NoModelName(HoldfastError):
    """No model of {url} can be chosen. {why}"""

    code, status = "no_model_name", 400
    remedy = "Set HOLDFAST_MODEL=openai:NAME, or check OPENAI_BASE_URL."


def local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """Return the model servers that may run on this machine, in the order of detection."""
    return tuple(
        LocalServer(
            provider.label, provider.port, provider.name, environ.get(provider.url_variable, "").strip()
        )
        for provider in PROVIDERS
        if provider.is_local
    )


async def select_model(
    setting: str,
    environ: Mapping[str, str],
    servers: Sequence[LocalServer] | None = None,
    probe_s: float = PROBE_TIMEOUT_S,
    saved: Mapping[str, SavedConnection] = _NO_CONNECTIONS,
    catalog: ModelCatalog | None = None,
) -> tuple[Model, str]:
    """Return the model that `setting`, `environ` and `saved` select, and the reason as a sentence.

    Raises NoSuchModel, NoModelKey, UnsendableKey, NoModelName and BadModelUrl, each with its remedy. The
    caller closes the model.
    """
    if setting.strip() == DEMO:
        return DemoModel(), "The scripted demo answers, as HOLDFAST_MODEL asks."
    if setting.strip():
        provider, name = parse_model_name(setting)
        return _build_named(resolve_access(provider, environ, saved, environ_first=True), name, catalog)
    found = [access_from_environment(provider, environ) for provider in PROVIDERS if not provider.is_local]
    # A server that replaces OpenAI's has models of its own.
    if found[0].base_url.rstrip("/") != OPENAI_URL:
        return await _select_listed(found[0], catalog)
    for access in found:
        if access.key:
            why = f"Using {access.key_from} from your environment ({access.provider.model})."
            return build_model(access.endpoint(access.provider.model), catalog), why
    return await _select_saved_or_local(environ, saved, servers, probe_s, catalog)


async def _select_saved_or_local(
    environ: Mapping[str, str],
    saved: Mapping[str, SavedConnection],
    servers: Sequence[LocalServer] | None,
    probe_s: float,
    catalog: ModelCatalog | None,
) -> tuple[Model, str]:
    """Return the model of a provider with a saved key, else one that runs on this machine, else the demo."""
    for provider in PROVIDERS:
        if provider.model and (connection := saved.get(provider.name)) is not None and connection.key:
            access = resolve_access(provider, environ, saved)
            why = f"Using the key for {provider.label} from the settings ({provider.model})."
            return build_model(access.endpoint(provider.model), catalog), why
    return await _select_local(local_servers(environ) if servers is None else servers, probe_s, catalog)


def _build_named(access: ProviderAccess, name: str, catalog: ModelCatalog | None) -> tuple[Model, str]:
    endpoint = access.endpoint(name)
    why = f"Using {name} at {endpoint.host}, as HOLDFAST_MODEL asks"
    if access.origin == "environment" and endpoint.key:
        why += f", with {access.key_from} from your environment"
    return build_model(endpoint, catalog), f"{why}."


async def _select_listed(access: ProviderAccess, catalog: ModelCatalog | None) -> tuple[Model, str]:
    """Return the model of the server that OPENAI_BASE_URL names, if its list leaves no doubt which."""
    endpoint = access.endpoint("")
    models = (await fetch_listing(endpoint, LIST_TIMEOUT_S)).models
    best = [model for model in models if model.name == access.provider.model] or models
    # The owner chose the models of a server on this machine, but not the first of a gateway's hundreds.
    if not best or (len(best) > 1 and not is_on_this_machine(endpoint)):
        raise NoModelName(
            url=endpoint.display_url, why=(await check_connection(endpoint, LIST_TIMEOUT_S)).detail
        )
    model = build_model(access.endpoint(best[0].name), catalog, best[0].window_tokens)
    return model, f"Using {access.url_from} from your environment ({best[0].name} at {endpoint.host})."


async def _select_local(
    servers: Sequence[LocalServer], probe_s: float, catalog: ModelCatalog | None
) -> tuple[Model, str]:
    """Return the first model of the first server that answers on this machine, else the demo."""
    lists = await asyncio.gather(*(fetch_listing(server.endpoint, probe_s) for server in servers))
    for server, listing in zip(servers, lists, strict=True):
        if is_model_server(listing):
            first = listing.models[0]
            endpoint = msgspec.structs.replace(server.endpoint, model=first.name)
            where = f"the model server on port {server.port} of this machine ({server.kind}'s usual port)"
            if server.url:
                provider = find_provider(server.provider)
                assert provider is not None, server.provider
                where = f"{endpoint.host}, which {provider.url_variable} names"
            return build_model(
                endpoint, catalog, first.window_tokens
            ), f"Using {first.name} from {where}: no key is set."
    return DemoModel(), DEMO_REASON


def is_model_server(listing: ModelListing) -> bool:
    """Return whether a model server sent this list.

    Any program may listen on a usual port, so only a list that declares itself counts.
    """
    return listing.declares_list and bool(listing.models)
