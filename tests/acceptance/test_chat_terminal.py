"""`holdfast chat` as people use it: in a real terminal, with keys, beside other doors, through a kill."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Holdfast, Running, environ_of, living_in
from tests.support.api_client import Speaker, words_of
from tests.support.tmux_terminal import PROMPT, READY, Terminal, terminal

KEYS = r"^  \[a\] allow"
"""From when they are shown on, keys answer a question."""


@pytest.fixture
def home(speaker: Speaker, tmp_path: Path) -> Iterator[Holdfast]:
    with living_in(tmp_path, **environ_of(speaker)) as command:
        yield command


@pytest.fixture
def running(home: Holdfast) -> Running:
    return home.serve("--port", "0")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder that people chat in."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def screen(home: Holdfast, running: Running, here: Path) -> Iterator[Terminal]:
    """A terminal in which one chats with a running server."""
    with terminal(home.environ, here, "chat") as screen:
        screen.until(READY, PROMPT)
        yield screen


def asked(running: Running, path: str, body: dict[str, Any] | None = None, method: str = "") -> Any:
    sent = None if body is None else json.dumps(body)
    head = {"content-type": "application/json"}
    reply = running.ask(path, method or ("GET" if body is None else "POST"), sent, **head)
    assert reply.status < 300, reply.body
    return json.loads(reply.body)


def only(running: Running) -> str:
    (session,) = asked(running, "/api/sessions")["sessions"]
    found: str = session["id"]
    return found


def said(running: Running, session: str, role: str) -> list[str]:
    """The live messages of a role."""
    page = asked(running, f"/api/sessions/{session}/messages?limit=200")
    return [words_of(each).strip() for each in page["messages"] if each["role"] == role and each["live"]]


def test_an_answer_streams_and_is_drawn_when_its_blocks_are_whole(screen: Terminal) -> None:
    screen.type("please write up")
    shown = screen.until("Nothing else was changed", READY)
    assert "What was found" in shown and "##" not in screen.everything()
    # The table has its lines, the code its words, the list its numbers.
    assert re.search(r"third\.py +7 +broken", shown)
    assert "return number * 4" in shown and "```" not in shown
    assert "**fine**" not in shown
    # The server names the conversation.
    screen.until("A fitting title · openai:small · ready")


def test_text_is_there_while_it_streams_and_ctrl_c_stops_it_and_then_leaves(
    screen: Terminal, running: Running
) -> None:
    screen.type("count 100000")
    screen.until(r"\b30 31 32\b", "working")
    screen.press("C-c")
    screen.until("— Stopped. —", READY)
    assert asked(running, "/api/sessions")["sessions"][0]["status"] == "idle"
    screen.press("C-c")
    screen.until("exit code 0")


def test_a_message_behind_an_answer_that_was_stopped_says_so_and_is_answered_by_a_key(
    screen: Terminal, running: Running
) -> None:
    screen.type("count 100000")
    screen.until(r"\b30 31 32\b", "working")
    screen.type("and the next one")
    screen.until("⧖ and the next one")
    screen.press("C-c")
    screen.until(
        "— Stopped. —", r"\[g\] answer it now  /stop drops it", "needs you: one message is not answered yet"
    )
    assert asked(running, f"/api/sessions/{only(running)}")["status"] == "needs_you"
    screen.press("g")
    screen.until("^> and the next one", "^  and the next one", READY, gone="answer it now")
    screen.type("count 100000")
    screen.until(r"\b30 31 32\b", "working")
    screen.type("not this one")
    screen.until("⧖ not this one")
    screen.press("C-c")
    screen.until("answer it now")
    screen.type("/stop")
    screen.until("^> not this one", READY, gone="answer it now|^  not this one")


def test_ctrl_d_leaves_and_the_conversation_is_there_again_with_its_history(
    home: Holdfast, screen: Terminal, here: Path
) -> None:
    screen.type("something to come back to")
    screen.until(r"^  something to come back to", READY)
    screen.press("C-d")
    screen.until("exit code 0")
    with terminal(home.environ, here, "chat", "--continue") as again:
        again.until(r"^> something to come back to", r"^  something to come back to", READY)
        again.press("Up")
        again.until(r"^> something to come back to$(.|\n)*^> something to come back to$")


def test_a_chat_starts_a_conversation_which_goes_if_nothing_is_said_in_it(
    home: Holdfast, screen: Terminal, running: Running, here: Path
) -> None:
    screen.type("said before")
    screen.until("^  said before", READY)
    before = only(running)
    with terminal(home.environ, here, "chat") as another:
        shown = another.until("^ Untitled · openai:small · ready", PROMPT)
        assert "said before" not in shown
        assert len(asked(running, "/api/sessions")["sessions"]) == 2
        another.press("C-d")
        another.until("exit code 0")
    assert only(running) == before
    with terminal(home.environ, here, "chat") as another:
        another.until(READY, PROMPT)
        another.type("said anew")
        another.until("^  said anew", READY)
        another.press("C-d")
        another.until("exit code 0")
    assert len(asked(running, "/api/sessions")["sessions"]) == 2


def test_a_call_is_allowed_denied_changed_and_allowed_for_the_conversation(
    screen: Terminal, running: Running
) -> None:
    screen.type("run echo made")
    screen.until("Run this command", "^    echo made", KEYS, "needs you")
    # A letter that means nothing is not sent as a message: that would end the answer.
    screen.type("x")
    screen.until("Nothing was sent. .a. allow", KEYS)
    screen.press("a")
    screen.until("— Allowed. —", r"✓ shell  echo made · [\d.]+ s", "It said:", READY, gone="Run this command")
    screen.type("run echo never")
    screen.until("Run this command", "^    echo never", KEYS)
    screen.press("d")
    screen.until("^Reason .optional", "Enter answers, Esc goes back")
    screen.press("Escape")
    screen.until(KEYS, PROMPT)
    screen.press("d")
    screen.until("^Reason .optional")
    screen.type("not today")
    screen.until("— Not allowed. not today —", "⊘ shell  echo never", READY)
    screen.type("run echo first")
    screen.until("^    echo first", KEYS, "needs you")
    screen.press("e")
    screen.until("Run this instead > echo first")
    screen.press("C-u")
    screen.type("echo second")
    screen.until("✓ shell  echo second", "^    second", READY)
    screen.type("run echo kept")
    screen.until("^    echo kept", KEYS, "needs you")
    screen.press("c")
    screen.until("Allowed in this conversation: echo kept", "✓ shell  echo kept", READY)
    screen.press("C-l")
    screen.type("run echo kept")
    screen.until(r"^> run echo kept(.|\n)*✓ shell  echo kept", READY)
    assert said(running, only(running), "user")[1:] == [
        "run echo never", "run echo first", "run echo kept", "run echo kept",
    ]  # fmt: skip


def test_a_change_of_a_file_is_shown_as_a_diff_and_can_always_be_allowed(
    home: Holdfast, screen: Terminal, running: Running
) -> None:
    written = {"path": "a.md", "content": "".join(f"line {number}\n" for number in range(52))}
    screen.type(f"use write_file {json.dumps(written)}")
    screen.until("^  Write a.md[?]", "^    [+] line 0$", "^    … 40 more lines", KEYS)
    screen.press("w")
    screen.until("Always allowed: every use of write_file", "✓ write_file", READY)
    assert "write_file" in home.run("rules", "list").stdout
    edited = {"path": "a.md", "old_text": "line 7\n", "new_text": "seven\n"}
    screen.type(f"use edit_file {json.dumps(edited)}")
    screen.until("^  Change a.md[?]", "^    - line 7$", "^    [+] seven$", KEYS)
    screen.press("a")
    screen.until("— Allowed. —", "✓ edit_file", READY)


def test_a_message_written_over_a_question_is_sent_and_answers_no_whatever_it_begins_with(
    screen: Terminal, running: Running
) -> None:
    written = "also say why", "a pasted line", "c"
    for text in written:
        screen.type("run echo asked")
        screen.until("^    echo asked", KEYS, PROMPT)
        if text == written[0]:
            screen.type(text, enter=False)
        else:
            screen.paste(text)
        if text == "c":
            screen.until("^> c *$", "Enter answers: allow in this conversation")
            screen.type("ould you wait", enter=False)
        screen.until(f"^> {text}", "Enter sends this message and denies this.")
        screen.press("Enter")
        screen.until("⊘ shell  echo asked|- shell  echo asked", READY, gone="Run this command")
    said_then = said(running, only(running), "user")
    assert said_then[1::2] == ["also say why", "a pasted line", "could you wait"]
    assert "llowed" not in screen.everything().replace("Not allowed", "")


def test_commands_are_carried_out_and_one_that_there_is_not_sends_nothing(
    screen: Terminal, running: Running
) -> None:
    screen.type("first words")
    screen.until("^  first words", READY)
    screen.type("/title The first one")
    screen.until("The first one · openai:small")
    first = only(running)
    screen.type("/sess please")
    screen.until("There is no command /sess", "Did you mean /sessions", "Nothing was sent")
    (running.folder / "prompts").mkdir()
    (running.folder / "prompts" / "greet.md").write_text("Say hello to $ARGUMENTS.")
    screen.type("/greet everyone here")
    screen.until("^  Say hello to everyone here", READY)
    assert said(running, first, "user") == ["first words", "Say hello to everyone here."]
    screen.type("/undo")
    screen.until("— Removed")
    assert said(running, first, "user") == ["first words"]
    screen.type("/restore")
    screen.until("— Restored")
    assert said(running, first, "user") == ["first words", "Say hello to everyone here."]
    screen.type("/undo")
    screen.until(r"Restored\. —\s+— Removed")
    screen.type("/new")
    screen.until("^ Untitled · openai:small · ready")
    screen.type("/title Another one")
    screen.until("^ Another one · openai:small")
    screen.type("/sessions")
    screen.until(r"1\* Another one", r"2  The first one")
    screen.type("/switch 2")
    screen.until(r"^ The first one · openai:small · ready", "^> first words")
    screen.type("/switch another")
    screen.until(r"^ Another one · openai:small · ready")
    screen.type("/memory")
    screen.until("has no memory|remembered")
    screen.type("/help")
    screen.until("/undo: Undo the last message", "Ctrl.D leaves")


def test_another_agent_is_chosen_prompts_are_completed_and_the_conversation_moves_on(
    home: Holdfast, running: Running, here: Path
) -> None:
    for name, text in (
        ("agents/reader.toml", 'description = "Reads only."\ntools = ["read_file"]\n'),
        ("prompts/greet-all.md", "Say hello to $ARGUMENTS."),
    ):
        (running.folder / name).parent.mkdir(exist_ok=True)
        (running.folder / name).write_text(text)
    with terminal(home.environ, here, "chat") as screen:
        screen.until(READY, PROMPT)
        screen.until(r"^ Untitled · main · openai:small · ready")
        screen.type("/agents")
        screen.until(r"\* main", "  reader: Reads only.", "/agent NAME")
        screen.type("/agent nobody")
        screen.until("nobody(.|\n)*reader")
        screen.type("/agent reader")
        screen.until("reader answers here from now on", "^ Untitled · reader · openai:small · ready")
        first = only(running)
        assert asked(running, f"/api/sessions/{first}")["agent"] == "reader"
        screen.type("/agent")
        screen.until("reader answers here[.] /agents lists all")
        screen.type("/gree", enter=False)
        screen.until("/greet-all +Say hello to")
        screen.press("Tab")
        screen.until("^> /greet-all $|^> /greet-all *$")
        screen.type("everyone")
        screen.until("^  Say hello to everyone", READY)
        screen.type("something more")
        screen.until("^  something more", READY)
        screen.type("/help")
        screen.until("/continue: Go on", "/greet-all: Say hello to")
        screen.type("/continue")
        screen.until("Summing up", READY, PROMPT)

        def moved() -> str:
            return str(asked(running, f"/api/sessions/{first}")["successor_session_id"] or "")

        screen.type("in the new one")
        screen.until("^  in the new one", READY)
        assert said(running, moved(), "user")[-1] == "in the new one"


def test_commands_and_files_are_completed_and_a_file_goes_along(
    speaker: Speaker, screen: Terminal, running: Running, here: Path
) -> None:
    (here / "notes.txt").write_text("The gate is open on Mondays.\n")
    screen.type("/sta", enter=False)
    screen.until(r"/status +Say what is going on here")
    screen.press("C-u")
    screen.type("what is in @not", enter=False)
    screen.until("^ *notes.txt *$")
    screen.press("Tab")
    screen.until("what is in @notes.txt")
    screen.press("Enter")
    screen.until(r"^> what is in @notes.txt", r"^  \+ notes.txt", READY)
    assert "open on Mondays" in json.dumps([each["messages"] for each in speaker.asked])
    page = asked(running, f"/api/sessions/{only(running)}/messages")
    assert [part["type"] for part in page["messages"][0]["parts"]] == ["text", "file"]


def test_a_line_goes_on_after_a_backslash_and_after_alt_enter(screen: Terminal, running: Running) -> None:
    screen.type("one\\")
    screen.until("> one$")
    screen.type("two", enter=False)
    screen.press("M-Enter")
    screen.type("three")
    screen.until("^  one two three", READY)
    assert said(running, only(running), "user") == ["one\ntwo\nthree"]


def test_what_another_door_says_appears_while_one_types(screen: Terminal, running: Running) -> None:
    session = only(running)
    screen.type("half a sen", enter=False)
    screen.until("^> half a sen")
    asked(running, f"/api/sessions/{session}/turns", {"text": "said through another door"})
    screen.until(r"^> said through another door", r"^  said through another door", r"^> half a sen$", READY)
    asked(running, f"/api/sessions/{session}", {"title": "Named elsewhere"}, "PATCH")
    screen.until("^ Named elsewhere")
    screen.type("tence")
    screen.until("^  half a sentence", READY)
    assert said(running, session, "user") == ["said through another door", "half a sentence"]


def test_a_question_of_another_doors_message_is_answered_there_or_here(
    screen: Terminal, running: Running
) -> None:
    session = only(running)
    receipt = asked(running, f"/api/sessions/{session}/turns", {"text": "run echo there"})
    screen.until("Run this command", "needs you")
    (question,) = asked(running, "/api/questions")["questions"]
    asked(running, f"/api/runs/{receipt['run_id']}/tools/{question['call_id']}", {"decision": "approve"})
    screen.until("— Allowed. —", "✓ shell  echo there", READY, gone="Run this command")


def test_what_the_agent_asks_is_answered_by_a_number_or_in_words(screen: Terminal, running: Running) -> None:
    session = only(running)
    screen.type('ask {"question": "Which colour?", "choices": ["Red", "Green"]}')
    screen.until(
        "It asks you:", "^    Which colour", "^    2. Green", "Type its number, then Enter", "needs you"
    )
    screen.type("7")
    screen.until("Nothing was sent")
    screen.type("2")
    screen.until("^  It said: Green", READY, gone="It asks you:")
    screen.type('ask {"question": "And why?"}')
    screen.until("^    And why", "Type your answer, then Enter")
    screen.type("because it is spring")
    screen.until("^  It said: because it is spring", READY, gone="It asks you:")
    assert len(said(running, session, "user")) == 2


def test_through_a_kill_of_the_server_nothing_is_missing_and_nothing_twice(
    home: Holdfast, screen: Terminal, running: Running, speaker: Speaker, here: Path
) -> None:
    session = only(running)
    with speaker.pausing(200):
        screen.type("count 400")
        screen.until(r"\b60 61 62\b")
        running.process.kill()
        running.process.wait()
    gone = screen.until("The server has gone")
    assert not re.search(r"has gone(.|\n)*^ +[\d ]+$", gone, re.MULTILINE), "what came before it is above it"
    screen.type("written meanwhile")
    screen.until("⧖ written meanwhile", "1 to be sent")
    running = home.serve("--port", "0")
    screen.until(r"^  written meanwhile", READY)
    assert said(running, session, "user") == ["count 400", "written meanwhile"]
    whole = screen.everything()
    told = (
        ("The server is back.", 1),
        ("Continued after restart,", 1),
        ("Interrupted by a server restart.", 0),
    )
    for line, times in told:
        assert whole.count(line) == times, line
    # Every number once, in order, whatever was drawn before and after.
    answer = whole[whole.index("> count 400") + len("> count 400") : whole.index("> written meanwhile")]
    lines = [line for line in answer.splitlines() if re.fullmatch(r"[\d ]+", line)]
    assert " ".join(lines).split() == [str(number) for number in range(400)]
    with terminal(home.environ, here, "chat", "--continue") as again:
        again.until(r"^> written meanwhile", READY, "Continued after restart, ")
        assert "Stopped when" not in again.everything(), "it reads the same when it is opened anew"


def test_what_a_script_is_told_beside_the_answer_has_lines_of_its_own(
    home: Holdfast, running: Running, speaker: Speaker, here: Path
) -> None:
    with speaker.pausing(20), terminal(home.environ, here, "chat", "-p", "count 40") as screen:
        screen.until(r"\b17 18 19\b")
        running.process.kill()
        running.process.wait()
        screen.until(r" 18 19 *$", r"^The server has gone; waiting for it…$")


def test_what_was_read_of_an_answer_stays_on_the_screen_when_one_leaves(
    screen: Terminal, speaker: Speaker
) -> None:
    with speaker.pausing(60):
        screen.type("count 100")
        screen.until(r"\b57 58 59\b")
        screen.press("C-d")
        left = screen.until("exit code 0")
    assert re.search(r"^> count 100\n+  0 1 2 (.|\n)* 57 58 59$", left, re.MULTILINE), left


def test_a_call_that_may_have_run_is_put_to_the_person(
    home: Holdfast, screen: Terminal, running: Running
) -> None:
    screen.type("run sleep 300")
    screen.until(KEYS)
    screen.press("a")
    screen.until(r"… shell  sleep 300 · ")
    running.process.kill()
    running.process.wait()
    running = home.serve("--port", "0")
    screen.until(
        "the server stopped while this was running. Did it finish", r"\[r\] run it again  \[i\] it fin"
    )
    screen.press("s")
    screen.until(r"\? shell  sleep 300", "It said:", READY, gone="run it again")


def test_without_a_server_the_chat_works_and_another_process_sees_it_live(home: Holdfast, here: Path) -> None:
    with terminal(home.environ, here, "chat") as screen:
        screen.until("No server runs here", READY)
        screen.type("all by myself")
        screen.until("^  all by myself", READY)
        with terminal(home.environ, here, "chat", "--continue") as other:
            # The second one finds the first.
            other.until("^  all by myself", READY)
            other.type("not quite")
            screen.until("^> not quite", "^  not quite", READY)
            assert "No server" not in other.screen()
            other.press("C-d")
            other.until("exit code 0")
        screen.press("C-d")
        screen.until("exit code 0")
    assert home.run("link").returncode == 1


def test_nothing_in_a_conversation_steers_the_terminal(screen: Terminal, running: Running) -> None:
    before = screen.title()
    hostile = "see \x1b]0;taken over\x07 and \x1b[2J\x1b[H and \x9b31m done"
    asked(running, f"/api/sessions/{only(running)}/turns", {"text": hostile})
    shown = screen.until(r"^> see .*done", r"^  see .*done", READY)
    assert "taken over" in shown, "it is shown as text"
    assert screen.title() == before


def test_html_in_an_answer_is_shown_as_text(screen: Terminal) -> None:
    screen.type("<details><summary>More</summary>inside</details>")
    screen.until("^  <details><summary>More</summary>inside</details>", READY)


def test_the_foot_names_the_model_that_will_answer_here(
    screen: Terminal, running: Running, tmp_path: Path
) -> None:
    agents = tmp_path / "share" / "holdfast" / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "main.toml").write_text('model = "vllm:large"\n')
    screen.type("/new")
    screen.until(r"· vllm:large · ready")
    for session in asked(running, "/api/sessions")["sessions"]:
        asked(running, f"/api/sessions/{session['id']}", {"model": "openai:small"}, "PATCH")
    screen.until(r"· openai:small · ready")
