"""Agents as people write them down, in TOML: what can be said of one, and what is wrong with such a text.

Only reading is here. Where the files lie, and when they are looked at, is `agent.config.files`.
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
"""Tools that a file may name though this server, as it is set up, has none of them."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_TOOL = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SERVER_WILDCARD = re.compile(r"[A-Za-z0-9_-]{1,60}__\*")
"""All that one server brings; its own come and go, so that they cannot be checked beforehand."""
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
    """What is known of an agent. What is empty or None is as the server has it.

    `more_instructions` follow the instructions, its own or the server's. `tools` are names, or `SERVER__*`
    for all of an MCP server.
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
    def session_name(self) -> str:
        """As conversations name it: the one that every server has needs no name."""
        return "" if self.name == MAIN_AGENT else self.name

    def may_use(self, tool: str) -> bool:
        """Whether it has the tool of that name, if there is one."""
        if self.memory == "off" and tool in MEMORY_TOOLS:
            return False
        if self.tools is None:
            return True
        return any(tool == each or (each.endswith("*") and tool.startswith(each[:-1])) for each in self.tools)


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
"""Every key that a file may have, with its type and what people are told of it."""


def is_valid_name(name: str) -> bool:
    """Whether an agent can be called so: nothing that leads anywhere else than to its file."""
    return _NAME.fullmatch(name) is not None


def file_name(name: str) -> str:
    """What an agent's file is called, as people are told of it."""
    return f"agents/{name}.toml"


def parse(name: str, text: str, tools: Collection[str]) -> AgentSpec:
    """The agent that a file says. `tools` are those that come with the server.

    Raises BadAgent, which names the file, the key and what is allowed.
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
    """What a file says that cannot be, in words; nothing if all is well."""
    for key, model in (("model", spec.model), *(("fallbacks", each) for each in spec.fallbacks)):
        if (key == "fallbacks" and not model) or not _is_model_name(model):
            return f"{key} must be {_KEYS[key][1]}, not {_quoted(model)}"
    if len(spec.fallbacks) > AGENT_FALLBACKS_MAX:
        return f"fallbacks must be {_KEYS['fallbacks'][1]}"
    if len(spec.tools or ()) > AGENT_TOOLS_MAX:
        return f"tools must be {_KEYS['tools'][1]}"
    for tool in spec.tools or ():
        of_server = "__" in tool and (_TOOL.fullmatch(tool) or _SERVER_WILDCARD.fullmatch(tool))
        if tool not in tools and not of_server:
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
