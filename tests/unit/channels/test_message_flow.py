"""A message from a chat app becomes a turn, and its answer goes back: once, in order, while it is written."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from holdfast.domain.chats import Chat, FileRef
from holdfast.domain.events.parts import File
from tests.support.fake_channel import Desk, Parlour, desk
from tests.support.in_process_app import Lever, calls, house, says
from tests.support.sample_files import png


async def test_a_message_is_answered_in_a_conversation_of_its_own(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Hello ", "Ada.")]
        at.app.say("hello")
        await at.shown("Hello Ada.")
        await at.quiet()
        session_id = await at.session()
        assert await home.text(session_id) == [
            ("user", "settled", "hello"),
            ("assistant", "settled", "Hello Ada."),
        ]


async def test_what_cannot_be_kept_as_it_came_is_mended_and_answered(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("One."), says("Two.")]
        half = at.app.say("half \ud83d a smile")
        at.app.tell(replace(half, update_id="later", text="late", sender_name="\udc00", at=2**70))
        await at.shown("One.", "Two.")
        await at.quiet()
        said = [text for role, _, text in await home.text(await at.session()) if role == "user"]
        assert said == ["half \ufffd a smile", "late"]


async def test_the_same_update_told_again_is_one_turn(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Once.")]
        inbound = at.app.say("hello")
        at.app.tell(inbound)
        await at.quiet()
        at.app.tell(inbound)
        await at.quiet()
        assert at.app.texts() == ["Once."]
        assert (await home.store.session(await at.session())).last_turn == 1


async def test_messages_of_a_chat_are_answered_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two"), says("three")]
        for text in ("1", "2", "3"):
            at.app.say(text)
        await at.shown("one", "two", "three")
        await at.quiet()
        said = [text for role, _, text in await home.text(await at.session()) if role == "user"]
        assert said == ["1", "2", "3"]


async def test_an_answer_is_shown_while_it_is_written_and_ends_in_its_own_words(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        middle, end = asyncio.Event(), asyncio.Event()
        first, second, third = says("The beginning, ", "the middle, ", "the end.")[:3]
        home.model.steps = [[first, middle, second, end, third, *says()]]
        at.app.say("tell me")
        await at.shown("The beginning, …")
        assert at.app.typed >= 1
        middle.set()
        await at.shown("The beginning, the middle, …")
        end.set()
        await at.shown("The beginning, the middle, the end.")
        await at.quiet()
        assert at.app.sends == 1


async def test_what_is_said_through_another_door_is_shown_with_its_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        at.app.say("first")
        await at.shown("one")
        await at.quiet()
        await home.say(await at.session(), "and from the page", key="0123456789abcdef" * 2)
        await at.shown("one", "> **You** (from the page): and from the page", "two")


async def test_two_chats_at_one_conversation_see_each_other(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        at.app.say("first")
        await at.shown("one")
        await at.quiet()
        at.app.say("/sessions", chat="43")
        await at.quiet()
        at.app.press("1", chat="43")
        await at.quiet()
        assert at.app.texts("43")[-1] == "Now in: first"
        at.app.say("second", chat="43")
        await at.quiet()
        assert at.app.texts("42") == ["one", "> **You** (from Parlour): second", "two"]
        assert at.app.texts("43")[-1] == "two", "and nothing of what was said before it came"


async def test_tools_are_told_of_in_one_line(tmp_path: Path) -> None:
    lever = Lever("shell", "pure")
    async with house(tmp_path, lever) as home, desk(home) as at:
        home.model.steps = [calls("shell"), calls("shell"), says("Done.")]
        at.app.say("do it twice")
        await at.shown("*Ran 2 commands*", "Done.")


async def test_a_long_answer_comes_in_pieces_in_order(tmp_path: Path) -> None:
    words = "\n\n".join(f"Paragraph {n}. " + "word " * 30 for n in range(12))
    async with house(tmp_path) as home, desk(home, Parlour(chars_max=700)) as at:
        home.model.steps = [says(words)]
        at.app.say("at length")
        await at.quiet()
        shown = at.app.texts()
        assert len(shown) > 2 and all(len(text) <= 700 for text in shown)
        assert "".join(" ".join(shown).split()) == "".join(words.split())


async def test_a_failure_can_be_tried_again_with_a_button(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [[ValueError("no such luck")], says("Now it works.")]
        at.app.say("hello")
        await at.quiet()
        assert at.app.texts()[0].startswith("This could not be answered:")
        at.app.press("Try again")
        await at.quiet()
        assert at.app.texts()[1:] == ["*Answering again.*", "Now it works."]
        assert (await home.store.session(await at.session())).live_turns == 1


async def test_a_question_is_answered_with_a_button_and_says_so_then(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled.")]
        at.app.say("pull it")
        await at.quiet_question()
        assert not lever.pulled
        at.app.press("Allow once")
        await at.quiet()
        assert lever.pulled == ["{}"]
        assert at.app.texts()[0].endswith("*Allowed.*") and not at.app.chats["42"][0].body.buttons
        assert at.app.texts()[1:] == ["*Used lever*", "Pulled."]


async def test_a_button_of_a_conversation_that_was_left_says_what_it_did_and_goes(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled.")]
        at.app.say("pull it")
        await at.quiet_question()
        at.app.say("/title The lever")
        at.app.say("/new")
        await home.until(lambda: _has(at, "A new conversation. The old one is in /sessions."))
        pressed = at.app.press("Allow once")
        await home.until(lambda: _has(at, "Allowed. It goes on in “The lever”."))
        await at.quiet()
        assert lever.pulled == ["{}"]
        question = at.app.chats["42"][0]
        assert question.text.endswith("*Allowed.*") and not question.body.buttons
        at.app.say("", press=pressed.press)
        await home.until(lambda: _has(at, "This was answered already, or is no longer asked."))


async def test_a_button_that_came_too_late_goes_where_its_conversation_was_left(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled.")]
        at.app.say("pull it")
        await at.quiet_question()
        run_id = (await home.store.session(await at.session())).run_id
        at.app.say("/new")
        await home.until(lambda: _has(at, "A new conversation. The old one is in /sessions."))
        assert run_id is not None
        await home.engine.cancel(run_id)
        at.app.press("Allow once")
        await home.until(lambda: _has(at, "This was answered already, or is no longer asked."))
        await at.quiet()
        question = at.app.chats["42"][0]
        assert question.text.endswith("*No longer asked.*") and not question.body.buttons
        assert not lever.pulled


async def test_a_button_still_goes_when_the_chat_has_come_back(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled.")]
        at.app.say("pull it")
        await at.quiet_question()
        at.app.say("/title The lever")
        at.app.say("/new")
        at.app.say("/switch lever")
        await home.until(lambda: _has(at, "Now in: The lever\nSomething is being asked there: see /status."))
        at.app.press("Allow once")
        await home.until(lambda: _has(at, "Pulled."))
        await at.quiet()
        question = at.app.chats["42"][0]
        assert question.text.endswith("*Allowed.*") and not question.body.buttons


async def test_a_failure_of_a_conversation_that_was_left_can_be_tried_again(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [[ValueError("no such luck")], says("Now it works.")]
        at.app.say("hello")
        await at.quiet_question()
        at.app.say("/new")
        at.app.press("Try again")
        await home.until(lambda: _has(at, "Answering again. It goes on where it was asked: see /sessions."))
        await at.quiet()
        failure = at.app.chats["42"][0]
        assert failure.text.endswith("*Answering again.*") and not failure.body.buttons


async def _has(at: Desk, text: str) -> bool:
    return text in at.app.texts()


async def test_a_button_pressed_twice_answers_once(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), says("Pulled.")]
        at.app.say("pull it")
        await at.quiet_question()
        button = at.app.chats["42"][0].body.buttons[0]
        at.app.say("", press=button.press)
        at.app.say("", press=button.press)
        await at.quiet()
        assert lever.pulled == ["{}"]
        assert "This was answered already, or is no longer asked." in at.app.texts()


async def test_always_here_is_not_asked_again(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as home, desk(home) as at:
        home.model.steps = [calls("lever"), calls("lever"), says("Pulled twice.")]
        at.app.say("pull it")
        await at.quiet_question()
        at.app.press("Always here")
        await at.quiet()
        assert len(lever.pulled) == 2
        assert at.app.texts()[-1] == "Pulled twice."


async def test_a_file_is_fetched_checked_and_attached(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("A picture.")]
        at.app.files["f1"] = png(3, 2)
        at.app.say("what is this?", files=(FileRef("f1", "../cat.png", "image/png"),))
        await at.shown("A picture.")
        await at.quiet()
        (turn, *_) = await home.entries(await at.session())
        (file,) = [part for part in turn.parts if isinstance(part, File)]
        assert (file.name, file.media_type) == ("cat.png", "image/png")
        assert await home.store.get_blob(file.blob) == at.app.files["f1"]


async def test_a_file_that_cannot_be_taken_is_refused_in_words_and_nothing_is_sent(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        at.app.files["f1"] = b"\x00\x01\x02"
        at.app.say("look", files=(FileRef("f1", "x.bin"),))
        await at.quiet()
        assert at.app.texts()[0].startswith("This file is not taken:")
        assert not (await home.store.sessions(None, 10)).sessions and not home.model.requests


async def test_a_file_is_fetched_again_until_it_comes(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Read.")]
        at.app.files["f1"] = b"some words"
        at.app.fetch_faults = ["lost"]
        at.app.say("read", files=(FileRef("f1", "x.txt"),))
        await at.shown("Read.")


async def test_a_group_is_answered_only_when_it_is_addressed(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Yes?")]
        at.app.say("just talking", chat="g", kind="group", addressed=False)
        at.app.say("you there?", chat="g", kind="group")
        await at.quiet()
        assert at.app.texts("g") == ["Yes?"]
        route = await home.store.route(Chat("parlour", "group", "g").route)
        assert route is not None
        said = [text for role, _, text in await home.text(route.session_id) if role == "user"]
        assert said == ["Ada: you there?"]


async def test_a_noisy_chat_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        hold = asyncio.Event()
        home.model.steps = [[hold, *says("slow")], says("quick")]
        at.app.say("noise", chat="1")
        await at.home.until(lambda: _asked(home), "the noisy one to be answered")
        for n in range(300):
            at.app.say(f"noise {n}", chat="1")
        at.app.say("hello", chat="2")
        await at.shown("quick", chat="2")
        hold.set()


async def _asked(home: object) -> bool:
    return bool(home.model.requests)  # type: ignore[attr-defined]


async def test_what_fails_in_our_own_code_is_given_up_with_an_apology(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("Fine.")]

        async def explode(*args: object) -> None:
            raise RuntimeError("poison")

        send, home.engine.send = home.engine.send, explode  # type: ignore[method-assign,assignment]
        at.app.say("poison")
        await at.shown("Sorry, something went wrong here, and this could not be taken up.")
        home.engine.send = send  # type: ignore[method-assign]
        at.app.say("hello")
        await at.shown("Sorry, something went wrong here, and this could not be taken up.", "Fine.")
        assert len([line for line in at.told if "poison" in line]) == 3


async def test_a_conversation_that_was_deleted_is_followed_by_a_new_one(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        at.app.say("first")
        await at.shown("one")
        await at.quiet()
        before = await at.session()
        await home.engine.delete(before)
        at.app.say("second")
        await at.home.until(lambda: _shows(at.app, "two"), "an answer")
        assert await at.session() != before


async def test_a_conversation_deleted_while_it_answers_does_not_seem_to_go_on(tmp_path: Path) -> None:
    async with house(tmp_path) as home:
        app, never = Parlour(), asyncio.Event()
        async with desk(home, app) as at:
            home.model.steps = [[*says("half of it")[:1], never]]
            app.say("first")
            await at.shown("half of it …")
            session_id = await at.session()
        await home.engine.delete(session_id)
        async with desk(home, app) as at:
            await at.shown("half of it\n\n*This conversation was deleted.*")
            home.model.steps = [says("hello")]
            app.say("anyone?")
            await at.home.until(lambda: _shows(app, "hello"), "an answer")


async def test_a_conversation_deleted_before_its_eyes_does_not_seem_to_go_on(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        never = asyncio.Event()
        home.model.steps = [[*says("half of it")[:1], never]]
        at.app.say("first")
        await at.shown("half of it …")
        await home.engine.delete(await at.session())
        await at.home.until(lambda: _ended(at.app), "the end")


async def _ended(app: Parlour) -> bool:
    return not any(text.endswith("…") for text in app.texts())


async def test_what_is_said_in_a_group_to_others_is_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        inbound = at.app.say("just talking", chat="g", kind="group", addressed=False)

        async def is_taken() -> bool:
            return not at.app.unread

        await home.until(is_taken, "it to be heard")
        assert await home.store.receive(inbound), "it was not there"


async def _shows(app: Parlour, text: str) -> bool:
    return text in app.texts()


async def test_what_is_idle_is_followed_by_nobody(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("ok")] * 20
        for n in range(20):
            at.app.say("hello", chat=str(n))
        await at.quiet()
        await at.home.until(lambda: _nobody_follows(), "silence")
        assert all(at.app.texts(str(n)) == ["ok"] for n in range(20))


async def _nobody_follows() -> bool:
    names = [task.get_name() for task in asyncio.all_tasks()]
    return not any(name.startswith(("telling", "delivering ", "taking up ")) for name in names)
