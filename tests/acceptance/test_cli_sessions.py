"""`holdfast sessions list`, `show` and `delete`, as people and programs use them."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.memories import NewNote, Origin
from tests.acceptance.conftest import CliHarness
from tests.support.sample_conversations import (
    SampleConversation,
    in_store,
    save_conversations,
    trip_conversation,
)

INNER_WORDS = (
    "journal",
    "segment",
    "lease",
    "epoch",
    "fold",
    "settle",
    "spool",
    "owed",
    "in doubt",
    "session_",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands of the fixture `holdfast` look by themselves."""
    return tmp_path / "share" / "holdfast"


def test_sessions_list_shows_title_status_and_turns(holdfast: CliHarness, folder: Path) -> None:
    first, second = (
        trip_conversation("会议 notes"),
        SampleConversation().user_message("Hello").interrupt("I was"),
    )
    save_conversations(folder, first, second, SampleConversation("Put away").archive())
    result = holdfast.run("sessions", "list")
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["Conversation", "Title", "Status", "Turns", "Last", "used"]
    assert lines[1].split() == [second.id, "Hello", "Stopped", "1", "just", "now"]
    assert lines[2].split() == [first.id, "会议", "notes", "Ready", "2", "just", "now"]
    assert len(lines) == 3
    assert "Put away" in holdfast.run("sessions", "list", "--archived").stdout


def test_sessions_list_reads_many_pages(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, *(SampleConversation(f"Number {n}") for n in range(450)))
    everything = json.loads(holdfast.run("sessions", "list", "--limit", "0", "--json").stdout)
    assert len({row["id"] for row in everything}) == 450
    some = holdfast.run("sessions", "list", "--limit", "3")
    assert len(some.stdout.splitlines()) == 4
    assert "--limit 0 shows all" in some.stderr
    assert json.loads(holdfast.run("sessions", "list", "--limit", "3", "--json").stdout) == everything[:3]


def test_mcp_credentials_are_masked_in_conversations(holdfast: CliHarness, folder: Path) -> None:
    story = (
        SampleConversation("Keys")
        .user_message("It is own-4711-own-4711, and Bearer set-0815-set-0815.")
        .assistant_message("I see.")
    )
    save_conversations(folder, story)
    tables = """
        [mcp.wiki]
        url = "http://127.0.0.1:1/mcp"
        headers = { X-Own = "own-4711-own-4711", Authorization = "Bearer ${WIKI}", X-Other = "${NOT_SET}" }
    """
    (folder / "holdfast.toml").write_text(tables)
    holdfast.environ["WIKI"] = "set-0815-set-0815"
    for words in (("show", story.id), ("show", story.id, "--json"), ("export", story.id)):
        result = holdfast.run("sessions", *words)
        assert result.returncode == 0 and "I see." in result.stdout
        assert "4711" not in result.stdout and "0815" not in result.stdout


def test_search_finds_conversations_by_message_text(holdfast: CliHarness, folder: Path) -> None:
    tides = (
        SampleConversation("About tides")
        .user_message("Why are there tides?")
        .assistant_message("The moon pulls at the sea.")
    )
    lamps = (
        SampleConversation()
        .user_message("Who lit the lamps by the sea?")
        .assistant_message("Nobody knows. The moon did.")
    )
    save_conversations(
        folder, tides, lamps, SampleConversation("Another").user_message("Nothing of the kind.")
    )
    result = holdfast.run("sessions", "search", "moon", "sea")
    assert (result.returncode, result.stderr) == (0, "")
    head, *lines = result.stdout.splitlines()
    assert head.split() == ["Conversation", "Title", "Last", "used", "Match"]
    (line,) = lines
    assert line.startswith(tides.id) and line.endswith("The moon pulls at the sea.")
    both = json.loads(holdfast.run("sessions", "search", "the sea", "--json").stdout)
    assert [each["id"] for each in both] == [lamps.id, tides.id]
    assert both[1]["title"] == "About tides" and both[0]["opening"].startswith("Who lit")
    (match,) = both[1]["matches"]
    assert match["role"] == "assistant" and match["snippet"] == "The moon pulls at the sea."
    assert [match["snippet"][start:end] for start, end in match["marks"]] == ["The", "the", "sea"]
    nothing = holdfast.run("sessions", "search", "volcano")
    assert (nothing.returncode, nothing.stdout) == (0, "No message contains “volcano”.\n")
    refused = holdfast.run("sessions", "search", "?!", "--json")
    assert (refused.returncode, json.loads(refused.stderr)["code"]) == (1, "bad_query")


def test_read_commands_create_nothing(holdfast: CliHarness, folder: Path) -> None:
    listed = holdfast.run("sessions", "list")
    assert listed.returncode == holdfast.run("sessions", "search", "anything").returncode == 0
    assert listed.stdout == f"There are no conversations in {folder} yet.\n"
    assert not folder.exists()
    folder.mkdir(parents=True)
    assert json.loads(holdfast.run("sessions", "list", "--json").stdout) == []
    shown = holdfast.run("sessions", "show", "s_0000000000000000", "--json")
    assert shown.returncode == 1
    assert json.loads(shown.stderr)["code"] == "no_such_session"
    assert list(folder.iterdir()) == []


def test_sessions_show_prints_the_transcript(holdfast: CliHarness, folder: Path) -> None:
    story = trip_conversation()
    story.add_fact(UnknownFact("dream_dreamt", 7, b'{"of":"sheep"}'))  # A newer program's: passed over.
    story.user_message("And now?").interrupt("Now I am writ")
    save_conversations(folder, story)
    result = holdfast.run("sessions", "show", story.id[:14])
    assert result.returncode == 0
    wanted = (
        "A trip to Reykjavík ✈", "How cold is it in Reykjavík?", "Look it up.", "About 3 °C.",
        '{"command":"ls notes"}', "flights.md\n  hotel.md", "Now I am writ",
        "Interrupted by a server restart.",
    )  # fmt: skip
    places = [result.stdout.find(text) for text in wanted]
    assert -1 not in places and places == sorted(places), result.stdout
    assert [word for word in INNER_WORDS if word in result.stdout] == []


def test_sessions_show_json_has_turns_and_parts(holdfast: CliHarness, folder: Path) -> None:
    story = trip_conversation().user_message("Forget this").assistant_message("Done.").undo()
    save_conversations(folder, story)
    shown = json.loads(holdfast.run("sessions", "show", story.id, "--json").stdout)
    assert (shown["id"], shown["status"], shown["turns"]) == (story.id, "idle", 2)
    assert [turn.get("live", True) for turn in shown["transcript"]] == [True, True, False]
    assert shown["transcript"][0]["entries"][0]["parts"] == [
        {"type": "text", "text": "How cold is it in Reykjavík?"}
    ]


def test_sessions_show_removes_control_characters(holdfast: CliHarness, folder: Path) -> None:
    story = (
        SampleConversation("\x1b]0;owned\x07title")
        .user_message("\x1b[2Jhello\x9b31m")
        .assistant_message("a\x08b")
    )
    save_conversations(folder, story)
    for words in (["list"], ["show", story.id], ["export", story.id, "--format", "markdown"]):
        result = holdfast.run("sessions", *words)
        assert result.returncode == 0
        assert not {"\x1b", "\x07", "\x08", "\x9b"} & set(result.stdout), words


def test_an_unambiguous_id_prefix_is_accepted(holdfast: CliHarness, folder: Path) -> None:
    stories = [SampleConversation("one"), SampleConversation("two")]
    save_conversations(folder, *stories)
    pairs = list(zip(*(story.id for story in stories), strict=True))
    common = stories[0].id[: next(n for n, (one, other) in enumerate(pairs) if one != other)]
    refused = holdfast.run("sessions", "show", common)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"holdfast: 2 conversations have an id that begins with {common}")
    assert holdfast.run("sessions", "show", stories[0].id[: len(common) + 1]).returncode == 0
    for wrong in ("", "s_zzzz"):
        refused = holdfast.run("sessions", "show", wrong)
        assert refused.stderr == f"holdfast: There is no conversation {wrong}.\n", wrong


def test_a_damaged_event_is_reported(holdfast: CliHarness, folder: Path) -> None:
    story = trip_conversation()
    save_conversations(folder, story)
    with apsw.Connection(str(folder / "holdfast.db")) as db:
        db.execute("UPDATE events SET body = CAST('{}' AS BLOB) WHERE kind = 'message_settled'")
    result = holdfast.run("sessions", "show", story.id)
    assert result.returncode == 1
    assert f"Conversation {story.id} is damaged: event" in result.stderr
    assert "Traceback" not in result.stderr


def test_delete_asks_for_confirmation(holdfast: CliHarness, folder: Path) -> None:
    story, other = trip_conversation(), SampleConversation("Stays")
    save_conversations(folder, story, other)
    unsure = run_with_answer(holdfast, "n", story.id)
    assert unsure.returncode == 1
    assert "Delete “A trip to Reykjavík ✈” (2 turns) for good?" in unsure.stderr
    assert story.id in holdfast.run("sessions", "list").stdout
    deleted = holdfast.run("sessions", "delete", story.id, "--yes")
    assert deleted.returncode == 0
    assert "holdfast doctor" in deleted.stdout
    assert story.id not in holdfast.run("sessions", "list").stdout
    again = holdfast.run("sessions", "delete", story.id, "--yes", "--json")
    assert (again.returncode, json.loads(again.stderr)["code"]) == (1, "no_such_session")


def test_delete_reports_saved_notes_and_deletes_them_on_request(holdfast: CliHarness, folder: Path) -> None:
    kept, gone = SampleConversation("Kept notes"), SampleConversation("No notes")
    save_conversations(folder, kept, gone)
    for story in (kept, gone):
        add_notes(folder, story, f"About {story.id}.", f"More about {story.id}.")
    unsure = run_with_answer(holdfast, "n", kept.id)
    assert "Memory keeps the 2 notes saved from it; `--notes` deletes them too. Delete “Kept" in unsure.stderr
    output = holdfast.run("sessions", "delete", kept.id, "--yes").stdout
    assert "Memory keeps the 2 notes saved from it. You can delete them on the memory page." in output
    sure = run_with_answer(holdfast, "y", gone.id, "--notes")
    assert "Delete “No notes” (0 turns) and the 2 notes saved from it for good?" in sure.stderr
    assert "Deleted “No notes” and the 2 notes saved from it." in sure.stdout
    left = in_store(folder, lambda store: store.notes("", "", None, 10)).memories
    assert sorted(note.text for note in left) == [f"About {kept.id}.", f"More about {kept.id}."]


def run_with_answer(holdfast: CliHarness, answer: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run `holdfast sessions delete` and give it an answer."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "holdfast", "sessions", "delete", *words],
        env=holdfast.environ, input=f"{answer}\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def add_notes(folder: Path, story: SampleConversation, *texts: str) -> None:
    origin, notes = Origin("model", story.id, 1, 1), [NewNote(text) for text in texts]
    in_store(folder, lambda store: store.add_notes(f"key of {story.id}", "", origin, "", notes))


def test_a_closed_pipe_is_not_reported_as_an_error(holdfast: CliHarness, folder: Path) -> None:
    story = SampleConversation("Long")
    for n in range(300):
        story.user_message(f"Question {n} " + "x" * 500).assistant_message("y" * 500)
    save_conversations(folder, story)
    for words in (["list", "--json"], ["show", story.id], ["export", story.id]):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast", "sessions", *words],
            env=holdfast.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        holdfast.started.append(process)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b"", words
        process.wait(20)


def test_ctrl_c_exits_without_a_traceback(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, trip_conversation())
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "sessions", "delete", "s_"],
        env=holdfast.environ, stdin=follower, stdout=subprocess.PIPE, stderr=follower, start_new_session=True,
    )  # fmt: skip
    holdfast.started.append(process)
    os.close(follower)
    said = b""
    while b"for good?" not in said:
        said += os.read(leader, 4096)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    try:
        while more := os.read(leader, 4096):
            said += more
    except OSError:  # How Linux says that the other end is closed.
        pass
    os.close(leader)
    assert b"Traceback" not in said
    assert in_store(folder, lambda store: store.totals()).sessions == 1


def test_a_bad_setting_is_reported_as_a_json_problem(holdfast: CliHarness) -> None:
    result = holdfast.run("sessions", "list", "--json", "--durability", "maybe")
    assert (result.returncode, result.stdout) == (1, "")
    assert json.loads(result.stderr)["code"] == "bad_config"
