"""The page's sources: its types are the server's, its words are people's, and its files stay small."""

import re
from pathlib import Path

import pytest

from tools.protocol_types import TARGET, generate

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
NEVER_SAID = (
    "journal", "segment", "generation", "owner", "lease", "epoch", "fold", "settle", "spool", "owed", "paid",
    "boundary", "marker", "in doubt", "steer", "compact",
)  # fmt: skip
TYPESCRIPT_LINES_MAX = 350


def test_the_types_of_the_page_are_those_of_the_server() -> None:
    assert {path.name: path.read_text() for path in TARGET.glob("*.ts")} == generate(), "make types"


def said() -> list[str]:
    """Every piece of text in the files of words; names of fields and code are not said."""
    view = WEB / "src" / "view"
    source = "\n".join(path.read_text() for path in sorted((view / "text").glob("*.ts")))
    source = re.sub(r"^\s*//.*$", "", source, flags=re.MULTILINE)
    pieces = re.findall(r'"((?:[^"\\]|\\.)*)"|`((?:[^`\\]|\\.)*)`', source)
    return [plain or re.sub(r"\$\{[^}]*\}", " ", filled) for plain, filled in pieces]


def test_there_are_words_to_look_at() -> None:
    assert len(said()) > 100
    for one in ("What can I do for you?", "Write a message", "Base URL", "What is known", "Agents"):
        assert one in said(), "the words of each part of the page are among them"


@pytest.mark.parametrize("word", NEVER_SAID)
def test_the_page_never_says_what_only_programmers_mean(word: str) -> None:
    assert [text for text in said() if re.search(rf"\b{word}(s|d|ed|ing|ment)?\b", text, re.IGNORECASE)] == []


def test_no_words_stand_outside_the_files_of_words() -> None:
    found = []
    for path in sorted((WEB / "src" / "view").rglob("*.tsx")):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            # Text between tags, and text in attributes that people read or hear.
            inside = re.findall(r">\s*([A-Za-z][A-Za-z ,.'!?]+)\s*</", line)
            heard = re.findall(r'(?:aria-label|title|placeholder|alt)="([^"]+)"', line)
            found += [f"{path.name}:{number}: {text}" for text in (*inside, *heard) if len(text) > 1]
    assert [text for text in found if not re.search(r": [A-E]$", text)] == []


def test_every_file_is_small_enough_to_read() -> None:
    sources = [*(WEB / "src").rglob("*.ts*"), *(WEB / "test").rglob("*.ts*")]
    lines = {str(path.relative_to(WEB)): len(path.read_text().splitlines()) for path in sources}
    assert {name: count for name, count in lines.items() if count > TYPESCRIPT_LINES_MAX} == {}
    assert len(sources) > 20


def test_one_file_imports_what_is_loaded_on_demand() -> None:
    """A second place would not know that the first one failed, and could load the same state twice."""
    names = {path.name for path in (WEB / "src").rglob("*.ts*") if re.search(r"\bimport\(", path.read_text())}
    assert names == {"lazy.tsx"}


def test_the_core_knows_nothing_of_the_page() -> None:
    for path in (WEB / "src" / "core").rglob("*.ts"):
        text = path.read_text()
        assert not re.search(r'from "(\.\./view|preact|@preact)', text), path.name
        assert not re.search(r"\bdocument\.", text), path.name


def test_the_lock_file_names_no_addresses() -> None:
    text = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in text
    assert "omit-lockfile-registry-resolved=true" in (WEB / ".npmrc").read_text()
