"""A message from a chat app becomes a turn, and its answer goes back: once, in order, while it is written."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from holdfast.domain.chats import Chat, FileRef
from holdfast.domain.events.parts import File
from tests.support.fake_channel import ChannelHarness, FakeChatApp, channel_harness
from tests.support.in_process_app import FakeTool, running_app, text_step, tool_call_step
from tests.support.sample_files import png


async def test_a_message_is_answered_in_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Hello ", "Ada.")]
        harness.chat_app.post_message("hello")
        await harness.wait_for_texts("Hello Ada.")
        await harness.wait_until_idle()
        session_id = await harness.session_id()
        assert await app.entry_texts(session_id) == [
            ("user", "settled", "hello"),
            ("assistant", "settled", "Hello Ada."),
        ]


async def test_what_cannot_be_kept_as_it_came_is_mended_and_answered(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("One."), text_step("Two.")]
        half = harness.chat_app.post_message("half \ud83d a smile")
        harness.chat_app.deliver_update(
            replace(half, update_id="later", text="late", sender_name="\udc00", at=2**70)
        )
        await harness.wait_for_texts("One.", "Two.")
        await harness.wait_until_idle()
        said = [text for role, _, text in await app.entry_texts(await harness.session_id()) if role == "user"]
        assert said == ["half \ufffd a smile", "late"]


async def test_a_repeated_update_is_one_turn(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Once.")]
        inbound = harness.chat_app.post_message("hello")
        harness.chat_app.deliver_update(inbound)
        await harness.wait_until_idle()
        harness.chat_app.deliver_update(inbound)
        await harness.wait_until_idle()
        assert harness.chat_app.texts() == ["Once."]
        assert (await app.store.session(await harness.session_id())).last_turn == 1


async def test_messages_of_a_chat_are_answered_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two"), text_step("three")]
        for text in ("1", "2", "3"):
            harness.chat_app.post_message(text)
        await harness.wait_for_texts("one", "two", "three")
        await harness.wait_until_idle()
        said = [text for role, _, text in await app.entry_texts(await harness.session_id()) if role == "user"]
        assert said == ["1", "2", "3"]


async def test_an_answer_is_shown_while_it_is_written_and_ends_in_its_own_words(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        middle, end = asyncio.Event(), asyncio.Event()
        first, second, third = text_step("The beginning, ", "the middle, ", "the end.")[:3]
        app.model.steps = [[first, middle, second, end, third, *text_step()]]
        harness.chat_app.post_message("tell me")
        await harness.wait_for_texts("The beginning, …")
        assert harness.chat_app.typing_count >= 1
        middle.set()
        await harness.wait_for_texts("The beginning, the middle, …")
        end.set()
        await harness.wait_for_texts("The beginning, the middle, the end.")
        await harness.wait_until_idle()
        assert harness.chat_app.send_count == 1


async def test_a_message_from_another_client_is_shown_with_its_answer(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()
        await app.send(await harness.session_id(), "and from the page", key="0123456789abcdef" * 2)
        await harness.wait_for_texts("one", "> **You** (from the page): and from the page", "two")


async def test_two_chats_at_one_conversation_see_each_other(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()
        harness.chat_app.post_message("/sessions", chat="43")
        await harness.wait_until_idle()
        harness.chat_app.press_button("1", chat="43")
        await harness.wait_until_idle()
        assert harness.chat_app.texts("43")[-1] == "Now in: first"
        harness.chat_app.post_message("second", chat="43")
        await harness.wait_until_idle()
        assert harness.chat_app.texts("42") == ["one", "> **You** (from Parlour): second", "two"]
        assert harness.chat_app.texts("43")[-1] == "two", "and nothing of what was said before it came"


async def test_tool_calls_are_summarised_in_one_line(tmp_path: Path) -> None:
    tool = FakeTool("shell", "pure")
    async with running_app(tmp_path, tool) as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("shell"), tool_call_step("shell"), text_step("Done.")]
        harness.chat_app.post_message("do it twice")
        await harness.wait_for_texts("*Ran 2 commands*", "Done.")


async def test_a_long_answer_comes_in_pieces_in_order(tmp_path: Path) -> None:
    words = "\n\n".join(f"Paragraph {n}. " + "word " * 30 for n in range(12))
    async with running_app(tmp_path) as app, channel_harness(app, FakeChatApp(chars_max=700)) as harness:
        app.model.steps = [text_step(words)]
        harness.chat_app.post_message("at length")
        await harness.wait_until_idle()
        shown = harness.chat_app.texts()
        assert len(shown) > 2 and all(len(text) <= 700 for text in shown)
        assert "".join(" ".join(shown).split()) == "".join(words.split())


async def test_a_failure_can_be_tried_again_with_a_button(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [[ValueError("no such luck")], text_step("Now it works.")]
        harness.chat_app.post_message("hello")
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[0].startswith("This could not be answered:")
        harness.chat_app.press_button("Try again")
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[1:] == ["*Answering again.*", "Now it works."]
        assert (await app.store.session(await harness.session_id())).live_turns == 1


async def test_a_question_is_answered_with_a_button_and_says_so_then(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), text_step("Pulled.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        assert not tool.run_arguments
        harness.chat_app.press_button("Allow once")
        await harness.wait_until_idle()
        assert tool.run_arguments == ["{}"]
        assert (
            harness.chat_app.texts()[0].endswith("*Allowed.*")
            and not harness.chat_app.chats["42"][0].body.buttons
        )
        assert harness.chat_app.texts()[1:] == ["*Used lever*", "Pulled."]


async def test_a_button_of_a_conversation_that_was_left_says_what_it_did_and_goes(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), text_step("Pulled.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/title The lever")
        harness.chat_app.post_message("/new")
        await app.wait_until(lambda: _has(harness, "A new conversation. The old one is in /sessions."))
        pressed = harness.chat_app.press_button("Allow once")
        await app.wait_until(lambda: _has(harness, "Allowed. It goes on in “The lever”."))
        await harness.wait_until_idle()
        assert tool.run_arguments == ["{}"]
        question = harness.chat_app.chats["42"][0]
        assert question.text.endswith("*Allowed.*") and not question.body.buttons
        harness.chat_app.post_message("", press=pressed.press)
        await app.wait_until(lambda: _has(harness, "This was answered already, or is no longer asked."))


async def test_a_button_that_came_too_late_goes_where_its_conversation_was_left(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), text_step("Pulled.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        run_id = (await app.store.session(await harness.session_id())).run_id
        harness.chat_app.post_message("/new")
        await app.wait_until(lambda: _has(harness, "A new conversation. The old one is in /sessions."))
        assert run_id is not None
        await app.engine.cancel(run_id)
        harness.chat_app.press_button("Allow once")
        await app.wait_until(lambda: _has(harness, "This was answered already, or is no longer asked."))
        await harness.wait_until_idle()
        question = harness.chat_app.chats["42"][0]
        assert question.text.endswith("*No longer asked.*") and not question.body.buttons
        assert not tool.run_arguments


async def test_a_button_still_goes_when_the_chat_has_come_back(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), text_step("Pulled.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/title The lever")
        harness.chat_app.post_message("/new")
        harness.chat_app.post_message("/switch lever")
        await app.wait_until(
            lambda: _has(harness, "Now in: The lever\nSomething is being asked there: see /status.")
        )
        harness.chat_app.press_button("Allow once")
        await app.wait_until(lambda: _has(harness, "Pulled."))
        await harness.wait_until_idle()
        question = harness.chat_app.chats["42"][0]
        assert question.text.endswith("*Allowed.*") and not question.body.buttons


async def test_a_failure_of_a_conversation_that_was_left_can_be_tried_again(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [[ValueError("no such luck")], text_step("Now it works.")]
        harness.chat_app.post_message("hello")
        await harness.wait_for_buttons()
        harness.chat_app.post_message("/new")
        harness.chat_app.press_button("Try again")
        await app.wait_until(
            lambda: _has(harness, "Answering again. It goes on where it was asked: see /sessions.")
        )
        await harness.wait_until_idle()
        failure = harness.chat_app.chats["42"][0]
        assert failure.text.endswith("*Answering again.*") and not failure.body.buttons


async def _has(harness: ChannelHarness, text: str) -> bool:
    return text in harness.chat_app.texts()


async def test_a_button_pressed_twice_answers_once(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), text_step("Pulled.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        button = harness.chat_app.chats["42"][0].body.buttons[0]
        harness.chat_app.post_message("", press=button.press)
        harness.chat_app.post_message("", press=button.press)
        await harness.wait_until_idle()
        assert tool.run_arguments == ["{}"]
        assert "This was answered already, or is no longer asked." in harness.chat_app.texts()


async def test_always_here_is_not_asked_again(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app, channel_harness(app) as harness:
        app.model.steps = [tool_call_step("lever"), tool_call_step("lever"), text_step("Pulled twice.")]
        harness.chat_app.post_message("pull it")
        await harness.wait_for_buttons()
        harness.chat_app.press_button("Always here")
        await harness.wait_until_idle()
        assert len(tool.run_arguments) == 2
        assert harness.chat_app.texts()[-1] == "Pulled twice."


async def test_a_file_is_fetched_checked_and_attached(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("A picture.")]
        harness.chat_app.files["f1"] = png(3, 2)
        harness.chat_app.post_message("what is this?", files=(FileRef("f1", "../cat.png", "image/png"),))
        await harness.wait_for_texts("A picture.")
        await harness.wait_until_idle()
        (turn, *_) = await app.entries(await harness.session_id())
        (file,) = [part for part in turn.parts if isinstance(part, File)]
        assert (file.name, file.media_type) == ("cat.png", "image/png")
        assert await app.store.get_blob(file.blob) == harness.chat_app.files["f1"]


async def test_a_file_that_cannot_be_taken_is_refused_in_words_and_nothing_is_sent(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        harness.chat_app.files["f1"] = b"\x00\x01\x02"
        harness.chat_app.post_message("look", files=(FileRef("f1", "x.bin"),))
        await harness.wait_until_idle()
        assert harness.chat_app.texts()[0].startswith("This file is not taken:")
        assert not (await app.store.sessions(None, 10)).sessions and not app.model.requests


async def test_a_file_is_fetched_again_until_it_comes(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Read.")]
        harness.chat_app.files["f1"] = b"some words"
        harness.chat_app.fetch_faults = ["lost"]
        harness.chat_app.post_message("read", files=(FileRef("f1", "x.txt"),))
        await harness.wait_for_texts("Read.")


async def test_a_group_is_answered_only_when_it_is_addressed(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Yes?")]
        harness.chat_app.post_message("just talking", chat="g", kind="group", addressed=False)
        harness.chat_app.post_message("you there?", chat="g", kind="group")
        await harness.wait_until_idle()
        assert harness.chat_app.texts("g") == ["Yes?"]
        route = await app.store.route(Chat("parlour", "group", "g").route)
        assert route is not None
        said = [text for role, _, text in await app.entry_texts(route.session_id) if role == "user"]
        assert said == ["Ada: you there?"]


async def test_a_noisy_chat_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        hold = asyncio.Event()
        app.model.steps = [[hold, *text_step("slow")], text_step("quick")]
        harness.chat_app.post_message("noise", chat="1")
        await harness.engine_app.wait_until(lambda: _has_requests(app), "the noisy one to be answered")
        for n in range(300):
            harness.chat_app.post_message(f"noise {n}", chat="1")
        harness.chat_app.post_message("hello", chat="2")
        await harness.wait_for_texts("quick", chat="2")
        hold.set()


async def _has_requests(home: object) -> bool:
    return bool(home.model.requests)  # type: ignore[attr-defined]


async def test_an_internal_error_is_abandoned_with_an_apology(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("Fine.")]

        async def explode(*args: object) -> None:
            raise RuntimeError("poison")

        send, app.engine.send = app.engine.send, explode  # type: ignore[method-assign,assignment]
        harness.chat_app.post_message("poison")
        await harness.wait_for_texts("Sorry, something went wrong here, and this could not be taken up.")
        app.engine.send = send  # type: ignore[method-assign]
        harness.chat_app.post_message("hello")
        await harness.wait_for_texts(
            "Sorry, something went wrong here, and this could not be taken up.", "Fine."
        )
        assert len([line for line in harness.operator_messages if "poison" in line]) == 3


async def test_a_conversation_that_was_deleted_is_followed_by_a_new_one(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()
        before = await harness.session_id()
        await app.engine.delete(before)
        harness.chat_app.post_message("second")
        await harness.engine_app.wait_until(lambda: _shows(harness.chat_app, "two"), "an answer")
        assert await harness.session_id() != before


async def test_a_conversation_deleted_while_it_answers_does_not_seem_to_go_on(tmp_path: Path) -> None:
    async with running_app(tmp_path) as engine_app:
        chat_app, never = FakeChatApp(), asyncio.Event()
        async with channel_harness(engine_app, chat_app) as harness:
            engine_app.model.steps = [[*text_step("half of it")[:1], never]]
            chat_app.post_message("first")
            await harness.wait_for_texts("half of it …")
            session_id = await harness.session_id()
        await engine_app.engine.delete(session_id)
        async with channel_harness(engine_app, chat_app) as harness:
            await harness.wait_for_texts("half of it\n\n*This conversation was deleted.*")
            engine_app.model.steps = [text_step("hello")]
            chat_app.post_message("anyone?")
            await harness.engine_app.wait_until(lambda: _shows(chat_app, "hello"), "an answer")


async def test_a_conversation_deleted_before_its_eyes_does_not_seem_to_go_on(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        never = asyncio.Event()
        app.model.steps = [[*text_step("half of it")[:1], never]]
        harness.chat_app.post_message("first")
        await harness.wait_for_texts("half of it …")
        await app.engine.delete(await harness.session_id())
        await harness.engine_app.wait_until(lambda: _ended(harness.chat_app), "the end")


async def _ended(chat_app: FakeChatApp) -> bool:
    return not any(text.endswith("…") for text in chat_app.texts())


async def test_what_is_said_in_a_group_to_others_is_not_kept(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        inbound = harness.chat_app.post_message("just talking", chat="g", kind="group", addressed=False)

        async def is_taken() -> bool:
            return not harness.chat_app.unread

        await app.wait_until(is_taken, "it to be heard")
        assert await app.store.receive(inbound), "it was not there"


async def _shows(chat_app: FakeChatApp, text: str) -> bool:
    return text in chat_app.texts()


async def test_an_idle_conversation_has_no_follower(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("ok")] * 20
        for n in range(20):
            harness.chat_app.post_message("hello", chat=str(n))
        await harness.wait_until_idle()
        await harness.engine_app.wait_until(lambda: _nobody_follows(), "silence")
        assert all(harness.chat_app.texts(str(n)) == ["ok"] for n in range(20))


async def _nobody_follows() -> bool:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return not any(name.startswith(("telling", "delivering ", "taking up ")) for name in names)
