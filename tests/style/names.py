"""Names: public classes are unique, and no module or folder is named by a metaphor."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from tests.support.source_files import SourceFile

METAPHORS = frozenset(
    {
        "attic", "bustle", "chance", "crew", "deed", "desk", "diary", "door", "forgetful", "foreseeing",
        "hire", "household", "shared_server", "keeper", "lane", "lever", "mortal", "mourner", "office",
        "onlooker", "owed", "owing", "parlour", "party", "patience", "porter", "premises", "presence",
        "puppet", "reaper", "reception", "scribe", "seat", "shelf", "shop", "sieve", "staff",
        "standing", "stranger", "switchboard", "told", "turnstile", "vault", "wall", "whoever", "yard",
    }
)  # fmt: skip
"""Words that hide what a thing is: the field has another word for each."""
SHARED = frozenset(
    {
        "Abilities", "Access", "Agent", "AgentDesk", "Answer", "Answering", "Arguments", "Asked",
        "Attached", "Blobs", "Called", "Calls", "Change", "Channels", "Command", "Commands",
        "Connection", "Desk", "Engine", "Entry", "Event", "Fact", "Finding", "Follower", "Found",
        "Health", "Held", "Hit", "Kept", "Known", "Ledger", "Listed", "LocalDesk", "Memory",
        "MemoryList", "Message", "ModelList", "Opening", "Order", "Outbox", "Outcome", "Output", "Pace",
        "Page", "Patience", "Piece", "Place", "Problem", "Prompt", "Provider", "Question",
        "QuestionList", "Recall", "Receipt", "Refusal", "Refused", "Remember", "Restored", "Rule",
        "Run", "Said", "Session", "SessionList", "Stopped", "StoredFile", "Telling", "Thought", "Told",
        "Tool", "Transport", "Used", "UsedModel", "Watch", "Webhook", "Wire", "Words", "Writing",
    }
)  # fmt: skip
"""Class names that still stand in several modules. A name may only leave this list."""


def words_of(name: str) -> set[str]:
    """Return the words of a name, in lower case and without a plural's s."""
    found = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {word.lower() for word in found} | {word.lower().removesuffix("s") for word in found}


def metaphors(names: Iterable[str]) -> list[str]:
    """Return the names that hold a metaphor."""
    return [name for name in names if words_of(name) & METAPHORS]


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
