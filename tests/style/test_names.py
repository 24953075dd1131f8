"""Names say what a thing is, and each check can fail."""

import pytest

from tests.style.names import STORED_FIELDS, defined_names, metaphors, shared_names, typescript_names
from tests.support.source_files import all_sources, package, source, tracked_files


def test_no_two_modules_share_the_name_of_a_public_class() -> None:
    assert shared_names(package()) == set()


def test_no_module_or_folder_is_named_by_a_metaphor() -> None:
    python = {part for each in all_sources() for part in each.module.split(".")}
    page = {path.stem for path in tracked_files() if path.suffix in (".ts", ".tsx")}
    assert metaphors(sorted(python | page)) == []


def test_no_class_function_parameter_or_variable_is_named_by_a_metaphor() -> None:
    found = {each.module: metaphors(sorted(defined_names(each))) for each in all_sources()}
    assert {module: names for module, names in found.items() if names} == {}


def test_no_type_function_or_field_of_the_page_is_named_by_a_metaphor() -> None:
    found = {
        path.name: metaphors(sorted(typescript_names(path.read_text("utf-8")) - STORED_FIELDS))
        for path in tracked_files()
        if path.suffix in (".ts", ".tsx")
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_a_shared_name_is_found() -> None:
    sources = [
        source("holdfast.a", "class Same: ..."),
        source("holdfast.b", "class Same: ...\nclass Other: ..."),
    ]
    assert shared_names(sources) == {"Same"}


def test_private_classes_and_classes_in_functions_may_share_a_name() -> None:
    text = "class _Same: ...\ndef f():\n    class Inner: ..."
    assert shared_names([source("holdfast.a", text), source("holdfast.b", text)]) == set()


def test_every_kind_of_defined_name_is_found() -> None:
    text = "class A:\n    b: int = 1\n    def c(self, d, *e):\n        self.f = g = d\n        return h.i"
    assert defined_names(source("holdfast.a", text)) == {"A", "b", "c", "self", "d", "e", "f", "g"}


def test_names_of_typescript_are_found() -> None:
    text = "export interface A {\n  readonly b?: string;\n  c(d: number): void;\n}\nconst e = 1;\nlet f;\n"
    assert typescript_names(text) == {"A", "b", "c", "e", "f"}


@pytest.mark.parametrize("name", ["agent_desk", "yard", "Seats", "ChannelDesk", "settings_told", "PORTERS"])
def test_a_metaphor_is_found(name: str) -> None:
    assert metaphors([name]) == [name]


@pytest.mark.parametrize(
    "name", ["firewall", "sandbox", "workshop", "understanding", "service", "Information"]
)
def test_a_word_that_only_contains_a_metaphor_is_fine(name: str) -> None:
    assert metaphors([name]) == []
