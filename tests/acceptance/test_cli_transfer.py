"""Conversations leave as files and come back the same; a file that is not right changes nothing."""

import base64
import hashlib
import json
from pathlib import Path

import pytest

from holdfast.domain.events.codec import Event, Unknown, encode
from holdfast.domain.events.parts import File
from holdfast.domain.ids import SessionId
from holdfast.domain.state.rows import SessionRow
from holdfast.store.ports import Append, Store
from tests.acceptance.conftest import Holdfast
from tests.support.sample_conversations import Story, in_store, keep, trip

PICTURE = bytes(range(256)) * 1200
DIGEST = hashlib.sha256(PICTURE).hexdigest()
NEWER = b'{ "of": "sheep",  "\xc3\xa9": "\\u00e9", "n": 1.50, "big": 123456789012345678901234567890 }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "share" / "holdfast"


def rich_story() -> Story:
    """A conversation with everything that is hard to carry over."""
    story = trip('Ünïcode 会议 🧭 "quoted" \\ back\u2028slash')
    story.ask("Look at this", File(DIGEST, "map.png", "image/png", len(PICTURE))).answer("A map.")
    story.happen(Unknown("dream_dreamt", 7, NEWER)).happen(Unknown("text_appended", 99, b'{"lines":\n[1]}'))
    return story.ask("Undo me").answer("Yes.").undo().ask("And?").break_off("Half an ans").give_up()


def events_of(folder: Path, session_id: str) -> list[Event]:
    return list(in_store(folder, lambda store: store.read(SessionId(session_id), 0, 1000)))


def row_of(folder: Path, session_id: str) -> SessionRow:
    return in_store(folder, lambda store: store.session(SessionId(session_id)))


def contents(folder: Path) -> dict[str, list[Event]]:
    """Everything that the store in `folder` holds."""
    listed = in_store(folder, lambda store: store.sessions(None, 200))
    return {row.id: events_of(folder, row.id) for row in listed.sessions}


def test_an_export_imported_elsewhere_is_the_same_conversation(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story, elsewhere, file = rich_story(), tmp_path / "elsewhere", tmp_path / "one.json"
    keep(folder, story, files=(PICTURE,))
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


def test_importing_twice_changes_nothing(holdfast: Holdfast, folder: Path, tmp_path: Path) -> None:
    story, elsewhere, file = rich_story(), tmp_path / "elsewhere", tmp_path / "one.json"
    keep(folder, story, files=(PICTURE,))
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


def test_all_conversations_fit_into_one_file(holdfast: Holdfast, folder: Path, tmp_path: Path) -> None:
    stories = [trip("One"), rich_story(), Story("Put away").archive()]
    keep(folder, *stories, files=(PICTURE,))
    file, elsewhere = tmp_path / "all.jsonl", tmp_path / "elsewhere"
    told = holdfast.run("sessions", "export", "--all", "-o", str(file), "--json")
    assert json.loads(told.stdout) == {
        "file": str(file), "conversations": 3, "bytes": file.stat().st_size
    }  # fmt: skip
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere), "--json")
    assert [outcome["outcome"] for outcome in json.loads(taken.stdout)] == ["imported"] * 3
    assert {s.id: events_of(folder, s.id) for s in stories} == {
        s.id: events_of(elsewhere, s.id) for s in stories
    }


def test_work_that_is_open_where_it_comes_from_is_not_taken_over(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story, elsewhere, file = trip().ask("And?").break_off("Half"), tmp_path / "elsewhere", tmp_path / "a.json"
    keep(folder, story)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    assert holdfast.run("sessions", "import", str(file), "--data", str(elsewhere)).returncode == 0
    assert in_store(elsewhere, lambda store: store.open_runs()) == []
    assert len(in_store(folder, lambda store: store.open_runs())) == 1
    assert events_of(elsewhere, story.id)[: len(story.facts)] == events_of(folder, story.id)
    again = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert again.stdout.startswith("Already here")
    assert holdfast.run("doctor", "--data", str(elsewhere)).returncode == 0


def test_a_later_export_adds_what_is_new(holdfast: Holdfast, folder: Path, tmp_path: Path) -> None:
    story, elsewhere, file = (
        Story("Goes on").ask("a").answer("b"),
        tmp_path / "elsewhere",
        tmp_path / "one.json",
    )
    keep(folder, story)
    length = len(story.facts)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    story.ask("c").answer("d")
    in_store(folder, lambda store: store.append(Append(story.id, story.facts[length:])))
    holdfast.run("sessions", "export", story.id, "-o", str(file), "--force")
    taken = holdfast.run("sessions", "import", str(file), "--data", str(elsewhere))
    assert taken.stdout.startswith(f"Added {len(story.facts) - length} newer events to “Goes on”")
    assert events_of(elsewhere, story.id) == events_of(folder, story.id)


def test_a_conversation_that_went_another_way_is_left_as_it_is(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story, other, file = trip("Here"), trip("Other"), tmp_path / "both.json"
    keep(folder, story, other)
    holdfast.run("sessions", "export", "--all", "-o", str(file))
    elsewhere = tmp_path / "elsewhere"
    different = Story("Here, but different")
    different.id = story.id
    keep(elsewhere, different)
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
    keep(source, trip("Good"), rich_story(), files=(PICTURE,))
    told = Holdfast({"HOME": str(source)}).run("sessions", "export", "--all", "--data", str(source))
    return sorted((line + "\n" for line in told.stdout.split("\n") if line), key=len)


@pytest.mark.parametrize("damage", ["cut short", "out of order", "a file with another content", "a number"])
def test_a_damaged_import_changes_nothing(
    damage: str, exported: list[str], holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    """A good file comes first, and must not get in. Every other kind of damage is in the unit tests."""
    keep(folder, trip("Was here"))
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
    told = holdfast.run("sessions", "import", str(file))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith(f"holdfast: {file}, line 2 is not an export of a conversation: ")
    assert len(told.stderr.splitlines()) == 1
    assert contents(folder) == before


def test_a_bad_import_makes_no_store(holdfast: Holdfast, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{}")
    for name in ("bad.json", "not there.json", "."):
        told = holdfast.run("sessions", "import", str(tmp_path / name), "--json")
        assert (told.returncode, json.loads(told.stderr)["code"]) == (1, "bad_import"), name
    assert not folder.exists()


def test_what_was_deleted_can_be_brought_back_at_once(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story, file = trip(), tmp_path / "one.json"
    keep(folder, story)
    before = events_of(folder, story.id)
    holdfast.run("sessions", "export", story.id, "-o", str(file))
    holdfast.run("sessions", "delete", story.id, "--yes")
    taken = holdfast.run("sessions", "import", str(file))
    assert taken.stdout.startswith("Imported “A trip to Reykjavík ✈”"), taken.stderr
    assert events_of(folder, story.id) == before


def test_a_file_that_was_laid_out_for_reading_still_imports(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story = trip()
    keep(folder, story)
    text = holdfast.run("sessions", "export", story.id).stdout
    pretty = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    (tmp_path / "pretty.json").write_text(pretty, "utf-8")
    elsewhere = tmp_path / "elsewhere"
    taken = holdfast.run("sessions", "import", str(tmp_path / "pretty.json"), "--data", str(elsewhere))
    assert taken.returncode == 0, taken.stderr
    assert events_of(elsewhere, story.id) == events_of(folder, story.id)


def test_an_export_never_replaces_a_file_by_accident(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story, file = trip(), tmp_path / "precious.json"
    keep(folder, story)
    file.write_text("precious")
    told = holdfast.run("sessions", "export", story.id, "-o", str(file))
    assert told.returncode == 1
    assert told.stderr.splitlines()[1] == "Choose another name, or add --force to replace it."
    assert file.read_text() == "precious"
    assert holdfast.run("sessions", "export", story.id, "-o", str(file), "--force").returncode == 0
    # What fails leaves nothing behind, and the store's own files are never a target.
    target = str(folder / "holdfast.db")
    assert holdfast.run("sessions", "export", story.id, "-o", target, "--force").returncode == 1
    assert holdfast.run("sessions", "export", "s_nothing", "-o", str(tmp_path / "new.json")).returncode == 1
    assert holdfast.run("sessions", "export", story.id, "-o", str(tmp_path / "no" / "x")).returncode == 1
    assert {path.name for path in tmp_path.iterdir()} == {"precious.json", "share"}
    assert row_of(folder, story.id).id == story.id


def test_markdown_reads_well_and_nothing_in_it_breaks_out(holdfast: Holdfast, folder: Path) -> None:
    story = (
        Story("A *title*")
        .ask("Show me")
        .call("shell", '{"command":"cat x"}', "```\nfences\n````\n")
        .answer("So.")
    )
    keep(folder, story)
    text = holdfast.run("sessions", "export", story.id, "--format", "markdown").stdout
    assert text.startswith("# A \\*title\\*\n")
    assert "## You\n" in text and "## Assistant\n" in text
    assert "`````\n```\nfences\n````\n`````" in text
    assert '```json\n{"command":"cat x"}\n```' in text


def test_a_file_that_is_gone_does_not_hold_the_conversation_back(
    holdfast: Holdfast, folder: Path, tmp_path: Path
) -> None:
    story = Story("x").ask("Look", File(DIGEST, "map.png", "image/png", len(PICTURE))).answer("Yes.")
    document = _adopted_without_its_file(folder, story)
    told = holdfast.run("sessions", "export", story.id, "-o", str(tmp_path / "one.json"))
    assert told.returncode == 0
    assert told.stderr == "1 attached file could not be found and left out.\n"
    exported = json.loads((tmp_path / "one.json").read_text())
    assert exported["files"] == {} and len(exported["events"]) == len(document)


def _adopted_without_its_file(folder: Path, story: Story) -> list[Event]:
    events = [Event(n, 1_700_000_000_000, *encode(fact)) for n, fact in enumerate(story.facts, 1)]

    async def work(store: Store) -> None:
        await store.adopt(story.id, events)

    in_store(folder, work)
    return events
