"""`holdfast chat` as people use it: in a real terminal, with keys, beside other doors, through a kill."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ScriptedModelServer, text_of
from tests.support.tmux_terminal import PROMPT, READY, Terminal, terminal

KEYS = r"^  \[a\] allow"
"""From when they are shown on, keys answer a question."""


@pytest.fixture
def home(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command


@pytest.fixture
def running(home: CliHarness) -> RunningServer:
    return home.serve("--port", "0")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The folder that people chat in."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def screen(home: CliHarness, running: RunningServer, here: Path) -> Iterator[Terminal]:
    """A terminal in which one chats with a running server."""
    with terminal(home.environ, here, "chat") as screen:
        screen.wait_for_text(READY, PROMPT)
        yield screen


def request_json(
    running: RunningServer, path: str, body: dict[str, Any] | None = None, method: str = ""
) -> Any:
    sent = None if body is None else json.dumps(body)
    head = {"content-type": "application/json"}
    reply = running.request(path, method or ("GET" if body is None else "POST"), sent, **head)
    assert reply.status < 300, reply.body
    return json.loads(reply.body)


def only_session_id(running: RunningServer) -> str:
    (session,) = request_json(running, "/api/sessions")["sessions"]
    found: str = session["id"]
    return found


def texts_of_role(running: RunningServer, session: str, role: str) -> list[str]:
    """The live messages of a role."""
    page = request_json(running, f"/api/sessions/{session}/messages?limit=200")
    return [text_of(each).strip() for each in page["messages"] if each["role"] == role and each["live"]]


def test_an_answer_streams_and_complete_blocks_are_rendered(screen: Terminal) -> None:
    screen.type("please write up")
    shown = screen.wait_for_text("Nothing else was changed", READY)
    assert "What was found" in shown and "##" not in screen.full_output()
    # The table has its lines, the code its words, the list its numbers.
    assert re.search(r"third\.py +7 +broken", shown)
    assert "return number * 4" in shown and "```" not in shown
    assert "**fine**" not in shown
    # The server names the conversation.
    screen.wait_for_text("A fitting title · openai:small · ready")


def test_ctrl_c_stops_a_streaming_answer_and_then_exits(screen: Terminal, running: RunningServer) -> None:
    screen.type("count 100000")
    screen.wait_for_text(r"\b30 31 32\b", "working")
    screen.press("C-c")
    screen.wait_for_text("— Stopped. —", READY)
    assert request_json(running, "/api/sessions")["sessions"][0]["status"] == "idle"
    screen.press("C-c")
    screen.wait_for_text("exit code 0")


def test_a_key_resumes_a_message_queued_behind_a_stopped_answer(
    screen: Terminal, running: RunningServer
) -> None:
    screen.type("count 100000")
    screen.wait_for_text(r"\b30 31 32\b", "working")
    screen.type("and the next one")
    screen.wait_for_text("⧖ and the next one")
    screen.press("C-c")
    screen.wait_for_text(
        "— Stopped. —", r"\[g\] answer it now  /stop drops it", "needs you: one message is not answered yet"
    )
    assert request_json(running, f"/api/sessions/{only_session_id(running)}")["status"] == "needs_you"
    screen.press("g")
    screen.wait_for_text("^> and the next one", "^  and the next one", READY, gone="answer it now")
    screen.type("count 100000")
    screen.wait_for_text(r"\b30 31 32\b", "working")
    screen.type("not this one")
    screen.wait_for_text("⧖ not this one")
    screen.press("C-c")
    screen.wait_for_text("answer it now")
    screen.type("/stop")
    screen.wait_for_text("^> not this one", READY, gone="answer it now|^  not this one")


def test_ctrl_d_exits_and_the_conversation_can_be_reopened_with_history(
    home: CliHarness, screen: Terminal, here: Path
) -> None:
    screen.type("something to come back to")
    screen.wait_for_text(r"^  something to come back to", READY)
    screen.press("C-d")
    screen.wait_for_text("exit code 0")
    with terminal(home.environ, here, "chat", "--continue") as again:
        again.wait_for_text(r"^> something to come back to", r"^  something to come back to", READY)
        again.press("Up")
        again.wait_for_text(r"^> something to come back to$(.|\n)*^> something to come back to$")


def test_chat_deletes_its_conversation_if_it_stays_empty(
    home: CliHarness, screen: Terminal, running: RunningServer, here: Path
) -> None:
    screen.type("said before")
    screen.wait_for_text("^  said before", READY)
    before = only_session_id(running)
    with terminal(home.environ, here, "chat") as another:
        shown = another.wait_for_text("^ Untitled · openai:small · ready", PROMPT)
        assert "said before" not in shown
        assert len(request_json(running, "/api/sessions")["sessions"]) == 2
        another.press("C-d")
        another.wait_for_text("exit code 0")
    assert only_session_id(running) == before
    with terminal(home.environ, here, "chat") as another:
        another.wait_for_text(READY, PROMPT)
        another.type("said anew")
        another.wait_for_text("^  said anew", READY)
        another.press("C-d")
        another.wait_for_text("exit code 0")
    assert len(request_json(running, "/api/sessions")["sessions"]) == 2


def test_a_tool_call_can_be_allowed_denied_edited_and_allowed_for_the_conversation(
    screen: Terminal, running: RunningServer
) -> None:
    screen.type("run echo made")
    screen.wait_for_text("Run this command", "^    echo made", KEYS, "needs you")
    # A letter that means nothing is not sent as a message: that would end the answer.
    screen.type("x")
    screen.wait_for_text("Nothing was sent. .a. allow", KEYS)
    screen.press("a")
    screen.wait_for_text(
        "— Allowed. —", r"✓ shell  echo made · [\d.]+ s", "It said:", READY, gone="Run this command"
    )
    screen.type("run echo never")
    screen.wait_for_text("Run this command", "^    echo never", KEYS)
    screen.press("d")
    screen.wait_for_text("^Reason .optional", "Enter answers, Esc goes back")
    screen.press("Escape")
    screen.wait_for_text(KEYS, PROMPT)
    screen.press("d")
    screen.wait_for_text("^Reason .optional")
    screen.type("not today")
    screen.wait_for_text("— Not allowed. not today —", "⊘ shell  echo never", READY)
    screen.type("run echo first")
    screen.wait_for_text("^    echo first", KEYS, "needs you")
    screen.press("e")
    screen.wait_for_text("Run this instead > echo first")
    screen.press("C-u")
    screen.type("echo second")
    screen.wait_for_text("✓ shell  echo second", "^    second", READY)
    screen.type("run echo kept")
    screen.wait_for_text("^    echo kept", KEYS, "needs you")
    screen.press("c")
    screen.wait_for_text("Allowed in this conversation: echo kept", "✓ shell  echo kept", READY)
    screen.press("C-l")
    screen.type("run echo kept")
    screen.wait_for_text(r"^> run echo kept(.|\n)*✓ shell  echo kept", READY)
    assert texts_of_role(running, only_session_id(running), "user")[1:] == [
        "run echo never", "run echo first", "run echo kept", "run echo kept",
    ]  # fmt: skip


def test_a_file_change_is_shown_as_a_diff_and_can_always_be_allowed(
    home: CliHarness, screen: Terminal, running: RunningServer
) -> None:
    written = {"path": "a.md", "content": "".join(f"line {number}\n" for number in range(52))}
    screen.type(f"use write_file {json.dumps(written)}")
    screen.wait_for_text("^  Write a.md[?]", "^    [+] line 0$", "^    … 40 more lines", KEYS)
    screen.press("w")
    screen.wait_for_text("Always allowed: every use of write_file", "✓ write_file", READY)
    assert "write_file" in home.run("rules", "list").stdout
    edited = {"path": "a.md", "old_text": "line 7\n", "new_text": "seven\n"}
    screen.type(f"use edit_file {json.dumps(edited)}")
    screen.wait_for_text("^  Change a.md[?]", "^    - line 7$", "^    [+] seven$", KEYS)
    screen.press("a")
    screen.wait_for_text("— Allowed. —", "✓ edit_file", READY)


def test_a_message_typed_during_an_approval_is_sent_and_denies_it(
    screen: Terminal, running: RunningServer
) -> None:
    written = "also say why", "a pasted line", "c"
    for text in written:
        screen.type("run echo asked")
        screen.wait_for_text("^    echo asked", KEYS, PROMPT)
        if text == written[0]:
            screen.type(text, enter=False)
        else:
            screen.paste(text)
        if text == "c":
            screen.wait_for_text("^> c *$", "Enter answers: allow in this conversation")
            screen.type("ould you wait", enter=False)
        screen.wait_for_text(f"^> {text}", "Enter sends this message and denies this.")
        screen.press("Enter")
        screen.wait_for_text("⊘ shell  echo asked|- shell  echo asked", READY, gone="Run this command")
    said_then = texts_of_role(running, only_session_id(running), "user")
    assert said_then[1::2] == ["also say why", "a pasted line", "could you wait"]
    assert "llowed" not in screen.full_output().replace("Not allowed", "")


def test_slash_commands_run_and_unknown_ones_send_nothing(screen: Terminal, running: RunningServer) -> None:
    screen.type("first words")
    screen.wait_for_text("^  first words", READY)
    screen.type("/title The first one")
    screen.wait_for_text("The first one · openai:small")
    first = only_session_id(running)
    screen.type("/sess please")
    screen.wait_for_text("There is no command /sess", "Did you mean /sessions", "Nothing was sent")
    (running.folder / "prompts").mkdir()
    (running.folder / "prompts" / "greet.md").write_text("Say hello to $ARGUMENTS.")
    screen.type("/greet everyone here")
    screen.wait_for_text("^  Say hello to everyone here", READY)
    assert texts_of_role(running, first, "user") == ["first words", "Say hello to everyone here."]
    screen.type("/undo")
    screen.wait_for_text("— Removed")
    assert texts_of_role(running, first, "user") == ["first words"]
    screen.type("/restore")
    screen.wait_for_text("— Restored")
    assert texts_of_role(running, first, "user") == ["first words", "Say hello to everyone here."]
    screen.type("/undo")
    screen.wait_for_text(r"Restored\. —\s+— Removed")
    screen.type("/new")
    screen.wait_for_text("^ Untitled · openai:small · ready")
    screen.type("/title Another one")
    screen.wait_for_text("^ Another one · openai:small")
    screen.type("/sessions")
    screen.wait_for_text(r"1\* Another one", r"2  The first one")
    screen.type("/switch 2")
    screen.wait_for_text(r"^ The first one · openai:small · ready", "^> first words")
    screen.type("/switch another")
    screen.wait_for_text(r"^ Another one · openai:small · ready")
    screen.type("/memory")
    screen.wait_for_text("has no memory|remembered")
    screen.type("/help")
    screen.wait_for_text("/undo: Undo the last message", "Ctrl.D leaves")


def test_agents_are_chosen_prompts_completed_and_the_conversation_continued(
    home: CliHarness, running: RunningServer, here: Path
) -> None:
    for name, text in (
        ("agents/reader.toml", 'description = "Reads only."\ntools = ["read_file"]\n'),
        ("prompts/greet-all.md", "Say hello to $ARGUMENTS."),
    ):
        (running.folder / name).parent.mkdir(exist_ok=True)
        (running.folder / name).write_text(text)
    with terminal(home.environ, here, "chat") as screen:
        screen.wait_for_text(READY, PROMPT)
        screen.wait_for_text(r"^ Untitled · main · openai:small · ready")
        screen.type("/agents")
        screen.wait_for_text(r"\* main", "  reader: Reads only.", "/agent NAME")
        screen.type("/agent nobody")
        screen.wait_for_text("nobody(.|\n)*reader")
        screen.type("/agent reader")
        screen.wait_for_text("reader answers here from now on", "^ Untitled · reader · openai:small · ready")
        first = only_session_id(running)
        assert request_json(running, f"/api/sessions/{first}")["agent"] == "reader"
        screen.type("/agent")
        screen.wait_for_text("reader answers here[.] /agents lists all")
        screen.type("/gree", enter=False)
        screen.wait_for_text("/greet-all +Say hello to")
        screen.press("Tab")
        screen.wait_for_text("^> /greet-all $|^> /greet-all *$")
        screen.type("everyone")
        screen.wait_for_text("^  Say hello to everyone", READY)
        screen.type("something more")
        screen.wait_for_text("^  something more", READY)
        screen.type("/help")
        screen.wait_for_text("/continue: Go on", "/greet-all: Say hello to")
        screen.type("/continue")
        screen.wait_for_text("Summing up", READY, PROMPT)

        def moved() -> str:
            return str(request_json(running, f"/api/sessions/{first}")["successor_session_id"] or "")

        screen.type("in the new one")
        screen.wait_for_text("^  in the new one", READY)
        assert texts_of_role(running, moved(), "user")[-1] == "in the new one"


def test_commands_and_files_are_completed_and_a_file_is_attached(
    speaker: ScriptedModelServer, screen: Terminal, running: RunningServer, here: Path
) -> None:
    (here / "notes.txt").write_text("The gate is open on Mondays.\n")
    screen.type("/sta", enter=False)
    screen.wait_for_text(r"/status +Say what is going on here")
    screen.press("C-u")
    screen.type("what is in @not", enter=False)
    screen.wait_for_text("^ *notes.txt *$")
    screen.press("Tab")
    screen.wait_for_text("what is in @notes.txt")
    screen.press("Enter")
    screen.wait_for_text(r"^> what is in @notes.txt", r"^  \+ notes.txt", READY)
    assert "open on Mondays" in json.dumps([each["messages"] for each in speaker.requests])
    page = request_json(running, f"/api/sessions/{only_session_id(running)}/messages")
    assert [part["type"] for part in page["messages"][0]["parts"]] == ["text", "file"]


def test_backslash_and_alt_enter_start_a_new_line(screen: Terminal, running: RunningServer) -> None:
    screen.type("one\\")
    screen.wait_for_text("> one$")
    screen.type("two", enter=False)
    screen.press("M-Enter")
    screen.type("three")
    screen.wait_for_text("^  one two three", READY)
    assert texts_of_role(running, only_session_id(running), "user") == ["one\ntwo\nthree"]


def test_messages_from_another_client_appear_while_typing(screen: Terminal, running: RunningServer) -> None:
    session = only_session_id(running)
    screen.type("half a sen", enter=False)
    screen.wait_for_text("^> half a sen")
    request_json(running, f"/api/sessions/{session}/turns", {"text": "said through another door"})
    screen.wait_for_text(
        r"^> said through another door", r"^  said through another door", r"^> half a sen$", READY
    )
    request_json(running, f"/api/sessions/{session}", {"title": "Named elsewhere"}, "PATCH")
    screen.wait_for_text("^ Named elsewhere")
    screen.type("tence")
    screen.wait_for_text("^  half a sentence", READY)
    assert texts_of_role(running, session, "user") == ["said through another door", "half a sentence"]


def test_a_question_can_be_answered_from_another_client(screen: Terminal, running: RunningServer) -> None:
    session = only_session_id(running)
    receipt = request_json(running, f"/api/sessions/{session}/turns", {"text": "run echo there"})
    screen.wait_for_text("Run this command", "needs you")
    (question,) = request_json(running, "/api/questions")["questions"]
    request_json(
        running, f"/api/runs/{receipt['run_id']}/tools/{question['call_id']}", {"decision": "approve"}
    )
    screen.wait_for_text("— Allowed. —", "✓ shell  echo there", READY, gone="Run this command")


def test_an_agent_question_is_answered_by_number_or_text(screen: Terminal, running: RunningServer) -> None:
    session = only_session_id(running)
    screen.type('ask {"question": "Which colour?", "choices": ["Red", "Green"]}')
    screen.wait_for_text(
        "It asks you:", "^    Which colour", "^    2. Green", "Type its number, then Enter", "needs you"
    )
    screen.type("7")
    screen.wait_for_text("Nothing was sent")
    screen.type("2")
    screen.wait_for_text("^  It said: Green", READY, gone="It asks you:")
    screen.type('ask {"question": "And why?"}')
    screen.wait_for_text("^    And why", "Type your answer, then Enter")
    screen.type("because it is spring")
    screen.wait_for_text("^  It said: because it is spring", READY, gone="It asks you:")
    assert len(texts_of_role(running, session, "user")) == 2


def test_a_server_kill_loses_and_repeats_no_text(
    home: CliHarness, screen: Terminal, running: RunningServer, speaker: ScriptedModelServer, here: Path
) -> None:
    session = only_session_id(running)
    with speaker.pausing_count(200):
        screen.type("count 400")
        screen.wait_for_text(r"\b60 61 62\b")
        running.process.kill()
        running.process.wait()
    gone = screen.wait_for_text("The server has gone")
    assert not re.search(r"has gone(.|\n)*^ +[\d ]+$", gone, re.MULTILINE), "what came before it is above it"
    screen.type("written meanwhile")
    screen.wait_for_text("⧖ written meanwhile", "1 to be sent")
    running = home.serve("--port", "0")
    screen.wait_for_text(r"^  written meanwhile", READY)
    assert texts_of_role(running, session, "user") == ["count 400", "written meanwhile"]
    whole = screen.full_output()
    expected = (
        ("The server is back.", 1),
        ("Continued after restart,", 1),
        ("Interrupted by a server restart.", 0),
    )
    for line, times in expected:
        assert whole.count(line) == times, line
    # Every number once, in order, whatever was drawn before and after.
    answer = whole[whole.index("> count 400") + len("> count 400") : whole.index("> written meanwhile")]
    lines = [line for line in answer.splitlines() if re.fullmatch(r"[\d ]+", line)]
    assert " ".join(lines).split() == [str(number) for number in range(400)]
    with terminal(home.environ, here, "chat", "--continue") as again:
        again.wait_for_text(r"^> written meanwhile", READY, "Continued after restart, ")
        assert "Stopped when" not in again.full_output(), "it reads the same when it is opened anew"


def test_notes_beside_a_printed_answer_have_their_own_lines(
    home: CliHarness, running: RunningServer, speaker: ScriptedModelServer, here: Path
) -> None:
    with speaker.pausing_count(20), terminal(home.environ, here, "chat", "-p", "count 40") as screen:
        screen.wait_for_text(r"\b17 18 19\b")
        running.process.kill()
        running.process.wait()
        screen.wait_for_text(r" 18 19 *$", r"^The server has gone; waiting for it…$")


def test_a_partial_answer_stays_on_screen_after_exit(screen: Terminal, speaker: ScriptedModelServer) -> None:
    with speaker.pausing_count(60):
        screen.type("count 100")
        screen.wait_for_text(r"\b57 58 59\b")
        screen.press("C-d")
        left = screen.wait_for_text("exit code 0")
    assert re.search(r"^> count 100\n+  0 1 2 (.|\n)* 57 58 59$", left, re.MULTILINE), left


def test_the_user_is_asked_about_a_call_in_doubt(
    home: CliHarness, screen: Terminal, running: RunningServer
) -> None:
    screen.type("run sleep 300")
    screen.wait_for_text(KEYS)
    screen.press("a")
    screen.wait_for_text(r"… shell  sleep 300 · ")
    running.process.kill()
    running.process.wait()
    running = home.serve("--port", "0")
    screen.wait_for_text(
        "the server stopped while this was running. Did it finish", r"\[r\] run it again  \[i\] it fin"
    )
    screen.press("s")
    screen.wait_for_text(r"\? shell  sleep 300", "It said:", READY, gone="run it again")


def test_chat_without_a_server_is_visible_live_to_another_process(home: CliHarness, here: Path) -> None:
    with terminal(home.environ, here, "chat") as screen:
        screen.wait_for_text("No server runs here", READY)
        screen.type("all by myself")
        screen.wait_for_text("^  all by myself", READY)
        with terminal(home.environ, here, "chat", "--continue") as other:
            # The second one finds the first.
            other.wait_for_text("^  all by myself", READY)
            other.type("not quite")
            screen.wait_for_text("^> not quite", "^  not quite", READY)
            assert "No server" not in other.screen()
            other.press("C-d")
            other.wait_for_text("exit code 0")
        screen.press("C-d")
        screen.wait_for_text("exit code 0")
    assert home.run("link").returncode == 1


def test_conversation_text_cannot_control_the_terminal(screen: Terminal, running: RunningServer) -> None:
    before = screen.title()
    hostile = "see \x1b]0;taken over\x07 and \x1b[2J\x1b[H and \x9b31m done"
    request_json(running, f"/api/sessions/{only_session_id(running)}/turns", {"text": hostile})
    shown = screen.wait_for_text(r"^> see .*done", r"^  see .*done", READY)
    assert "taken over" in shown, "it is shown as text"
    assert screen.title() == before


def test_html_in_an_answer_is_shown_as_text(screen: Terminal) -> None:
    screen.type("<details><summary>More</summary>inside</details>")
    screen.wait_for_text("^  <details><summary>More</summary>inside</details>", READY)


def test_the_toolbar_names_the_current_model(
    screen: Terminal, running: RunningServer, tmp_path: Path
) -> None:
    agents = tmp_path / "share" / "holdfast" / "agents"
    agents.mkdir(exist_ok=True)
    (agents / "main.toml").write_text('model = "vllm:large"\n')
    screen.type("/new")
    screen.wait_for_text(r"· vllm:large · ready")
    for session in request_json(running, "/api/sessions")["sessions"]:
        request_json(running, f"/api/sessions/{session['id']}", {"model": "openai:small"}, "PATCH")
    screen.wait_for_text(r"· openai:small · ready")
