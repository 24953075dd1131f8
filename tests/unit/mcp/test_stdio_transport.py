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
from holdfast.mcp.transport import Pace
from holdfast.tools.sandbox.sandbox import confine
from tests.support.mcp_fixture import done, effects_of, housed, plain, sdk
from tests.support.tool_fixture import is_alive, open_files


async def test_its_tools_are_offered_with_what_they_are_annotated_as(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain()) as house:
        told = await house.ready()
        tools = house.servers
        assert {"s__act", "s__act_again", "s__look"} <= set(told.tools) == set(tools)
        found = [(tools[name].effect, tools[name].asks) for name in ("s__act", "s__act_again", "s__look")]
        assert found == [("unsafe", True), ("idempotent", True), ("pure", False)]
        assert tools["s__act"].spec.description == "Acts."
        assert tools["s__act"].spec.parameters["properties"] == {"path": {"type": "string"}}
        assert [name for name in told.tools if name.startswith("s__look")] == ["s__look"], "the first counts"
        assert "other__act" not in tools


async def test_names_that_models_do_not_take_are_changed_and_still_lead_to_their_tool(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        (name,) = [name for name in house.servers if name.startswith("s__with_dots_and_spaces_")]
        assert (await house.call(name)).text == "this was with.dots and spaces"


async def test_our_own_word_on_a_tool_wins_over_its_annotations_and_only_named_ones_are_offered(
    tmp_path: Path,
) -> None:
    table = plain(tools=["look", "read", "gone"], effects={"look": "unsafe"})
    async with housed(tmp_path, s=table) as house:
        told = await house.ready()
        assert told.tools == ("s__look", "s__read")
        assert told.left_out == ("It does not offer gone, which its table names.",)
        assert house.servers["s__look"].effect == "unsafe"


async def test_what_it_answers_is_what_the_model_reads(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        assert (await house.call("s__odd")).text == "a\ufffdb"
        assert (await house.call("s__spell")).text == '{"spelt":"out"}'
        said = await house.call("s__resources")
        assert said.text.splitlines() == [
            "[note://1]", "a note", "[blob://1, x/y, 3 bytes: it cannot be shown here]",
            "[page, http://example.org/]", "[audio, audio/wav, 3 bytes: it cannot be shown here]",
        ]  # fmt: skip
        refused = await house.call("s__complain")
        assert (refused.outcome, refused.text) == ("failed", "error -32000: I do not like that")


@pytest.mark.parametrize("tool", ["half", "strange"])
async def test_an_answer_that_cannot_be_read_does_not_keep_a_call_waiting(tmp_path: Path, tool: str) -> None:
    async with housed(tmp_path, s=plain(effects={tool: "unsafe"})) as house:
        await house.ready()
        call = await house.call(f"s__{tool}")
        assert call.outcome == "unknown"
        assert "it may have done it" in call.emitted("stderr")
        assert house.told().state == "ready"


async def test_arguments_that_are_no_object_never_reach_it(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        call = house.bench.prepare()
        for wrong in ("[]", "{", '"text"', '{"a": "\\ud800"}', "[" * 100_000):
            call.arguments = wrong
            result = await house.servers["s__look"].run(call.run())
            assert result.outcome == "failed", wrong
        assert house.told().calls == {}


async def test_killed_in_the_middle_of_a_call_it_is_not_called_again_and_the_next_call_works(
    tmp_path: Path,
) -> None:
    effects = tmp_path / "effects"
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        pid = int((await house.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
        calling = asyncio.create_task(house.call("s__act", path=str(effects)))
        await done(effects)
        os.kill(pid, signal.SIGKILL)
        call = await calling
        assert call.outcome == "unknown"
        assert "was killed by signal 9" in call.emitted("stderr")
        assert not await is_alive_for(int((tmp_path / "child").read_text())), "nor does what it started stay"
        assert "s__act" in house.servers, "it stays offered meanwhile"
        (tmp_path / "other.go").touch()
        assert (await house.call("s__act", path=str(tmp_path / "other"))).text == "did it"
        assert effects_of(effects) == ["done"]


@pytest.mark.parametrize("tool", ["act_again", "look"])
async def test_what_does_no_harm_is_called_once_more(tmp_path: Path, tool: str) -> None:
    effects = tmp_path / "effects"
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        pid = int((await house.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
        calling = asyncio.create_task(house.call(f"s__{tool}", path=str(effects)))
        await done(effects)
        os.kill(pid, signal.SIGKILL)
        (tmp_path / "effects.go").touch()
        call = await calling
        assert (call.outcome, call.text) == ("done", "did it")
        assert effects_of(effects) == ["done", "done"]
        assert house.told().connections == 2


async def test_one_that_dies_of_every_call_is_called_twice_at_most(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("once")) as house:
        await house.ready()
        call = await house.call("s__look", path=str(tmp_path / "x"))
        assert call.outcome == "failed"
        assert "killed by signal 9" in call.text
        assert house.told().connections == 2


async def test_a_call_that_takes_too_long_may_have_beendone(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with housed(tmp_path, s=plain(call_timeout_s=1)) as house:
        await house.ready()
        call = await house.call("s__act", path=str(effects))
        assert call.outcome == "unknown"
        assert "did not answer within 1 s" in call.emitted("stderr")
        assert effects_of(effects) == ["done"]


async def test_a_cancelled_call_is_cancelled_there_too(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    async with housed(tmp_path, s=sdk()) as house:
        await house.ready()
        calling = asyncio.create_task(house.call("s__cancelled", effects=str(effects)))
        await done(effects)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await done(effects, 2)
        assert effects_of(effects) == ["begun", "cancelled"]
        assert house.told().state == "ready"


async def test_progress_is_shown_and_the_result_is_not_made_of_it(tmp_path: Path) -> None:
    async with housed(tmp_path, s=sdk()) as house:
        await house.ready()
        call = await house.call("s__count", to=3)
        assert call.text == "counted"
        assert sorted(call.emitted("stdout").splitlines()) == [f"{n} of 3 step {n}" for n in (1, 2, 3)]
        call = await house.call("s__count", to=2_000)
        assert len(call.emitted("stdout").splitlines()) <= 500


@pytest.mark.parametrize("made", [plain, sdk])
async def test_tools_that_come_later_are_heard_of(tmp_path: Path, made: object) -> None:
    assert callable(made)
    async with housed(tmp_path, s=made()) as house:
        await house.ready()
        await house.call("s__grow")
        await house.until(lambda told: "s__grown" in told.tools)


async def test_one_that_always_has_news_is_not_asked_all_the_time(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("restless")) as house:
        # Asked when it was reached, at once when it had news, and then after a pause.
        told = await house.until(lambda told: "s__more_1" in told.tools)
        assert SystemClock().now_ms() - told.ready_since >= MCP_LIST_PAUSE_S * 1000
        assert (await house.call("s__environment")).text


def test_one_that_never_stops_talking_is_listened_to_at_a_pace() -> None:
    pace, now = Pace(0.0), 0.0
    waits = [pace.wait_s(now) for _ in range(MCP_MESSAGES_AT_ONCE)]
    assert not any(waits)
    for _ in range(10 * MCP_MESSAGES_PER_S_MAX):
        now += pace.wait_s(now)
    assert now == pytest.approx(10, abs=0.1)
    # Whoever was quiet for a while may say much at once again, and no more than before.
    now += 3_600
    assert not any(pace.wait_s(now) for _ in range(MCP_MESSAGES_AT_ONCE)) and pace.wait_s(now) > 0


async def test_rubbish_between_messages_is_passed_over(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("rubbish")) as house:
        await house.ready()
        assert (await house.call("s__odd")).outcome == "done"


async def test_of_a_thousand_tools_some_are_offered_and_it_is_said_how_to_choose(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("crowd")) as house:
        told = await house.ready()
        assert len(told.tools) == 128
        assert "name those that are wanted in `tools`" in told.left_out[-1]


async def test_tools_that_no_model_takes_are_left_out_with_a_reason(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("wrong")) as house:
        told = await house.ready()
        assert [each.split(" is left out: ")[0] for each in told.left_out] == ["nonsense", "huge"]
        assert house.servers["s__either"].spec.parameters == {
            "type": "object", "properties": {},
        }  # fmt: skip
        (long,) = [name for name in told.tools if name.startswith("s__nnn")]
        assert len(long) == 64
        assert len(house.servers[long].spec.description) == 4_000


async def test_tools_that_are_none_do_not_cost_a_server_the_others(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("rude")) as house:
        told = await house.ready()
        assert told.last_error == ""
        assert {"s__act", "s__act_again", "s__ask"} <= set(told.tools)
        assert not {"s__flat", "s__bare", "s__texts"} & set(told.tools)
        names = [each.split(" is left out: ")[0] for each in told.left_out]
        assert names == ["flat", "bare", "texts", "A tool without a name", "A tool without a name"]
        assert "inputSchema.type" in told.left_out[0]
        assert (await house.call("s__odd")).outcome == "done"


async def test_what_is_wrong_with_tools_that_are_not_wanted_is_not_told(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("rude", tools=["act", "bare"])) as house:
        told = await house.ready()
        assert told.tools == ("s__act",)
        assert told.left_out[0].startswith("bare is left out: ")
        assert len(told.left_out) == 2


async def test_a_list_that_is_none_is_told(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("unlisted")) as house:
        told = await house.failed()
        assert told.last_error.startswith("its list of tools is not valid")
        assert told.tools == ()


async def test_one_that_ends_at_once_is_tried_again_later_and_later(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("exits")) as house:
        told = await house.until(lambda told: told.state == "waiting" and told.retry_at > 0)
        assert told.last_error == "it ended with exit code 3; it said: nothing to do here"
        first = told.retry_at - told.last_error_at
        told = await house.until(
            lambda told: told.state == "waiting" and told.retry_at > told.last_error_at + 900
        )
        assert first < 900 <= told.retry_at - told.last_error_at
        before = told.last_error_at
        house.servers.reconnect("s")
        await house.until(lambda told: told.last_error_at > before)


async def test_one_that_is_not_there_is_told(tmp_path: Path) -> None:
    async with housed(tmp_path, s={"command": "there-is-no-such-program"}) as house:
        told = await house.failed()
        assert "exit code 127" in told.last_error
        assert "not found" in told.last_error


@pytest.mark.parametrize("word", ["mute", "floods"])
async def test_one_that_says_nothing_or_too_much_is_given_up_in_time(tmp_path: Path, word: str) -> None:
    async with housed(tmp_path, s=plain(word, start_timeout_s=3)) as house:
        told = await house.failed()
        assert told.last_error in (
            "it was not ready within 3 s", "it said more than 16,000,000 bytes in one message",
        )  # fmt: skip
        assert told.tools == ()


async def test_a_slow_one_keeps_nobody_waiting_but_its_own_calls(tmp_path: Path) -> None:
    async with housed(tmp_path, slow=plain("slow"), s=plain()) as house:
        await house.ready()
        assert house.told("slow").state == "connecting"
        await house.ready("slow")
        assert (await house.call("slow__odd")).outcome == "done"


async def test_a_long_answer_comes_whole_and_one_that_is_too_long_ends_the_connection(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain(effects={"big": "unsafe"})) as house:
        await house.ready()
        assert len((await house.call("s__big", path="5000000")).text) == 5_000_000
        call = await house.call("s__big", path="20000000")
        assert call.outcome == "unknown"
        assert "more than 16,000,000 bytes" in call.emitted("stderr")
        await house.until(lambda told: told.connections == 2)


async def test_what_it_offered_last_is_known_before_it_is_ready_again(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain("slow")) as house:
        tools = (await house.ready()).tools
    async with housed(tmp_path, s=plain("slow")) as house:
        assert house.told().tools == tools
        assert house.told().state == "connecting"
        assert (await house.call("s__odd")).outcome == "done", "a call waits"
    async with housed(tmp_path, s=plain("slow", tools=["look"])) as house:
        assert house.told().tools == (), "another table may offer others"


async def test_after_several_failures_its_tools_are_no_longer_offered_and_calls_fail_at_once(
    tmp_path: Path,
) -> None:
    async with housed(tmp_path, s=plain("once")) as house:
        await house.ready()
        tool = house.servers["s__look"]
        for _ in range(2):
            await tool.run(house.bench.prepare(path=str(tmp_path / "x")).run())
        await house.until(lambda told: told.tools == ())


async def test_nothing_of_it_is_left_when_it_is_stopped(tmp_path: Path) -> None:
    async with housed(tmp_path, s=plain()) as house:  # Whatever is loaded once is loaded now.
        await house.ready()
    before = open_files()
    async with housed(tmp_path, s=plain()) as house:
        await house.ready()
        for count in (2, 3):
            house.servers.reconnect("s")
            await house.until(lambda told, count=count: told.connections == count)  # type: ignore[misc]
        pid = int((await house.call("s__spawn", path=str(tmp_path / "child"))).text.split()[0])
    for each in (pid, int((tmp_path / "child").read_text())):
        assert not await is_alive_for(each)
    assert house.told().state == "stopped"
    assert list((tmp_path / "store" / "calls").iterdir()) == [], "its lock is gone"
    assert open_files() <= before


async def test_whether_another_process_has_one_of_its_servers_left_is_known_by_its_lock(
    tmp_path: Path,
) -> None:
    calls = tmp_path / "store" / "calls"
    calls.mkdir(parents=True)
    async with housed(tmp_path, s=plain(), **{"s-beef": plain()}) as house:
        await house.ready()
        await house.ready("s-beef")
        tool = house.servers["s__act"]
        assert await tool.is_gone(CallId("c")), "our own is no other's, nor is one of another name"
        with (calls / "mcp-s-0123.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert not await tool.is_gone(CallId("c"))
        assert await tool.is_gone(CallId("c"))


async def test_it_knows_only_what_its_table_gives_it(tmp_path: Path) -> None:
    environ = {"OPENAI_API_KEY": "sk-not-for-others", "WIKI_TOKEN": "for-the-wiki", "LANG": "C.UTF-8"}
    table = plain(env={"TOKEN": "${WIKI_TOKEN}", "MODE": "plain"})
    async with housed(tmp_path, environ, s=table) as house:
        await house.ready()
        said = (await house.call("s__environment")).text.splitlines()
        assert {"TOKEN=for-the-wiki", "MODE=plain", "LANG=C.UTF-8"} <= set(said)
        assert "sk-not-for-others" not in "\n".join(said)
        assert not any(line.startswith("_HOLDFAST") for line in said)


async def test_it_works_in_a_folder_of_its_own_or_in_the_one_it_is_given(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    async with housed(tmp_path, s=plain(), t=plain(cwd=str(given))) as house:
        await house.ready()
        await house.ready("t")
        own = (await house.call("s__spawn", path=str(tmp_path / "a"))).text.split()[1]
        assert Path(own) == tmp_path / "store" / "mcp" / "s"
        assert (await house.call("t__spawn", path=str(tmp_path / "b"))).text.split()[1] == str(given)


async def test_the_data_folder_cannot_be_where_it_works(tmp_path: Path) -> None:
    (tmp_path / "store" / "inner").mkdir(parents=True)
    async with housed(tmp_path, s=plain(cwd=str(tmp_path / "store" / "inner"))) as house:
        told = await house.failed()
        assert "which no tool may use" in told.last_error


async def test_it_can_neither_read_the_data_folder_nor_reach_the_servers_port(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "secret").write_text("nobody's business")
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    confinement = await asyncio.to_thread(confine, store, "127.0.0.1", port)
    if not confinement.walls.way:
        pytest.skip("there are no walls on this machine")
    async with server, housed(tmp_path, walls=confinement.walls, s=plain()) as house:
        await house.ready()
        assert (await house.call("s__read", path=str(store / "secret"))).outcome == "failed"
        assert "secret" not in (await house.call("s__read", path=str(store))).text
        outside = tmp_path / "outside"
        outside.write_text("anyone's")
        assert (await house.call("s__read", path=str(outside))).text == "anyone's"
        if confinement.walls.ports >= 0:
            assert (await house.call("s__connect", path=str(port))).outcome == "failed"


async def is_alive_for(pid: int, within_s: float = 10) -> bool:
    """Whether a process is still there after so long."""
    for _ in range(int(within_s * 100)):
        if not is_alive(pid):
            return False
        await asyncio.sleep(0.01)
    return True
