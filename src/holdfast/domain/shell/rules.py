"""Rules: calls that a person has allowed for good, or for one conversation, without being asked again.

A rule for commands has the exact words of a command, or its first words and a last word `*`. It matches only
one simple command (`domain.shell.commands`); a person is asked about anything else. A rule for pages
(`fetch_url`) has a host, or `*` for any. A rule for another tool covers all its calls.
"""

import posixpath
import re
import shlex
from collections.abc import Iterable

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import RuleRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import RULE_CHARS_MAX
from holdfast.domain.shell.commands import (
    GIT_VERBS,
    RUNNERS,
    RUNS_ANYTHING,
    SHELL_TOOL,
    call_command,
    parse_simple_command,
)
from holdfast.domain.urls import FETCH_TOOL, InvalidUrl, parse_authority, requested_authority

ANY = "*"
_VERSION = re.compile(r"[-\d.]+(?:dbg|d|t)?$")


class Rule(msgspec.Struct, frozen=True):
    """A rule that allows calls of `tool` that match `pattern`, in one conversation or in all."""

    id: str
    tool: str
    pattern: str
    session_id: SessionId | None
    created_at: Instant

    @property
    def scope(self) -> f.ApprovalScope:
        return "session" if self.session_id is not None else "always"


class ApprovalGrant(msgspec.Struct, frozen=True):
    """A person's approval: its scope, its pattern, and edited arguments."""

    scope: f.ApprovalScope = "once"
    pattern: str = ""
    arguments: str | None = None


ALLOW_ONCE = ApprovalGrant()


def find_rule(rules: Iterable[Rule], tool: str, arguments: str, session_id: SessionId | None) -> Rule | None:
    """Return the first rule that allows a call; None if a person must be asked."""
    for rule in rules:
        in_scope = rule.session_id is None or rule.session_id == session_id
        if in_scope and rule.tool == tool and _matches(rule.pattern, tool, arguments):
            return rule
    return None


def pattern_for(tool: str, arguments: str, requested: str) -> str:
    """Return the pattern of a rule made while approving a call; by default, for exactly that call.

    Raises RuleRefused, also if the rule would not allow that call.
    """
    if tool == FETCH_TOOL:
        return _pattern_for_page(arguments, requested)
    if tool != SHELL_TOOL:
        return validate_pattern(tool, requested or ANY)
    words = parse_simple_command(call_command(tool, arguments) or "")
    if words is None:
        raise RuleRefused(
            why="this command is more than one program with its words, so it can be allowed only once"
        )
    pattern = validate_pattern(tool, requested or shlex.join(words))
    if not _matches(pattern, tool, arguments):
        raise RuleRefused(why=f"`{pattern}` does not allow the command that it is made from")
    return pattern


def validate_pattern(tool: str, pattern: str) -> str:
    """Return a pattern in its stored form. Raises RuleRefused if it matches nothing, or anything."""
    if len(pattern) > RULE_CHARS_MAX:
        raise RuleRefused(why=f"it is longer than {RULE_CHARS_MAX} characters")
    if tool == FETCH_TOOL:
        return _validate_authority(pattern)
    if tool != SHELL_TOOL:
        if pattern != ANY:
            raise RuleRefused(why=f"a rule for {tool} allows all its calls: its pattern is `*`")
        return pattern
    words, more = _parse_pattern(pattern)
    if words is None and more and not pattern.strip(" *"):
        raise RuleRefused(why="`*` alone would allow every command")
    if words is None:
        raise RuleRefused(why="it is not the words of one command, with `*` alone as the last")
    if more and _runs_anything(words):
        raise RuleRefused(why=f"with any further words `{shlex.join(words)}` can run anything")
    return shlex.join(words) + (" *" if more else "")


def _pattern_for_page(arguments: str, requested: str) -> str:
    authority = requested_authority(arguments)
    if authority is None:
        raise RuleRefused(why="the address of the page cannot be read")
    pattern = _validate_authority(requested or authority)
    if pattern not in (ANY, authority):
        raise RuleRefused(
            why=f"`{pattern}` does not allow the page that it is made from, which is at `{authority}`"
        )
    return pattern


def _validate_authority(pattern: str) -> str:
    try:
        return pattern if pattern == ANY else parse_authority(pattern)
    except InvalidUrl as error:
        raise RuleRefused(why=f"it is neither a host nor `*`: {error}") from None


def _runs_anything(words: tuple[str, ...]) -> bool:
    whole = posixpath.basename(words[0]).lower()
    name, verb = _VERSION.sub("", whole) or words[0], "".join(words[1:2])
    if name == "git":
        return verb not in GIT_VERBS
    if name in RUNNERS:
        return not verb or verb.startswith("-") or verb in RUNNERS[name]
    return name in RUNS_ANYTHING or whole in RUNS_ANYTHING


def _matches(pattern: str, tool: str, arguments: str) -> bool:
    if tool == FETCH_TOOL:
        return pattern == ANY or pattern == requested_authority(arguments)
    if tool != SHELL_TOOL:
        return pattern == ANY
    command = call_command(tool, arguments)
    command_words = parse_simple_command(command) if command is not None else None
    words, more = _parse_pattern(pattern)
    if command_words is None or words is None:
        return False
    return command_words[: len(words)] == words if more else command_words == words


def _parse_pattern(pattern: str) -> tuple[tuple[str, ...] | None, bool]:
    """Return the words of a pattern, and whether more may follow."""
    text = pattern.rstrip(" ")
    if text == ANY:
        return None, True
    more = text.endswith(" *")
    return parse_simple_command(text[:-2] if more else text), more
