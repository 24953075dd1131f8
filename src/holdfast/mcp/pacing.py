"""How fast an MCP server is listened to, whichever way it talks."""

import asyncio

from holdfast.domain.limits import MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX

_BREATH_S = 0.05
"""It is not worth while to wait for less."""


class Pace:
    """Of one server: much at once, but not for ever."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._left = float(MCP_MESSAGES_AT_ONCE)

    def wait_s(self, now: float, messages: float = 1) -> float:
        """How long to wait before so many more messages are read."""
        gained = (now - self._at) * MCP_MESSAGES_PER_S_MAX
        self._at, self._left = now, min(self._left + gained, MCP_MESSAGES_AT_ONCE) - messages
        return max(-self._left, 0.0) / MCP_MESSAGES_PER_S_MAX

    async def keep(self, now: float, messages: float = 1) -> None:
        """Wait as long as that is, before they are read."""
        if (wait_s := self.wait_s(now, messages)) > _BREATH_S:
            await asyncio.sleep(wait_s)
