"""No file of ours knows the machine it was written on, or where packages come from."""

import re

import pytest

from tests.support.source_files import ROOT, tracked_files

# Put together here, so that this file does not hold what it looks for.
HOSTS = "|".join(
    (r"pypi\." + "org", r"python" + r"hosted\.org", r"npm" + r"js\.(?:org|com)", r"yarn" + r"pkg\.com")
)
HOMES = r"(?<![\w.$}~)])/(?:home|Users|root|work|opt|srv)/[\w.-]+"
FORBIDDEN = re.compile(f"(?:{HOSTS})|{HOMES}|index-" + r"url\s*[=:]")


def test_no_file_names_a_registry_or_a_machine_path() -> None:
    found = []
    for path in tracked_files():
        try:
            lines = path.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # A picture or an archive.
        found += [
            f"{path.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if FORBIDDEN.search(line)
        ]
    assert found == []


def test_requirements_are_locked_by_hash_and_nothing_else_locks_them() -> None:
    for name in ("run.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text("utf-8")
        for requirement in re.findall(r"^[a-z].*?(?=^[a-z]|\Z)", text, re.DOTALL | re.MULTILINE):
            assert "==" in requirement and "--hash=sha256:" in requirement, requirement[:60]
    assert not any(path.name == "uv.lock" for path in tracked_files())


@pytest.mark.parametrize(
    "line",
    [
        "https://pypi." + "org/simple",
        "see /ho" + "me/ada/notes",
        "cd /wo" + "rk/main",
        "--extra-index-" + "url=x",
    ],
)
def test_the_check_finds_what_it_forbids(line: str) -> None:
    assert FORBIDDEN.search(line)


@pytest.mark.parametrize("line", ["GET /api/sessions", "$HOME/notes", "https://example.org/" + "work/of/art"])
def test_the_check_leaves_alone_what_is_fine(line: str) -> None:
    assert not FORBIDDEN.search(line)
