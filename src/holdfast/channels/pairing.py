"""Who may speak: nobody until the owner confirms the pairing code that a stranger received.

Kept on the store's shelf, where every process sees it: who waits as `pairing`, who is in as `sender`. Of a
stranger nothing is kept but who it was that got a code; of the code, a digest.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from holdfast.channels.button_action import Press
from holdfast.channels.stats import Ledger
from holdfast.domain.chats import Chat, Inbound, Outgoing
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.credentials import digest_of
from holdfast.domain.errors import HoldfastError, NoSuchCode, NoSuchSender, TooManyCodes
from holdfast.domain.limits import PAIRING_CODES_MAX, PAIRING_MS_MAX, PAIRING_TRIES_MAX, STRANGERS_AT_ONCE_MAX
from holdfast.store.ports import Store

PAIRING, SENDER, TRIES, SPEAKERS = "pairing", "sender", "pairing_tries", "speakers"
"""The kinds on the shelf."""
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"
"""Without those that are taken for one another when they are read aloud or typed."""
_CODE_CHARS = 8
_NAME_CHARS_MAX = 80

T = TypeVar("T")


class Stranger(msgspec.Struct, frozen=True):
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


def shown(code: str) -> str:
    """A code as people read it: `K7QM-2XRD`."""
    half = _CODE_CHARS // 2
    return f"{code[:half]}-{code[half:]}"


def plain(code: str) -> str:
    """A code as it was made, however it was typed."""
    return "".join(each for each in code.upper() if each.isalnum())


class Pairing:
    """`chance(bits)` is where codes come from. Several processes may have one over the same store."""

    def __init__(self, store: Store, clock: Clock, chance: Callable[[int], int]) -> None:
        self._store = store
        self._clock = clock
        self._chance = chance

    async def is_allowed(self, channel: str, sender: str) -> bool:
        return await self._store.item(SENDER, sender_id(channel, sender)) is not None

    async def spoke(self, inbound: Inbound) -> None:
        """Somebody who may spoke in a chat: it is told things for as long as one of those may."""
        route, sender = inbound.chat.route, inbound.sender
        known = await self._speakers(route)
        if sender not in known:
            await self._store.put_item(SPEAKERS, route, msgspec.json.encode((*known, sender)))

    async def may_hear(self, chat: Chat) -> bool:
        """Whether a chat may be told anything: nobody has spoken in it, or somebody who still may."""
        known = await self._speakers(chat.route)
        for sender in known:
            if await self.is_allowed(chat.channel, sender):
                return True
        return not known

    async def _speakers(self, route: str) -> tuple[str, ...]:
        body = await self._store.item(SPEAKERS, route)
        return msgspec.json.decode(body, type=tuple[str, ...]) if body is not None else ()

    async def challenge(self, inbound: Inbound) -> str | None:
        """The words for a stranger; None if they have been told, and can still be let in by that.

        Say `told` once they have arrived: until then the next message makes another code.
        """
        now, channel = self._clock.now_ms(), inbound.chat.channel
        waiting = await self._open(now)
        known = next((each for each in waiting if each.id == sender_id(channel, inbound.sender)), None)
        if known is not None and known.told:
            return None
        others = [each for each in waiting if each is not known]
        for each in others[: max(0, len(others) - PAIRING_CODES_MAX + 1)]:
            await self._store.take_item(PAIRING, each.id)
        code = self._new_code()
        stranger = Stranger(
            channel, inbound.sender, inbound.sender_name[:_NAME_CHARS_MAX], inbound.chat,
            digest_of(code), now, now + PAIRING_MS_MAX,
        )  # fmt: skip
        await self._store.put_item(PAIRING, stranger.id, msgspec.json.encode(stranger))
        return (
            f"I do not know you yet. Your code is {shown(code)}. Whoever runs this server can let you in "
            f"with it: in the page under Settings, Channels, or with `holdfast channels pair {shown(code)}`."
        )

    async def told(self, inbound: Inbound) -> None:
        """The words have arrived: they are not said again while the code holds."""
        item_id = sender_id(inbound.chat.channel, inbound.sender)
        body = await self._store.item(PAIRING, item_id)
        if body is not None:
            stranger = replace(msgspec.json.decode(body, type=Stranger), told=True)
            # Only in its own place: a code that was used meanwhile does not come back.
            await self._store.swap_item(PAIRING, item_id, body, msgspec.json.encode(stranger))

    async def waiting(self) -> Sequence[Stranger]:
        """Who waits to be let in, the first first."""
        return await self._open(self._clock.now_ms())

    async def confirm(self, code: str) -> Sender:
        """Let someone in. Raises NoSuchCode, TooManyCodes."""
        now = self._clock.now_ms()
        a_try = await self._count_try(now)
        digest = digest_of(plain(code))
        found = next((each for each in await self._open(now) if each.digest == digest), None)
        if found is None or await self._store.take_item(PAIRING, found.id) is None:
            raise NoSuchCode()
        await self._store.take_item(TRIES, a_try)
        sender = Sender(found.channel, found.sender, found.name, now)
        await self.allow(sender)
        # Whoever serves the channel takes it up, and says so to them.
        let_in = str(Press("welcome", found.sender))
        update_id = f"welcome:{found.sender}:{now}"
        await self._store.receive(Inbound(found.chat, update_id, found.sender, found.name, press=let_in))
        return sender

    async def allow(self, sender: Sender) -> None:
        """Let someone in without a code."""
        item_id = sender_id(sender.channel, sender.sender)
        await self._store.put_item(SENDER, item_id, msgspec.json.encode(sender))

    async def allowed(self) -> Sequence[Sender]:
        """Who may speak, the first first."""
        found = _read((await self._store.items(SENDER)).values(), Sender)
        return sorted(found, key=lambda each: (each.allowed_at, each.channel, each.sender))

    async def revoke(self, channel: str, sender: str) -> None:
        """They may not speak from now on. Raises NoSuchSender."""
        if await self._store.take_item(SENDER, sender_id(channel, sender)) is None:
            raise NoSuchSender(channel=channel, sender=sender)

    async def _open(self, now: Instant) -> list[Stranger]:
        """Whose code holds still; those that have run out are taken away."""
        found = _read((await self._store.items(PAIRING)).values(), Stranger)
        for each in found:
            if each.expires_at <= now:
                await self._store.take_item(PAIRING, each.id)
        lasting = [each for each in found if each.expires_at > now]
        return sorted(lasting, key=lambda each: (each.asked_at, each.id))

    async def _count_try(self, now: Instant) -> str:
        """Before it is tried, so that of many at once no more than may be are. Raises TooManyCodes."""
        a_try = f"{now}-{self._chance(64):x}"
        await self._store.put_item(TRIES, a_try, b"")
        known = await self._store.items(TRIES)
        over = [each for each in known if _tried_at(each) + PAIRING_MS_MAX <= now]
        for each in over:
            await self._store.take_item(TRIES, each)
        if len(known) - len(over) > PAIRING_TRIES_MAX:
            await self._store.take_item(TRIES, a_try)
            raise TooManyCodes()
        return a_try

    def _new_code(self) -> str:
        return "".join(_ALPHABET[self._chance(16) % len(_ALPHABET)] for _ in range(_CODE_CHARS))


def _tried_at(a_try: str) -> Instant:
    at = a_try.partition("-")[0]
    return int(at) if at.isdecimal() else 0


def _read(bodies: Iterable[bytes], shape: type[T]) -> list[T]:
    return [msgspec.json.decode(body, type=shape) for body in bodies]


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
