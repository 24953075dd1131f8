"""Names say what a thing is, and each check can fail."""

import pytest

from tests.style.names import SHARED, metaphors, shared_names
from tests.support.source_files import all_sources, package, source, tracked_files


def test_no_two_modules_share_the_name_of_a_public_class() -> None:
    assert shared_names(package()) == SHARED, "a name that became unique leaves the list; none may join it"


def test_no_module_or_folder_is_named_by_a_metaphor() -> None:
    python = {part for each in all_sources() for part in each.module.split(".")}
    page = {path.stem for path in tracked_files() if path.suffix in (".ts", ".tsx")}
    assert metaphors(sorted(python | page)) == []


def test_a_shared_name_is_found() -> None:
    sources = [
        source("holdfast.a", "class Same: ..."),
        source("holdfast.b", "class Same: ...\nclass Other: ..."),
    ]
    assert shared_names(sources) == {"Same"}


def test_private_classes_and_classes_in_functions_may_share_a_name() -> None:
    text = "class _Same: ...\ndef f():\n    class Inner: ..."
    assert shared_names([source("holdfast.a", text), source("holdfast.b", text)]) == set()


@pytest.mark.parametrize(
    "name", ["agent_desk", "yard", "Seats", "ChannelService", "settings_help", "PORTERS"]
)
def test_a_metaphor_is_found(name: str) -> None:
    assert metaphors([name]) == [name]


@pytest.mark.parametrize(
    "name", ["firewall", "sandbox", "workshop", "understanding", "service", "Information"]
)
def test_a_word_that_only_contains_a_metaphor_is_fine(name: str) -> None:
    assert metaphors([name]) == []
