"""Build an agent from its file and a model: its tools, its instructions, its memory."""

from collections.abc import Callable, Iterator, Mapping

import msgspec

from holdfast.agent.agent import Agent
from holdfast.agent.instructions import INSTRUCTIONS, MEMORY_INSTRUCTIONS, ReadGuide
from holdfast.agent.model_step import ModelStep
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.domain.agents import AgentSpec
from holdfast.domain.clock import Clock
from holdfast.domain.decisions.run_limits import RunLimits
from holdfast.memory.memory import MemoryRuntime
from holdfast.models.ports import Model
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.ports import Tool


class AgentFactory(msgspec.Struct, frozen=True):
    """The parts of agents. Each use reads `tools` again: some come and go."""

    tools: Mapping[str, Tool]
    model_step: ModelStep
    tool_executor: ToolExecutor
    memory: MemoryRuntime
    guide: ReadGuide
    run_limits: Callable[[], RunLimits]
    clock: Clock
    pdfs: PdfTextExtractor

    def build(self, spec: AgentSpec, model: Model) -> Agent:
        """Build the agent of `spec` with that model."""
        tools, has_memory = AllowedTools(self.tools, spec), self.memory.is_on and spec.memory == "on"
        memory = self.memory.client_for(spec.stored_name, model.name, model.profile.address)
        return Agent(
            build_instructions(spec, INSTRUCTIONS, MEMORY_INSTRUCTIONS if has_memory else ""), model, tools,
            self.model_step.for_tools(tools), self.tool_executor.for_agent(tools, spec.approvals),
            self.run_limits(), self.clock, memory if has_memory else None, self.guide, spec.effort,
            pdfs=self.pdfs,
        )  # fmt: skip


class AllowedTools(Mapping[str, Tool]):
    """The tools an agent may use, read from `all_` each time: tools come and go."""

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


def build_instructions(spec: AgentSpec, default: str, memory_instructions: str) -> str:
    """Return an agent's instructions or the default ones, its additions, and those for memory."""
    text = spec.instructions.strip() or default
    if spec.more_instructions.strip():
        text += f"\n\n{spec.more_instructions.strip()}"
    return text + (memory_instructions if spec.memory == "on" else "")
