"""Who offers models: one table, and where each of them is asked, by the environment or by what was saved.

Adding a provider that speaks a protocol we know is adding a row.
"""

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.domain.urls import check_base_url
from holdfast.models.endpoint import OPENAI_URL, Endpoint, ProtocolName, Secret
from holdfast.models.local.info import LOCAL, LocalNotInstalled
from holdfast.models.ports import BadModelUrl, NoModelKey, NoSuchModel, UnsendableKey

LOCAL_MODEL = f"{LOCAL}:smollm2-135m"
"""The model that this server runs itself, once it is installed; `local` alone stands for it too."""


class ModelProvider(msgspec.Struct, frozen=True):
    """Who offers models. `name` stands before the colon where people name one of them.

    `keys` are the variables that a key is looked for in, the first that is set counts. One with a `port` runs
    on this machine and needs no key. `model` is taken where nobody named one.
    """

    name: str
    label: str
    protocol: ProtocolName
    base_url: str
    keys: tuple[str, ...]
    url_variable: str
    model: str = ""
    port: int = 0

    @property
    def is_local(self) -> bool:
        return bool(self.port)


def _local_provider(name: str, label: str, port: int, variable: str) -> ModelProvider:
    url = f"http://127.0.0.1:{port}/v1"
    return ModelProvider(name, label, "chat", url, (f"{variable}_API_KEY",), f"{variable}_BASE_URL", "", port)


PROVIDERS = (
    ModelProvider(
        "openai", "OpenAI", "responses", OPENAI_URL,
        ("OPENAI_API_KEY",), "OPENAI_BASE_URL", "gpt-5.4-mini",
    ),
    ModelProvider(
        "anthropic", "Anthropic", "messages", "https://api.anthropic.com/v1",
        ("ANTHROPIC_API_KEY",), "ANTHROPIC_BASE_URL", "claude-sonnet-5-5",
    ),
    ModelProvider(
        "openrouter", "OpenRouter", "chat", "https://openrouter.ai/api/v1",
        ("OPENROUTER_API_KEY",), "OPENROUTER_BASE_URL", "openrouter/auto",
    ),
    ModelProvider(
        "google", "Google", "chat", "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"), "GEMINI_BASE_URL", "gemini-flash-latest",
    ),
    ModelProvider(
        "deepseek", "DeepSeek", "chat", "https://api.deepseek.com/v1",
        ("DEEPSEEK_API_KEY",), "DEEPSEEK_BASE_URL", "deepseek-flash",
    ),
    ModelProvider(
        "mistral", "Mistral", "chat", "https://api.mistral.ai/v1",
        ("MISTRAL_API_KEY",), "MISTRAL_BASE_URL", "mistral-medium-latest",
    ),
    ModelProvider(
        "groq", "Groq", "chat", "https://api.groq.com/openai/v1",
        ("GROQ_API_KEY",), "GROQ_BASE_URL", "openai/gpt-oss-120b",
    ),
    _local_provider("ollama", "Ollama", 11434, "OLLAMA"),
    _local_provider("lmstudio", "LM Studio", 1234, "LMSTUDIO"),
    _local_provider("llamacpp", "llama.cpp", 8080, "LLAMACPP"),
    _local_provider("vllm", "vLLM", 8000, "VLLM"),
)  # fmt: skip
"""In the order in which they are looked for."""


class SavedConnection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a provider is asked, and with which key, as somebody put it into the settings."""

    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return "Saved(…)"


class ProviderAccess(msgspec.Struct, frozen=True):
    """How a provider is reached. `url_from` and `key_from` name where the two were given; empty: nowhere."""

    provider: ModelProvider
    base_url: str
    key: str = ""
    url_from: str = ""
    key_from: str = ""
    origin: Literal["settings", "environment", "none"] = "none"

    def __repr__(self) -> str:
        return f"Access({self.provider.name})"

    def endpoint(self, model: str) -> Endpoint:
        """One of its models. Raises BadModelUrl, NoModelKey, UnsendableKey, by where they were given."""
        return build_endpoint(
            self.provider, self.base_url, model, self.key,
            self.url_from or self.provider.url_variable, self.key_from or self.provider.keys[0],
        )  # fmt: skip


def find_provider(name: str) -> ModelProvider | None:
    return next((each for each in PROVIDERS if each.name == name), None)


def is_local_model(name: str) -> bool:
    return name.strip() in (LOCAL, LOCAL_MODEL)


def parse_model_name(name: str) -> tuple[ModelProvider, str]:
    """The provider and the model that a name such as `openai:NAME` says. Raises NoSuchModel."""
    provider_name, _, model = name.strip().partition(":")
    provider = find_provider(provider_name)
    if provider is None or not model.strip():
        raise NoSuchModel(name=name.strip())
    return provider, model.strip()


def access_from_environment(provider: ModelProvider, environ: Mapping[str, str]) -> ProviderAccess:
    """What the environment says of a provider; by its `origin`, nothing."""
    # Pasted and read from files, a key or an address often has a line's end at its own.
    url = environ.get(provider.url_variable, "").strip()
    found_key = next(
        ((name, environ[name].strip()) for name in provider.keys if environ.get(name, "").strip()), None
    )
    key_from, key = found_key or ("", "")
    return ProviderAccess(
        provider, url or provider.base_url, key, provider.url_variable if url else "", key_from,
        "environment" if url or key else "none",
    )  # fmt: skip


def resolve_access(
    provider: ModelProvider,
    environ: Mapping[str, str],
    saved: Mapping[str, SavedConnection],
    environ_first: bool = False,
) -> ProviderAccess:
    """How a provider is reached: as was put into the settings, else as the environment says.

    `environ_first`: the other way round, for a model that the environment names too.
    """
    from_environment, connection = access_from_environment(provider, environ), saved.get(provider.name)
    if connection is None or (environ_first and from_environment.origin != "none"):
        return from_environment
    return ProviderAccess(provider, connection.base_url, connection.key, "base_url", "key", "settings")


def with_version_path(provider: ModelProvider, url: str) -> str:
    """`url` as its protocol's paths are below it: Anthropic's is commonly given without its version."""
    if provider.protocol == "messages" and not urlsplit(url).path.rstrip("/").endswith("/v1"):
        parts = urlsplit(url)
        return parts._replace(path=f"{parts.path.rstrip('/')}/v1").geturl()
    return url


def build_endpoint(
    provider: ModelProvider, url: str, model: str, key: str, url_from: str = "base_url", key_from: str = "key"
) -> Endpoint:
    """A model behind an address. Raises BadModelUrl, NoModelKey, UnsendableKey, by where they were given."""
    try:
        check_base_url(url)
        urlsplit(url)
    except ValueError:
        raise BadModelUrl(variable=url_from) from None
    base = with_version_path(provider, url)
    is_own = base.rstrip("/") == provider.base_url
    # Whoever else speaks like OpenAI speaks its older protocol.
    protocol = "chat" if provider.protocol == "responses" and not is_own else provider.protocol
    variable = "" if key_from == "key" else key_from
    endpoint = Endpoint(base, model, Secret(key), variable, provider.name, protocol)
    if not (key.isascii() and key.isprintable()):
        raise UnsendableKey(origin=variable and f" in {variable}", host=endpoint.host)
    if not key and is_own and not provider.is_local:
        lack = f"{variable} is not set" if variable else "none is given"
        raise NoModelKey(host=endpoint.host, lack=lack, variable=variable or provider.keys[0])
    return endpoint


def unavailable_reason(
    name: str,
    environ: Mapping[str, str],
    saved: Mapping[str, SavedConnection],
    has_local: bool,
    environ_first: bool = False,
) -> str:
    """Why a model of that name cannot be asked, in a sentence; empty if nothing is known against it."""
    if name.strip() == DEMO or (has_local and is_local_model(name)):
        return ""
    if is_local_model(name):
        return str(LocalNotInstalled())
    try:
        provider, model = parse_model_name(name)
        resolve_access(provider, environ, saved, environ_first).endpoint(model)
    except HoldfastError as error:
        return str(error)
    return ""


def is_on_this_machine(endpoint: Endpoint) -> bool:
    return urlsplit(endpoint.base_url).hostname in ("127.0.0.1", "localhost", "::1")
