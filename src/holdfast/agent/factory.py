"""Making an agent from what is written of it and a model: its tools, its words, its memory."""

from collections.abc import Callable, Mapping

import msgspec

from holdfast.agent.agent import Agent
from holdfast.agent.allowed_tools import OwnTools, instructions_of
from holdfast.agent.model_step import Asking
from holdfast.agent.prompts import INSTRUCTIONS, MEMORY_INSTRUCTIONS
from holdfast.agent.tool_execution import Calls
from holdfast.agent.workspace_guide import Guide
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
