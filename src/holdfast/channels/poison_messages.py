"""Telling a message that its app cannot take from an app that takes nothing.

A message is stubborn once it has failed so often and for so long although the app answered all the while.
Even then it is let be only when the one behind it gets through: where no message does, all of them wait.
"""

from holdfast.channels.ports import ChannelFailure
from holdfast.domain.chats import FAILED_ALONE
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.events.facts import Failure
from holdfast.domain.limits import DELIVERY_ALONE_MS, DELIVERY_ALONE_TRIES

TOLD = "*One message could not be delivered here. It is in the conversation: see the page.*"
"""What a chat is told of a message that was let be."""
_Name = tuple[str, int]


class Stubborn:
    """Of one channel. What is known is of this process; what comes of it is in each message's `failure`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alone: dict[_Name, tuple[int, Instant]] = {}

    def forget(self, name: _Name) -> None:
        self._alone.pop(name, None)

    def reason(self, name: _Name, failure: ChannelFailure, is_well: bool, before: Failure | None) -> Failure:
        """Why a message waits from now on. `is_well`: the app answered, whatever it made of this message."""
        code = failure.code
        if not is_well:
            self.forget(name)
        else:
            now = self._clock.now_ms()
            tries, since = self._alone.get(name, (0, now))
            self._alone[name] = tries + 1, since
            is_long = tries + 1 >= DELIVERY_ALONE_TRIES and now - since >= DELIVERY_ALONE_MS
            # What was known before a restart holds as long as nothing speaks against it.
            if is_long or (before is not None and before.code == FAILED_ALONE):
                code = FAILED_ALONE
        return Failure(code, str(failure)[:500])
