"""MCP servers that are processes of ours: reached, called, confined, and never called twice unasked."""

import asyncio
import fcntl
import os
import signal
from pathlib import Path

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import CallId
from holdfast.domain.limits import MCP_LIST_PAUSE_S, MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX
from holdfast.mcp.transport import McpRateLimiter
from holdfast.tools.sandbox.sandbox import detect_sandbox
from tests.support.mcp_fixture import mcp_servers, plain_server, read_effects, sdk_server, wait_for_effects
from tests.support.tool_fixture import is_alive, open_files


async def test_tool_annotations_set_the_effect(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        info = await harness.wait_until_ready()
        tools = harness.servers
        assert {"s__act", "s__act_again", "s__look"} <= set(info.tools) == set(tools)
        found = [
            (tools[name].effect, tools[name].needs_approval) for name in ("s__act", "s__act_again", "s__look")
        ]
        assert found == [("unsafe", True), ("idempotent", True), ("pure", False)]
        assert tools["s__act"].spec.description == "Acts."
        assert tools["s__act"].spec.parameters["properties"] == {"path": {"type": "string"}}
        assert [name for name in info.tools if name.startswith("s__look")] == ["s__look"], "the first counts"
        assert "other__act" not in tools


async def test_invalid_tool_names_are_changed_and_still_call_their_tool(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        (name,) = [name for name in harness.servers if name.startswith("s__with_dots_and_spaces_")]
        assert (await harness.call(name)).text == "this was with.dots and spaces"


async def test_configured_effects_override_annotations_and_only_listed_tools_are_offered(
    tmp_path: Path,
) -> None:
    table = plain_server(tools=["look", "read", "gone"], effects={"look": "unsafe"})
    async with mcp_servers(tmp_path, s=table) as harness:
        info = await harness.wait_until_ready()
        assert info.tools == ("s__look", "s__read")
        assert info.left_out == ("It does not offer gone, which its table names.",)
        assert harness.servers["s__look"].effect == "unsafe"


async def test_the_model_reads_the_server_result(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        assert (await harness.call("s__odd")).text == "a\ufffdb"
        assert (await harness.call("s__spell")).text == '{"spelt":"out"}'
        said = await harness.call("s__resources")
        assert said.text.splitlines() == [
            "[note://1]", "a note", "[blob://1, x/y, 3 bytes: it cannot be shown here]",
            "[page, http://example.org/]", "[audio, audio/wav, 3 bytes: it cannot be shown here]",
        ]  # fmt: skip
        refused = await harness.call("s__complain")
        assert (refused.outcome, refused.text) == ("failed", "error -32000: I do not like that")


@pytest.mark.parametrize("tool", ["half", "strange"])
async def test_an_unreadable_stdio_response_does_not_block_the_call(tmp_path: Path, tool: str) -> None:
    async with mcp_servers(tmp_path, s=plain_server(effects={tool: "unsafe"})) as harness:
        await harness.wait_until_ready()
        call = await harness.call(f"s__{tool}")
        assert call.outcome == "unknown"
        assert "it may have done it" in call.emitted("stderr")
        assert harness.server_info().state == "ready"


async def test_arguments_that_are_not_an_object_never_reach_the_server(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        call = harness.bench.prepare()
        for wrong in ("[]", "{", '"text"', '{"a": "\\ud800"}', "[" * 100_000):
            call.arguments = wrong
            result = await harness.servers["s__look"].run(call.tool_run())
            assert result.outcome == "failed", wrong
        assert harness.server_info().calls == {}


async def test_server_killed_during_a_call_is_not_called_again_and_the_next_call_works(
    tmp_path: Path,
) -> None:
    effects = tmp_path / "effects"
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        pid = int((await harness.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
        calling = asyncio.create_task(harness.call("s__act", path=str(effects)))
        await wait_for_effects(effects)
        os.kill(pid, signal.SIGKILL)
        call = await calling
        assert call.outcome == "unknown"
        assert "was killed by signal 9" in call.emitted("stderr")
        assert not await is_alive_for(int((tmp_path / "child").read_text())), "nor does what it started stay"
        assert "s__act" in harness.servers, "it stays offered meanwhile"
        (tmp_path / "other.go").touch()
        assert (await harness.call("s__act", path=str(tmp_path / "other"))).text == "did it"
        assert read_effects(effects) == ["done"]


@pytest.mark.parametrize("tool", ["act_again", "look"])
async def test_a_repeatable_call_is_retried_once(tmp_path: Path, tool: str) -> None:
    effects = tmp_path / "effects"
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        pid = int((await harness.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
        calling = asyncio.create_task(harness.call(f"s__{tool}", path=str(effects)))
        await wait_for_effects(effects)
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "effects.go").touch()
        call = await calling
        assert (call.outcome, call.text) == ("done", "did it")
        assert read_effects(effects) == ["done", "done"]
        assert harness.server_info().connections == 2


async def test_a_server_that_dies_on_every_call_is_called_at_most_twice(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("once")) as harness:
        await harness.wait_until_ready()
        call = await harness.call("s__look", path=str(tmp_path / "x"))
        assert call.outcome == "failed"
        assert "killed by signal 9" in call.text
        assert harness.server_info().connections == 2


async def test_a_timed_out_call_has_an_unknown_outcome(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with mcp_servers(tmp_path, s=plain_server(call_timeout_s=1)) as harness:
        await harness.wait_until_ready()
        call = await harness.call("s__act", path=str(effects))
        assert call.outcome == "unknown"
        assert "did not answer within 1 s" in call.emitted("stderr")
        assert read_effects(effects) == ["done"]


async def test_cancelling_a_call_cancels_it_on_the_server(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with mcp_servers(tmp_path, s=sdk_server()) as harness:
        await harness.wait_until_ready()
        calling = asyncio.create_task(harness.call("s__cancelled", effects=str(effects)))
        await wait_for_effects(effects)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await wait_for_effects(effects, 2)
        assert read_effects(effects) == ["begun", "cancelled"]
        assert harness.server_info().state == "ready"


async def test_progress_is_shown_but_not_part_of_the_result(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=sdk_server()) as harness:
        await harness.wait_until_ready()
        call = await harness.call("s__count", to=3)
        assert call.text == "counted"
        assert sorted(call.emitted("stdout").splitlines()) == [f"{n} of 3 step {n}" for n in (1, 2, 3)]
        call = await harness.call("s__count", to=2_000)
        assert len(call.emitted("stdout").splitlines()) <= 500


@pytest.mark.parametrize("made", [plain_server, sdk_server])
async def test_tools_added_later_are_offered(tmp_path: Path, made: object) -> None:
    assert callable(made)
    async with mcp_servers(tmp_path, s=made()) as harness:
        await harness.wait_until_ready()
        await harness.call("s__grow")
        await harness.wait_for(lambda info: "s__grown" in info.tools)


async def test_constant_list_change_notifications_are_rate_limited(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("restless")) as harness:
        # Asked when it was reached, at once when it had news, and then after a pause.
        info = await harness.wait_for(lambda info: "s__more_1" in info.tools)
        assert SystemClock().now_ms() - info.ready_since >= MCP_LIST_PAUSE_S * 1000
        assert (await harness.call("s__environment")).text


def test_a_flooding_server_is_read_at_a_limited_rate() -> None:
    pace, now = McpRateLimiter(0.0), 0.0
    waits = [pace.take_tokens(now) for _ in range(MCP_MESSAGES_AT_ONCE)]
    assert not any(waits)
    for _ in range(10 * MCP_MESSAGES_PER_S_MAX):
        now += pace.take_tokens(now)
    assert now == pytest.approx(10, abs=0.1)
    # Whoever was quiet for a while may say much at once again, and no more than before.
    now += 3_600
    assert not any(pace.take_tokens(now) for _ in range(MCP_MESSAGES_AT_ONCE)) and pace.take_tokens(now) > 0


async def test_invalid_lines_between_messages_are_skipped(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("rubbish")) as harness:
        await harness.wait_until_ready()
        assert (await harness.call("s__odd")).outcome == "done"


async def test_too_many_tools_are_truncated_with_a_hint(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("crowd")) as harness:
        info = await harness.wait_until_ready()
        assert len(info.tools) == 128
        assert "name those that are wanted in `tools`" in info.left_out[-1]


async def test_unsupported_tools_are_left_out_with_a_reason(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("wrong")) as harness:
        info = await harness.wait_until_ready()
        assert [each.split(" is left out: ")[0] for each in info.left_out] == ["nonsense", "huge"]
        assert harness.servers["s__either"].spec.parameters == {
            "type": "object", "properties": {},
        }  # fmt: skip
        (long,) = [name for name in info.tools if name.startswith("s__nnn")]
        assert len(long) == 64
        assert len(harness.servers[long].spec.description) == 4_000


async def test_malformed_tools_do_not_hide_valid_ones(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("rude")) as harness:
        info = await harness.wait_until_ready()
        assert info.last_error == ""
        assert {"s__act", "s__act_again", "s__ask"} <= set(info.tools)
        assert not {"s__flat", "s__bare", "s__texts"} & set(info.tools)
        names = [each.split(" is left out: ")[0] for each in info.left_out]
        assert names == ["flat", "bare", "texts", "A tool without a name", "A tool without a name"]
        assert "inputSchema.type" in info.left_out[0]
        assert (await harness.call("s__odd")).outcome == "done"


async def test_problems_of_unselected_tools_are_not_reported(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("rude", tools=["act", "bare"])) as harness:
        info = await harness.wait_until_ready()
        assert info.tools == ("s__act",)
        assert info.left_out[0].startswith("bare is left out: ")
        assert len(info.left_out) == 2


async def test_an_invalid_tool_list_is_reported(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("unlisted")) as harness:
        info = await harness.wait_for_error()
        assert info.last_error.startswith("its list of tools is not valid")
        assert info.tools == ()


async def test_a_server_that_exits_at_once_is_retried_with_backoff(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("exits")) as harness:
        info = await harness.wait_for(lambda info: info.state == "waiting" and info.retry_at > 0)
        assert info.last_error == "it ended with exit code 3; it said: nothing to do here"
        first = info.retry_at - info.last_error_at
        info = await harness.wait_for(
            lambda info: info.state == "waiting" and info.retry_at > info.last_error_at + 900
        )
        assert first < 900 <= info.retry_at - info.last_error_at
        before = info.last_error_at
        harness.servers.reconnect("s")
        await harness.wait_for(lambda info: info.last_error_at > before)


async def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s={"command": "there-is-no-such-program"}) as harness:
        info = await harness.wait_for_error()
        assert "exit code 127" in info.last_error
        assert "not found" in info.last_error


@pytest.mark.parametrize("word", ["mute", "floods"])
async def test_a_silent_or_flooding_server_times_out(tmp_path: Path, word: str) -> None:
    async with mcp_servers(tmp_path, s=plain_server(word, start_timeout_s=3)) as harness:
        info = await harness.wait_for_error()
        assert info.last_error in (
            "it was not ready within 3 s", "it said more than 16,000,000 bytes in one message",
        )  # fmt: skip
        assert info.tools == ()


async def test_a_slow_server_delays_only_its_own_calls(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, slow=plain_server("slow"), s=plain_server()) as harness:
        await harness.wait_until_ready()
        assert harness.server_info("slow").state == "connecting"
        await harness.wait_until_ready("slow")
        assert (await harness.call("slow__odd")).outcome == "done"


async def test_a_long_response_arrives_whole_and_an_oversized_one_ends_the_connection(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server(effects={"big": "unsafe"})) as harness:
        await harness.wait_until_ready()
        assert len((await harness.call("s__big", path="5000000")).text) == 5_000_000
        call = await harness.call("s__big", path="20000000")
        assert call.outcome == "unknown"
        assert "more than 16,000,000 bytes" in call.emitted("stderr")
        await harness.wait_for(lambda info: info.connections == 2)


async def test_cached_tools_are_offered_before_the_server_is_ready(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server("slow")) as harness:
        tools = (await harness.wait_until_ready()).tools
    async with mcp_servers(tmp_path, s=plain_server("slow")) as harness:
        assert harness.server_info().tools == tools
        assert harness.server_info().state == "connecting"
        assert (await harness.call("s__odd")).outcome == "done", "a call waits"
    async with mcp_servers(tmp_path, s=plain_server("slow", tools=["look"])) as harness:
        assert harness.server_info().tools == (), "another table may offer others"


async def test_after_repeated_failures_tools_are_withdrawn_and_calls_fail_at_once(
    tmp_path: Path,
) -> None:
    async with mcp_servers(tmp_path, s=plain_server("once")) as harness:
        await harness.wait_until_ready()
        tool = harness.servers["s__look"]
        for _ in range(2):
            await tool.run(harness.bench.prepare(path=str(tmp_path / "x")).tool_run())
        await harness.wait_for(lambda info: info.tools == ())


async def test_stopping_leaves_no_server_process(tmp_path: Path) -> None:
    async with mcp_servers(tmp_path, s=plain_server()) as harness:  # Whatever is loaded once is loaded now.
        await harness.wait_until_ready()
    before = open_files()
    async with mcp_servers(tmp_path, s=plain_server()) as harness:
        await harness.wait_until_ready()
        for count in (2, 3):
            harness.servers.reconnect("s")
            await harness.wait_for(lambda info, count=count: info.connections == count)  # type: ignore[misc]
        pid = int((await harness.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
    for each in (pid, int((tmp_path / "child").read_text())):
        assert not await is_alive_for(each)
    assert harness.server_info().state == "stopped"
    assert list((tmp_path / "store" / "calls").iterdir()) == [], "its lock is gone"
    assert open_files() <= before


async def test_a_lock_shows_whether_another_process_still_runs_the_server(
    tmp_path: Path,
) -> None:
    calls = tmp_path / "store" / "calls"
    calls.mkdir(parents=True)
    async with mcp_servers(tmp_path, s=plain_server(), **{"s-beef": plain_server()}) as harness:
        await harness.wait_until_ready()
        await harness.wait_until_ready("s-beef")
        tool = harness.servers["s__act"]
        assert await tool.is_finished(CallId("c")), "our own is no other's, nor is one of another name"
        with (calls / "mcp-s-0123.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not await tool.is_finished(CallId("c"))
        assert await tool.is_finished(CallId("c"))


async def test_a_server_sees_only_its_configured_environment(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-not-for-others", "WIKI_TOKEN": "for-the-wiki", "LANG": "C.UTF-8"}
    table = plain_server(env={"TOKEN": "${WIKI_TOKEN}", "MODE": "plain"})
    async with mcp_servers(tmp_path, environ, s=table) as harness:
        await harness.wait_until_ready()
        said = (await harness.call("s__environment")).text.splitlines()
        assert {"TOKEN=for-the-wiki", "MODE=plain", "LANG=C.UTF-8"} <= set(said)
        assert "sk-not-for-others" not in "\n".join(said)
        assert not any(line.startswith("_HOLDFAST") for line in said)


async def test_a_server_runs_in_its_own_or_its_configured_folder(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    async with mcp_servers(tmp_path, s=plain_server(), t=plain_server(cwd=str(given))) as harness:
        await harness.wait_until_ready()
        await harness.wait_until_ready("t")
        own = (await harness.call("s__spawn", path=str(tmp_path / "a"))).text.split()[1]
        assert Path(own) == tmp_path / "store" / "mcp" / "s"
        assert (await harness.call("t__spawn", path=str(tmp_path / "b"))).text.split()[1] == str(given)


async def test_a_server_cannot_run_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "store" / "inner").mkdir(parents=True)
    async with mcp_servers(tmp_path, s=plain_server(cwd=str(tmp_path / "store" / "inner"))) as harness:
        info = await harness.wait_for_error()
        assert "which no tool may use" in info.last_error


async def test_a_sandboxed_server_cannot_read_the_data_folder_or_connect_to_the_port(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "secret").write_text("nobody's business")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    confinement = await asyncio.to_thread(detect_sandbox, store, "127.0.0.1", port)
    if not confinement.sandbox.mechanism:
        pytest.skip("there are no walls on this machine")
    async with server, mcp_servers(tmp_path, sandbox=confinement.sandbox, s=plain_server()) as harness:
        await harness.wait_until_ready()
        assert (await harness.call("s__read", path=str(store / "secret"))).outcome == "failed"
        assert "secret" not in (await harness.call("s__read", path=str(store))).text
        outside = tmp_path / "outside"
        outside.write_text("anyone's")
        assert (await harness.call("s__read", path=str(outside))).text == "anyone's"
        if confinement.sandbox.port_ruleset >= 0:
            assert (await harness.call("s__connect", path=str(port))).outcome == "failed"


async def is_alive_for(pid: int, within_s: float = 10) -> bool:
    """Whether a process is still there after so long."""
    for _ in range(int(within_s * 100)):
        if not is_alive(pid):
            return False
        await asyncio.sleep(0.01)
    return True
