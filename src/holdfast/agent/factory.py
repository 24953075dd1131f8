"""Make an agent from its file and a model: its tools, its instructions, its memory."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from holdfast.agent.agent import Agent
from holdfast.agent.instructions import INSTRUCTIONS, MEMORY_INSTRUCTIONS, Guide
from holdfast.agent.model_step import Asking
from holdfast.agent.tool_execution import Calls
from holdfast.domain.agents import AgentSpec
from holdfast.domain.clock import Clock
from holdfast.domain.decisions.allowance import Allowance
from holdfast.memory.memory import MemoryOffice
from holdfast.models.ports import Model
from holdfast.tools.files.pdf_text import PdfTexts
from holdfast.tools.ports import Tool


class Making(msgspec.Struct, frozen=True):
    """What agents are made of. `tools` is looked at when one is used: some come and go."""

    tools: Mapping[str, Tool]
    asking: Asking
    calls: Calls
    memory: MemoryOffice
    guide: Guide
    allowance: Callable[[], Allowance]
    clock: Clock
    pdfs: PdfTexts

    def agent(self, spec: AgentSpec, model: Model) -> Agent:
        """One that is as `spec` says, and has that model."""
        tools, is_told = OwnTools(self.tools, spec), self.memory.is_on and spec.memory == "on"
        remembering = self.memory.of_agent(spec.session_name, model.name, model.profile.address)
        return Agent(
            instructions_of(spec, INSTRUCTIONS, MEMORY_INSTRUCTIONS if is_told else ""), model, tools,
            self.asking.of(tools), self.calls.of(tools, spec.approvals), self.allowance(), self.clock,
            remembering if is_told else None, self.guide, spec.effort, pdfs=self.pdfs,
        )  # fmt: skip


class OwnTools(Mapping[str, Tool]):
    """Looks every time at what is there: a tool that comes later is had, and one that has gone is not."""

    def __init__(self, all_: Mapping[str, Tool], spec: AgentSpec) -> None:
        self._all = all_
        self._spec = spec

    def __getitem__(self, name: str) -> Tool:
        if not self._spec.may_use(name):
            raise KeyError(name)
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._all if self._spec.may_use(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def instructions_of(spec: AgentSpec, usual: str, of_memory: str) -> str:
    """What an agent is told: its own instructions or the `usual` ones, what it adds, what goes for memory."""
    told = spec.instructions.strip() or usual
    if spec.more_instructions.strip():
        told += f"\n\n{spec.more_instructions.strip()}"
    return told + (of_memory if spec.memory == "on" else "")
