"""Commands that are typed in a chat: what each does, and that plain words are just said."""

import asyncio
import re
from pathlib import Path

import pytest

from holdfast.agent.config.info import AgentInfo
from holdfast.channels.commands import NO_CONVERSATION, CommandSources
from holdfast.channels.question_text import TOO_LONG
from holdfast.domain import slash
from holdfast.domain.events.parts import Text
from tests.support.fake_channel import ChannelHarness, FakeChatApp, channel_harness
from tests.support.in_process_app import FakeTool, running_app, text_step, tool_call_step


async def send_and_read_last(harness: ChannelHarness, text: str) -> str:
    """What is shown last after something was typed and everything is done."""
    harness.chat_app.post_message(text)
    await harness.wait_until_idle()
    return harness.chat_app.texts()[-1] if harness.chat_app.texts() else ""


async def test_new_begins_another_conversation_that_names_the_one_before(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        await send_and_read_last(harness, "first")
        before = await harness.session_id()
        assert await send_and_read_last(harness, "/new") == "A new conversation. The old one is in /sessions."
        after = await harness.session_id()
        assert (await app.store.session(after)).previous_session_id == before != after
        assert (
            await send_and_read_last(harness, "/new") == "This is a new conversation already. Say something."
        )
        assert await send_and_read_last(harness, "second") == "two"
        assert [text for _, _, text in await app.entry_texts(after)] == ["second", "two"]


async def test_undo_removes_the_last_message_and_its_answer(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        assert await send_and_read_last(harness, "/undo") == "There is nothing to undo."
        await send_and_read_last(harness, "first")
        await send_and_read_last(harness, "second")
        assert await send_and_read_last(harness, "/undo") == "*Removed.*"
        assert (await app.store.session(await harness.session_id())).live_turns == 1
        await send_and_read_last(harness, "/undo")
        assert await send_and_read_last(harness, "/undo") == "There is nothing to undo."


async def test_restore_brings_back_what_was_undone_last_and_unmarks_its_answer(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two"), text_step("three")]
        assert await send_and_read_last(harness, "/restore") == "There is nothing to restore."
        await send_and_read_last(harness, "first")
        await send_and_read_last(harness, "second")
        await send_and_read_last(harness, "/undo")
        assert "two\n\n*Removed.*" in harness.chat_app.texts()
        await send_and_read_last(harness, "instead")
        assert await send_and_read_last(harness, "/restore") == "*Restored.*"
        # What followed the undo is removed now, and says so; what is back no longer does.
        said = [text for text in harness.chat_app.texts() if text.startswith(("one", "two", "three"))]
        assert said == ["one", "two", "three\n\n*Removed.*"]
        session_id = await harness.session_id()
        rows = await app.store.snapshot(lambda snapshot: snapshot.turns(session_id))
        assert [row.turn for row in rows if row.status == "live"] == [1, 2]


async def test_undo_works_while_the_answer_streams(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        never = asyncio.Event()
        app.model.steps = [[*text_step("begun ")[:1], never]]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("begun …")
        await send_and_read_last(harness, "/undo")
        assert [text.rstrip() for text in harness.chat_app.texts()] == ["begun\n\n*Removed.*", "*Removed.*"]
        assert (await app.store.session(await harness.session_id())).live_turns == 0


async def test_retry_answers_the_last_message_again(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("better")]
        assert await send_and_read_last(harness, "/retry") == "There is nothing to answer again."
        await send_and_read_last(harness, "first")
        assert await send_and_read_last(harness, "/retry") == "better"
        assert harness.chat_app.texts()[-2] == "*Answering again.*"
        assert (await app.store.session(await harness.session_id())).live_turns == 1


@pytest.mark.parametrize("verb", ["retry", "undo"])
async def test_what_is_answered_after_turns_were_taken_back_while_the_app_was_away_is_not_marked(
    tmp_path: Path, verb: str
) -> None:
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app:

        async def is_idle() -> bool:
            return not await engine_app.store.active_runs()

        engine_app.model.steps = [text_step("one"), text_step("two"), text_step("three")]
        async with channel_harness(engine_app, chat_app) as harness:
            await send_and_read_last(harness, "first")
            session_id = await harness.session_id()
        if verb == "retry":
            await engine_app.engine.replace(session_id, None, None)
        else:
            await engine_app.engine.commands.undo(session_id, None)
        await engine_app.wait_until(is_idle)
        await engine_app.send(session_id, "next")
        await engine_app.wait_until(is_idle)
        async with channel_harness(engine_app, chat_app) as harness:
            await harness.wait_until_idle()
        said = [text for text in chat_app.texts() if text.startswith(("one", "two", "three"))]
        assert said == (
            ["one\n\n*Answered again below.*", "two", "three"]
            if verb == "retry"
            else ["one\n\n*Removed.*", "two"]
        )


async def test_stop_ends_the_answer_under_way(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        never = asyncio.Event()
        app.model.steps = [[*text_step("begun ")[:1], never]]
        assert await send_and_read_last(harness, "/stop") == "There is nothing to stop."
        harness.chat_app.post_message("first")
        await harness.engine_app.wait_until(lambda: _shows(harness, "begun …"), "the beginning")
        assert await send_and_read_last(harness, "/stop") == "Stopped."
        assert await send_and_read_last(harness, "/stop") == "There is nothing to stop."


async def _shows(harness: ChannelHarness, text: str) -> bool:
    return text in harness.chat_app.texts()


async def test_approve_and_deny_answer_what_is_asked(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [
            tool_call_step("lever"),
            text_step("Pulled."),
            tool_call_step("lever"),
            text_step("I leave it."),
        ]
        assert (
            await send_and_read_last(harness, "/approve")
            == await send_and_read_last(harness, "/deny")
            == "Nothing is being asked here."
        )
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        assert "Your answer is wanted about `lever`" in await send_without_waiting(
            harness, "/status", "Your answer"
        )
        harness.chat_app.post_message("/approve")
        await harness.engine_app.wait_until(lambda: _shows(harness, "Pulled."), "the answer")
        harness.chat_app.post_message("again")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/deny too often")
        await harness.engine_app.wait_until(lambda: _shows(harness, "I leave it."), "the answer")
        await harness.wait_until_idle()
        assert len(tool.run_arguments) == 1
        assert any(text.endswith("*Not allowed: too often*") for text in harness.chat_app.texts())


async def send_without_waiting(harness: ChannelHarness, text: str, marked: str) -> str:
    """As `typed`, while something waits."""
    harness.chat_app.post_message(text)

    async def is_so() -> bool:
        return any(marked in each for each in harness.chat_app.texts())

    await harness.engine_app.wait_until(is_so, f"{marked} in {harness.chat_app.texts()}")
    return next(each for each in harness.chat_app.texts() if marked in each)


async def test_a_conversation_without_a_title_is_known_by_its_first_words(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        await send_and_read_last(harness, "What is the weather like?\nTell me.")
        assert "1. What is the weather like? (here)" in await send_and_read_last(harness, "/sessions")
        assert (
            await send_and_read_last(harness, "/title")
            == "This conversation is called: What is the weather like?"
        )
        assert (await send_and_read_last(harness, "/status")).startswith(
            "**What is the weather like?**: ready."
        )
        await send_and_read_last(harness, "/new")
        assert "Untitled (here)" in await send_and_read_last(harness, "/sessions")
        assert await send_and_read_last(harness, "/switch 2") == "Now in: What is the weather like?"


async def test_sessions_are_numbered_and_switch_goes_to_one_and_back(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two"), text_step("three"), text_step("four")]
        await send_and_read_last(harness, "apples")
        first = await harness.session_id()
        await send_and_read_last(harness, "/new")
        await send_and_read_last(harness, "pears")
        listed = await send_and_read_last(harness, "/sessions")
        assert re.fullmatch(r"1\. pears \(here\), now\n2\. apples, now", listed)
        assert await send_and_read_last(harness, "/switch 2") == "Now in: apples"
        assert await harness.session_id() == first
        assert await send_and_read_last(harness, "more apples") == "three"
        assert "one" not in harness.chat_app.texts()[3:], "it is told from where it stood"
        assert await send_and_read_last(harness, "/switch pear") == "Now in: pears"
        assert (
            await send_and_read_last(harness, "/switch 7")
            == "There is no number 7 in the list. Type /sessions to see it."
        )
        assert await send_and_read_last(harness, "/switch plums") == (
            "No conversation is called that. Type /sessions to see the newest."
        )
        assert await send_and_read_last(harness, "/switch pears") == "You are there already."
        assert (await send_and_read_last(harness, "/switch")).startswith("Which one?")


async def test_numbers_mean_what_they_meant_in_the_list_that_was_shown(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("ok")] * 4
        await send_and_read_last(harness, "apples")
        await send_and_read_last(harness, "/new")
        await send_and_read_last(harness, "pears")
        await send_and_read_last(harness, "/sessions")
        elsewhere = await app.create_session()
        await app.send(elsewhere, "newer than both")
        await harness.wait_until_idle()
        assert await send_and_read_last(harness, "/switch 2") == "Now in: apples"


async def test_switching_away_from_an_answer_under_way_leaves_it_well_and_it_goes_on_there(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        end = asyncio.Event()
        app.model.steps = [text_step("pears it is"), [*text_step("half of ")[:1], end, *text_step("it")]]
        await send_and_read_last(harness, "pears")
        pears = await harness.session_id()
        harness.chat_app.post_message("/new")
        harness.chat_app.post_message("apples")
        await harness.engine_app.wait_until(lambda: _shows(harness, "half of …"), "the beginning")
        apples = await harness.session_id()
        harness.chat_app.post_message("/switch pears")
        await harness.engine_app.wait_until(lambda: _shows(harness, "Now in: pears"), "the switch")
        assert "half of\n\n*It goes on in that conversation.*" in harness.chat_app.texts()
        end.set()
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[-1] == "Now in: pears" and await harness.session_id() == pears
        assert (await app.entry_texts(apples))[-1] == ("assistant", "settled", "half of it")


async def test_in_a_group_nothing_of_other_conversations_is_listed_or_found(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("ok"), text_step("ok")]
        await send_and_read_last(harness, "private matters")
        harness.chat_app.post_message("hello", chat="g", kind="group")
        harness.chat_app.post_message("/sessions", chat="g", kind="group")
        harness.chat_app.post_message("/switch private", chat="g", kind="group")
        await harness.wait_until_idle()
        assert not any("private" in text for text in harness.chat_app.texts("g"))
        assert "No conversation is called that. Type /sessions to see the newest." in harness.chat_app.texts(
            "g"
        )


async def test_title_names_and_says_the_name(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        assert (
            await send_and_read_last(harness, "/title x")
            == "There is no conversation here yet. Say something to begin one."
        )
        app.model.steps = [text_step("ok")]
        await send_and_read_last(harness, "hello")
        assert await send_and_read_last(harness, "/title Fruit salad") == "Called: Fruit salad"
        assert await send_and_read_last(harness, "/title") == "This conversation is called: Fruit salad"
        assert "too_large" not in await send_and_read_last(harness, "/title " + "x" * 300)


async def test_status_model_and_memory_say_what_there_is(tmp_path: Path) -> None:
    async def remembered(words: str) -> str:
        return f"Of {words}: much." if words else ""

    async with (
        running_app(tmp_path) as app,
        channel_harness(app, sources=CommandSources(lambda agent: "puppet-1", remembered)) as harness,
    ):
        app.model.steps = [text_step("ok")]
        await send_and_read_last(harness, "hello")
        assert await send_and_read_last(harness, "/status") == "**hello**: ready.\npuppet-1 answers."
        assert await send_and_read_last(harness, "/model") == "puppet-1 answers."
        assert await send_and_read_last(harness, "/memory fruit") == "Of fruit: much."
        assert await send_and_read_last(harness, "/memory") == "Nothing is remembered of that."


async def test_a_prompt_says_what_its_file_says_and_help_lists_it(tmp_path: Path) -> None:
    sources = CommandSources(prompts=lambda: [("greet", "Say hello.")])
    async with running_app(tmp_path) as app, channel_harness(app, sources=sources) as harness:
        app.engine.expand_prompt = lambda text: text.replace("/greet", "Say hello to")
        app.model.steps = [text_step("Hello, world."), text_step("Hello, all.")]
        assert await send_and_read_last(harness, "/greet the world") == "Hello, world."
        assert (await send_and_read_last(harness, "/help")).endswith("/greet: Say hello.")
        assert "I do not know /gret." in await send_and_read_last(harness, "/gret the world")
        harness.chat_app.post_message("/greet all", chat="g", kind="group")
        await harness.wait_for_texts("Hello, all.", chat="g")
        parts = [part for message in app.model.requests[-1].messages for part in message.parts]
        assert [part.text for part in parts if isinstance(part, Text)] == ["Ada: Say hello to all"]


async def test_in_a_group_nothing_is_shown_of_elsewhere_whatever_is_pressed(tmp_path: Path) -> None:
    async def remembered(words: str) -> str:
        return "a secret"

    async with (
        running_app(tmp_path) as app,
        channel_harness(app, sources=CommandSources(None, remembered)) as harness,
    ):
        app.model.steps = [text_step("one"), text_step("two")]
        await send_and_read_last(harness, "private")
        harness.chat_app.post_message("hello", chat="g", kind="group")
        await harness.wait_for_texts("two", chat="g")
        harness.chat_app.post_message(
            "", chat="g", kind="group", press=f"switch {await harness.session_id()}"
        )
        await harness.wait_until_idle()
        assert harness.chat_app.texts("g")[1:] == ["That conversation is not of this group."]
        harness.chat_app.post_message("/memory all", chat="g", kind="group")
        await harness.wait_until_idle()
        assert (
            "secret" not in harness.chat_app.texts("g")[-1]
            and "not told in a group" in harness.chat_app.texts("g")[-1]
        )


async def test_what_is_too_long_to_be_shown_is_not_approved_by_typing_either(tmp_path: Path) -> None:
    tool = FakeTool("shell", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [
            tool_call_step("shell", '{"command":"' + "x" * 2_000 + '"}'),
            text_step("Then not."),
        ]
        harness.chat_app.post_message("go")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/approve")

        async def is_refused() -> bool:
            return harness.chat_app.texts()[-1] == TOO_LONG

        await app.wait_until(is_refused)
        harness.chat_app.press_button("Deny")
        await harness.wait_until_idle()
        assert not tool.run_arguments


async def test_agents_are_listed_and_one_is_chosen_unless_it_may_do_more_than_others(tmp_path: Path) -> None:
    agents = (AgentInfo("main"), AgentInfo("reader", "Reads only."), AgentInfo("free", approvals="allow"))
    sources = CommandSources(agents=lambda: agents)
    async with running_app(tmp_path) as app, channel_harness(app, sources=sources) as harness:
        app.model.steps = [text_step("one")]
        assert await send_and_read_last(harness, "/agent reader") == NO_CONVERSATION
        await send_and_read_last(harness, "first")
        assert await send_and_read_last(harness, "/agents") == "main (here)\nreader: Reads only.\nfree"
        assert "Type /agents" in await send_and_read_last(harness, "/agent nobody")
        assert "in the page or the terminal only" in await send_and_read_last(harness, "/agent free")
        assert await send_and_read_last(harness, "/agent") == "main answers here. Type /agents to see all."
        assert await send_and_read_last(harness, "/agent Reader") == "reader answers here from now on."
        assert (await app.store.session(await harness.session_id())).agent == "reader"
        assert await send_and_read_last(harness, "/agent main") == "main answers here from now on."
        assert (await app.store.session(await harness.session_id())).agent == ""


async def test_continue_goes_on_in_a_new_conversation(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two"), text_step("A summary."), text_step("three")]
        assert await send_and_read_last(harness, "/continue") == NO_CONVERSATION
        await send_and_read_last(harness, "first")
        await send_and_read_last(harness, "second")
        before = await harness.session_id()
        assert "goes on in a new conversation" in await send_and_read_last(harness, "/continue")
        assert await send_and_read_last(harness, "third") == "three"
        after = await app.store.successor(before)
        assert after is not None and await harness.session_id() == after
        assert [text for role, _, text in await app.entry_texts(after) if role == "user"][-1] == "third"


async def test_without_a_memory_that_is_said(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        assert await send_and_read_last(harness, "/memory") == "There is no memory here."
        assert await send_and_read_last(harness, "/help") == slash.help_text()
        assert await send_and_read_last(harness, "/swich 3") == (
            "I do not know /swich. Did you mean /switch? Type /help to see what there is."
        )


async def test_what_only_looks_like_a_command_is_just_said(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("A path.")]
        assert await send_and_read_last(harness, "/usr/bin is a folder") == "A path."
