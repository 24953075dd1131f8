"""Which model answers, and why: by the setting, else by a key, a model server on this machine, or the demo.

Receives plain values. What it finds out is said in one sentence, for people to read when the server starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.models.catalog import Known
from holdfast.models.connection_check import tried
from holdfast.models.demo import Demo
from holdfast.models.endpoint import OPENAI_URL, Endpoint, Secret
from holdfast.models.factory import made_for
from holdfast.models.listing import Listed, fetched
from holdfast.models.ports import Model
from holdfast.models.providers import (
    PROVIDERS,
    Access,
    Saved,
    access_to,
    endpoint_at,
    in_environment,
    is_on_this_machine,
    provider_named,
    split_name,
)

PROBE_S = 0.15
"""For each model server that may run on this machine; all are asked at once."""
LIST_S = 5.0
"""For the model list of a server that somebody named."""
DEMO_ANSWERS = (
    "No key and no local model server found: the scripted demo answers. To connect a model, set a key such "
    "as OPENAI_API_KEY or ANTHROPIC_API_KEY, start Ollama, install a tiny model with `holdfast local "
    "install`, or open Settings in the page."
)
_NOTHING: Mapping[str, Saved] = MappingProxyType({})


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
        known = provider_named(self.provider)
        if self.url and known is not None:
            return endpoint_at(known, self.url, "", "", known.url_variable)
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


async def choose(
    setting: str,
    environ: Mapping[str, str],
    local: Sequence[LocalServer] | None = None,
    probe_s: float = PROBE_S,
    saved: Mapping[str, Saved] = _NOTHING,
    known: Known | None = None,
) -> tuple[Model, str]:
    """The model that `setting`, `environ` and what is `saved` ask for, and a sentence that says why.

    Raises NoSuchModel, NoModelKey, UnsendableKey, NoModelName and BadModelUrl, each with its remedy. Close
    the model.
    """
    if setting.strip() == DEMO:
        return Demo(), "The scripted demo answers, as HOLDFAST_MODEL asks."
    if setting.strip():
        provider, name = split_name(setting)
        return _named(access_to(provider, environ, saved, environ_first=True), name, known)
    found = [in_environment(each, environ) for each in PROVIDERS if not each.is_local]
    # A server that stands in for OpenAI's has models of its own.
    if found[0].base_url.rstrip("/") != OPENAI_URL:
        return await _listed_first(found[0], known)
    for access in found:
        if access.key:
            why = f"Using {access.key_from} from your environment ({access.provider.model})."
            return made_for(access.endpoint(access.provider.model), known), why
    return await _saved_or_local(environ, saved, local, probe_s, known)


async def _saved_or_local(
    environ: Mapping[str, str],
    saved: Mapping[str, Saved],
    local: Sequence[LocalServer] | None,
    probe_s: float,
    known: Known | None,
) -> tuple[Model, str]:
    """What nobody named: a provider whose key is in the settings, else whatever runs on this machine."""
    for provider in PROVIDERS:
        if provider.model and (kept := saved.get(provider.name)) is not None and kept.key:
            access = access_to(provider, environ, saved)
            why = f"Using the key for {provider.label} from the settings ({provider.model})."
            return made_for(access.endpoint(provider.model), known), why
    return await _local(local_servers(environ) if local is None else local, probe_s, known)


def _named(access: Access, name: str, known: Known | None) -> tuple[Model, str]:
    endpoint = access.endpoint(name)
    why = f"Using {name} at {endpoint.host}, as HOLDFAST_MODEL asks"
    if access.origin == "environment" and endpoint.key:
        why += f", with {access.key_from} from your environment"
    return made_for(endpoint, known), f"{why}."


async def _listed_first(access: Access, known: Known | None) -> tuple[Model, str]:
    """The model of the server that OPENAI_BASE_URL names, if its list leaves no doubt which."""
    endpoint = access.endpoint("")
    models = (await fetched(endpoint, LIST_S)).offers
    best = [each for each in models if each.name == access.provider.model] or models
    # A server on this machine has what its owner put there. Of a gateway's hundreds, nobody wants the first.
    if not best or (len(best) > 1 and not is_on_this_machine(endpoint)):
        raise NoModelName(url=endpoint.shown_url, why=(await tried(endpoint, LIST_S)).detail)
    model = made_for(access.endpoint(best[0].name), known, best[0].window_tokens)
    return model, f"Using {access.url_from} from your environment ({best[0].name} at {endpoint.host})."


async def _local(servers: Sequence[LocalServer], probe_s: float, known: Known | None) -> tuple[Model, str]:
    """The first model server that answers on this machine, else the demo."""
    lists = await asyncio.gather(*(fetched(server.endpoint, probe_s) for server in servers))
    for server, listed in zip(servers, lists, strict=True):
        if is_model_server(listed):
            first = listed.offers[0]
            endpoint = msgspec.structs.replace(server.endpoint, model=first.name)
            where = f"the model server on port {server.port} of this machine ({server.kind}'s usual port)"
            if server.url:
                provider = provider_named(server.provider)
                assert provider is not None, server.provider
                where = f"{endpoint.host}, which {provider.url_variable} names"
            return made_for(
                endpoint, known, first.window_tokens
            ), f"Using {first.name} from {where}: no key is set."
    return Demo(), DEMO_ANSWERS


def is_model_server(listed: Listed) -> bool:
    """Whether what answered on a usual port is one: anything may, and only a list that says so is taken."""
    return listed.is_named and bool(listed.offers)
