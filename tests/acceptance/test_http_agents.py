"""Agents over HTTP, with real model servers: who answers, what they are told, what they may do."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, cli_in
from tests.support.api_client import (
    ApiClient,
    ScriptedModelServer,
    api_client,
    scripted_model_server,
    text_of,
    wait_until,
)

SMALL = 'instructions = "You are small."\nmodel = "openai:small"\n'
LARGE = 'more_instructions = "You are large."\nmodel = "vllm:large"\n'


class AgentTestServer:
    """A server, two servers of models, and the folders that people write into."""

    def __init__(
        self, command: CliHarness, first: ScriptedModelServer, second: ScriptedModelServer, folder: Path
    ) -> None:
        self.command = command
        self.first = first
        self.second = second
        self.data = folder / "share" / "holdfast"
        self.work = folder / "work"
        self.running = command.serve("--port", "0")

    def write(self, name: str, text: str) -> None:
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def reset(self) -> None:
        """Two agents, no prompts, nothing asked."""
        for name in ("agents", "prompts", "../../work"):
            shutil.rmtree(self.data / name, ignore_errors=True)
        self.work.mkdir()
        self.write("agents/small.toml", SMALL)
        self.write("agents/large.toml", LARGE)
        self.first.requests.clear()
        self.second.requests.clear()

    async def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return await asyncio.to_thread(self.command.run, *words)


@pytest.fixture(scope="module")
def agent_test_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentTestServer]:
    folder = tmp_path_factory.mktemp("agents")
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(scripted_model_server()),
            stack.enter_context(scripted_model_server()),
        )
        models = {
            "HOLDFAST_MODEL": "openai:small", "OPENAI_BASE_URL": first.url, "OPENAI_API_KEY": "",
            "VLLM_BASE_URL": second.url,
        }  # fmt: skip
        yield AgentTestServer(stack.enter_context(cli_in(folder, **models)), first, second, folder)


@pytest.fixture
def here(agent_test_server: AgentTestServer) -> AgentTestServer:
    agent_test_server.reset()
    return agent_test_server


def system_prompts(asked: list[dict[str, Any]]) -> list[str]:
    """What each request with tools told the model to be."""
    found = [each["messages"][0]["content"] for each in asked if each.get("tools")]
    return [each if isinstance(each, str) else each[0]["text"] for each in found]


async def send_and_read(api: ApiClient, session: str, text: str) -> str:
    sent = await api.send(session, text)
    await api.wait_for_run(sent["run_id"])
    return (await api.message_texts(session))[-1][2]


async def test_two_agents_have_two_models_and_a_changed_file_is_picked_up(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        listed = await api.get("/api/agents")
        assert [each["name"] for each in listed["agents"]] == ["main", "large", "small"]
        assert "shell" in listed["tools"] and listed["errors"] == []
        small, large = await api.create_session(agent="small"), await api.create_session(agent="large")
        await send_and_read(api, small, "Hello")
        await send_and_read(api, large, "Hello")
        (first,), (second,) = system_prompts(here.first.requests), system_prompts(here.second.requests)
        assert first.startswith("You are small.") and second.endswith("You are large.") is False
        assert "You are large." in second and second.startswith("You are an assistant")
        here.write("agents/large.toml", LARGE.replace("You are large.", "You are huge."))
        await send_and_read(api, large, "Again")
        assert "You are huge." in system_prompts(here.second.requests)[-1]
        # Whatever a conversation begins with, it can be given to another.
        changed = await api.request("PATCH", f"/api/sessions/{large}", {"agent": "small"})
        assert api.status == 200 and changed["agent"] == "small"
        await send_and_read(api, large, "And you?")
        assert system_prompts(here.first.requests)[-1].startswith("You are small.")


async def test_a_bad_agent_file_is_reported_and_the_last_good_one_is_used(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        session = await api.create_session(agent="small")
        await send_and_read(api, session, "Hello")
        here.write("agents/small.toml", 'instruction = "A slip."\n')
        await send_and_read(api, session, "Again")
        assert system_prompts(here.first.requests)[-1].startswith("You are small.")
        error = "agents/small.toml: there is no 'instruction'"
        shown = (await api.get("/api/agents/small"))["agent"]
        assert error in shown["error"] and (shown["answers"], shown["stays"]) == (True, True)
        listed = json.loads((await here.run("agents", "list", "--json")).stdout)
        (small,) = [each for each in listed["agents"] if each["name"] == "small"]
        assert small["stays"] is True, "another process knows it too"
        assert error in (await api.get("/health/ready"))["problems"][0]
        said = await here.run("agents", "check")
        assert said.returncode == 1 and error in said.stdout + said.stderr
        (here.data / "agents" / "large.toml").unlink()
        other = await api.create_session(agent="main")
        assert api.status == 201 and (await api.get(f"/api/sessions/{other}"))["agent"] == ""
        refused = await api.post("/api/sessions", {"agent": "large"})
        assert api.status == 404 and refused["code"] == "no_such_agent"


async def test_an_invalid_agent_file_is_not_written(here: AgentTestServer) -> None:
    (here.data / "plain").write_text("no folder")
    async with api_client(here.running.address) as api:
        for text in (
            "model = 'x'", "description = " + "1" * 5_000, "workspace = '/proc'",
            f"workspace = '{here.data}'", f"workspace = '{here.data.parent / 'nowhere'}'",
            f"workspace = '{here.data / 'plain'}'",
        ):  # fmt: skip
            refused = await api.request("PUT", "/api/agents/fresh", {"text": text})
            assert (api.status, refused["code"]) == (400, "bad_agent"), text
        assert not (here.data / "agents" / "fresh.toml").exists()
        await api.request("PUT", "/api/agents/fresh", {"text": f"workspace = '{here.work}'"})
        assert api.status == 200


async def test_a_bad_agent_file_affects_only_its_agent(here: AgentTestServer) -> None:
    here.write("agents/boom.toml", "description = " + "1" * 5_000)
    async with api_client(here.running.address) as api:
        listed = {each["name"]: each for each in (await api.get("/api/agents"))["agents"]}
        assert not listed["boom"]["answers"] and listed["small"]["answers"]
        assert "agents/boom.toml" in (await api.get("/health/ready"))["problems"][0]
        assert "too long" in (await api.get("/api/agents/boom"))["agent"]["error"]


async def test_a_conversation_whose_agent_was_removed_gets_no_answer(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        session = await api.create_session(agent="large")
        await send_and_read(api, session, "Hello")
        (here.data / "agents" / "large.toml").unlink()
        sent = await api.send(session, "Are you there?")
        run = await api.wait_for_run(sent["run_id"], "failed")
        assert run["status"] == "failed"
        frames = await api.events_through(session, 0, "run_failed")
        assert frames[-1].data["failure"]["code"] == "no_such_agent"
        assert system_prompts(here.first.requests) == [], "main has another model, and other tools"
        await api.request("PATCH", f"/api/sessions/{session}", {"agent": "main"})
        assert await send_and_read(api, session, "Are you?") == "Are you there? Are you? "


async def test_an_agent_without_the_shell_cannot_call_it_even_if_its_model_tries(
    here: AgentTestServer,
) -> None:
    async with api_client(here.running.address) as api:
        here.write("agents/reader.toml", 'tools = ["read_file"]\napprovals = "allow"\n')
        here.write("agents/free.toml", 'approvals = "allow"\n')
        marker = here.work / "marker"
        session = await api.create_session(agent="reader", workspace=str(here.work))
        said = await send_and_read(api, session, f"run touch {marker}")
        assert "There is no tool shell. There are: read_file." in said and not marker.exists()
        names = [tool["function"]["name"] for tool in here.first.requests[0]["tools"]]
        assert names == ["read_file"]
        other = await api.create_session(agent="free", workspace=str(here.work))
        await send_and_read(api, other, f"run touch {marker}")
        assert marker.exists(), "the same words do it where the shell may be used"


async def test_workspace_instructions_are_sent_and_shown_in_the_prompt_preview(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        (here.work / "AGENTS.md").write_text("Only tabs here.")
        session = await api.create_session(agent="small", workspace=str(here.work))
        prompt = await api.get(f"/api/agents/small/prompt?session_id={session}")
        await send_and_read(api, session, "Hello")
        (asked,) = [each for each in here.first.requests if each.get("tools")]
        assert system_prompts([asked]) == [prompt["instructions"]]
        assert "Only tabs here." in prompt["instructions"]
        sent = [tool["function"] for tool in asked["tools"]]
        assert [each["name"] for each in prompt["tools"]] == [each["name"] for each in sent]
        assert prompt["tools"][0]["parameters"] == sent[0]["parameters"]
        assert prompt["model"] == "openai:small" and 0 < prompt["tokens"] < prompt["window_tokens"]
        await api.get("/api/agents/none/prompt")
        assert api.status == 404


async def test_concurrent_edits_of_an_agent_file_do_not_overwrite_each_other(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        path = here.data / "agents" / "small.toml"
        before = await api.get("/api/agents/small")
        assert before["text"] == SMALL
        match = {"if-match": f'"{before["agent"]["digest"]}"'}
        text = "# Mine.\n" + SMALL
        after = await api.request("PUT", "/api/agents/small", {"text": text}, headers=match)
        assert api.status == 200 and path.read_text() == after["text"] == text
        late = await api.request("PUT", "/api/agents/small", {"text": "# Theirs."}, headers=match)
        assert api.status == 409 and late["code"] == "agent_changed" and path.read_text() == text
        bad = await api.request("PUT", "/api/agents/small", {"text": "tools = ['shel']"})
        assert api.status == 400 and bad["code"] == "bad_agent" and path.read_text() == text
        new = {"if-none-match": "*"}
        await api.request("PUT", "/api/agents/small", {"text": ""}, headers=new)
        assert api.status == 409
        await api.request("PUT", "/api/agents/fresh", {"text": ""}, headers=new)
        assert api.status == 200 and (here.data / "agents" / "fresh.toml").stat().st_mode & 0o777 == 0o600
        await api.request("PUT", "/api/agents/..%2Fx", {"text": ""})
        assert api.status in (400, 404) and not (here.data / "x.toml").exists()
        await api.request("DELETE", "/api/agents/small", headers=match)
        assert api.status == 409
        await api.request("DELETE", "/api/agents/small")
        assert api.status == 204 and not path.exists()
        await api.request("DELETE", "/api/agents/small")
        assert api.status == 404


async def test_changing_agents_needs_the_admin_right(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        here.write("agents/free.toml", 'approvals = "allow"\n')
        made = await api.post("/api/tokens", {"name": "bot", "rights": ["read", "write"]})
        async with api_client(here.running.address, made["secret"]) as bot:
            await bot.get("/api/agents")
            assert bot.status == 200
            await bot.request("PUT", "/api/agents/small", {"text": ""})
            assert bot.status == 403
            await bot.request("DELETE", "/api/agents/small")
            assert bot.status == 403
            await bot.post("/api/sessions", {"agent": "small"})
            assert bot.status == 201
            await bot.post("/api/sessions", {"agent": "free"})
            assert bot.status == 403, "to have nobody asked is for those who may allow things"


async def test_a_slash_prompt_is_expanded_and_the_transcript_shows_the_expansion(
    here: AgentTestServer,
) -> None:
    async with api_client(here.running.address) as api:
        here.write("prompts/greet.md", "Say hello to $ARGUMENTS.")
        here.write("prompts/undo.md", "Something else.")
        listed = await api.get("/api/prompts")
        assert listed["prompts"] == [{"name": "greet", "about": "Say hello to $ARGUMENTS."}]
        assert "prompts/undo.md: /undo is a command already" in listed["errors"][0]
        session = await api.create_session()
        sent = await api.send(session, "/greet the world", key="one")
        await api.wait_for_run(sent["run_id"])
        here.write("prompts/greet.md", "Wave to $ARGUMENTS.")
        again = await api.send(session, "/greet the world", key="one")
        assert again["turn_id"] == sent["turn_id"], "the same send is one turn, whatever the prompt says now"
        (said,) = [each for each in await api.entries(session) if each["role"] == "user"]
        assert text_of(said) == "Say hello to the world."
        assert await send_and_read(api, session, "/greetings all") == "/greetings all "


async def test_a_recovered_run_is_sent_the_same_context(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        session = await api.create_session(agent="small")

        async def has_begun() -> bool:
            return any(
                role == "assistant" and len(words) > 20 for role, _, words in await api.message_texts(session)
            )

        with here.first.pausing_count(60):
            sent = await api.send(session, "count 100")
            await wait_until(has_begun)
            here.running.process.kill()
            here.running.process.wait(30)
        here.write("agents/small.toml", SMALL.replace("small.", "another."))
        here.write("agents/slip.toml", "memory = 'perhaps'")
        here.running = here.command.serve("--port", "0")
        screen = " ".join(here.running.output_lines)
        assert (
            screen.count("agents/slip.toml") == 1
            and "Not usable" in screen
            and "agents/slip.toml: memory must be on or off" in screen
        )
        async with api_client(here.running.address) as later:
            await later.wait_for_run(sent["run_id"])
            assert [each.partition("\n")[0] for each in system_prompts(here.first.requests)] == [
                "You are small."
            ] * 2
            said = "".join(
                words for role, _, words in await later.message_texts(session) if role == "assistant"
            )
            assert [int(word) for word in said.split()] == list(range(100))
            await send_and_read(later, session, "Hello")
            assert system_prompts(here.first.requests)[-1].startswith("You are another.")


async def test_the_terminal_lists_agents_and_chats_with_one(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        listed = await here.run("agents", "list")
        assert listed.returncode == 0 and "small" in listed.stdout and "vllm:large" in listed.stdout
        shown = await here.run("agents", "show", "small")
        assert shown.returncode == 0 and "You are small." in shown.stdout
        checked = await here.run("agents", "check")
        assert checked.returncode == 0, checked.stderr
        here.write("agents/keyless.toml", "model = 'mistral:x'")
        checked = await here.run("agents", "check")
        lack = (
            "agents/keyless.toml: mistral:x cannot be asked: api.mistral.ai wants a key, and MISTRAL_API_KEY"
        )
        assert checked.returncode == 1 and f"{lack} is not set." in checked.stdout
        spoken = await here.run("chat", "--agent", "large", "-p", "Hello there", "--json")
        assert spoken.returncode == 0, spoken.stderr
        session = json.loads(spoken.stdout)["session_id"]
        assert (await api.get(f"/api/sessions/{session}"))["agent"] == "large"
        assert system_prompts(here.second.requests)


async def test_a_fallback_without_a_key_is_reported_and_does_not_block_answers(here: AgentTestServer) -> None:
    here.write("agents/small.toml", SMALL + 'fallbacks = ["groq:nobody"]\neffort = "low"\n')
    lack = "groq:nobody cannot be asked: api.groq.com wants a key"
    async with api_client(here.running.address) as api:
        session = await api.create_session(agent="small")
        assert "Hello" in await send_and_read(api, session, "Hello")
        assert [each.get("reasoning_effort") for each in here.first.requests if each.get("tools")] == ["low"]
        shown = (await api.get("/api/agents/small"))["agent"]
        assert (shown["answers"], shown["error"], shown["effort"]) == (True, "", "low")
        assert lack in shown["unasked"][0]
        assert any(lack in each for each in (await api.get("/health/ready"))["problems"])
    listed = await here.run("agents", "list")
    assert listed.returncode == 0 and lack in listed.stderr


async def test_the_model_list_names_the_main_agents_model_first(here: AgentTestServer) -> None:
    async with api_client(here.running.address) as api:
        here.write("agents/main.toml", 'model = "vllm:large"\n')
        models = (await api.get("/api/models"))["models"]
        assert [(each["name"], each["in_use"]) for each in models] == [
            ("vllm:large", True), ("openai:small", False),
        ]  # fmt: skip
        assert "agents/main.toml" in models[0]["why"]
        plain, other = await api.create_session(), await api.create_session(agent="small")
        names = [(await api.get(f"/api/sessions/{each}"))["answering"] for each in (plain, other)]
        assert names == ["vllm:large", "openai:small"]
        await api.request("PATCH", f"/api/sessions/{other}", {"model": "vllm:large"})
        assert (await api.get(f"/api/sessions/{other}"))["answering"] == "vllm:large"
        await send_and_read(api, plain, "Hello")
        assert here.second.requests and not here.first.requests
