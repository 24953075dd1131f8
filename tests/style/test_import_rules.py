"""Dependencies point one way, and the check can fail."""

import pytest

from tests.style.import_rules import MAY_IMPORT, cycle, wrong_imports
from tests.support.source_files import package, source


def test_dependencies_point_one_way() -> None:
    sources = package()
    modules = {each.module for each in sources}
    assert [wrong for each in sources for wrong in wrong_imports(each, modules)] == []


def test_every_package_has_a_rule() -> None:
    assert {each.package for each in package()} - {"", "app"} == set(MAY_IMPORT)


def test_no_modules_import_each_other() -> None:
    assert cycle(package()) == []


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("holdfast.domain.ids", "from holdfast.store.ports import Store"),
        ("holdfast.store.ports", "import holdfast.engine.runner"),
        ("holdfast.agent.agent", "from holdfast import store"),
        ("holdfast.models.factory", "from holdfast.agent.ports import Recorder"),
        ("holdfast.tools.shell", "from holdfast.engine.ports import Worker"),
        ("holdfast.agent.agent", "from holdfast.settings.settings import Settings"),
        ("holdfast.http.app", "from holdfast.cli.serve import serve"),
        ("holdfast.http.app", "from holdfast.settings.settings import Settings"),
        ("holdfast.cli.doctor", "from holdfast.store.sqlite.store import SqliteStore"),
        ("holdfast.store.writer", "from holdfast.app import main"),
        ("holdfast.unheard_of", "from holdfast.domain import ids"),
    ],
)
def test_an_import_that_points_the_wrong_way_is_found(module: str, text: str) -> None:
    assert list(wrong_imports(source(module, text), {"holdfast.store", "holdfast.domain.ids"}))


def test_app_may_import_everything() -> None:
    text = "from holdfast.store.sqlite.store import SqliteStore\nfrom holdfast.cli.serve import serve"
    assert list(wrong_imports(source("holdfast.app", text), ())) == []


def test_a_cycle_is_found_and_named() -> None:
    ring = [
        source("holdfast.a", "from holdfast.b import x"),
        source("holdfast.b", "from holdfast import c"),
        source("holdfast.c", "import holdfast.a"),
    ]
    assert cycle(ring) == ["holdfast.a", "holdfast.b", "holdfast.c", "holdfast.a"]
