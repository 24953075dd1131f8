"""Dependencies point one way, and the check can fail."""

import pytest

from tests.style.import_rules import MAY_USE, cycle, wrong_ways
from tests.support.source_files import package, source


def test_dependencies_point_one_way() -> None:
    sources = package()
    modules = {each.module for each in sources}
    assert [wrong for each in sources for wrong in wrong_ways(each, modules)] == []


def test_every_room_has_its_place() -> None:
    rooms = {each.room for each in package()} - {"", "main"}
    assert rooms <= set(MAY_USE)


def test_no_module_needs_itself() -> None:
    assert cycle(package()) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("holdfast.domain.ids", "from holdfast.store.ports import Store"),
        ("holdfast.store.ports", "import holdfast.engine.runner"),
        ("holdfast.agent.agent", "from holdfast import store"),
        ("holdfast.http.app", "from holdfast.cli.serve import serve"),
        ("holdfast.http.app", "from holdfast.settings.settings import Settings"),
        ("holdfast.cli.doctor", "from holdfast.store.sqlite.store import SqliteStore"),
        ("holdfast.store.writer", "from holdfast.app import main"),
        ("holdfast.unheard_of", "from holdfast.domain import ids"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(module: str, text: str) -> None:
    assert list(wrong_ways(source(module, text), {"holdfast.store", "holdfast.domain.ids"}))


def test_main_may_use_everything() -> None:
    text = "from holdfast.store.sqlite.store import SqliteStore\nfrom holdfast.cli.serve import serve"
    assert list(wrong_ways(source("holdfast.app", text), ())) == []


def test_a_cycle_is_found_and_named() -> None:
    ring = [
        source("holdfast.a", "from holdfast.b import x"),
        source("holdfast.b", "from holdfast import c"),
        source("holdfast.c", "import holdfast.a"),
    ]
    assert cycle(ring) == ["holdfast.a", "holdfast.b", "holdfast.c", "holdfast.a"]
