"""Which model answers, and why: by the setting, else by a key, a model server on this machine, or the demo.

Receives plain values. What it finds out is said in one sentence, for people to read when the server starts.
"""

import asyncio
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from holdfast.agent.models.abilities import ask_once
from holdfast.agent.models.chat_wire import ChatWire
from holdfast.agent.models.demo import Demo
from holdfast.agent.models.endpoint import OPENAI_URL, Endpoint, Secret
from holdfast.agent.models.http_model import HttpModel
from holdfast.agent.ports import Model
from holdfast.domain.context import Profile
from holdfast.domain.errors import HoldfastError

OPENAI_MODEL = "gpt-5.4-mini"
"""What answers when there is a key and no name: OpenAI's small model that is made for calling tools."""
KEY_VARIABLE, URL_VARIABLE = "OPENAI_API_KEY", "OPENAI_BASE_URL"

PROBE_S = 0.15
"""For each model server that may run on this machine; all are asked at once."""
LIST_S = 5.0
"""For the model list of a server that somebody named."""

WINDOW_TOKENS = 128_000
WINDOW_TOKENS_LOCAL = 8_192
"""For a model on this machine that does not say: its server's default, not what the model could do."""
ANSWER_TOKENS = 4_096
_WINDOWS = (("gpt-5", 272_000), ("gpt-4.1", 1_000_000))
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts")


class LocalServer(msgspec.Struct, frozen=True):
    """A kind of model server and the loopback port that it usually has."""

    kind: str
    port: int


LOCAL_SERVERS = (
    LocalServer("Ollama", 11434),
    LocalServer("LM Studio", 1234),
    LocalServer("llama.cpp", 8080),
    LocalServer("vLLM", 8000),
)


class NoSuchModel(HoldfastError):
    """There is no model {name}."""

    code, status = "no_such_model", 400
    remedy = "Set HOLDFAST_MODEL to demo or openai:NAME, or leave it empty."


class NoModelKey(HoldfastError):
    """{variable} holds no key that can be sent to {host}."""

    code, status = "no_model_key", 400
    remedy = "Set {variable} to your key; for a server that needs none, set OPENAI_BASE_URL to its address."


class NoModelName(HoldfastError):
    """Nothing says which model of {url} to use."""

    code, status = "no_model_name", 400
    remedy = "Set HOLDFAST_MODEL=openai:NAME, or check OPENAI_BASE_URL."


class BadModelUrl(HoldfastError):
    """{variable} is not the address of a server."""

    code, status = "bad_model_url", 400
    remedy = "Set {variable} to an address such as http://127.0.0.1:11434/v1."


async def choose(
    setting: str,
    environ: Mapping[str, str],
    local: Sequence[LocalServer] = LOCAL_SERVERS,
    probe_s: float = PROBE_S,
) -> tuple[Model, str]:
    """The model that `setting` and `environ` ask for, and a sentence that says why it is that one.

    Raises NoSuchModel, NoModelKey, NoModelName and BadModelUrl, each with its remedy. Close the model.
    """
    provider, _, name = setting.strip().partition(":")
    if provider == "demo" and not name:
        return Demo(), "The scripted demo answers, as HOLDFAST_MODEL asks."
    if provider == "openai" and name:
        return _named(name, environ)
    if provider or name:
        raise NoSuchModel(name=setting.strip())
    if environ.get(URL_VARIABLE, "").strip().rstrip("/") not in ("", OPENAI_URL):
        return await _listed_first(environ)
    if environ.get(KEY_VARIABLE, "").strip():
        model, _ = _named(OPENAI_MODEL, environ)
        return model, f"Using {KEY_VARIABLE} from your environment ({OPENAI_MODEL})."
    return await _local(local, probe_s)


def _named(name: str, environ: Mapping[str, str]) -> tuple[Model, str]:
    endpoint = _endpoint(name, environ)
    why = f"Using {name} at {endpoint.host}, as HOLDFAST_MODEL asks"
    return made_for(
        endpoint
    ), f"{why}, with {KEY_VARIABLE} from your environment." if endpoint.key else f"{why}."


async def _listed_first(environ: Mapping[str, str]) -> tuple[Model, str]:
    """The model of the server that OPENAI_BASE_URL names, if its list leaves no doubt which."""
    endpoint = _endpoint("", environ)
    found = await _list(endpoint, LIST_S)
    models = _for_chat(found.data if found is not None else None)
    best = [each for each in models if each.id == OPENAI_MODEL] or models
    # A server on this machine has what its owner put there. Of a gateway's hundreds, nobody wants the first.
    if not best or (len(best) > 1 and not _is_local(endpoint)):
        raise NoModelName(url=endpoint.shown_url)
    model = made_for(msgspec.structs.replace(endpoint, model=best[0].id), best[0].window)
    return model, f"Using {URL_VARIABLE} from your environment ({best[0].id} at {endpoint.host})."


async def _local(servers: Sequence[LocalServer], probe_s: float) -> tuple[Model, str]:
    """The first model server that answers on this machine, else the demo."""
    endpoints = [Endpoint(f"http://127.0.0.1:{server.port}/v1", "", Secret("")) for server in servers]
    lists = await asyncio.gather(*(_list(endpoint, probe_s) for endpoint in endpoints))
    for server, endpoint, found in zip(servers, endpoints, lists, strict=True):
        # Anything may sit on these ports: only what calls itself a list of models is taken for one.
        models = _for_chat(found.data) if found is not None and found.object == "list" else []
        if models:
            first = models[0]
            model = made_for(msgspec.structs.replace(endpoint, model=first.id), first.window)
            where = f"the model server on port {server.port} of this machine ({server.kind}'s usual port)"
            return model, f"Using {first.id} from {where}: no key is set."
    return Demo(), "No key and no local model server found: the scripted demo answers."


def _endpoint(name: str, environ: Mapping[str, str]) -> Endpoint:
    # Pasted and read from files, a key or an address often has a line's end at its own.
    url, key = environ.get(URL_VARIABLE, ""), environ.get(KEY_VARIABLE, "")
    return endpoint_at(url.strip() or OPENAI_URL, name, key.strip(), URL_VARIABLE, KEY_VARIABLE)


def endpoint_at(url: str, name: str, key: str, url_from: str = "base_url", key_from: str = "key") -> Endpoint:
    """A model behind an address. Raises BadModelUrl and NoModelKey, by where the two were given."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadModelUrl(variable=url_from)
    endpoint = Endpoint(url, name, Secret(key), "" if key_from == "key" else key_from)
    if not (key.isascii() and key.isprintable()) or (not key and url == OPENAI_URL):
        raise NoModelKey(variable=key_from, host=endpoint.host)
    return endpoint


def _is_local(endpoint: Endpoint) -> bool:
    return urlsplit(endpoint.base_url).hostname in ("127.0.0.1", "localhost", "::1")


def made_for(endpoint: Endpoint, window: int | None = None) -> Model:
    """The model behind an endpoint. Close it."""
    known = next((tokens for start, tokens in _WINDOWS if endpoint.model.startswith(start)), None)
    tokens = window or known or (WINDOW_TOKENS_LOCAL if _is_local(endpoint) else WINDOW_TOKENS)
    answer_tokens = min(ANSWER_TOKENS, tokens // 4)
    profile = Profile(endpoint.host, tokens, answer_tokens, address=endpoint.shown_url)
    return HttpModel(endpoint, ChatWire(), profile)


# What a server says of its models.


class _Listed(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    max_model_len: int | None = None
    context_length: int | None = None

    @property
    def window(self) -> int | None:
        return self.max_model_len or self.context_length


class _ModelList(msgspec.Struct, frozen=True):
    data: list[_Listed] | None
    object: str = ""


_MODEL_LIST = msgspec.json.Decoder(_ModelList)


def models_listed(body: bytes) -> list[str] | None:
    """The names in a server's list of models, those that cannot be talked to left out; None if it is none."""
    try:
        found = _MODEL_LIST.decode(body)
    except ValueError:
        return None
    return [each.id for each in _for_chat(found.data)]


async def _list(endpoint: Endpoint, wait_s: float) -> _ModelList | None:
    """What a server says that it has; None if it is not there or says something else."""
    told = await ask_once(endpoint, endpoint.url("models"), wait_s)
    try:
        return _MODEL_LIST.decode(told.body) if told is not None and told.status == 200 else None
    except ValueError:
        return None


def _for_chat(models: list[_Listed] | None) -> list[_Listed]:
    # Another Holdfast would answer with its own agent; two of them could answer each other for ever.
    others = [each for each in models or () if each.id and each.owned_by != "holdfast"]
    return [each for each in others if not any(word in each.id.lower() for word in _NOT_FOR_CHAT)]
