"""Agents that are held ready: their instructions, their model's client, their tools and their connections.

There is one for each name and model. All conversations with those share it, so that a chat which moves to
another conversation keeps its agent. One is built anew only when what it is built from has changed.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.domain.limits import AGENT_CACHE_ROUTES_MAX

C = TypeVar("C")
A = TypeVar("A")


class RouteAgents(Generic[C, A]):
    """Agents by name and model. `build` makes one from its configuration, which owns what must be closed.

    `rebuilt` is told of each that was made anew because its configuration had changed. Past `most` of them
    the longest unused goes; it is built again when it is asked for.
    """

    def __init__(
        self, build: Callable[[C], A], rebuilt: Callable[[], None], most: int = AGENT_CACHE_ROUTES_MAX
    ) -> None:
        self._build = build
        self._rebuilt = rebuilt
        self._most = most
        self._agents: OrderedDict[tuple[str, str], tuple[C, A]] = OrderedDict()

    def at(self, name: str, model: str, configuration: C) -> A:
        """Return the agent of that name and model, as `configuration` has it now."""
        key = name, model
        known = self._agents.get(key)
        if known is not None and known[0] == configuration:
            self._agents.move_to_end(key)
            return known[1]
        agent = self._build(configuration)
        if known is not None:
            self._rebuilt()
        self._agents[key] = configuration, agent
        self._agents.move_to_end(key)
        while len(self._agents) > self._most:
            self._agents.popitem(last=False)
        return agent

    @property
    def built(self) -> list[A]:
        """All there are, the longest unused first."""
        return [agent for _, agent in self._agents.values()]
