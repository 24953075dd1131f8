"""Names: public classes are unique, and no module, class, function, parameter or variable is a metaphor."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.support.source_files import SourceFile

METAPHORS = frozenset(
    {
        "attic", "bustle", "chance", "crew", "deed", "desk", "diary", "door", "forgetful", "foreseeing",
        "hire", "household", "inn", "keeper", "lane", "lever", "mortal", "mourner", "office",
        "onlooker", "owed", "owing", "parlour", "party", "patience", "porter", "premises", "presence",
        "puppet", "reaper", "reception", "scribe", "seat", "shelf", "shop", "sieve", "staff",
        "standing", "stranger", "switchboard", "told", "turnstile", "vault", "whoever", "yard",
    }
)  # fmt: skip
"""Words that hide what a thing is: the field has another word for each."""
STORED_FIELDS = frozenset({"owed"})
"""Fields of events: stored data and clients have them under these names."""


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case and without a plural's s."""
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {word.lower() for word in found} | {word.lower().removesuffix("s") for word in found}


def metaphors(names: Iterable[str]) -> list[str]:
    """Return the names that hold a metaphor."""
    return [name for name in names if words_of(name) & METAPHORS]


def defined_names(source: SourceFile) -> set[str]:
    """Return the classes, functions, parameters, variables and attributes that a module defines."""
    found = set()
    for node in ast.walk(source.tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found - STORED_FIELDS


def public_classes(source: SourceFile) -> Iterator[str]:
    """Yield the names of the public classes that a module defines at its top level."""
    for node in source.tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name


def shared_names(sources: Iterable[SourceFile]) -> set[str]:
    """Return the class names that several modules define."""
    modules = defaultdict(set)
    for source in sources:
        for name in public_classes(source):
            modules[name].add(source.module)
    return {name for name, found in modules.items() if len(found) > 1}


def typescript_names(text: str) -> set[str]:
    """Return the names that a TypeScript module declares: types, functions, variables and fields."""
    declared = re.findall(r"\b(?:const|let|function|class|interface|type|enum)\s+(\w+)", text)
    return {*declared, *re.findall(r"^\s*(?:readonly |private |async )*(\w+)\??[(:]", text, re.MULTILINE)}
