"""What answers somebody who starts the server for the first time: a provider, a model server, or the demo."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from tests.acceptance.conftest import RunningServer, cli_in
from tests.support.api_client import ScriptedModelServer, api_client, scripted_model_server, text_of
from tests.support.ollama_port import ollama_port

KEY = "sk-newcomer-0123456789abcdef"
NOWHERE = "http://127.0.0.1:9/v1"
NOBODY = {f"{name}_BASE_URL": NOWHERE for name in ("OLLAMA", "LMSTUDIO", "LLAMACPP", "VLLM")}
"""Whatever runs on this machine is not asked."""


@dataclass
class MessagesModelServer(ScriptedModelServer):
    """Speaks Anthropic Messages, in a stream constructed from the published reference."""

    keys: tuple[str, ...] = ()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.keys += (request.headers.get("x-api-key", ""),)
        if request.method == "GET":
            model = {"type": "model", "id": "claude-sonnet-5-5", "display_name": "Sonnet"}
            return web.json_response({"data": [model], "has_more": False})
        self.requests.append({"path": request.path, **await request.json()})
        events = (
            {"type": "message_start", "message": {"usage": {"input_tokens": 20, "output_tokens": 1}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Bonjour"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        )
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(
                f"event: {event['type']}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"
            )
        return response


def screen_text(running: RunningServer) -> str:
    """What is on the screen, as one text without its frame."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", "\n".join(running.output_lines)).split())


@contextmanager
def start_server(folder: Path, **environ: str) -> Iterator[RunningServer]:
    with cli_in(folder, HOLDFAST_MODEL="", **environ) as command:
        yield command.serve("--port", "0")


async def first_answer(running: RunningServer) -> str:
    async with api_client(running.address) as api:
        session = await api.create_session()
        await api.wait_for_run((await api.send(session, "hello there"))["run_id"])
        return text_of((await api.entries(session))[-1])


async def test_an_api_key_alone_selects_its_provider(tmp_path: Path) -> None:
    with scripted_model_server(MessagesModelServer()) as claude:
        assert isinstance(claude, MessagesModelServer)
        url = claude.url.removesuffix("/v1")
        with start_server(tmp_path, ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=url, **NOBODY) as running:
            assert "Using ANTHROPIC_API_KEY from your environment (claude-sonnet-5-5)." in screen_text(
                running
            )
            assert await first_answer(running) == "Bonjour"
            assert {each["path"] for each in claude.requests} == {"/v1/messages"}
            assert set(claude.keys) == {KEY}
            async with api_client(running.address) as api:
                reply = await api.get("/api/models")
                wanted = {"provider": "anthropic", "model": "claude-sonnet-5-5"}
                tried = await api.post("/api/models/test", wanted)
                assert (tried["ok"], tried["models"]) == (True, ["claude-sonnet-5-5"])
                tried = await api.post("/api/models/test", {**wanted, "base_url": NOWHERE})
                assert not tried["ok"] and "Connection refused" in tried["detail"]
            assert reply["models"][0]["name"] == "anthropic:claude-sonnet-5-5"
            offered = {each["name"]: each for each in reply["providers"]}
            assert offered["anthropic"]["ready"] and offered["anthropic"]["key_from"] == "ANTHROPIC_API_KEY"
            assert [each["name"] for each in offered["anthropic"]["models"]] == [
                "anthropic:claude-sonnet-5-5"
            ]
            assert not offered["openai"]["ready"]
            assert KEY not in screen_text(running) + str(reply)


async def test_an_openai_compatible_server_is_selected(tmp_path: Path) -> None:
    with scripted_model_server() as speaker:
        keyed = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": speaker.url}
        with start_server(tmp_path, **keyed, **NOBODY) as running:
            assert "Using OPENAI_BASE_URL from your environment (small at 127.0.0.1" in screen_text(running)
            assert (await first_answer(running)).strip() == "hello there"


@pytest.fixture
def ollama() -> Iterator[tuple[ScriptedModelServer, dict[str, str]]]:
    """A model server on Ollama's port if that is free, else where the environment says."""
    with ollama_port() as port, scripted_model_server(port=port or 0) as speaker:
        yield speaker, {} if port is not None else {"OLLAMA_BASE_URL": speaker.url}


async def test_a_running_ollama_is_selected(
    tmp_path: Path, ollama: tuple[ScriptedModelServer, dict[str, str]]
) -> None:
    speaker, environ = ollama
    others = {name: url for name, url in NOBODY.items() if name != "OLLAMA_BASE_URL"}
    with start_server(tmp_path, **others, **environ) as running:
        assert "Using small from" in screen_text(running)
        assert ("Ollama's usual port" if not environ else "OLLAMA_BASE_URL") in screen_text(running)
        assert (await first_answer(running)).strip() == "hello there"
        assert speaker.requests
        async with api_client(running.address) as api:
            reply = await api.get("/api/models")
        offered = {each["name"]: each for each in reply["providers"]}
        assert reply["models"][0]["name"] == "ollama:small"
        assert offered["ollama"]["source"] == ("environment" if environ else "port")
        (model,) = offered["ollama"]["models"]
        assert model["name"] == "ollama:small"


async def test_without_a_model_the_demo_answers_with_instructions(tmp_path: Path) -> None:
    with start_server(tmp_path, **NOBODY) as running:
        said = screen_text(running)
        assert "the scripted demo answers" in said
        for how in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "Ollama", "Settings"):
            assert how in said
        async with api_client(running.address) as api:
            reply = await api.get("/api/models")
        assert reply["models"][0]["name"] == "demo"
        assert "To connect a model" in reply["models"][0]["why"]
        assert not any(each["models"] for each in reply["providers"])
