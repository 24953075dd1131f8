"""Allow senders by pairing: the owner confirms the code that an unknown sender received.

The state is in the key-value store, which every process reads: pending senders as `pairing`, allowed ones as
`sender`. Of an unknown sender the store has only the identity and a digest of the code.
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
"""The kinds in the key-value store."""
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Letters and digits without those that are easily confused."""
_CODE_CHARS = 8
_NAME_CHARS_MAX = 80

T = TypeVar("T")


class PendingSender(msgspec.Struct, frozen=True):
    """A sender who waits for approval. `code_sent`: the code was delivered."""

    channel: str
    sender: str
    name: str
    chat: Chat
    digest: str
    asked_at: Instant
    expires_at: Instant
    code_sent: bool = msgspec.field(default=False, name="told")

    @property
    def id(self) -> str:
        return sender_id(self.channel, self.sender)


class Sender(msgspec.Struct, frozen=True):
    """An allowed sender."""

    channel: str
    sender: str
    name: str
    allowed_at: Instant


def sender_id(channel: str, sender: str) -> str:
    return f"{channel}:{sender}"


def format_code(code: str) -> str:
    """Return a code as people read it: `K7QM-2XRD`."""
    half = _CODE_CHARS // 2
    return f"{code[:half]}-{code[half:]}"


def normalize_code(code: str) -> str:
    """Return a typed code in its original form."""
    return "".join(each for each in code.upper() if each.isalnum())


class Pairing:
    """Allowed and pending senders. `random_bits(n)` returns n random bits. Processes may share the store."""

    def __init__(self, store: Store, clock: Clock, random_bits: Callable[[int], int]) -> None:
        self._store = store
        self._clock = clock
        self._random_bits = random_bits

    async def is_allowed(self, channel: str, sender: str) -> bool:
        return await self._store.item(SENDER, sender_id(channel, sender)) is not None

    async def record_speaker(self, inbound: InboundUpdate) -> None:
        """Record an allowed sender as a speaker of a chat; see `may_send_to`."""
        route, sender = inbound.chat.route, inbound.sender
        known = await self._speakers(route)
        if sender not in known:
            await self._store.put_item(SPEAKERS, route, msgspec.json.encode((*known, sender)))

    async def may_send_to(self, chat: Chat) -> bool:
        """Return whether the chat has no speakers, or at least one who is still allowed."""
        known = await self._speakers(chat.route)
        for sender in known:
            if await self.is_allowed(chat.channel, sender):
                return True
        return not known

    async def _speakers(self, route: str) -> tuple[str, ...]:
        body = await self._store.item(SPEAKERS, route)
        return msgspec.json.decode(body, type=tuple[str, ...]) if body is not None else ()

    async def challenge(self, inbound: InboundUpdate) -> str | None:
        """Return the text with a new code for an unknown sender; None if they have a valid one.

        Call `mark_code_sent` after the delivery: until then each message creates another code.
        """
        now, channel = self._clock.now_ms(), inbound.chat.channel
        waiting = await self._unexpired(now)
        known = next((each for each in waiting if each.id == sender_id(channel, inbound.sender)), None)
        if known is not None and known.code_sent:
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
            f"I do not know you yet. Your code is {format_code(code)}. Whoever runs this server can let you "
            "in with it: in the page under Settings, Channels, or with "
            f"`holdfast channels pair {format_code(code)}`."
        )

    async def mark_code_sent(self, inbound: InboundUpdate) -> None:
        """Record that the code was delivered, so that it is not sent again while it is valid."""
        item_id = sender_id(inbound.chat.channel, inbound.sender)
        body = await self._store.item(PAIRING, item_id)
        if body is not None:
            pending = replace(msgspec.json.decode(body, type=PendingSender), code_sent=True)
            # Compare-and-swap, so that a code that was used meanwhile does not come back.
            await self._store.compare_and_swap_item(PAIRING, item_id, body, msgspec.json.encode(pending))

    async def pending_senders(self) -> Sequence[PendingSender]:
        """Return the senders who wait for approval, the oldest first."""
        return await self._unexpired(self._clock.now_ms())

    async def confirm(self, code: str) -> Sender:
        """Allow the sender with this code. Raises NoSuchCode, TooManyCodes."""
        now = self._clock.now_ms()
        attempt_id = await self._count_attempt(now)
        digest = secret_digest(normalize_code(code))
        found = next((each for each in await self._unexpired(now) if each.digest == digest), None)
        if found is None or await self._store.take_item(PAIRING, found.id) is None:
            raise NoSuchCode()
        await self._store.take_item(TRIES, attempt_id)
        sender = Sender(found.channel, found.sender, found.name, now)
        await self.allow(sender)
        # The process that serves the channel handles this update and welcomes the sender.
        welcome = str(ButtonAction("welcome", found.sender))
        update_id = f"welcome:{found.sender}:{now}"
        await self._store.receive(
            InboundUpdate(found.chat, update_id, found.sender, found.name, press=welcome)
        )
        return sender

    async def allow(self, sender: Sender) -> None:
        """Allow a sender without a code."""
        item_id = sender_id(sender.channel, sender.sender)
        await self._store.put_item(SENDER, item_id, msgspec.json.encode(sender))

    async def allowed_senders(self) -> Sequence[Sender]:
        """Return the allowed senders, the oldest first."""
        found = _decode_all((await self._store.items(SENDER)).values(), Sender)
        return sorted(found, key=lambda each: (each.allowed_at, each.channel, each.sender))

    async def revoke(self, channel: str, sender: str) -> None:
        """Remove an allowed sender. Raises NoSuchSender."""
        if await self._store.take_item(SENDER, sender_id(channel, sender)) is None:
            raise NoSuchSender(channel=channel, sender=sender)

    async def _unexpired(self, now: Instant) -> list[PendingSender]:
        """Return senders with a valid code, and delete the expired ones."""
        found = _decode_all((await self._store.items(PAIRING)).values(), PendingSender)
        for each in found:
            if each.expires_at <= now:
                await self._store.take_item(PAIRING, each.id)
        unexpired = [each for each in found if each.expires_at > now]
        return sorted(unexpired, key=lambda each: (each.asked_at, each.id))

    async def _count_attempt(self, now: Instant) -> str:
        """Record an attempt before it is made, so that concurrent ones count too. Raises TooManyCodes."""
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
    """Reject the unknown senders of one channel and send them codes in the background."""

    def __init__(self, pairing: Pairing, stats: ChannelStats) -> None:
        self._pairing = pairing
        self._stats = stats
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def reject_unknown(self, inbound: Iterable[InboundUpdate]) -> set[str]:
        """Return the senders who are not allowed, and start their challenges."""
        may_speak: dict[str, bool] = {}
        for each in inbound:
            # One lookup per sender, so that a burst does not delay the others.
            if each.sender not in may_speak:
                may_speak[each.sender] = await self._pairing.is_allowed(each.chat.channel, each.sender)
            if not may_speak[each.sender]:
                self._start_challenge(each)
        return {sender for sender, may in may_speak.items() if not may}

    def _start_challenge(self, inbound: InboundUpdate) -> None:
        # In a group everyone would see the code; a sender gets one in a private chat.
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
            # The next message of this sender starts another challenge.
            self._stats.record_failure(str(failure))
