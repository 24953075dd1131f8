"""Conversations leave as files and come back the same; a file that is not right changes nothing."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.events.parts import File
from holdfast.domain.ids import SessionId
from holdfast.domain.state.rows import SessionRow
from holdfast.store.ports import Append, Store
from tests.acceptance.conftest import CliHarness
from tests.support.sample_conversations import (
    SampleConversation,
    in_store,
    save_conversations,
    trip_conversation,
)

PICTURE = bytes(range(256)) * 1200
DIGEST = hashlib.sha256(PICTURE).hexdigest()
NEWER = b'{ "of": "sheep",  "\xc3\xa9": "\\u00e9", "n": 1.50, "big": 123456789012345678901234567890 }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "share" / "holdfast"


def full_conversation() -> SampleConversation:
    """A conversation with everything that is hard to carry over."""
    story = trip_conversation('Ünïcode 会议 🧭 "quoted" \\ back\u2028slash')
    story.user_message("Look at this", File(DIGEST, "map.png", "image/png", len(PICTURE))).assistant_message(
        "A map."
    )
    story.add_fact(UnknownFact("dream_dreamt", 7, NEWER)).add_fact(
        UnknownFact("text_appended", 99, b'{"lines":\n[1]}')
    )
    return (
        story.user_message("Undo me")
        .assistant_message("Yes.")
        .undo()
        .user_message("And?")
        .interrupt("Half an ans")
        .fail_run()
    )


def events_of(folder: Path, session_id: str) -> list[Event]:
    return list(in_store(folder, lambda store: store.read(SessionId(session_id), 0, 1000)))


def row_of(folder: Path, session_id: str) -> SessionRow:
    return in_store(folder, lambda store: store.session(SessionId(session_id)))


def contents(folder: Path) -> dict[str, list[Event]]:
    """Everything that the store in `folder` holds."""
    listed = in_store(folder, lambda store: store.sessions(None, 200))
    return {row.id: events_of(folder, row.id) for row in listed.sessions}


def test_an_export_imported_elsewhere_is_the_same_conversation(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, elsewhere, file = full_conversation(), tmp_path / "elsewhere", tmp_path / "one.json"
    save_conversations(folder, story, files=(PICTURE,))
    done = holdfast.run("sessions", "export", story.id, "-o", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Exported 1 conversation to {file} (")
    assert file.stat().st_mode & 0o077 == 0
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.returncode == 0, taken.stderr
    assert events_of(elsewhere, story.id) == events_of(folder, story.id)
    dreams = [event for event in events_of(elsewhere, story.id) if event.kind == "dream_dreamt"]
    assert [(dream.version, dream.body) for dream in dreams] == [(7, NEWER)], (
        "a newer program's, byte for byte"
    )
    assert row_of(elsewhere, story.id) == row_of(folder, story.id)
    assert in_store(elsewhere, lambda store: store.get_blob(DIGEST)) == PICTURE
    assert in_store(elsewhere, lambda store: store.search("Reykjavík", 10))
    again = holdfast.run("sessions", "export", story.id, "--data", str(elsewhere))
    assert again.stdout == file.read_text("utf-8"), "an export depends on nothing but the conversation"
    assert holdfast.run("doctor", "--data", str(elsewhere)).returncode == 0


def test_importing_twice_changes_nothing(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story, elsewhere, file = full_conversation(), tmp_path / "elsewhere", tmp_path / "one.json"
    save_conversations(folder, story, files=(PICTURE,))
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    words = ["sessions", "import", str(file), "--data", str(elsewhere)]
    first = holdfast.run(*words)
    assert first.stdout.startswith("Imported “Ünïcode 会议")
    before = contents(elsewhere)
    second = holdfast.run(*words)
    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.startswith("Already here: “Ünïcode 会议")
    assert json.loads(holdfast.run(*words, "--json").stdout)[0]["outcome"] == "already_here"
    # Where it came from it is here as well.
    assert holdfast.run("sessions", "import", str(file)).stdout.startswith("Already here")
    assert contents(elsewhere) == before


def test_all_conversations_are_exported_into_one_file(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    stories = [trip_conversation("One"), full_conversation(), SampleConversation("Put away").archive()]
    save_conversations(folder, *stories, files=(PICTURE,))
    file, elsewhere = tmp_path / "all.jsonl", tmp_path / "elsewhere"
    result = holdfast.run("sessions", "export", "--all", "-o", str(file), "--json")
    assert json.loads(result.stdout) == {
        "file": str(file), "conversations": 3, "bytes": file.stat().st_size
    }  # fmt: skip
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere), "--json")
    assert [outcome["outcome"] for outcome in json.loads(taken.stdout)] == ["imported"] * 3
    assert {s.id: events_of(folder, s.id) for s in stories} == {
        s.id: events_of(elsewhere, s.id) for s in stories
    }


def test_an_import_does_not_take_over_open_runs(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story, elsewhere, file = (
        trip_conversation().user_message("And?").interrupt("Half"),
        tmp_path / "elsewhere",
        tmp_path / "a.json",
    )
    save_conversations(folder, story)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    assert holdfast.run("sessions", "import", str(file), "--data", str(elsewhere)).returncode == 0
    assert in_store(elsewhere, lambda store: store.open_runs()) == []
    assert len(in_store(folder, lambda store: store.open_runs())) == 1
    assert events_of(elsewhere, story.id)[: len(story.facts)] == events_of(folder, story.id)
    again = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert again.stdout.startswith("Already here")
    assert holdfast.run("doctor", "--data", str(elsewhere)).returncode == 0


def test_importing_a_later_export_adds_new_events(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story, elsewhere, file = (
        SampleConversation("Goes on").user_message("a").assistant_message("b"),
        tmp_path / "elsewhere",
        tmp_path / "one.json",
    )
    save_conversations(folder, story)
    length = len(story.facts)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    story.user_message("c").assistant_message("d")
    in_store(folder, lambda store: store.append(Append(story.id, story.facts[length:])))
    holdfast.run("sessions", "export", story.id, "-o", str(file), "--force")
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.stdout.startswith(f"Added {len(story.facts) - length} newer events to “Goes on”")
    assert events_of(elsewhere, story.id) == events_of(folder, story.id)


def test_importing_a_diverged_conversation_is_a_conflict(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, other, file = trip_conversation("Here"), trip_conversation("Other"), tmp_path / "both.json"
    save_conversations(folder, story, other)
    holdfast.run("sessions", "export", "--all", "-o", str(file))
    elsewhere = tmp_path / "elsewhere"
    different = SampleConversation("Here, but different")
    different.id = story.id
    save_conversations(elsewhere, different)
    before = contents(elsewhere)
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.returncode == 1
    assert f"Conversation {story.id} is here already and differs from the file at event 1." in taken.stderr
    assert contents(elsewhere)[story.id] == before[story.id]
    assert contents(elsewhere)[other.id] == events_of(folder, other.id)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two conversations, one on each line, the plain one first."""
    source = tmp_path_factory.mktemp("source")
    save_conversations(source, trip_conversation("Good"), full_conversation(), files=(PICTURE,))
    result = CliHarness({"HOME": str(source)}).run("sessions", "export", "--all", "--data", str(source))
    return sorted((line + "\n" for line in result.stdout.split("\n") if line), key=len)


@pytest.mark.parametrize("damage", ["cut short", "out of order", "a file with another content", "a number"])
def test_a_damaged_import_changes_nothing(
    damage: str, exported: list[str], holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    """A good file comes first, and must not get in. Every other kind of damage is in the unit tests."""
    save_conversations(folder, trip_conversation("Was here"))
    before = contents(folder)
    file = tmp_path / "both.json"
    good, bad = exported
    document = json.loads(bad)
    if damage == "out of order":
        document["events"].reverse()
    elif damage == "a file with another content":
        document["files"][DIGEST] = base64.b64encode(b"else").decode()
    elif damage == "a number":
        # Deep inside: the first slices of the events before it must not be stored either.
        [*_, last] = [event for event in document["events"] if "turn" in event.get("body", {})]
        last["body"]["turn"] = 2**70
    text = bad[: len(bad) // 2] if damage == "cut short" else json.dumps(document)
    file.write_text(good + text, "utf-8")
    result = holdfast.run("sessions", "import", str(file))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith(f"holdfast: {file}, line 2 is not an export of a conversation: ")
    assert len(result.stderr.splitlines()) == 1
    assert contents(folder) == before


def test_a_bad_import_creates_no_store(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for name in ("bad.json", "not there.json", "."):
        result = holdfast.run("sessions", "import", str(tmp_path / name), "--json")
        assert (result.returncode, json.loads(result.stderr)["code"]) == (1, "bad_import"), name
    assert not folder.exists()


def test_a_deleted_conversation_can_be_imported_again(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file = trip_conversation(), tmp_path / "one.json"
    save_conversations(folder, story)
    before = events_of(folder, story.id)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    holdfast.run("sessions", "delete", story.id, "--yes")
    taken = holdfast.run("sessions", "import", str(file))
    assert taken.stdout.startswith("Imported “A trip to Reykjavík ✈”"), taken.stderr
    assert events_of(folder, story.id) == before


def test_a_reformatted_export_can_be_imported(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story = trip_conversation()
    save_conversations(folder, story)
    text = holdfast.run("sessions", "export", story.id).stdout
    pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    (tmp_path / "pretty.json").write_text(pretty, "utf-8")
    elsewhere = tmp_path / "elsewhere"
    taken = holdfast.run("sessions", "import", str(tmp_path / "pretty.json"), "--data", str(elsewhere))
    assert taken.returncode == 0, taken.stderr
    assert events_of(elsewhere, story.id) == events_of(folder, story.id)


def test_an_export_replaces_a_file_only_with_force(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file = trip_conversation(), tmp_path / "precious.json"
    save_conversations(folder, story)
    file.write_text("precious")
    result = holdfast.run("sessions", "export", story.id, "-o", str(file))
    assert result.returncode == 1
    assert result.stderr.splitlines()[1] == "Choose another name, or add --force to replace it."
    assert file.read_text() == "precious"
    assert holdfast.run("sessions", "export", story.id, "-o", str(file), "--force").returncode == 0
    # What fails leaves nothing behind, and the store's own files are never a target.
    target = str(folder / "holdfast.db")
    assert holdfast.run("sessions", "export", story.id, "-o", target, "--force").returncode == 1
    assert holdfast.run("sessions", "export", "s_nothing", "-o", str(tmp_path / "new.json")).returncode == 1
    assert holdfast.run("sessions", "export", story.id, "-o", str(tmp_path / "no" / "x")).returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"precious.json", "share"}
    assert row_of(folder, story.id).id == story.id


def test_markdown_export_escapes_message_text(holdfast: CliHarness, folder: Path) -> None:
    story = (
        SampleConversation("A *title*")
        .user_message("Show me")
        .tool_call("shell", '{"command":"cat x"}', "```\nfences\n````\n")
        .assistant_message("So.")
    )
    save_conversations(folder, story)
    text = holdfast.run("sessions", "export", story.id, "--format", "markdown").stdout
    assert text.startswith("# A \\*title\\*\n")
    assert "## You\n" in text and "## Assistant\n" in text
    assert "`````\n```\nfences\n````\n`````" in text
    assert '```json\n{"command":"cat x"}\n```' in text


def test_an_export_skips_a_missing_attachment(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story = (
        SampleConversation("x")
        .user_message("Look", File(DIGEST, "map.png", "image/png", len(PICTURE)))
        .assistant_message("Yes.")
    )
    document = _adopted_without_its_file(folder, story)
    result = holdfast.run("sessions", "export", story.id, "-o", str(tmp_path / "one.json"))
    assert result.returncode == 0
    assert result.stderr == "1 attached file could not be found and left out.\n"
    exported = json.loads((tmp_path / "one.json").read_text())
    assert exported["files"] == {} and len(exported["events"]) == len(document)


def _adopted_without_its_file(folder: Path, story: SampleConversation) -> list[Event]:
    events = [Event(n, 1_700_000_000_000, *encode(fact)) for n, fact in enumerate(story.facts, 1)]

    async def work(store: Store) -> None:
        await store.import_session(story.id, events)

    in_store(folder, work)
    return events
