"""List the model providers, and find each one's address and key in the settings or the environment.

To add a provider that speaks a supported protocol, add a row to PROVIDERS.
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
"""The model that this server runs itself, once it is installed; `local` alone names it too."""


class ModelProvider(msgspec.Struct, frozen=True):
    """A provider of models. `name` is the prefix of its models' names.

    `keys` are the environment variables of its key; the first that is set counts. A provider with a `port`
    runs on this machine and needs no key. `model` is its default model.
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
"""The providers, in the order of detection."""


class SavedConnection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider's address and key, as saved in the settings."""

    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return "Saved(…)"


class ProviderAccess(msgspec.Struct, frozen=True):
    """A provider's address and key. `url_from` and `key_from` name their sources; empty means none."""

    provider: ModelProvider
    base_url: str
    key: str = ""
    url_from: str = ""
    key_from: str = ""
    origin: Literal["settings", "environment", "none"] = "none"

    def __repr__(self) -> str:
        return f"Access({self.provider.name})"

    def endpoint(self, model: str) -> Endpoint:
        """Return the endpoint of a model. Raises BadModelUrl, NoModelKey, UnsendableKey, with the source."""
        return build_endpoint(
            self.provider, self.base_url, model, self.key,
            self.url_from or self.provider.url_variable, self.key_from or self.provider.keys[0],
        )  # fmt: skip


def find_provider(name: str) -> ModelProvider | None:
    return next((provider for provider in PROVIDERS if provider.name == name), None)


def is_local_model(name: str) -> bool:
    return name.strip() in (LOCAL, LOCAL_MODEL)


def parse_model_name(name: str) -> tuple[ModelProvider, str]:
    """Return the provider and the model in a name such as `openai:NAME`. Raises NoSuchModel."""
    provider_name, _, model = name.strip().partition(":")
    provider = find_provider(provider_name)
    if provider is None or not model.strip():
        raise NoSuchModel(name=name.strip())
    return provider, model.strip()


def access_from_environment(provider: ModelProvider, environ: Mapping[str, str]) -> ProviderAccess:
    """Return a provider's access from the environment; `origin` is `none` if nothing is set."""
    # A key or an address that was pasted or read from a file often ends with a newline.
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
    """Return a provider's access from the settings, or else from the environment.

    `environ_first`: the environment takes precedence, because it names the model too.
    """
    from_environment, connection = access_from_environment(provider, environ), saved.get(provider.name)
    if connection is None or (environ_first and from_environment.origin != "none"):
        return from_environment
    return ProviderAccess(provider, connection.base_url, connection.key, "base_url", "key", "settings")


def with_version_path(provider: ModelProvider, url: str) -> str:
    """Return `url` with the version that Anthropic's paths need: people usually leave it out."""
    if provider.protocol == "messages" and not urlsplit(url).path.rstrip("/").endswith("/v1"):
        parts = urlsplit(url)
        return parts._replace(path=f"{parts.path.rstrip('/')}/v1").geturl()
    return url


def build_endpoint(
    provider: ModelProvider, url: str, model: str, key: str, url_from: str = "base_url", key_from: str = "key"
) -> Endpoint:
    """Return the endpoint of a model. Raises BadModelUrl, NoModelKey, UnsendableKey, with the source."""
    try:
        check_base_url(url)
        urlsplit(url)
    except ValueError:
        raise BadModelUrl(variable=url_from) from None
    base = with_version_path(provider, url)
    is_own = base.rstrip("/") == provider.base_url
    # Other servers that follow OpenAI speak its older protocol.
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
    """Return why a model of that name cannot be asked, as a sentence; empty if no reason is known."""
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
