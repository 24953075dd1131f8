"""Commands that are typed in a chat: what each does, and that plain words are just said."""

import asyncio
import re
from pathlib import Path

import pytest

from holdfast.agent.config.info import AgentTold
from holdfast.channels.commands import NO_CONVERSATION, Asked
from holdfast.channels.question_text import TOO_LONG
from holdfast.domain import slash
from holdfast.domain.events.parts import Text
from tests.support.fake_channel import Desk, Parlour, desk
from tests.support.in_process_app import Lever, calls, house, says


async def typed(at: Desk, text: str) -> str:
    """What is shown last after something was typed and everything is done."""
    at.app.say(text)
    await at.quiet()
    return at.app.texts()[-1] if at.app.texts() else ""


async def test_new_begins_another_conversation_that_names_the_one_before(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        await typed(at, "first")
        before = await at.session()
        assert await typed(at, "/new") == "A new conversation. The old one is in /sessions."
        after = await at.session()
        assert (await home.store.session(after)).previous_session_id == before != after
        assert await typed(at, "/new") == "This is a new conversation already. Say something."
        assert await typed(at, "second") == "two"
        assert [text for _, _, text in await home.text(after)] == ["second", "two"]


async def test_undo_takes_back_the_last_message_and_its_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        assert await typed(at, "/undo") == "There is nothing to undo."
        await typed(at, "first")
        await typed(at, "second")
        assert await typed(at, "/undo") == "*Removed.*"
        assert (await home.store.session(await at.session())).live_turns == 1
        await typed(at, "/undo")
        assert await typed(at, "/undo") == "There is nothing to undo."


async def test_restore_brings_back_what_was_undone_last_and_unmarks_its_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two"), says("three")]
        assert await typed(at, "/restore") == "There is nothing to restore."
        await typed(at, "first")
        await typed(at, "second")
        await typed(at, "/undo")
        assert "two\n\n*Removed.*" in at.app.texts()
        await typed(at, "instead")
        assert await typed(at, "/restore") == "*Restored.*"
        # What followed the undo is removed now, and says so; what is back no longer does.
        said = [text for text in at.app.texts() if text.startswith(("one", "two", "three"))]
        assert said == ["one", "two", "three\n\n*Removed.*"]
        session_id = await at.session()
        rows = await home.store.snapshot(lambda snapshot: snapshot.turns(session_id))
        assert [row.turn for row in rows if row.status == "live"] == [1, 2]


async def test_undo_works_while_the_answer_streams(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        never = asyncio.Event()
        home.model.steps = [[*says("begun ")[:1], never]]
        at.app.say("first")
        await at.shown("begun …")
        await typed(at, "/undo")
        assert [text.rstrip() for text in at.app.texts()] == ["begun\n\n*Removed.*", "*Removed.*"]
        assert (await home.store.session(await at.session())).live_turns == 0


async def test_retry_answers_the_last_message_again(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("better")]
        assert await typed(at, "/retry") == "There is nothing to answer again."
        await typed(at, "first")
        assert await typed(at, "/retry") == "better"
        assert at.app.texts()[-2] == "*Answering again.*"
        assert (await home.store.session(await at.session())).live_turns == 1


@pytest.mark.parametrize("verb", ["retry", "undo"])
async def test_what_is_answered_after_turns_were_taken_back_while_the_app_was_away_is_not_marked(
    tmp_path: Path, verb: str
) -> None:
    app = Parlour()
    async with house(tmp_path) as home:

        async def is_idle() -> bool:
            return not await home.store.active_runs()

        home.model.steps = [says("one"), says("two"), says("three")]
        async with desk(home, app) as at:
            await typed(at, "first")
            session_id = await at.session()
        if verb == "retry":
            await home.engine.replace(session_id, None, None)
        else:
            await home.engine.verbs.undo(session_id, None)
        await home.until(is_idle)
        await home.say(session_id, "next")
        await home.until(is_idle)
        async with desk(home, app) as at:
            await at.quiet()
        said = [text for text in app.texts() if text.startswith(("one", "two", "three"))]
        assert said == (
            ["one\n\n*Answered again below.*", "two", "three"]
            if verb == "retry"
            else ["one\n\n*Removed.*", "two"]
        )


async def test_stop_ends_the_answer_under_way(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        never = asyncio.Event()
        home.model.steps = [[*says("begun ")[:1], never]]
        assert await typed(at, "/stop") == "There is nothing to stop."
        at.app.say("first")
        await at.home.until(lambda: _shows(at, "begun …"), "the beginning")
        assert await typed(at, "/stop") == "Stopped."
        assert await typed(at, "/stop") == "There is nothing to stop."


async def _shows(at: Desk, text: str) -> bool:
    return text in at.app.texts()


async def test_approve_and_deny_answer_what_is_asked(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled."), calls("lever"), says("I leave it.")]
        assert await typed(at, "/approve") == await typed(at, "/deny") == "Nothing is being asked here."
        at.app.say("pull it")
        await at.quiet_question()
        assert "Your answer is wanted about `lever`" in await typed_now(at, "/status", "Your answer")
        at.app.say("/approve")
        await at.home.until(lambda: _shows(at, "Pulled."), "the answer")
        at.app.say("again")
        await at.quiet_question()
        at.app.say("/deny too often")
        await at.home.until(lambda: _shows(at, "I leave it."), "the answer")
        await at.quiet()
        assert len(lever.pulled) == 1
        assert any(text.endswith("*Not allowed: too often*") for text in at.app.texts())


async def typed_now(at: Desk, text: str, marked: str) -> str:
    """As `typed`, while something waits."""
    at.app.say(text)

    async def is_so() -> bool:
        return any(marked in each for each in at.app.texts())

    await at.home.until(is_so, f"{marked} in {at.app.texts()}")
    return next(each for each in at.app.texts() if marked in each)


async def test_a_conversation_without_a_title_is_known_by_its_first_words(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        await typed(at, "What is the weather like?\nTell me.")
        assert "1. What is the weather like? (here)" in await typed(at, "/sessions")
        assert await typed(at, "/title") == "This conversation is called: What is the weather like?"
        assert (await typed(at, "/status")).startswith("**What is the weather like?**: ready.")
        await typed(at, "/new")
        assert "Untitled (here)" in await typed(at, "/sessions")
        assert await typed(at, "/switch 2") == "Now in: What is the weather like?"


async def test_sessions_are_numbered_and_switch_goes_to_one_and_back(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two"), says("three"), says("four")]
        await typed(at, "apples")
        first = await at.session()
        await typed(at, "/new")
        await typed(at, "pears")
        listed = await typed(at, "/sessions")
        assert re.fullmatch(r"1\. pears \(here\), now\n2\. apples, now", listed)
        assert await typed(at, "/switch 2") == "Now in: apples"
        assert await at.session() == first
        assert await typed(at, "more apples") == "three"
        assert "one" not in at.app.texts()[3:], "it is told from where it stood"
        assert await typed(at, "/switch pear") == "Now in: pears"
        assert await typed(at, "/switch 7") == "There is no number 7 in the list. Type /sessions to see it."
        assert await typed(at, "/switch plums") == (
            "No conversation is called that. Type /sessions to see the newest."
        )
        assert await typed(at, "/switch pears") == "You are there already."
        assert (await typed(at, "/switch")).startswith("Which one?")


async def test_numbers_mean_what_they_meant_in_the_list_that_was_shown(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("ok")] * 4
        await typed(at, "apples")
        await typed(at, "/new")
        await typed(at, "pears")
        await typed(at, "/sessions")
        elsewhere = await home.begin()
        await home.say(elsewhere, "newer than both")
        await at.quiet()
        assert await typed(at, "/switch 2") == "Now in: apples"


async def test_switching_away_from_an_answer_under_way_leaves_it_well_and_it_goes_on_there(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        end = asyncio.Event()
        home.model.steps = [says("pears it is"), [*says("half of ")[:1], end, *says("it")]]
        await typed(at, "pears")
        pears = await at.session()
        at.app.say("/new")
        at.app.say("apples")
        await at.home.until(lambda: _shows(at, "half of …"), "the beginning")
        apples = await at.session()
        at.app.say("/switch pears")
        await at.home.until(lambda: _shows(at, "Now in: pears"), "the switch")
        assert "half of\n\n*It goes on in that conversation.*" in at.app.texts()
        end.set()
        await at.quiet()
        assert at.app.texts()[-1] == "Now in: pears" and await at.session() == pears
        assert (await home.text(apples))[-1] == ("assistant", "settled", "half of it")


async def test_in_a_group_nothing_of_other_conversations_is_listed_or_found(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("ok"), says("ok")]
        await typed(at, "private matters")
        at.app.say("hello", chat="g", kind="group")
        at.app.say("/sessions", chat="g", kind="group")
        at.app.say("/switch private", chat="g", kind="group")
        await at.quiet()
        assert not any("private" in text for text in at.app.texts("g"))
        assert "No conversation is called that. Type /sessions to see the newest." in at.app.texts("g")


async def test_title_names_and_says_the_name(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        assert await typed(at, "/title x") == "There is no conversation here yet. Say something to begin one."
        home.model.steps = [says("ok")]
        await typed(at, "hello")
        assert await typed(at, "/title Fruit salad") == "Called: Fruit salad"
        assert await typed(at, "/title") == "This conversation is called: Fruit salad"
        assert "too_large" not in await typed(at, "/title " + "x" * 300)


async def test_status_model_and_memory_say_what_there_is(tmp_path: Path) -> None:
    async def remembered(words: str) -> str:
        return f"Of {words}: much." if words else ""

    async with house(tmp_path) as home, desk(home, asked=Asked(lambda agent: "puppet-1", remembered)) as at:
        home.model.steps = [says("ok")]
        await typed(at, "hello")
        assert await typed(at, "/status") == "**hello**: ready.\npuppet-1 answers."
        assert await typed(at, "/model") == "puppet-1 answers."
        assert await typed(at, "/memory fruit") == "Of fruit: much."
        assert await typed(at, "/memory") == "Nothing is remembered of that."


async def test_a_prompt_says_what_its_file_says_and_help_lists_it(tmp_path: Path) -> None:
    asked = Asked(prompts=lambda: [("greet", "Say hello.")])
    async with house(tmp_path) as home, desk(home, asked=asked) as at:
        home.engine.expand = lambda text: text.replace("/greet", "Say hello to")
        home.model.steps = [says("Hello, world."), says("Hello, all.")]
        assert await typed(at, "/greet the world") == "Hello, world."
        assert (await typed(at, "/help")).endswith("/greet: Say hello.")
        assert "I do not know /gret." in await typed(at, "/gret the world")
        at.app.say("/greet all", chat="g", kind="group")
        await at.shown("Hello, all.", chat="g")
        parts = [part for message in home.model.requests[-1].messages for part in message.parts]
        assert [part.text for part in parts if isinstance(part, Text)] == ["Ada: Say hello to all"]


async def test_in_a_group_nothing_is_shown_of_elsewhere_whatever_is_pressed(tmp_path: Path) -> None:
    async def remembered(words: str) -> str:
        return "a secret"

    async with house(tmp_path) as home, desk(home, asked=Asked(None, remembered)) as at:
        home.model.steps = [says("one"), says("two")]
        await typed(at, "private")
        at.app.say("hello", chat="g", kind="group")
        await at.shown("two", chat="g")
        at.app.say("", chat="g", kind="group", press=f"switch {await at.session()}")
        await at.quiet()
        assert at.app.texts("g")[1:] == ["That conversation is not of this group."]
        at.app.say("/memory all", chat="g", kind="group")
        await at.quiet()
        assert "secret" not in at.app.texts("g")[-1] and "not told in a group" in at.app.texts("g")[-1]


async def test_what_is_too_long_to_be_shown_is_not_approved_by_typing_either(tmp_path: Path) -> None:
    lever = Lever("shell", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("shell", '{"command":"' + "x" * 2_000 + '"}'), says("Then not.")]
        at.app.say("go")
        await at.quiet_question()
        at.app.say("/approve")

        async def is_refused() -> bool:
            return at.app.texts()[-1] == TOO_LONG

        await home.until(is_refused)
        at.app.press("Deny")
        await at.quiet()
        assert not lever.pulled


async def test_agents_are_listed_and_one_is_chosen_unless_it_may_do_more_than_others(tmp_path: Path) -> None:
    agents = (AgentTold("main"), AgentTold("reader", "Reads only."), AgentTold("free", approvals="allow"))
    asked = Asked(agents=lambda: agents)
    async with house(tmp_path) as home, desk(home, asked=asked) as at:
        home.model.steps = [says("one")]
        assert await typed(at, "/agent reader") == NO_CONVERSATION
        await typed(at, "first")
        assert await typed(at, "/agents") == "main (here)\nreader: Reads only.\nfree"
        assert "Type /agents" in await typed(at, "/agent nobody")
        assert "in the page or the terminal only" in await typed(at, "/agent free")
        assert await typed(at, "/agent") == "main answers here. Type /agents to see all."
        assert await typed(at, "/agent Reader") == "reader answers here from now on."
        assert (await home.store.session(await at.session())).agent == "reader"
        assert await typed(at, "/agent main") == "main answers here from now on."
        assert (await home.store.session(await at.session())).agent == ""


async def test_continue_goes_on_in_a_new_conversation(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two"), says("A summary."), says("three")]
        assert await typed(at, "/continue") == NO_CONVERSATION
        await typed(at, "first")
        await typed(at, "second")
        before = await at.session()
        assert "goes on in a new conversation" in await typed(at, "/continue")
        assert await typed(at, "third") == "three"
        after = await home.store.successor(before)
        assert after is not None and await at.session() == after
        assert [text for role, _, text in await home.text(after) if role == "user"][-1] == "third"


async def test_without_a_memory_that_is_said(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        assert await typed(at, "/memory") == "There is no memory here."
        assert await typed(at, "/help") == slash.told()
        assert await typed(at, "/swich 3") == (
            "I do not know /swich. Did you mean /switch? Type /help to see what there is."
        )


async def test_what_only_looks_like_a_command_is_just_said(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("A path.")]
        assert await typed(at, "/usr/bin is a folder") == "A path."
