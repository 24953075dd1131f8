"""Parse agent files: TOML tables that define an agent, with errors for people.

`agent.config.files` finds and watches the files.
"""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from holdfast.domain.context.request import Effort
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.base import ResumeMode
from holdfast.domain.limits import AGENT_FALLBACKS_MAX, AGENT_TOOLS_MAX
from holdfast.domain.toml import InvalidToml, parse_toml

MAIN_AGENT = "main"
"""The agent that every server has, with or without a file."""
MEMORY_TOOLS = frozenset({"remember", "recall"})
OPTIONAL_TOOLS = MEMORY_TOOLS | {"fetch_url", "web_search"}
"""Tools that a file may name even if this server's settings disable them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVER_WILDCARD = re.compile(r"[A-Za-z0-9_-]{1,60}__\*")
"""All tools of one MCP server, whose names cannot be checked beforehand."""
_MODEL_CHARS_MAX = 200
ApprovalMode = Literal["ask", "allow"]


class BadAgent(HoldfastError):
    """{file}: {problem}."""

    code, status = "bad_agent", 400


class NoSuchAgent(HoldfastError):
    """There is no agent {name}; there are: {known}."""

    code, status = "no_such_agent", 404
    remedy = "Choose another agent for this conversation, or bring back agents/{name}.toml."


class AgentChanged(HoldfastError):
    """The agent {name} was changed by somebody else meanwhile."""

    code, status = "agent_changed", 409
    remedy = "Look at what it says now, and change that."


class AgentSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of an agent. The server's value applies if a field is empty or None.

    `more_instructions` are appended to the instructions, its own or the server's. `tools` are names, or
    `SERVER__*` for all tools of an MCP server.
    """

    name: str = MAIN_AGENT
    description: str = ""
    instructions: str = ""
    more_instructions: str = ""
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    approvals: ApprovalMode | None = None
    resume: ResumeMode | None = None
    memory: Literal["on", "off"] = "on"
    workspace: str = ""
    effort: Effort | None = None

    @property
    def stored_name(self) -> str:
        """The name that conversations store: empty for the main agent."""
        return "" if self.name == MAIN_AGENT else self.name

    def may_use(self, tool: str) -> bool:
        """Return whether the agent may use that tool, if it exists."""
        if self.memory == "off" and tool in MEMORY_TOOLS:
            return False
        if self.tools is None:
            return True
        return any(tool == name or (name.endswith("*") and tool.startswith(name[:-1])) for name in self.tools)


_KEYS: Mapping[str, tuple[object, str]] = MappingProxyType({
    "description": (str, "text"),
    "instructions": (str, "text"),
    "more_instructions": (str, "text"),
    "model": (str, "PROVIDER:MODEL, or demo"),
    "fallbacks": (tuple[str, ...], f"a list of at most {AGENT_FALLBACKS_MAX} models, each PROVIDER:MODEL"),
    "tools": (tuple[str, ...], f"a list of at most {AGENT_TOOLS_MAX} names of tools"),
    "approvals": (ApprovalMode, "ask or allow"),
    "resume": (ResumeMode, "auto, ask or never"),
    "memory": (Literal["on", "off"], "on or off"),
    "workspace": (str, "the whole path of a folder"),
    "effort": (Effort, "low, medium or high"),
})  # fmt: skip
"""Every key of an agent file, with its type and its description for people."""


def is_valid_name(name: str) -> bool:
    """Return whether an agent may have this name, which must not lead to any other file."""
    return _NAME.fullmatch(name) is not None


def file_name(name: str) -> str:
    """Return the name of an agent's file, as people see it."""
    return f"agents/{name}.toml"


def parse(name: str, text: str, tools: Collection[str]) -> AgentSpec:
    """Parse an agent file. `tools` are the built-in ones.

    Raises BadAgent, which names the file, the key and the allowed values.
    """
    file = file_name(name)
    try:
        found = parse_toml(text)
    except InvalidToml as error:
        raise BadAgent(file=file, problem=f"this is not TOML: {error}") from None
    values: dict[str, object] = {}
    for key, value in found.items():
        if key not in _KEYS:
            raise BadAgent(file=file, problem=f"there is no {_quoted(key)}; there are: {', '.join(_KEYS)}")
        kind, allowed = _KEYS[key]
        try:
            values[key] = msgspec.convert(value, kind)
        except msgspec.ValidationError:
            raise BadAgent(file=file, problem=f"{key} must be {allowed}") from None
    spec = msgspec.convert({**values, "name": name}, AgentSpec)
    if problem := _problem(spec, tools):
        raise BadAgent(file=file, problem=problem)
    return spec


def _problem(spec: AgentSpec, tools: Collection[str]) -> str:
    """Return the problem of an agent's values as a phrase; an empty string if there is none."""
    for key, model in (("model", spec.model), *(("fallbacks", name) for name in spec.fallbacks)):
        if (key == "fallbacks" and not model) or not _is_model_name(model):
            return f"{key} must be {_KEYS[key][1]}, not {_quoted(model)}"
    if len(spec.fallbacks) > AGENT_FALLBACKS_MAX:
        return f"fallbacks must be {_KEYS['fallbacks'][1]}"
    if len(spec.tools or ()) > AGENT_TOOLS_MAX:
        return f"tools must be {_KEYS['tools'][1]}"
    for tool in spec.tools or ():
        is_mcp_tool = "__" in tool and (_TOOL.fullmatch(tool) or _SERVER_WILDCARD.fullmatch(tool))
        if tool not in tools and not is_mcp_tool:
            known = ", ".join(sorted(tools))
            return f"tools names {_quoted(tool)}, which is no tool; there are: {known}, and SERVER__* of MCP"
    if spec.workspace and (not spec.workspace.startswith("/") or "\0" in spec.workspace):
        return f"workspace must be {_KEYS['workspace'][1]}"
    return ""


def _is_model_name(name: str) -> bool:
    return len(name) <= _MODEL_CHARS_MAX and name == name.strip() and name.isprintable()


def _quoted(text: str) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in text)
    return repr(plain if len(plain) <= 80 else plain[:80] + "…")
