"""Models made from their names: which protocol, which address, which key, and what stays secret."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import Takes
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.models.catalog import Known, Said, read_known
from holdfast.models.connection_file import FILE_NAME, read_connections, write_connections
from holdfast.models.factory import Shop
from holdfast.models.listing import PICTURES, WORDS
from holdfast.models.offers import Offers
from holdfast.models.overrides import said_in
from holdfast.models.ports import AskedInstead, BadModelUrl, NoModelKey, NoSuchModel, StepEnd
from holdfast.models.providers import PROVIDERS, Provider, Saved, access_to, split_name
from holdfast.models.service import chosen
from holdfast.settings.settings import ConfigError, Settings, resolve
from tests.support.model_server import ASKED, DONE, KEY, chunk, refusing, serving, streaming

GOOD = streaming([chunk({"content": f"Here, {KEY}."}), chunk({}, "stop"), DONE])


def shop(environ: Mapping[str, str], **saved: Saved) -> Shop:
    return Shop(environ, lambda: saved, Mask(secrets_in(environ)), read_known())


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
async def test_a_name_says_the_protocol_and_the_address(
    name: str, environ: dict[str, str], protocol: str, url: str
) -> None:
    endpoint = await shop(environ).endpoint(name)
    assert endpoint is not None
    assert (endpoint.protocol, endpoint.base_url) == (protocol, url)
    model = await shop(environ).model(name)
    assert model.name == name
    await model.close()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("x", NoSuchModel), ("nobody:x", NoSuchModel), ("openai:", NoSuchModel), ("", NoSuchModel),
     ("groq:x", NoModelKey), ("mistral:x", BadModelUrl)],
)  # fmt: skip
async def test_what_cannot_be_made_says_what_to_do(name: str, kind: type[HoldfastError]) -> None:
    with pytest.raises(kind) as refusal:
        await shop({"MISTRAL_BASE_URL": "nowhere"}).model(name)
    assert refusal.value.advice


async def test_a_fallback_that_cannot_be_made_is_passed_over_and_one_that_is_no_name_is_not() -> None:
    alone = await shop({"MISTRAL_BASE_URL": "nowhere"}).model("demo", ["groq:x", "mistral:x", "local"])
    assert (alone.name, "Fallback" in repr(alone)) == ("demo", False)
    async with serving(GOOD) as (url, _):
        house = shop({"OLLAMA_BASE_URL": url, "MISTRAL_BASE_URL": "nowhere"})
        chain = await house.model("ollama:first", ["groq:x", "ollama:second", "mistral:x"])
        assert repr(chain).count("HttpModel") == 2 and "groq" not in repr(chain)
        deltas = [delta async for delta in chain.stream(ASKED, ())]
        assert any(isinstance(delta, StepEnd) for delta in deltas)
        await chain.close()
    with pytest.raises(NoSuchModel):
        await shop({}).model("demo", ["nobody:x"])
    with pytest.raises(NoModelKey):
        await shop({}).model("groq:x", ["mistral:x"])


def test_what_was_put_into_the_settings_goes_first_but_for_a_model_that_the_environment_names() -> None:
    provider, _ = split_name("groq:x")
    environ, saved = {"GROQ_API_KEY": "from-environment"}, {"groq": Saved("http://h/v1", "from-settings")}
    assert access_to(provider, environ, saved).key == "from-settings"
    assert access_to(provider, environ, saved, environ_first=True).key == "from-environment"
    assert access_to(provider, {}, saved, environ_first=True).key == "from-settings"
    assert "from" not in repr(access_to(provider, environ, saved)) + repr(saved)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda each: each.name)
def test_every_providers_key_is_known_for_a_secret(provider: Provider) -> None:
    for variable in provider.keys:
        assert list(secrets_in({variable: KEY})) == [KEY], "so it leaves the environment, and is masked"


async def test_what_a_model_of_the_shop_says_is_masked_and_its_fallbacks_answer() -> None:
    async with serving(refusing(401, {"error": f"no {KEY}"})) as (bad, _), serving(GOOD) as (good, seen):
        saved = {"openai": Saved(bad, KEY), "groq": Saved(good, KEY)}
        model = await shop({}, **saved).model("openai:first", ["groq:second", "openai:first"])
        deltas = [delta async for delta in model.stream(ASKED, ())]
        await model.close()
        assert isinstance(deltas[0], AskedInstead)
        assert deltas[0].model == "groq:second"
        assert KEY not in str(deltas) + str(deltas[0].failure)
        assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"


async def test_where_the_first_has_no_key_the_others_answer_and_why_is_told() -> None:
    async with serving(GOOD) as (good, _):
        model = await shop({}, groq=Saved(good, KEY)).model("anthropic:first", ["groq:second"])
        assert model.name == "anthropic:first"
        assert await model.takes()
        deltas = [delta async for delta in model.stream(ASKED, ())]
        await model.close()
    assert isinstance(deltas[0], AskedInstead) and deltas[0].model == "groq:second"
    assert "ANTHROPIC_API_KEY is not set" in str(deltas[0].failure)
    with pytest.raises(NoSuchModel):
        await shop({}, groq=Saved(good, KEY)).model("nobody:x", ["groq:second"])


async def test_a_server_whose_first_model_has_no_key_starts_with_the_others_and_says_why(
    tmp_path: Path,
) -> None:
    settings = Settings(
        data=tmp_path, model="anthropic:first", fallback_models=("ollama:second", "groq:third")
    )
    model, why = await chosen(settings, {}, Mask(), shop({}))
    assert model.name == "anthropic:first" and "ANTHROPIC_API_KEY is not set" in why
    assert "ollama:second is asked." in why and "groq:third cannot be asked instead: " in why
    await model.close()
    with pytest.raises(NoModelKey):
        await chosen(Settings(data=tmp_path, model="anthropic:first"), {}, Mask(), shop({}))


async def test_what_is_known_of_a_model_is_in_its_profile() -> None:
    model = await shop({"ANTHROPIC_API_KEY": KEY}).model("anthropic:claude-haiku-4-5")
    other = await shop({"ANTHROPIC_API_KEY": KEY}).model("anthropic:claude-opus-5")
    assert (model.profile.window_tokens, model.profile.answer_tokens) == (200_000, 32_000)
    assert model.profile.provider != other.profile.provider, "thinking goes back to the model that thought it"
    await model.close()
    await other.close()


async def test_what_a_server_says_of_its_window_goes_before_what_is_known() -> None:
    listed = {"object": "list", "data": [{"id": "gpt-5-own", "context_length": 16_000}]}
    async with serving(refusing(200, listed)) as (url, _):
        model = await Shop({"OPENAI_BASE_URL": url}, dict, Mask(), Known()).model("openai:gpt-5-own")
        assert model.profile.window_tokens == 272_000
        await model.takes()
        assert (model.profile.window_tokens, model.profile.answer_tokens) == (16_000, 4_000)
        await model.close()


SAID = {
    "openai:gpt-5-own": Said(64_000, PICTURES),
    "openai:blind": Said(takes=WORDS),
    "lmstudio:a=b": Said(100_000),
}


async def test_what_is_said_of_a_model_goes_before_what_its_server_says_and_what_is_known() -> None:
    listed = {"object": "list", "data": [
        {"id": "gpt-5-own", "context_length": 16_000, "capabilities": {"vision": False}},
        {"id": "blind", "context_length": 16_000, "capabilities": {"vision": True}},
        {"id": "told", "capabilities": {"vision": False}}, {"id": "unknown"},
    ]}  # fmt: skip
    async with serving(refusing(200, listed)) as (url, _):
        here = Shop({"OPENAI_BASE_URL": url}, dict, Mask(), Known(said=SAID))
        own, blind = await here.model("openai:gpt-5-own"), await here.model("openai:blind")
        for _ in range(2):
            assert (own.profile.window_tokens, own.profile.answer_tokens) == (64_000, 4_096)
            assert await own.takes() == Takes(PICTURES)
            assert await blind.takes() == Takes(WORDS)
        assert blind.profile.window_tokens == 16_000, "what nothing is said of is as it was"
        told = await Offers({"OPENAI_BASE_URL": url}, dict, here.known, Mask()).told()
        offered = {each.name: each for provider in told for each in provider.models}
        assert offered["openai:gpt-5-own"].window_tokens == 64_000
        assert offered["openai:gpt-5-own"].takes == ("image", "text")
        assert offered["openai:blind"].takes == offered["openai:unknown"].takes == ("text",)
        assert [name for name, each in offered.items() if each.takes_guessed] == ["openai:unknown"]
        await own.close()
        await blind.close()


async def test_why_a_model_answers_tells_what_was_said_of_it(tmp_path: Path) -> None:
    environ = {"LMSTUDIO_BASE_URL": "http://127.0.0.1:1/v1"}
    here = Shop(environ, dict, Mask(), Known(said=SAID))
    model, why = await chosen(Settings(data=tmp_path, model="lmstudio:a=b"), environ, Mask(), here)
    assert model.profile.window_tokens == 100_000
    assert why.endswith("It reads 100,000 tokens at once, as the settings say.")
    await model.close()
    other, why = await chosen(Settings(data=tmp_path, model="lmstudio:c"), environ, Mask(), here)
    assert other.profile.window_tokens == 8_192 and "settings say" not in why
    await other.close()


def test_the_settings_say_it_by_whole_names_and_a_provider_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert said_in(resolve({"data": tmp_path}, {
        "HOLDFAST_MODEL_WINDOWS": "openai:gpt-5-own=64000, lmstudio:a=b=100000",
        "HOLDFAST_MODEL_TAKES": "openai:gpt-5-own=image,openai:blind=text",
    })) == SAID  # fmt: skip
    (tmp_path / "holdfast.toml").write_text('model_takes = ["nobody:x=image"]')
    with pytest.raises(ConfigError, match=r"holdfast.toml: model_takes names nobody:x, but there is no prov"):
        said_in(resolve({"data": tmp_path}, {}))
    with pytest.raises(ConfigError, match=r"HOLDFAST_MODEL_WINDOWS: model_windows names nobody:x, but "):
        said_in(resolve({"data": tmp_path}, {"HOLDFAST_MODEL_WINDOWS": "nobody:x=5000"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_windows", "openai:x"), ("model_windows", "openai:x=999"), ("model_windows", "openai:x=many"),
        ("model_windows", "x=5000"), ("model_windows", "openai:x=32k"), ("model_takes", "openai:x=sound"),
        ("model_takes", "openai:x=image+"), ("model_takes", "openai:x"), ("model_takes", "openai:=image"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_of_a_model_is_refused_with_what_can_be(
    tmp_path: Path, name: str, value: str
) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is .* but must be a list like openai:NAME="):
        resolve({"data": tmp_path}, {f"HOLDFAST_{name.upper()}": value})


# The file of connections.


def test_connections_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    saved = {
        "openai": Saved("http://h/v1", 'a "quoted" \\ key'),
        "anthropic": Saved("https://api.anthropic.com", KEY),
        "ollama": Saved("http://127.0.0.1:11434/v1"),
    }
    write_connections(tmp_path, saved)
    assert read_connections(tmp_path) == saved
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
    write_connections(tmp_path, {"anthropic": saved["anthropic"]})
    assert read_connections(tmp_path) == {"anthropic": saved["anthropic"]}
    write_connections(tmp_path, {})
    assert not (tmp_path / FILE_NAME).exists()
    assert read_connections(tmp_path) == {}


def test_the_file_of_earlier_versions_is_read_and_rubbish_is_refused_without_its_secrets(
    tmp_path: Path,
) -> None:
    path = tmp_path / FILE_NAME
    path.write_text(f'base_url = "http://h/v1"\nkey = "{KEY}"\n')
    assert read_connections(tmp_path) == {"openai": Saved("http://h/v1", KEY)}
    for text in (f'key = "{KEY}"', f'[providers.nobody]\nbase_url = "{KEY}"', f"{KEY}", f'other = "{KEY}"'):
        path.write_text(text)
        with pytest.raises(ConfigError) as refusal:
            read_connections(tmp_path)
        assert KEY not in str(refusal.value) and os.fspath(path) in str(refusal.value)
