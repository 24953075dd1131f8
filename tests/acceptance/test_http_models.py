"""Models over HTTP: several providers at once, and one that answers where another cannot."""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in
from tests.support.api_client import (
    ApiClient,
    ScriptedModelServer,
    api_client,
    scripted_model_server,
    text_of,
)

KEY = "gsk_0123456789abcdefABCDEF"
NOWHERE = "http://127.0.0.1:9/v1"
NOBODY = {f"{name}_BASE_URL": NOWHERE for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")}


@dataclass
class ListingModelServer(ScriptedModelServer):
    """Says more of its model than its name, as OpenRouter does. `refuses` is a status instead of answers."""

    refuses: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            priced = {"prompt": "0.000002", "completion": "0.000004"}
            model = {"id": "small", "context_length": 64_000, "pricing": priced}
            return web.json_response({"object": "list", "data": [model, {"id": "plain"}]})
        if self.refuses:
            self.requests.append(await request.json())
            return web.json_response({"error": {"message": "not today"}}, status=self.refuses)
        return await super().answer(request)


@pytest.fixture
def first() -> Iterator[ListingModelServer]:
    with scripted_model_server(ListingModelServer()) as speaker:
        assert isinstance(speaker, ListingModelServer)
        yield speaker


@pytest.fixture
def second() -> Iterator[ListingModelServer]:
    with scripted_model_server(ListingModelServer()) as speaker:
        assert isinstance(speaker, ListingModelServer)
        yield speaker


@pytest.fixture
def found(first: ListingModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    """A server that finds its model by itself."""
    with cli_in(tmp_path, HOLDFAST_MODEL="", OPENAI_BASE_URL=first.url, **NOBODY) as command:
        yield command


def providers(listing: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in listing["providers"]}


async def test_available_models_are_listed_with_windows_and_prices(found: CliHarness) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        listing = await api.get("/api/models")
        assert listing["models"][0]["in_use"]
        openai = providers(listing)["openai"]
        assert (openai["ready"], openai["source"], openai["has_key"]) == (True, "environment", False)
        small, plain = openai["models"]
        assert (small["name"], small["window_tokens"]) == ("openai:small", 64_000)
        assert small["price"] == {"input": 2.0, "output": 4.0, "cached": None, "written": None}
        free = {"input": 0.0, "output": 0.0, "cached": 0.0, "written": None}
        assert plain["price"] == free, "on this machine it is free"
        run = await api.wait_for_run((await api.send(await api.create_session(), "hello"))["run_id"])
        assert run["usage"]["cost_micros"] == 19 * 2 + 10 * 4


async def test_several_providers_can_have_a_key_at_once(
    found: CliHarness, second: ListingModelServer
) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        kept = await api.request("PUT", "/api/models/providers/groq", {"base_url": second.url, "key": KEY})
        assert api.status == 200, kept
        groq = providers(kept)["groq"]
        assert (groq["ready"], groq["source"], groq["has_key"]) == (True, "settings", True)
        assert [each["name"] for each in groq["models"]] == ["groq:small", "groq:plain"]
        assert kept["models"][0]["name"] == "openai:small", "who answers has not changed"
        await api.request("PUT", "/api/models/providers/mistral", {"base_url": second.url, "key": KEY[::-1]})
        file = server.folder / "connection.toml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert KEY in file.read_text() and KEY[::-1] in file.read_text()
        assert KEY not in str(kept) + str(await api.get("/api/models"))
        # One of them is chosen by its name alone.
        used = await api.post("/api/models/connect", {"model": "groq:small"})
        assert used["models"][0]["name"] == "groq:small"
        await api.wait_for_run((await api.send(await api.create_session(), "hello"))["run_id"])
        assert second.requests and second.requests[0]["model"] == "small"
        tried = await api.post("/api/models/test", {"provider": "groq", "model": "small"})
        assert tried["ok"], tried
        # A key goes to no other provider, even at the same address.
        tried = await api.post("/api/models/test", {"provider": "deepseek", "model": "small"})
        assert not tried["ok"] and "key" in tried["detail"]
        gone = await api.request("DELETE", "/api/models/providers/groq")
        assert gone["models"][0]["name"] == "openai:small", "what is found answers again"
        assert not providers(gone)["groq"]["ready"] and providers(gone)["mistral"]["ready"]
        assert KEY not in file.read_text()
        assert (await api.request("PUT", "/api/models/providers/nobody", {"key": KEY}))["code"] == (
            "no_such_model_provider"
        )
        assert (await api.request("PUT", "/api/models/providers/groq", {"base_url": "nowhere"}))[
            "code"
        ] == "no_model"


async def test_a_connection_saved_by_an_earlier_version_still_counts(
    found: CliHarness, second: ListingModelServer, tmp_path: Path
) -> None:
    folder = Path(found.environ["XDG_DATA_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "connection.toml").write_text(f'base_url = "{second.url}"\nkey = "{KEY}"\n')
    (folder / "holdfast.toml").write_text('model = "openai:plain"\n')
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        await api.wait_for_run((await api.send(await api.create_session(), "hello"))["run_id"])
        assert second.requests[0]["model"] == "plain"
        await api.request("PUT", "/api/models/providers/groq", {"key": KEY, "base_url": second.url})
    assert f'key = "{KEY}"' in (server.folder / "connection.toml").read_text().split("[")[0]


async def test_no_accepted_base_url_corrupts_the_saved_connections(found: CliHarness) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        await api.request("PUT", "/api/models/providers/groq", {"key": KEY})
        for url in ("http://\N{GRINNING FACE}/", "http://127.0.0.1:1/\r\nX: y", "http://127.0.0.1:1/a b"):
            refused = await api.request("PUT", "/api/models/providers/mistral", {"base_url": url})
            assert (api.status, refused["code"]) == (400, "no_model"), url
        host = "http://b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.invalid/\N{GRINNING FACE}"
        await api.request("PUT", "/api/models/providers/mistral", {"base_url": host})
        assert api.status == 200
        known = providers(await api.get("/api/models"))
        assert known["groq"]["has_key"] and known["mistral"]["source"] == "settings"


async def test_a_server_starts_with_unreadable_connections_and_reports_them(
    found: CliHarness, first: ListingModelServer
) -> None:
    folder = Path(found.environ["XDG_DATA_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    broken = f'key = "{KEY}"\nbase_url = "\\ud83d\\ude00"\n'
    (folder / "connection.toml").write_text(broken)
    (folder / "telegram.toml").write_text("token = " + "1" * 5_000)
    (folder / "holdfast.toml").write_text('model = "groq:large"\n')
    server = found.serve("--port", "0")
    assert any("connection.toml: " in line for line in server.output_lines)
    async with api_client(server.address) as api:
        problem, unasked = (await api.get("/health/ready"))["problems"]
        assert unasked == "groq:large cannot be asked: api.groq.com wants a key, and GROQ_API_KEY is not set."
        assert problem.startswith("connection.toml: ") and "remove the file" in problem and KEY not in problem
        assert "groq:large cannot be asked" in (await api.get("/api/models"))["models"][0]["why"]
        await api.wait_for_run((await api.send(await api.create_session(), "hello"))["run_id"])
        assert first.requests[0]["model"] == "small", "the one that is found without it"
        refused = await api.post("/api/sessions", {"model": "groq:large"})
        assert (api.status, refused["code"]) == (400, "no_model_key")
        refused = await api.request("PUT", "/api/models/providers/groq", {"key": KEY})
        assert (api.status, refused["code"]) == (409, "cannot_edit_settings")
        assert (folder / "connection.toml").read_text() == broken, "what may be saved by hand stays"
        channels = {each["name"]: each for each in (await api.get("/api/channels"))["channels"]}
        assert "telegram.toml" in channels["telegram"]["last_error"]
        (folder / "connection.toml").unlink()
        await api.request("PUT", "/api/models/providers/groq", {"key": KEY})
        assert api.status == 200 and "problems" not in await api.get("/health/ready")


async def test_a_server_starts_although_the_chosen_model_is_unavailable(
    found: CliHarness, first: ListingModelServer
) -> None:
    folder = Path(found.environ["XDG_DATA_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    for name, why in (("anthropic:claude", "ANTHROPIC_API_KEY is not set"), ("local", "is not installed")):
        (folder / "holdfast.toml").write_text(f'model = "{name}"\n')
        server = found.serve("--port", "0")
        assert "Not usable" in " ".join(server.output_lines)
        async with api_client(server.address) as api:
            model = (await api.get("/api/models"))["models"][0]
            assert why in model["why"] and f"{name} cannot be asked" in model["why"]
            (problem,) = (await api.get("/health/ready"))["problems"]
            assert problem.startswith(f"{name} cannot be asked: ") and why in problem
            await api.wait_for_run((await api.send(await api.create_session(), "hello"))["run_id"])
            assert first.requests[-1]["model"] == "small", "the one that is found"
            await api.post("/api/models/disconnect")
            assert "problems" not in await api.get("/health/ready"), "and the page can mend it"
        server.process.terminate()
        server.process.wait(20)


# Where one fails.


@pytest.fixture
def falling(first: ListingModelServer, second: ListingModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    """A server whose first model is refused, and whose second answers."""
    first.refuses = 401
    environ = {
        "HOLDFAST_MODEL": "openai:small", "OPENAI_BASE_URL": first.url,
        "HOLDFAST_FALLBACK_MODELS": "groq:plain", "GROQ_BASE_URL": second.url, "GROQ_API_KEY": KEY,
    }  # fmt: skip
    with cli_in(tmp_path, **environ, **NOBODY) as command:
        yield command


async def models_of_answers(api: ApiClient, session: str) -> list[tuple[str, str]]:
    return [
        (each["model"], text_of(each)) for each in await api.entries(session) if each["role"] == "assistant"
    ]


async def test_a_fallback_model_answers_and_is_named(
    falling: CliHarness, first: ListingModelServer, second: ListingModelServer
) -> None:
    server = falling.serve("--port", "0")
    assert "groq:plain" in "".join(server.output_lines)
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "hello there"))["run_id"])
        assert await models_of_answers(api, session) == [("groq:plain", "hello there ")]
        assert first.requests and second.requests[0]["model"] == "plain"
        events = await api.events_through(session, 0, "run_completed")
        model_events = [
            (each.event, each.data.get("model")) for each in events if each.event.startswith("model_step")
        ]
        assert model_events == [
            ("model_step_started", "openai:small"), ("model_step_retried", None),
            ("model_step_started", "groq:plain"), ("model_step_settled", None),
        ]  # fmt: skip
        (settled,) = [each.data for each in events if each.event == "message_settled"]
        assert settled["model"] == "groq:plain"
        first.refuses = 0
        await api.wait_for_run((await api.send(session, "once more"))["run_id"])
        assert (await models_of_answers(api, session))[-1][0] == "openai:small", (
            "the first is asked first again"
        )


async def test_the_model_of_a_partial_answer_is_known_after_a_kill(falling: CliHarness) -> None:
    falling.environ["HOLDFAST_RESUME"] = "never"
    server = falling.serve("--port", "0")
    async with api_client(server.address) as api:
        session = await api.create_session()
        await api.send(session, "hold on")
        await api.wait_for_streaming_text(session, "Well")
    server.process.kill()
    server.process.wait(20)
    assert falling.run("doctor").returncode == 0
    again = falling.serve("--port", "0")
    async with api_client(again.address) as api:
        assert await models_of_answers(api, session) == [("groq:plain", "Well")]


async def test_an_unusable_fallback_is_reported_at_startup(first: ListingModelServer, tmp_path: Path) -> None:
    environ = {"HOLDFAST_MODEL": "openai:small", "OPENAI_BASE_URL": first.url}
    with cli_in(tmp_path, HOLDFAST_FALLBACK_MODELS="deepseek:any", **environ, **NOBODY) as command:
        server: RunningServer = command.serve("--port", "0")
        said = " ".join("".join(server.output_lines).replace("│", " ").split())
        assert "deepseek:any cannot be asked instead" in said
        assert "DEEPSEEK_API_KEY" in said


async def test_fallbacks_change_while_the_server_runs(
    found: CliHarness, first: ListingModelServer, second: ListingModelServer
) -> None:
    server = found.serve("--port", "0")
    async with api_client(server.address) as api:
        wrong = await api.request("PUT", "/api/models/fallbacks", {"models": ["groq:plain"]})
        assert (api.status, wrong["code"]) == (400, "no_model"), "there is no key for it"
        assert (await api.request("PUT", "/api/models/fallbacks", {"models": ["plain"]}))[
            "code"
        ] == "bad_setting"
        await api.request("PUT", "/api/models/providers/groq", {"base_url": second.url, "key": KEY})
        used = await api.request("PUT", "/api/models/fallbacks", {"models": ["groq:plain"]})
        assert used["models"][0]["name"] == "openai:small" and "groq:plain" in used["models"][0]["why"]
        first.refuses = 401
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "hello"))["run_id"])
        assert [name for name, _ in await models_of_answers(api, session)] == ["groq:plain"]
        assert 'fallback_models = ["groq:plain"]' in (server.folder / "holdfast.toml").read_text()
        gone = await api.request("PUT", "/api/models/fallbacks", {"models": []})
        assert "groq:plain" not in gone["models"][0]["why"]
        assert "fallback_models" not in (server.folder / "holdfast.toml").read_text()
