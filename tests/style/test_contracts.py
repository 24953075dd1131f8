"""Every contract has its test, and the table that maps them is true."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IDS = [
    *(f"C{n}" for n in range(1, 15)), *(f"R{n}" for n in range(1, 11)), *(f"M{n}" for n in range(1, 18)),
    *(f"G{n}" for n in range(1, 10)),
]  # fmt: skip


def _tests() -> dict[str, set[str]]:
    """The contract ids in the docstring of each test in tests/contracts."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "tests" / "contracts").glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name] = set(re.findall(r"\b[CRMG]\d+\b", ast.get_docstring(node) or ""))
    return found


def _table() -> dict[str, list[str]]:
    """Each contract with the tests that its last column names."""
    text = (ROOT / "docs" / "contracts.md").read_text()
    rows = re.findall(r"^\| ([CRMG]\d+) \|.*\| (`\w+`(?:, `\w+`)*) \|$", text, re.MULTILINE)
    return {name: re.findall(r"\w+", tests) for name, tests in rows}


def test_every_contract_is_in_the_table() -> None:
    assert [name for name in IDS if name not in _table()] == []


def test_every_contract_in_the_table_has_the_test_it_names() -> None:
    tests = _tests()
    named = [(name, test) for name, each in _table().items() for test in each]
    assert [(name, test) for name, test in named if name not in tests.get(test, set())] == []
