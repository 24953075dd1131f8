"""The tools that one agent has, of those that are there at the moment."""

from collections.abc import Iterator, Mapping

from holdfast.domain.agents import AgentSpec
from holdfast.tools.ports import Tool


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
