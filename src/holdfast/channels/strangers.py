"""What becomes of those who may not speak: they are told a code, once, and nothing else happens."""

import asyncio
from collections.abc import Iterable

from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import Ledger
from holdfast.domain.chats import Inbound, Outgoing
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import STRANGERS_AT_ONCE_MAX


class Strangers:
    """At the door of one channel. Telling somebody never keeps others waiting."""

    def __init__(self, pairing: Pairing, ledger: Ledger) -> None:
        self._pairing = pairing
        self._ledger = ledger
        self._telling: dict[str, asyncio.Task[None]] = {}

    async def turned_away(self, came: Iterable[Inbound]) -> set[str]:
        """Who of the senders may not speak. What came from them is dealt with."""
        may_speak: dict[str, bool] = {}
        for each in came:
            # Looked up once: whoever says much at once does not keep those behind them waiting.
            if each.sender not in may_speak:
                may_speak[each.sender] = await self._pairing.is_allowed(each.chat.channel, each.sender)
            if not may_speak[each.sender]:
                self._turn_away(each)
        return {sender for sender, may in may_speak.items() if not may}

    def _turn_away(self, inbound: Inbound) -> None:
        # In a group a code would be everybody's; a stranger can ask for one where nobody listens.
        is_private = inbound.chat.kind == "dm"
        if is_private and inbound.sender not in self._telling and len(self._telling) < STRANGERS_AT_ONCE_MAX:
            task = asyncio.create_task(self._challenge(inbound))
            self._telling[inbound.sender] = task
            task.add_done_callback(lambda _: self._telling.pop(inbound.sender, None))

    async def close(self) -> None:
        for task in self._telling.values():
            task.cancel()
        await asyncio.gather(*self._telling.values(), return_exceptions=True)

    async def _challenge(self, inbound: Inbound) -> None:
        try:
            words = await self._pairing.challenge(inbound)
            if words is not None:
                key = f"code:{inbound.chat.channel}:{inbound.update_id}"
                await self._ledger.channel.send(inbound.chat, Outgoing(words), key)
                await self._pairing.told(inbound)
        except HoldfastError as failure:
            # They are told when they write again.
            self._ledger.failed(str(failure))
