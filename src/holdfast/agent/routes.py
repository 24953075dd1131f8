"""The agent of each route: its instructions, its model's client, its tools and their connections.

A route is named by its session key, `agent:NAME:CHANNEL:KIND:CHAT`; what comes in by a door without routes
has the key of its agent. Whichever conversation a route is at, its agent is the same one: it is built anew
only when what it is built from has changed.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from holdfast.domain.limits import AGENT_CACHE_ROUTES_MAX

C = TypeVar("C")
A = TypeVar("A")


def door_key(agent: str) -> str:
    """The session key of conversations that no route leads to."""
    return f"agent:{agent or 'main'}"


class RouteAgents(Generic[C, A]):
    """Agents by session key. `build` makes one from its configuration, which owns whatever must be closed.

    `rebuilt` is told of each that was made anew because its configuration had changed. Past `most` of them
    the longest unused goes; it is built again when it is asked for.
    """

    def __init__(
        self, build: Callable[[C], A], rebuilt: Callable[[], None], most: int = AGENT_CACHE_ROUTES_MAX
    ) -> None:
        self._build = build
        self._rebuilt = rebuilt
        self._most = most
        self._agents: OrderedDict[str, tuple[C, A]] = OrderedDict()

    def at(self, key: str, configuration: C) -> A:
        """The agent of the route `key`, as `configuration` has it now."""
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
