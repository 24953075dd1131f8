"""Define agents and prompts as clients see them, and the services that read and change them."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from holdfast.domain.agents import AgentSpec
from holdfast.domain.ids import SessionId


class AgentInfo(msgspec.Struct, frozen=True):
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

    agent: AgentInfo
    text: str


class AgentListing(msgspec.Struct, frozen=True):
    """Every agent, the one that every server has first; what is wrong with files that are none; all tools."""

    agents: tuple[AgentInfo, ...]
    errors: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class ToolInfo(msgspec.Struct, frozen=True):
    """A tool as a model is told of it; `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class AgentPrompt(msgspec.Struct, frozen=True):
    """What the model is sent before what is said: word for word, and about how many tokens that is."""

    agent: str
    model: str
    instructions: str
    tools: tuple[ToolInfo, ...]
    tokens: int
    window_tokens: int


class PromptInfo(msgspec.Struct, frozen=True):
    """A prompt that can be called as `/name`; `about` is how it begins."""

    name: str
    about: str


class PromptListing(msgspec.Struct, frozen=True):
    """Every prompt, and what is wrong with files that are none."""

    prompts: tuple[PromptInfo, ...]
    errors: tuple[str, ...] = ()


def agent_info(
    spec: AgentSpec,
    error: str = "",
    digest: str = "",
    unasked: tuple[str, ...] = (),
    stays: bool = False,
) -> AgentInfo:
    """Return the info of an agent that can answer."""
    return AgentInfo(
        spec.name, spec.description, spec.model, spec.fallbacks, spec.tools, spec.approvals or "",
        spec.resume or "", spec.memory, spec.workspace, True, error, digest, unasked, spec.effort or "",
        stays,
    )  # fmt: skip


class AgentQueries(Protocol):
    """Read access to agents and prompts."""

    def list_all(self) -> AgentListing: ...

    def get(self, name: str) -> AgentInfo:
        """Return an agent. Raises NoSuchAgent."""

    def get_text(self, name: str) -> AgentText:
        """Return an agent and the text of its file. Raises NoSuchAgent."""

    def prompts(self) -> PromptListing: ...

    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the files now, in sentences."""


class AgentService(AgentQueries, Protocol):
    """Read and write access to agents, while a server runs."""

    async def write(self, name: str, text: str, expect: str | None) -> AgentText:
        """Replace an agent's file if its digest is `expect`; if `expect` is empty, create it.

        Raises BadAgent, AgentChanged, CannotEditSettings, DiskFull.
        """

    async def remove(self, name: str, expect: str | None) -> None:
        """Remove an agent's file. Raises NoSuchAgent, AgentChanged, CannotEditSettings."""

    async def check_model(self, name: str) -> None:
        """Raise a HoldfastError if a conversation cannot have such a model."""

    async def window_tokens(self, agent: str, model: str) -> int | None:
        """Return the window of a conversation's model in tokens, or None if it is unknown."""

    def model_name(self, agent: str, model: str) -> str:
        """Return the name of the model that answers in a conversation with these choices."""

    async def preview_prompt(self, name: str, session_id: SessionId | None) -> AgentPrompt:
        """Return an agent's prompt. Raises NoSuchAgent, BadAgent, NoSuchSession, NoSuchModel…"""
