"""Which model answers, and why: by the setting, else by a key, a model server on this machine, or the demo.

Receives plain values. What it finds out is said in one sentence, for people to read when the server starts.
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
"""For each model server that may run on this machine; all are asked at once."""
LIST_TIMEOUT_S = 5.0
"""For the model list of a server that somebody named."""
DEMO_REASON = (
    "No key and no local model server found: the scripted demo answers. To connect a model, set a key such "
    "as OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, install a tiny model with `holdfast local "
    "install`, or open Settings in the page."
)
_NO_CONNECTIONS: Mapping[str, SavedConnection] = MappingProxyType({})


class LocalServer(msgspec.Struct, frozen=True):
    """A kind of model server, the loopback port that it usually has, and whose models it offers.

    `url` is where it is instead, if somebody said so.
    """

    kind: str
    port: int
    provider: str = "openai"
    url: str = ""

    @property
    def endpoint(self) -> Endpoint:
        """Where it is asked. Raises BadModelUrl."""
        provider = find_provider(self.provider)
        if self.url and provider is not None:
            return build_endpoint(provider, self.url, "", "", provider.url_variable)
        return Endpoint(f"http://127.0.0.1:{self.port}/v1", "", Secret(""), provider=self.provider)


class NoModelName(HoldfastError):
    """No model of {url} can be chosen. {why}"""

    code, status = "no_model_name", 400
    remedy = "Set HOLDFAST_MODEL=openai:NAME, or check OPENAI_BASE_URL."


def local_servers(environ: Mapping[str, str]) -> tuple[LocalServer, ...]:
    """The model servers that may run on this machine, in the order in which they are looked for."""
    return tuple(
        LocalServer(each.label, each.port, each.name, environ.get(each.url_variable, "").strip())
        for each in PROVIDERS
        if each.is_local
    )


async def select_model(
    setting: str,
    environ: Mapping[str, str],
    servers: Sequence[LocalServer] | None = None,
    probe_s: float = PROBE_TIMEOUT_S,
    saved: Mapping[str, SavedConnection] = _NO_CONNECTIONS,
    catalog: ModelCatalog | None = None,
) -> tuple[Model, str]:
    """The model that `setting`, `environ` and what is `saved` ask for, and a sentence that says why.

    Raises NoSuchModel, NoModelKey, UnsendableKey, NoModelName and BadModelUrl, each with its remedy. Close
    the model.
    """
    if setting.strip() == DEMO:
        return DemoModel(), "The scripted demo answers, as HOLDFAST_MODEL asks."
    if setting.strip():
        provider, name = parse_model_name(setting)
        return _build_named(resolve_access(provider, environ, saved, environ_first=True), name, catalog)
    found = [access_from_environment(each, environ) for each in PROVIDERS if not each.is_local]
    # A server that stands in for OpenAI's has models of its own.
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
    """What nobody named: a provider whose key is in the settings, else whatever runs on this machine."""
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
    """The model of the server that OPENAI_BASE_URL names, if its list leaves no doubt which."""
    endpoint = access.endpoint("")
    models = (await fetch_listing(endpoint, LIST_TIMEOUT_S)).models
    best = [each for each in models if each.name == access.provider.model] or models
    # A server on this machine has what its owner put there. Of a gateway's hundreds, nobody wants the first.
    if not best or (len(best) > 1 and not is_on_this_machine(endpoint)):
        raise NoModelName(
            url=endpoint.display_url, why=(await check_connection(endpoint, LIST_TIMEOUT_S)).detail
        )
    model = build_model(access.endpoint(best[0].name), catalog, best[0].window_tokens)
    return model, f"Using {access.url_from} from your environment ({best[0].name} at {endpoint.host})."


async def _select_local(
    servers: Sequence[LocalServer], probe_s: float, catalog: ModelCatalog | None
) -> tuple[Model, str]:
    """The first model server that answers on this machine, else the demo."""
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
    """Whether what answered on a usual port is one: anything may, and only a list that says so is taken."""
    return listing.declares_list and bool(listing.models)
