"""Rules: what a person has allowed for good, or for one conversation, so that it is not asked about again.

A rule for commands holds words: exactly those of a command, or those it begins with and then a last word
`*`. It covers a command only where that is one simple command (`domain.shell.commands`); whatever is not
understood is asked about. A rule for pages (`fetch_url`) holds the host that is asked, or `*` for any. A rule
for another tool covers all its calls.
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
    """Allows calls of `tool` that fit `pattern`, in one conversation or, without one, in all."""

    id: str
    tool: str
    pattern: str
    session_id: SessionId | None
    created_at: Instant

    @property
    def scope(self) -> f.ApprovalScope:
        return "session" if self.session_id is not None else "always"


class ApprovalGrant(msgspec.Struct, frozen=True):
    """How a person says yes: how far it reaches, by which pattern, and with which arguments instead."""

    scope: f.ApprovalScope = "once"
    pattern: str = ""
    arguments: str | None = None


ALLOW_ONCE = ApprovalGrant()


def find_rule(rules: Iterable[Rule], tool: str, arguments: str, session_id: SessionId | None) -> Rule | None:
    """The first rule that allows a call; None: a person is to be asked."""
    for rule in rules:
        here = rule.session_id is None or rule.session_id == session_id
        if here and rule.tool == tool and _matches(rule.pattern, tool, arguments):
            return rule
    return None


def pattern_for(tool: str, arguments: str, requested: str) -> str:
    """The pattern of a rule that is made while allowing a call; without `wanted`, for exactly that.

    Raises RuleRefused, also where it would not allow the very call that it is made from.
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
    """A pattern as it is kept. Raises RuleRefused for one that means nothing, or anything."""
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
    place = requested_authority(arguments)
    if place is None:
        raise RuleRefused(why="the address of the page cannot be read")
    pattern = _validate_authority(requested or place)
    if pattern not in (ANY, place):
        raise RuleRefused(
            why=f"`{pattern}` does not allow the page that it is made from, which is at `{place}`"
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
    """The words of a pattern, and whether any more may follow."""
    text = pattern.rstrip(" ")
    if text == ANY:
        return None, True
    more = text.endswith(" *")
    return parse_simple_command(text[:-2] if more else text), more
