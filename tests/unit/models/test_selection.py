"""Which model answers, and the sentence that says why."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web

from holdfast.domain.context.context import ModelProfile
from holdfast.domain.errors import HoldfastError
from holdfast.models.ports import BadModelUrl, NoModelKey, NoSuchModel, UnsendableKey
from holdfast.models.providers import PROVIDERS, ModelProvider, SavedConnection, build_endpoint
from holdfast.models.selection import (
    DEMO_REASON,
    PROBE_TIMEOUT_S,
    LocalServer,
    NoModelName,
    local_servers,
    select_model,
)
from tests.support.model_server import KEY, Answers, error_answer, model_server

OPENAI_MODEL = PROVIDERS[0].model


def listing(*names: str, **more: Any) -> Answers:
    return error_answer(
        200, {"object": "list", "data": [{"id": n, "object": "model", **more} for n in names]}
    )


async def chosen(
    setting: str, environ: Mapping[str, str], local: Sequence[LocalServer] = (), probe_s: float = 5.0
) -> tuple[str, str, ModelProfile]:
    model, why = await select_model(setting, environ, local, probe_s)
    await model.close()
    assert KEY not in why + repr(model)
    assert why.endswith(".")
    return model.name, why, model.profile


def choice(setting: str, **environ: str) -> tuple[str, str]:
    return asyncio.run(chosen(setting, environ))[:2]


def select_with_server(answer: Answers, probe_s: float = 5.0) -> tuple[str, str, ModelProfile]:
    """What is chosen when a server with this answer sits on a usual port."""

    async def select() -> tuple[str, str, ModelProfile]:
        async with model_server(answer) as (url, seen):
            server = LocalServer("Ollama", int(url.split(":")[2].split("/")[0]), "ollama")
            result = await chosen("", {}, [server], probe_s)
            assert len(seen.bodies) == 1
            return result

    return asyncio.run(select())


def test_the_demo_is_selected_by_name() -> None:
    assert choice("demo", OPENAI_API_KEY=KEY) == (
        "demo",
        "The scripted demo answers, as HOLDFAST_MODEL asks.",
    )


def test_a_key_alone_selects_the_default_model() -> None:
    name, why = choice("", OPENAI_API_KEY=f" {KEY}\n")
    assert name == f"openai:{OPENAI_MODEL}"
    assert why == f"Using OPENAI_API_KEY from your environment ({OPENAI_MODEL})."
    assert choice("", OPENAI_API_KEY=KEY, OPENAI_BASE_URL="https://api.openai.com/v1/")[0] == name


def test_a_model_name_is_used_unchanged() -> None:
    name, why = choice("openai:org/big:latest", OPENAI_API_KEY=KEY)
    assert name == "openai:org/big:latest"
    assert "OPENAI_API_KEY" in why and "api.openai.com" in why
    name, why = choice("openai:own", OPENAI_BASE_URL="http://[::1]:9/v1")
    assert name == "openai:own"
    assert "OPENAI_API_KEY" not in why and "[::1]:9" in why


def test_without_key_or_server_the_demo_is_selected() -> None:
    assert choice("") == ("demo", DEMO_REASON)
    assert choice("", OPENAI_API_KEY=" ", OPENAI_BASE_URL="") == ("demo", DEMO_REASON)
    for how in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "Ollama", "`holdfast local install`", "Settings"):
        assert how in DEMO_REASON, "it says how to connect a model"


@pytest.mark.parametrize(
    ("setting", "environ", "kind"),
    [
        ("gpt-4o", {"OPENAI_API_KEY": KEY}, NoSuchModel),
        ("openai:", {"OPENAI_API_KEY": KEY}, NoSuchModel),
        ("demo:big", {}, NoSuchModel),
        ("nobody:claude", {}, NoSuchModel),
        ("anthropic:claude", {}, NoModelKey),
        ("anthropic:claude", {"OPENAI_API_KEY": KEY}, NoModelKey),
        ("anthropic:claude", {"ANTHROPIC_BASE_URL": "nowhere"}, BadModelUrl),
        (":x", {}, NoSuchModel),
        ("openai:x", {}, NoModelKey),
        ("openai:x", {"OPENAI_API_KEY": "two\nlines"}, UnsendableKey),
        ("openai:x", {"OPENAI_API_KEY": "“quoted”"}, UnsendableKey),
        ("openai:x", {"OPENAI_BASE_URL": "127.0.0.1:11434"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "ftp://host/v1"}, BadModelUrl),
        ("", {"OPENAI_BASE_URL": "http://host:port/v1"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://[::1/v1"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://127.0.0.1:1/\r\nX: y"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://127.0.0.1:1/a b"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://127.0.0.1:1\t2/v1"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://\N{GRINNING FACE}/"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://a..b/v1"}, BadModelUrl),
        ("openai:x", {"OPENAI_BASE_URL": "http://host\\@other/v1"}, BadModelUrl),
    ],
)
def test_an_invalid_model_setting_is_refused_with_a_remedy(
    setting: str, environ: dict[str, str], kind: type[HoldfastError]
) -> None:
    with pytest.raises(kind) as refusal:
        choice(setting, **environ)
    assert refusal.value.advice
    assert not any(value in str(refusal.value) for value in environ.values())


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@gateway.example/v1", "https://\N{GREEK SMALL LETTER ALPHA}.example/v1",
        "http://[::1]:8080/v1", "http://my_ollama:11434/v1/", "https://gateway.example/v1?api-version=2",
    ],
)  # fmt: skip
def test_a_base_url_in_any_usual_form_is_accepted(url: str) -> None:
    assert choice("openai:x", OPENAI_BASE_URL=url)[0] == "openai:x"


def test_a_missing_key_and_a_malformed_key_are_reported() -> None:
    with pytest.raises(
        NoModelKey, match=r"^api\.anthropic\.com wants a key, and ANTHROPIC_API_KEY is not set\.$"
    ):
        choice("anthropic:claude")
    with pytest.raises(UnsendableKey, match=r"^The key in OPENAI_API_KEY cannot be sent to api.openai.com: "):
        choice("openai:x", OPENAI_API_KEY="sk-é")
    with pytest.raises(UnsendableKey, match=r"^The key cannot be sent to api.openai.com: "):
        build_endpoint(PROVIDERS[0], PROVIDERS[0].base_url, "x", "sk-é")
    with pytest.raises(NoModelKey, match="wants a key, and none is given") as lacking:
        build_endpoint(PROVIDERS[0], PROVIDERS[0].base_url, "x", "")
    assert lacking.value.advice.startswith("Set OPENAI_API_KEY to your key")


# Servers that somebody named.


def test_the_model_of_a_configured_server_is_taken_from_its_list() -> None:
    async def look() -> None:
        async with model_server(listing("embed-small", "own-1", "own-2", max_model_len=4_000)) as (url, seen):
            environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY}
            name, why, profile = await chosen("", environ)
            assert name == "openai:own-1"
            assert "OPENAI_BASE_URL" in why
            assert (profile.window_tokens, profile.answer_tokens) == (4_000, 1_000)
            assert seen.headers[0]["Authorization"] == f"Bearer {KEY}"

    asyncio.run(look())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (listing(), "answers, and has no models"),
        (
            error_answer(401, {"error": {"message": "Wrong"}}),
            "refused the key from OPENAI_API_KEY (401): Wrong",
        ),
        (error_answer(500, b""), "failed (500)"),
        (error_answer(200, b"<html>", "text/html"), "has no list of models: is it the right base URL?"),
    ],
)
def test_a_configured_server_without_a_list_requires_a_model_name(answer: Answers, why: str) -> None:
    async def look() -> None:
        async with model_server(answer) as (url, _):
            with pytest.raises(NoModelName) as refusal:
                await select_model("", {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": KEY})
            assert why in str(refusal.value)
        with pytest.raises(NoModelName, match=r"No connection to 127.0.0.1:9: "):
            await select_model("", {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})

    asyncio.run(look())


# Servers on this machine.


def test_the_default_ports_match_the_local_servers() -> None:
    ports = {server.kind: server.port for server in local_servers({})}
    assert ports == {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080, "vLLM": 8000}


def test_a_model_server_on_this_machine_is_found() -> None:
    name, why, profile = select_with_server(listing("nomic-embed-text:latest", "llama3.2:3b"))
    assert name == "ollama:llama3.2:3b"
    assert "Ollama's usual port" in why and "llama3.2:3b" in why
    assert profile.window_tokens == 8_192


async def never_answer(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(5)
    return web.Response()


async def endless_answer(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    for _ in range(10_000):
        await response.write(b" " * 100_000)
    return response


@pytest.mark.parametrize(
    "answer",
    [
        error_answer(404, {"detail": "Not Found"}),
        error_answer(200, b"<html>A page</html>", "text/html"),
        error_answer(200, {"data": [{"id": "row"}]}),
        error_answer(200, {"object": "list", "data": [{"name": "row"}]}),
        error_answer(200, {"object": "list", "data": None}),
        error_answer(200, {"object": "list", "data": []}),
        error_answer(200, []),
        error_answer(200, b"\xff"),
        error_answer(302, b"", Location="/elsewhere"),
        listing("text-embedding-small"),
        listing("holdfast", owned_by="holdfast"),
        endless_answer,
    ],
)
def test_a_server_that_is_no_model_server_is_not_selected(answer: Answers) -> None:
    assert select_with_server(answer)[0] == "demo"


def test_a_server_that_does_not_answer_is_not_waited_for() -> None:
    assert select_with_server(never_answer, PROBE_TIMEOUT_S)[0] == "demo"


def test_all_ports_are_probed_concurrently() -> None:
    async def look() -> str:
        everyone = asyncio.Barrier(2)

        async def answer(request: web.Request) -> web.StreamResponse:
            await everyone.wait()
            return await listing("own")(request)

        async with model_server(answer) as (first, _), model_server(answer) as (second, _):
            ports = [int(url.split(":")[2].split("/")[0]) for url in (first, second)]
            return (await chosen("", {}, [LocalServer("x", port) for port in ports]))[0]

    assert asyncio.run(look()) == "openai:own"


def test_a_closed_port_is_skipped() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nothing = LocalServer("x", taken.getsockname()[1])

        async def look() -> str:
            async with model_server(listing("own")) as (url, _):
                there = LocalServer("y", int(url.split(":")[2].split("/")[0]))
                return (await chosen("", {}, [nothing, there]))[1]

        assert "y's usual port" in asyncio.run(look())


# Further providers.


@pytest.mark.parametrize("provider", [each for each in PROVIDERS if not each.is_local], ids=lambda p: p.name)
def test_a_single_key_selects_its_provider_and_the_reason_names_the_variable(provider: ModelProvider) -> None:
    for variable in provider.keys:
        name, why = choice("", **{variable: f"{KEY}\n"})
        assert name == f"{provider.name}:{provider.model}"
        assert why == f"Using {variable} from your environment ({provider.model})."


def test_with_several_keys_the_provider_order_decides() -> None:
    keys = {each.keys[0]: KEY for each in PROVIDERS if each.keys}
    assert choice("", **keys)[0].startswith("openai:")
    del keys["OPENAI_API_KEY"]
    assert choice("", **keys)[0].startswith("anthropic:")
    assert choice("groq:any/model", **keys)[0] == "groq:any/model", "a name goes before the order"


def test_a_saved_key_ranks_after_the_environment_and_before_local_servers() -> None:
    async def look() -> list[str]:
        saved = {"mistral": SavedConnection("https://api.mistral.ai/v1", KEY)}
        async with model_server(listing("own")) as (url, _):
            here = [LocalServer("x", int(url.split(":")[2].split("/")[0]))]
            names = []
            for environ in ({"GROQ_API_KEY": KEY}, {}):
                model, why = await select_model("", environ, here, 5.0, saved)
                await model.close()
                assert KEY not in why
                names.append(model.name.partition(":")[0])
            return names

    assert asyncio.run(look()) == ["groq", "mistral"]


@pytest.mark.parametrize("url", ["http://[::1", "http://127.0.0.1:99999/v1", "http://a\\b/v1"])
def test_an_invalid_url_variable_is_named(url: str) -> None:
    with pytest.raises(BadModelUrl, match="VLLM_BASE_URL is not the address of a server"):
        asyncio.run(
            select_model("", {"VLLM_BASE_URL": url}, servers=local_servers({"VLLM_BASE_URL": url})[-1:])
        )


def test_a_local_server_is_found_at_the_url_in_its_variable() -> None:
    async def look() -> tuple[str, str]:
        async with model_server(listing("qwen3:8b")) as (url, _):
            model, why = await select_model("", {"OLLAMA_BASE_URL": url}, None, 5.0)
            await model.close()
            return model.name, why

    name, why = asyncio.run(look())
    assert name == "ollama:qwen3:8b"
    assert "OLLAMA_BASE_URL" in why
