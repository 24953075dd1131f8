"""Models made from their names: which protocol, which address, which key, and what stays secret."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import SupportedFiles
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.models.catalog import ModelCatalog, ModelOverrides, load_catalog
from holdfast.models.connection_file import FILE_NAME, read_connections, write_connections
from holdfast.models.factory import ModelFactory
from holdfast.models.listing import TEXT_AND_IMAGES, TEXT_ONLY
from holdfast.models.overrides import read_overrides
from holdfast.models.ports import BadModelUrl, FallbackStarted, NoModelKey, NoSuchModel, StepEnd
from holdfast.models.provider_directory import ProviderDirectory
from holdfast.models.providers import (
    PROVIDERS,
    ModelProvider,
    SavedConnection,
    parse_model_name,
    resolve_access,
)
from holdfast.models.service import resolve_model
from holdfast.settings.settings import ConfigError, Settings, resolve
from tests.support.model_server import DONE, KEY, REQUEST, chunk, error_answer, model_server, streaming_answer

GOOD = streaming_answer([chunk({"content": f"Here, {KEY}."}), chunk({}, "stop"), DONE])


def model_factory(environ: Mapping[str, str], **saved: SavedConnection) -> ModelFactory:
    return ModelFactory(environ, lambda: saved, SecretMask(find_secrets(environ)), load_catalog())


@pytest.mark.parametrize(
    ("name", "environ", "protocol", "url"),
    [
        ("openai:x", {"OPENAI_API_KEY": KEY}, "responses", "https://api.openai.com/v1"),
        ("openai:x", {"OPENAI_BASE_URL": "http://h/v1"}, "chat", "http://h/v1"),
        ("anthropic:x", {"ANTHROPIC_API_KEY": KEY}, "messages", "https://api.anthropic.com/v1"),
        ("anthropic:x", {"ANTHROPIC_BASE_URL": "http://h"}, "messages", "http://h/v1"),
        ("anthropic:x", {"ANTHROPIC_BASE_URL": "http://h/claude/v1/"}, "messages", "http://h/claude/v1/"),
        (
            "google:x",
            {"GOOGLE_API_KEY": KEY},
            "chat",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("ollama:a/b:c", {}, "chat", "http://127.0.0.1:11434/v1"),
        ("vllm:x", {"VLLM_BASE_URL": "http://h:1/v1"}, "chat", "http://h:1/v1"),
    ],
)
async def test_a_model_name_determines_protocol_and_address(
    name: str, environ: dict[str, str], protocol: str, url: str
) -> None:
    endpoint = await model_factory(environ).endpoint(name)
    assert endpoint is not None
    assert (endpoint.protocol, endpoint.base_url) == (protocol, url)
    model = await model_factory(environ).build(name)
    assert model.name == name
    await model.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x", NoSuchModel), ("nobody:x", NoSuchModel), ("openai:", NoSuchModel), ("", NoSuchModel),
     ("groq:x", NoModelKey), ("mistral:x", BadModelUrl)],
)  # fmt: skip
async def test_a_model_that_cannot_be_built_fails_with_a_remedy(name: str, kind: type[HoldfastError]) -> None:
    with pytest.raises(kind) as refusal:
        await model_factory({"MISTRAL_BASE_URL": "nowhere"}).build(name)
    assert refusal.value.advice


async def test_an_unavailable_fallback_is_skipped_but_an_invalid_name_is_refused() -> None:
    alone = await model_factory({"MISTRAL_BASE_URL": "nowhere"}).build(
        "demo", ["groq:x", "mistral:x", "local"]
    )
    assert (alone.name, "Fallback" in repr(alone)) == ("demo", False)
    async with model_server(GOOD) as (url, _):
        house = model_factory({"OLLAMA_BASE_URL": url, "MISTRAL_BASE_URL": "nowhere"})
        chain = await house.build("ollama:first", ["groq:x", "ollama:second", "mistral:x"])
        assert repr(chain).count("HttpModel") == 2 and "groq" not in repr(chain)
        deltas = [delta async for delta in chain.stream(REQUEST, ())]
        assert any(isinstance(delta, StepEnd) for delta in deltas)
        await chain.close()
    with pytest.raises(NoSuchModel):
        await model_factory({}).build("demo", ["nobody:x"])
    with pytest.raises(NoModelKey):
        await model_factory({}).build("groq:x", ["mistral:x"])


def test_saved_connections_take_precedence_unless_the_environment_names_the_model() -> None:
    provider, _ = parse_model_name("groq:x")
    environ, saved = (
        {"GROQ_API_KEY": "from-environment"},
        {"groq": SavedConnection("http://h/v1", "from-settings")},
    )
    assert resolve_access(provider, environ, saved).key == "from-settings"
    assert resolve_access(provider, environ, saved, environ_first=True).key == "from-environment"
    assert resolve_access(provider, {}, saved, environ_first=True).key == "from-settings"
    assert "from" not in repr(resolve_access(provider, environ, saved)) + repr(saved)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: each.name)
def test_the_keys_of_all_providers_are_treated_as_secrets(provider: ModelProvider) -> None:
    for variable in provider.keys:
        assert list(find_secrets({variable: KEY})) == [KEY], "so it leaves the environment, and is masked"


async def test_a_built_model_is_masked_and_its_fallbacks_answer() -> None:
    async with (
        model_server(error_answer(401, {"error": f"no {KEY}"})) as (bad, _),
        model_server(GOOD) as (good, seen),
    ):
        saved = {"openai": SavedConnection(bad, KEY), "groq": SavedConnection(good, KEY)}
        model = await model_factory({}, **saved).build("openai:first", ["groq:second", "openai:first"])
        deltas = [delta async for delta in model.stream(REQUEST, ())]
        await model.close()
        assert isinstance(deltas[0], FallbackStarted)
        assert deltas[0].model == "groq:second"
        assert KEY not in str(deltas) + str(deltas[0].failure)
        assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_without_a_key_for_the_first_model_its_fallbacks_answer_with_the_reason() -> None:
    async with model_server(GOOD) as (good, _):
        model = await model_factory({}, groq=SavedConnection(good, KEY)).build(
            "anthropic:first", ["groq:second"]
        )
        assert model.name == "anthropic:first"
        assert await model.supported_files()
        deltas = [delta async for delta in model.stream(REQUEST, ())]
        await model.close()
    assert isinstance(deltas[0], FallbackStarted) and deltas[0].model == "groq:second"
    assert "ANTHROPIC_API_KEY is not set" in str(deltas[0].failure)
    with pytest.raises(NoSuchModel):
        await model_factory({}, groq=SavedConnection(good, KEY)).build("nobody:x", ["groq:second"])


async def test_a_server_starts_with_fallbacks_if_the_first_model_has_no_key(
    tmp_path: Path,
) -> None:
    settings = Settings(
        data=tmp_path, model="anthropic:first", fallback_models=("ollama:second", "groq:third")
    )
    model, why = await resolve_model(settings, {}, SecretMask(), model_factory({}))
    assert model.name == "anthropic:first" and "ANTHROPIC_API_KEY is not set" in why
    assert "ollama:second is asked." in why and "groq:third cannot be asked instead: " in why
    await model.close()
    with pytest.raises(NoModelKey):
        await resolve_model(
            Settings(data=tmp_path, model="anthropic:first"), {}, SecretMask(), model_factory({})
        )


async def test_a_profile_uses_the_catalog() -> None:
    model = await model_factory({"ANTHROPIC_API_KEY": KEY}).build("anthropic:claude-haiku-4-5")
    other = await model_factory({"ANTHROPIC_API_KEY": KEY}).build("anthropic:claude-opus-5")
    assert (model.profile.window_tokens, model.profile.answer_tokens) == (200_000, 32_000)
    assert model.profile.provider != other.profile.provider, "thinking goes back to the model that thought it"
    await model.close()
    await other.close()


async def test_the_window_reported_by_a_server_overrides_the_catalog() -> None:
    listed = {"object": "list", "data": [{"id": "gpt-5-own", "context_length": 16_000}]}
    async with model_server(error_answer(200, listed)) as (url, _):
        model = await ModelFactory({"OPENAI_BASE_URL": url}, dict, SecretMask(), ModelCatalog()).build(
            "openai:gpt-5-own"
        )
        assert model.profile.window_tokens == 272_000
        await model.supported_files()
        assert (model.profile.window_tokens, model.profile.answer_tokens) == (16_000, 4_000)
        await model.close()


OVERRIDES = {
    "openai:gpt-5-own": ModelOverrides(64_000, TEXT_AND_IMAGES),
    "openai:blind": ModelOverrides(takes=TEXT_ONLY),
    "lmstudio:a=b": ModelOverrides(100_000),
}


async def test_model_settings_override_the_server_and_the_catalog() -> None:
    listed = {"object": "list", "data": [
        {"id": "gpt-5-own", "context_length": 16_000, "capabilities": {"vision": False}},
        {"id": "blind", "context_length": 16_000, "capabilities": {"vision": True}},
        {"id": "told", "capabilities": {"vision": False}}, {"id": "unknown"},
    ]}  # fmt: skip
    async with model_server(error_answer(200, listed)) as (url, _):
        here = ModelFactory({"OPENAI_BASE_URL": url}, dict, SecretMask(), ModelCatalog(overrides=OVERRIDES))
        own, blind = await here.build("openai:gpt-5-own"), await here.build("openai:blind")
        for _ in range(2):
            assert (own.profile.window_tokens, own.profile.answer_tokens) == (64_000, 4_096)
            assert await own.supported_files() == SupportedFiles(TEXT_AND_IMAGES)
            assert await blind.supported_files() == SupportedFiles(TEXT_ONLY)
        assert blind.profile.window_tokens == 16_000, "what nothing is said of is as it was"
        providers = await ProviderDirectory(
            {"OPENAI_BASE_URL": url}, dict, here.catalog, SecretMask()
        ).list_providers()
        offered = {each.name: each for provider in providers for each in provider.models}
        assert offered["openai:gpt-5-own"].window_tokens == 64_000
        assert offered["openai:gpt-5-own"].takes == ("image", "text")
        assert offered["openai:blind"].takes == offered["openai:unknown"].takes == ("text",)
        assert [name for name, each in offered.items() if each.takes_guessed] == ["openai:unknown"]
        await own.close()
        await blind.close()


async def test_the_reason_for_a_model_mentions_its_overrides(tmp_path: Path) -> None:
    environ = {"LMSTUDIO_BASE_URL": "http://127.0.0.1:1/v1"}
    here = ModelFactory(environ, dict, SecretMask(), ModelCatalog(overrides=OVERRIDES))
    model, why = await resolve_model(
        Settings(data=tmp_path, model="lmstudio:a=b"), environ, SecretMask(), here
    )
    assert model.profile.window_tokens == 100_000
    assert why.endswith("It reads 100,000 tokens at once, as the settings say.")
    await model.close()
    other, why = await resolve_model(Settings(data=tmp_path, model="lmstudio:c"), environ, SecretMask(), here)
    assert other.profile.window_tokens == 8_192 and "settings say" not in why
    await other.close()


def test_overrides_use_full_model_names_and_an_unknown_provider_is_reported(tmp_path: Path) -> None:
    assert read_overrides(resolve({"data": tmp_path}, {
        "HOLDFAST_MODEL_WINDOWS": "openai:gpt-5-own=64000, lmstudio:a=b=100000",
        "HOLDFAST_MODEL_TAKES": "openai:gpt-5-own=image,openai:blind=text",
    })) == OVERRIDES  # fmt: skip
    (tmp_path / "holdfast.toml").write_text('model_takes = ["nobody:x=image"]')
    with pytest.raises(ConfigError, match=r"holdfast.toml: model_takes names nobody:x, but there is no prov"):
        read_overrides(resolve({"data": tmp_path}, {}))
    with pytest.raises(ConfigError, match=r"HOLDFAST_MODEL_WINDOWS: model_windows names nobody:x, but "):
        read_overrides(resolve({"data": tmp_path}, {"HOLDFAST_MODEL_WINDOWS": "nobody:x=5000"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_windows", "openai:x"), ("model_windows", "openai:x=999"), ("model_windows", "openai:x=many"),
        ("model_windows", "x=5000"), ("model_windows", "openai:x=32k"), ("model_takes", "openai:x=sound"),
        ("model_takes", "openai:x=image+"), ("model_takes", "openai:x"), ("model_takes", "openai:=image"),
    ],
)  # fmt: skip
def test_an_invalid_override_is_refused_with_the_valid_values(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is .* but must be a list like openai:NAME="):
        resolve({"data": tmp_path}, {f"HOLDFAST_{name.upper()}": value})


# The file of connections.


def test_written_connections_are_read_back_unchanged(tmp_path: Path) -> None:
    saved = {
        "openai": SavedConnection("http://h/v1", 'a "quoted" \\ key'),
        "anthropic": SavedConnection("https://api.anthropic.com", KEY),
        "ollama": SavedConnection("http://127.0.0.1:11434/v1"),
    }
    write_connections(tmp_path, saved)
    assert read_connections(tmp_path) == saved
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    write_connections(tmp_path, {"anthropic": saved["anthropic"]})
    assert read_connections(tmp_path) == {"anthropic": saved["anthropic"]}
    write_connections(tmp_path, {})
    assert not (tmp_path / FILE_NAME).exists()
    assert read_connections(tmp_path) == {}


def test_the_old_connection_file_is_read_and_an_invalid_one_is_refused_without_secrets(
    tmp_path: Path,
) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(f'base_url = "http://h/v1"\nkey = "{KEY}"\n')
    assert read_connections(tmp_path) == {"openai": SavedConnection("http://h/v1", KEY)}
    for text in (f'key = "{KEY}"', f'[providers.nobody]\nbase_url = "{KEY}"', f"{KEY}", f'other = "{KEY}"'):
        path.write_text(text)
        with pytest.raises(ConfigError) as refusal:
            read_connections(tmp_path)
        assert KEY not in str(refusal.value) and os.fspath(path) in str(refusal.value)
