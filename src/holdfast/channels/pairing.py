"""Who may speak: nobody until the owner confirms the pairing code that a stranger received.

Kept on the store's shelf, where every process sees it: who waits as `pairing`, who is in as `sender`. Of a
stranger nothing is kept but who it was that got a code; of the code, a digest.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.channels.button_action import ButtonAction
from holdfast.channels.stats import ChannelStats
from holdfast.domain.chats import Chat, InboundUpdate, OutboundMessage
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.credentials import secret_digest
from holdfast.domain.errors import HoldfastError, NoSuchCode, NoSuchSender, TooManyCodes
from holdfast.domain.limits import (
    PAIRING_CHALLENGES_AT_ONCE_MAX,
    PAIRING_CODES_MAX,
    PAIRING_MS_MAX,
    PAIRING_TRIES_MAX,
)
from holdfast.store.ports import Store

PAIRING, SENDER, TRIES, SPEAKERS = "pairing", "sender", "pairing_tries", "speakers"
"""The kinds on the shelf."""
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without those that are taken for one another when they are read aloud or typed."""
_CODE_CHARS = 8
_NAME_CHARS_MAX = 80

T = TypeVar("T")


class PendingSender(msgspec.Struct, frozen=True):
    """Someone who wrote and waits to be let in. `told`: they have the code."""

    channel: str
    sender: str
    name: str
    chat: Chat
    digest: str
    asked_at: Instant
    expires_at: Instant
    told: bool = False

    @property
    def id(self) -> str:
        return sender_id(self.channel, self.sender)


class Sender(msgspec.Struct, frozen=True):
    """Someone who may speak."""

    channel: str
    sender: str
    name: str
    allowed_at: Instant


def sender_id(channel: str, sender: str) -> str:
    return f"{channel}:{sender}"


def format_code(code: str) -> str:
    """A code as people read it: `K7QM-2XRD`."""
    half = _CODE_CHARS // 2
    return f"{code[:half]}-{code[half:]}"


def normalize_code(code: str) -> str:
    """A code as it was made, however it was typed."""
    return "".join(each for each in code.upper() if each.isalnum())


class Pairing:
    """`chance(bits)` is where codes come from. Several processes may have one over the same store."""

    def __init__(self, store: Store, clock: Clock, random_bits: Callable[[int], int]) -> None:
        self._store = store
        self._clock = clock
        self._random_bits = random_bits

    async def is_allowed(self, channel: str, sender: str) -> bool:
        return await self._store.item(SENDER, sender_id(channel, sender)) is not None

    async def record_speaker(self, inbound: InboundUpdate) -> None:
        """Somebody who may spoke in a chat: it is told things for as long as one of those may."""
        route, sender = inbound.chat.route, inbound.sender
        known = await self._speakers(route)
        if sender not in known:
            await self._store.put_item(SPEAKERS, route, msgspec.json.encode((*known, sender)))

    async def may_send_to(self, chat: Chat) -> bool:
        """Whether a chat may be told anything: nobody has spoken in it, or somebody who still may."""
        known = await self._speakers(chat.route)
        for sender in known:
            if await self.is_allowed(chat.channel, sender):
                return True
        return not known

    async def _speakers(self, route: str) -> tuple[str, ...]:
        body = await self._store.item(SPEAKERS, route)
        return msgspec.json.decode(body, type=tuple[str, ...]) if body is not None else ()

    async def challenge(self, inbound: InboundUpdate) -> str | None:
        """The words for a stranger; None if they have been told, and can still be let in by that.

        Say `told` once they have arrived: until then the next message makes another code.
        """
        now, channel = self._clock.now_ms(), inbound.chat.channel
        waiting = await self._unexpired(now)
        known = next((each for each in waiting if each.id == sender_id(channel, inbound.sender)), None)
        if known is not None and known.told:
            return None
        others = [each for each in waiting if each is not known]
        for each in others[: max(0, len(others) - PAIRING_CODES_MAX + 1)]:
            await self._store.take_item(PAIRING, each.id)
        code = self._new_code()
        pending = PendingSender(
            channel, inbound.sender, inbound.sender_name[:_NAME_CHARS_MAX], inbound.chat,
            secret_digest(code), now, now + PAIRING_MS_MAX,
        )  # fmt: skip
        await self._store.put_item(PAIRING, pending.id, msgspec.json.encode(pending))
        return (
            f"I do not know you yet. Your code is {format_code(code)}. Whoever runs this server can let you in "
            f"with it: in the page under Settings, Channels, or with `holdfast channels pair {format_code(code)}`."
        )

    async def mark_code_sent(self, inbound: InboundUpdate) -> None:
        """The words have arrived: they are not said again while the code holds."""
        item_id = sender_id(inbound.chat.channel, inbound.sender)
        body = await self._store.item(PAIRING, item_id)
        if body is not None:
            pending = replace(msgspec.json.decode(body, type=PendingSender), told=True)
            # Only in its own place: a code that was used meanwhile does not come back.
            await self._store.compare_and_swap_item(PAIRING, item_id, body, msgspec.json.encode(pending))

    async def pending_senders(self) -> Sequence[PendingSender]:
        """Who waits to be let in, the first first."""
        return await self._unexpired(self._clock.now_ms())

    async def confirm(self, code: str) -> Sender:
        """Let someone in. Raises NoSuchCode, TooManyCodes."""
        now = self._clock.now_ms()
        attempt_id = await self._count_attempt(now)
        digest = secret_digest(normalize_code(code))
        found = next((each for each in await self._unexpired(now) if each.digest == digest), None)
        if found is None or await self._store.take_item(PAIRING, found.id) is None:
            raise NoSuchCode()
        await self._store.take_item(TRIES, attempt_id)
        sender = Sender(found.channel, found.sender, found.name, now)
        await self.allow(sender)
        # Whoever serves the channel takes it up, and says so to them.
        welcome = str(ButtonAction("welcome", found.sender))
        update_id = f"welcome:{found.sender}:{now}"
        await self._store.receive(
            InboundUpdate(found.chat, update_id, found.sender, found.name, press=welcome)
        )
        return sender

    async def allow(self, sender: Sender) -> None:
        """Let someone in without a code."""
        item_id = sender_id(sender.channel, sender.sender)
        await self._store.put_item(SENDER, item_id, msgspec.json.encode(sender))

    async def allowed_senders(self) -> Sequence[Sender]:
        """Who may speak, the first first."""
        found = _decode_all((await self._store.items(SENDER)).values(), Sender)
        return sorted(found, key=lambda each: (each.allowed_at, each.channel, each.sender))

    async def revoke(self, channel: str, sender: str) -> None:
        """They may not speak from now on. Raises NoSuchSender."""
        if await self._store.take_item(SENDER, sender_id(channel, sender)) is None:
            raise NoSuchSender(channel=channel, sender=sender)

    async def _unexpired(self, now: Instant) -> list[PendingSender]:
        """Whose code holds still; those that have run out are taken away."""
        found = _decode_all((await self._store.items(PAIRING)).values(), PendingSender)
        for each in found:
            if each.expires_at <= now:
                await self._store.take_item(PAIRING, each.id)
        unexpired = [each for each in found if each.expires_at > now]
        return sorted(unexpired, key=lambda each: (each.asked_at, each.id))

    async def _count_attempt(self, now: Instant) -> str:
        """Before it is tried, so that of many at once no more than may be are. Raises TooManyCodes."""
        attempt_id = f"{now}-{self._random_bits(64):x}"
        await self._store.put_item(TRIES, attempt_id, b"")
        known = await self._store.items(TRIES)
        expired = [each for each in known if _attempted_at(each) + PAIRING_MS_MAX <= now]
        for each in expired:
            await self._store.take_item(TRIES, each)
        if len(known) - len(expired) > PAIRING_TRIES_MAX:
            await self._store.take_item(TRIES, attempt_id)
            raise TooManyCodes()
        return attempt_id

    def _new_code(self) -> str:
        return "".join(_ALPHABET[self._random_bits(16) % len(_ALPHABET)] for _ in range(_CODE_CHARS))


def _attempted_at(attempt_id: str) -> Instant:
    at = attempt_id.partition("-")[0]
    return int(at) if at.isdecimal() else 0


def _decode_all(bodies: Iterable[bytes], shape: type[T]) -> list[T]:
    return [msgspec.json.decode(body, type=shape) for body in bodies]


class PairingChallenges:
    """At the door of one channel. Telling somebody never keeps others waiting."""

    def __init__(self, pairing: Pairing, stats: ChannelStats) -> None:
        self._pairing = pairing
        self._stats = stats
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def reject_unknown(self, inbound: Iterable[InboundUpdate]) -> set[str]:
        """Who of the senders may not speak. What came from them is dealt with."""
        may_speak: dict[str, bool] = {}
        for each in inbound:
            # Looked up once: whoever says much at once does not keep those behind them waiting.
            if each.sender not in may_speak:
                may_speak[each.sender] = await self._pairing.is_allowed(each.chat.channel, each.sender)
            if not may_speak[each.sender]:
                self._reject(each)
        return {sender for sender, may in may_speak.items() if not may}

    def _reject(self, inbound: InboundUpdate) -> None:
        # In a group a code would be everybody's; a stranger can ask for one where nobody listens.
        is_private = inbound.chat.kind == "dm"
        if (
            is_private
            and inbound.sender not in self._tasks
            and len(self._tasks) < PAIRING_CHALLENGES_AT_ONCE_MAX
        ):
            task = asyncio.create_task(self._challenge(inbound))
            self._tasks[inbound.sender] = task
            task.add_done_callback(lambda _: self._tasks.pop(inbound.sender, None))

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _challenge(self, inbound: InboundUpdate) -> None:
        try:
            text = await self._pairing.challenge(inbound)
            if text is not None:
                key = f"code:{inbound.chat.channel}:{inbound.update_id}"
                await self._stats.channel.send(inbound.chat, OutboundMessage(text), key)
                await self._pairing.mark_code_sent(inbound)
        except HoldfastError as failure:
            # They are told when they write again.
            self._stats.record_failure(str(failure))
