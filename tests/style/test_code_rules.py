"""The code keeps the rules, and each rule can fail."""

from collections.abc import Callable, Iterator

import pytest

from tests.style import code_rules as rules
from tests.support.source_files import SourceFile, all_sources, package, source

Rule = Callable[[SourceFile], Iterator[str]]


@pytest.mark.parametrize("rule", [rules.too_long, rules.vague_names], ids=lambda rule: rule.__name__)
def test_all_code_keeps_the_rule(rule: Rule) -> None:
    assert [wrong for each in all_sources() for wrong in rule(each)] == []


@pytest.mark.parametrize(
    "rule",
    [
        rules.silent,
        rules.hidden_imports,
        rules.mutable_state,
        rules.sql_in_python,
        rules.broad_excepts,
    ],
    ids=lambda rule: rule.__name__,
)
def test_the_product_keeps_the_rule(rule: Rule) -> None:
    assert [wrong for each in package() for wrong in rule(each)] == []


def test_every_reviewed_edge_still_catches_everything() -> None:
    """An edge that is gone must not leave a door open for a new one of its name."""
    modules = {each.module: each for each in package()}
    stale = [
        edge
        for edge in rules.BROAD_EDGES
        if not (each := modules.get(edge.rpartition(".")[0]))
        or not set(rules.broad_excepts(each, frozenset())) - set(rules.broad_excepts(each, frozenset({edge})))
    ]
    assert stale == []


BAD = [
    (rules.too_long, "x = 1\n" * 501),
    (rules.too_long, "def f():\n" + "    x = 1\n" * 60),
    (rules.silent, "x = 1"),
    (rules.hidden_imports, "def f():\n    from holdfast.domain import ids"),
    (rules.hidden_imports, "async def f():\n    if x:\n        import holdfast.app"),
    (rules.hidden_imports, "def f():\n    from . import ids"),
    (rules.mutable_state, "SEEN = {}"),
    (rules.mutable_state, "seen: list[str] = []"),
    (rules.mutable_state, "seen = {x: 1 for x in range(3)}"),
    (rules.mutable_state, "seen = collections.defaultdict(int)"),
    (rules.mutable_state, "class C:\n    seen = set()"),
    (rules.mutable_state, "def f():\n    global x\n    x = 1"),
    (rules.sql_in_python, "run('SELECT 1')"),
    (rules.sql_in_python, "run('''\n  insert or ignore into t values (1)''')"),
    (rules.sql_in_python, "run(f'DELETE FROM {table}')"),
    (rules.sql_in_python, "run('pragma data_version')"),
    (rules.vague_names, "class SessionManager: ..."),
    (rules.vague_names, "def session_utils(): ..."),
    (rules.vague_names, "def do_it(): ..."),
    (rules.vague_names, "class C:\n    async def _process_all(self): ..."),
    (rules.broad_excepts, "try:\n    f()\nexcept Exception:\n    pass"),
    (
        rules.broad_excepts,
        "def f():\n    try:\n        g()\n    except (OSError, BaseException):\n        pass",
    ),
    (rules.broad_excepts, "def f():\n    try:\n        g()\n    except:\n        pass"),
]


@pytest.mark.parametrize(("rule", "text"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_a_rule_finds_what_it_forbids(rule: Rule, text: str) -> None:
    assert list(rule(source("holdfast.domain.sample", text)))


@pytest.mark.parametrize("name", ["utils", "common", "session_helpers"])
def test_a_vague_module_name_is_found(name: str) -> None:
    assert list(rules.vague_names(source(f"holdfast.domain.{name}", "")))


FINE = [
    (
        rules.mutable_state,
        "A = ()\nB = frozenset({1})\nC = MappingProxyType({})\ndef f():\n    seen = []",
    ),
    (rules.sql_in_python, "'''SELECT is explained here.'''\nx = 'Select a folder'\ny = 'With care'"),
    (rules.vague_names, "def database(): ...\nclass SessionInfo: ...\ndef undo_turns(): ..."),
    (rules.hidden_imports, "def f():\n    import json"),
    (rules.broad_excepts, "try:\n    f()\nexcept OSError:\n    pass"),
    (rules.broad_excepts, "try:\n    f()\nexcept BaseException:\n    close()\n    raise"),
]


@pytest.mark.parametrize(("rule", "text"), FINE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_rule_leaves_alone_what_is_fine(rule: Rule, text: str) -> None:
    assert list(rule(source("holdfast.domain.sample", text))) == []


def test_a_reviewed_edge_may_catch_everything_but_its_neighbour_may_not() -> None:
    text = "def {}():\n    try:\n        g()\n    except Exception:\n        pass\n"
    both = source("holdfast.engine.runner", text.format("edge") + text.format("other"))
    assert len(list(rules.broad_excepts(both, frozenset({"holdfast.engine.runner.edge"})))) == 1
