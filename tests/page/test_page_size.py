"""The page stays light: what it loads before it can be used has a limit."""

import re
from pathlib import Path

import pytest

from tools.page import BUILT
from tools.page_size import FIRST_LOAD_BYTES_MAX, compressed_bytes, first_load


def test_the_first_load_stays_within_its_limit() -> None:
    files = first_load(BUILT)
    sizes = {name: compressed_bytes({name: content}) for name, content in files.items()}
    assert sum(sizes.values()) <= FIRST_LOAD_BYTES_MAX, sizes


def test_all_that_is_loaded_at_once_is_counted() -> None:
    """A first load without a script, a style or the shared worker would have been miscounted."""
    names = set(first_load(BUILT))
    for wanted in ("index.html", "index-*.js", "style-*.css", "worker-*.js"):
        assert any(Path(name).match(wanted) for name in names), wanted


def test_what_is_loaded_on_demand_is_not_counted() -> None:
    assert not any(name.startswith("syntax_highlight") for name in first_load(BUILT))
    assert list((BUILT / "page").glob("syntax_highlight-*.js")), "the colours are a file of their own"


def test_what_is_loaded_on_demand_needs_only_the_first_load() -> None:
    """A part that failed is loaded anew from another address, but what it imports would fail for ever."""
    first = set(first_load(BUILT))
    later = [path for path in (BUILT / "page").glob("*.js") if path.name not in first]
    assert len(later) > 3
    for path in later:
        needed = set(re.findall(r"""["'`]\./([\w.-]+\.js)["'`]""", path.read_text()))
        assert needed <= first, path.name


@pytest.mark.parametrize(
    "names",
    [
        'import{a as b}from"./more-1.js"',
        'new URL("worker-1.js",import.meta.url)',
        "import`./x`,`./more-1.js`",
    ],
)
def test_what_a_script_names_is_part_of_the_first_load(names: str, tmp_path: Path) -> None:
    made_of(tmp_path, names)
    assert len(first_load(tmp_path)) == 3


@pytest.mark.parametrize("names", ['await import("./more-1.js")', "import(`./worker-1.js`)", '"absent-1.js"'])
def test_what_a_script_imports_later_is_not(names: str, tmp_path: Path) -> None:
    made_of(tmp_path, names)
    assert set(first_load(tmp_path)) == {"index.html", "index-1.js"}


def made_of(folder: Path, script: str) -> None:
    (folder / "page").mkdir()
    (folder / "index.html").write_text('<script type="module" src="./page/index-1.js"></script>')
    (folder / "page" / "index-1.js").write_text(script)
    (folder / "page" / "more-1.js").write_text("")
    (folder / "page" / "worker-1.js").write_text("")
