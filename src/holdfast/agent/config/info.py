"""Agents and prompts as people are told of them, through whichever door."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast.domain.agents import AgentSpec


class AgentTold(msgspec.Struct, frozen=True):
    """An agent as it is in force. What is empty is as the server has it; without `tools` it has all.

    `error` says what is wrong with its file: then it `stays` as it was when its file was last right, also
    after a restart; where nobody knows that it cannot answer at all, which `answers` says, or is as without
    a file. `digest` names what the file says now, and is empty where there is none. `unasked` says
    which of its models cannot be asked and why; it answers by the others.
    """

    name: str
    description: str = ""
    model: str = ""
    fallbacks: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    approvals: Literal["ask", "allow", ""] = ""
    resume: Literal["auto", "ask", "never", ""] = ""
    memory: Literal["on", "off"] = "on"
    workspace: str = ""
    answers: bool = True
    error: str = ""
    digest: str = ""
    unasked: tuple[str, ...] = ()
    effort: Literal["low", "medium", "high", ""] = ""
    stays: bool = False


class AgentText(msgspec.Struct, frozen=True):
    """An agent and what its file says, as people wrote it."""

    agent: AgentTold
    text: str


class AgentsTold(msgspec.Struct, frozen=True):
    """Every agent, the one that every server has first; what is wrong with files that are none; all tools."""

    agents: tuple[AgentTold, ...]
    errors: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class ToolShown(msgspec.Struct, frozen=True):
    """A tool as a model is told of it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class AgentPrompt(msgspec.Struct, frozen=True):
    """What the model is sent before what is said: word for word, and about how many tokens that is."""

    agent: str
    model: str
    instructions: str
    tools: tuple[ToolShown, ...]
    tokens: int
    window_tokens: int


class PromptTold(msgspec.Struct, frozen=True):
    """A prompt that can be called as `/name`; `about` is how it begins."""

    name: str
    about: str


class PromptsTold(msgspec.Struct, frozen=True):
    """Every prompt, and what is wrong with files that are none."""

    prompts: tuple[PromptTold, ...]
    errors: tuple[str, ...] = ()


def told_of(
    spec: AgentSpec,
    error: str = "",
    digest: str = "",
    unasked: tuple[str, ...] = (),
    stays: bool = False,
) -> AgentTold:
    """An agent that can answer."""
    return AgentTold(
        spec.name, spec.description, spec.model, spec.fallbacks, spec.tools, spec.approvals or "",
        spec.resume or "", spec.memory, spec.workspace, True, error, digest, unasked, spec.effort or "",
        stays,
    )  # fmt: skip
