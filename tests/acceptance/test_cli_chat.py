"""`holdfast chat -p`: one message from a script, in real processes, with a server and without one."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ScriptedModelServer, scripted_model_server

SCRIPT_S_MAX = 120
COUNTED = "".join(f"{number} " for number in range(300))


class HostileModelServer(ScriptedModelServer):
    """Says what would steer a terminal, or refuses to answer at all."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "POST" and "be broken" in await request.text():
            return web.json_response({"error": {"message": "the account is closed"}}, status=403)
        return await super().answer(request)


@pytest.fixture(scope="module")
def speaker() -> Iterator[ScriptedModelServer]:
    with scripted_model_server(HostileModelServer()) as speaker:
        yield speaker


@pytest.fixture
def home(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    """The command, with nothing running yet."""
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command


def chat(home: CliHarness, *words: str, said: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
    """A script that chats, to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "holdfast", "chat", *words],
        env=home.environ | environ,
        input=said,
        capture_output=True,
        text=True,
        timeout=SCRIPT_S_MAX,
    )


def start_chat(home: CliHarness, *words: str) -> "subprocess.Popen[str]":
    """A script that chats, under way."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "chat", *words],
        env=home.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    home.started.append(process)
    return process


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    """What it has printed, once that holds `words`."""
    assert process.stdout is not None
    seen = ""
    while words not in seen:
        piece = process.stdout.read(1)
        assert piece, f"it ended after {seen!r}"
        seen += piece
    return seen


def wait_for_exit(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it prints from here on. Not by `communicate`, which passes over what was read ahead."""
    assert process.stdout is not None and process.stderr is not None
    timer = threading.Timer(SCRIPT_S_MAX, process.kill)
    timer.start()
    try:
        outputs = process.stdout.read(), process.stderr.read()
        process.wait()
        return outputs
    finally:
        timer.cancel()


def sessions(running: RunningServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(running.request("/api/sessions").body)["sessions"]
    return found


def test_print_mode_with_a_server_prints_only_the_answer(home: CliHarness) -> None:
    running = home.serve("--port", "0")
    done = chat(home, "-p", "say it back")
    assert (done.returncode, done.stdout, done.stderr) == (0, "say it back \n", "")
    (session,) = sessions(running)
    assert session["turns"] == 1
    # What a server has just kept is found beside it.
    (found,) = json.loads(home.run("sessions", "search", "back", "--json").stdout)
    assert found["id"] == session["id"] and len(found["matches"]) == 2


def test_print_mode_without_a_server_answers_and_keeps_the_conversation(home: CliHarness) -> None:
    done = chat(home, "-p", "say it back")
    assert (done.returncode, done.stdout, done.stderr) == (0, "say it back \n", "")
    listed = json.loads(home.run("sessions", "list", "--json").stdout)
    assert [(each["turns"], each["status"]) for each in listed] == [(1, "idle")]
    # Nothing is left behind that others would take for a server.
    assert home.run("link").returncode == 1


def test_json_output_has_the_answer_usage_and_tools(home: CliHarness) -> None:
    done = chat(home, "-p", "look 2 and be done", "--json")
    output = json.loads(done.stdout)
    assert (done.returncode, output["status"]) == (0, "completed")
    assert output["text"].startswith("It said:")
    assert [(each["name"], each["outcome"]) for each in output["tools"]] == [("list_files", "done")] * 2
    assert output["usage"]["output_tokens"] > 0
    assert output["session_id"].startswith("s_") and output["run_id"].startswith("r_")
    assert output["turn_id"].startswith("t_")


def test_a_message_from_standard_input_is_sent_to_the_named_conversation(home: CliHarness) -> None:
    home.serve("--port", "0")
    first = json.loads(chat(home, "-p", "-", "--json", said="one line\nand another").stdout)
    assert first["text"] == "one line and another "
    again = chat(home, first["session_id"][:-3], "-p", "more", "--json")
    assert json.loads(again.stdout)["session_id"] == first["session_id"]
    assert json.loads(chat(home, "-c", "-p", "on", "--json").stdout)["session_id"] == first["session_id"]
    assert json.loads(chat(home, "-p", "anew", "--json").stdout)["session_id"] != first["session_id"]
    assert chat(home, "s_nosuch", "-p", "more").returncode == 1


def test_a_waiting_run_exits_with_3_and_prints_its_question(home: CliHarness) -> None:
    running = home.serve("--port", "0")
    done = chat(home, "-p", "run touch there")
    assert (done.returncode, done.stdout) == (3, "")
    assert "shell" in done.stderr and "touch there" in done.stderr
    (session,) = sessions(running)
    assert session["id"] in done.stderr and session["status"] == "needs_you"
    output = json.loads(chat(home, "-p", "run touch here", "--json").stdout)
    assert output["status"] == "needs_you"
    assert [each["name"] for each in output["waits_for"]] == ["shell"]
    asked = chat(home, "-p", 'ask {"question": "Which?"}')
    assert "It waits for you: Which? Answer it: " in asked.stderr


def test_a_question_asked_without_a_server_is_kept_for_the_next_server(home: CliHarness) -> None:
    assert chat(home, "-p", "run touch there").returncode == 3
    running = home.serve("--port", "0")
    assert [each["status"] for each in sessions(running)] == ["needs_you"]


def test_a_failed_answer_exits_with_1_and_prints_the_reason(home: CliHarness) -> None:
    done = chat(home, "-p", "be broken")
    assert (done.returncode, done.stdout) == (1, "")
    assert "the account is closed" in done.stderr
    output = json.loads(chat(home, "-p", "be broken", "--json").stdout)
    assert output["status"] == "failed" and "closed" in output["failure"]["detail"]


@pytest.mark.parametrize(
    "words", [("-p", " "), ("--json",), ("--continue", "s_1", "-p", "x"), (), ("--nothing",)], ids=str
)
def test_wrong_usage_exits_with_2(home: CliHarness, words: tuple[str, ...]) -> None:
    done = chat(home, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr


@pytest.mark.parametrize("with_server", [True, False], ids=["with a server", "without one"])
def test_an_interrupt_stops_the_answer_and_exits_with_130(home: CliHarness, with_server: bool) -> None:
    running = home.serve("--port", "0") if with_server else None
    process = start_chat(home, "-p", "count 100000")
    read_until(process, "20 ")
    process.send_signal(signal.SIGINT)
    wait_for_exit(process)
    assert process.returncode == 130
    # The answer does not go on behind one's back, now or at the next start.
    (session,) = sessions(running or home.serve("--port", "0"))
    assert session["status"] == "idle"


def test_print_mode_waits_for_a_killed_server_and_prints_the_answer_once(home: CliHarness) -> None:
    running = home.serve("--port", "0")
    process = start_chat(home, "-p", "count 300")
    seen = read_until(process, "40 ")
    running.process.kill()
    running.process.wait()
    # It is another process, and at another port.
    running = home.serve("--port", "0")
    rest, errors = wait_for_exit(process)
    assert (process.returncode, errors) == (0, "")
    assert seen + rest == COUNTED + "\n"
    (session,) = sessions(running)
    assert session["turns"] == 1


def test_print_mode_gives_up_waiting_for_a_lost_server(home: CliHarness) -> None:
    running = home.serve("--port", "0")
    process = start_chat(home, "-p", "count 100000", "--wait", "1")
    read_until(process, "5 ")
    running.process.kill()
    running.process.wait()
    _, errors = wait_for_exit(process)
    assert process.returncode == 1
    assert "The message is kept" in errors


def test_chat_replaces_a_server_that_does_not_return(home: CliHarness) -> None:
    running = home.serve("--port", "0")
    process = start_chat(home, "-p", "count 300")
    seen = read_until(process, "40 ")
    running.process.kill()
    running.process.wait()
    rest, errors = wait_for_exit(process)
    assert (process.returncode, errors) == (0, "")
    assert seen + rest == COUNTED + "\n"
    (session,) = sessions(home.serve("--port", "0"))
    assert session["turns"] == 1


def test_print_mode_removes_control_characters(home: CliHarness) -> None:
    said = "red \x1b[31m title \x1b]0;gone\x07 csi \x9b2J turned \u202e over\rwritten"
    done = chat(home, "-p", "-", said=said)
    assert done.returncode == 0
    assert not set("\x1b\x07\x9b\u202e\r") & set(done.stdout)
    assert "red" in done.stdout and "[31m" in done.stdout
    output = chat(home, "-p", "-", "--json", said=said).stdout
    assert not set("\x1b\x07\x9b\r") & set(output)
    assert "\x9b2J" in json.loads(output)["text"]


def test_environment_secrets_are_not_printed(home: CliHarness) -> None:
    home.serve("--port", "0")
    done = chat(home, "-p", "the word is open-sesame-open now", DOOR_TOKEN="open-sesame-open")
    assert done.stdout == "the word is [secret] now \n"
