"""The agents and prompts that people have written: the ports of who reads and who changes them."""

from typing import Protocol

from holdfast.agent.config.info import AgentPrompt, AgentsTold, AgentText, AgentTold, PromptsTold
from holdfast.domain.ids import SessionId


class AgentReading(Protocol):
    """The agents that people have written, and their prompts."""

    def told(self) -> AgentsTold: ...

    def one(self, name: str) -> AgentTold:
        """Raises NoSuchAgent."""

    def show(self, name: str) -> AgentText:
        """Raises NoSuchAgent."""

    def prompts(self) -> PromptsTold: ...

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files that are there now, in sentences."""


class AgentDesk(AgentReading, Protocol):
    """The same while a server runs: they can be changed."""

    async def write(self, name: str, text: str, expect: str | None) -> AgentText:
        """Put a file in place of what was there, if that is as `expect` says; empty: if there was none.

        Raises BadAgent, AgentChanged, CannotEditSettings, DiskFull.
        """

    async def remove(self, name: str, expect: str | None) -> None:
        """Raises NoSuchAgent, AgentChanged, CannotEditSettings."""

    async def check_model(self, name: str) -> None:
        """Be sure that a conversation can have such a model. Raises a HoldfastError that says why not."""

    async def window(self, agent: str, model: str) -> int | None:
        """How many tokens it reads at once, as far as it can be had; both as a conversation names them."""

    def model(self, agent: str, model: str) -> str:
        """The name of the model that answers there."""

    async def prompt(self, name: str, session_id: SessionId | None) -> AgentPrompt:
        """What an agent's model is sent. Raises NoSuchAgent, BadAgent, NoSuchSession, NoSuchModel…"""
