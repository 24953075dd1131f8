"""From an owner to the memory provider that commits its turns, or to the reason why there is none."""

import hashlib

import msgspec

from holdfast.domain.events.facts import Failure
from holdfast.domain.limits import COMMIT_S_MAX
from holdfast.memory.ports import Build, Ledger, Owner, Provider, ProviderFailure
from holdfast.memory.provider_calls import Calls

KIND = "owner"
"""What they are kept as, beside the sessions."""


def digest_of(owner: Owner) -> str:
    """The name of an owner: the same configuration has the same one, whenever it is asked for."""
    return hashlib.blake2b(msgspec.json.encode(owner, order="deterministic"), digest_size=16).hexdigest()


class Owners:
    """Keeps owners and finds them again. What is kept is never changed, so it is written once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept: set[str] = set()

    async def keep(self, owner: Owner) -> str:
        """Durable on return; returns the digest. Raises StoreFault."""
        digest = digest_of(owner)
        if digest not in self._kept:
            await self._ledger.put_item(KIND, digest, msgspec.json.encode(owner, order="deterministic"))
            self._kept.add(digest)
        return digest

    async def find(self, digest: str) -> Owner | None:
        """The owner by that digest; None if it is not there, or cannot be read."""
        body = await self._ledger.item(KIND, digest) if digest else None
        try:
            return msgspec.json.decode(body, type=Owner) if body is not None else None
        except msgspec.DecodeError:
            return None


class Teller(msgspec.Struct, frozen=True):
    """Someone who can tell memory: an owner by its digest, and its provider."""

    owner: str
    provider: Provider
    takes_key: bool


class Nobody(msgspec.Struct, frozen=True):
    """Nobody can tell it, and why."""

    detail: str


class Tellers:
    """Makes providers of owners. Making one is somebody else's code too.

    `gone` are the owners that could not be made when they were last needed, and why.
    """

    def __init__(self, owners: Owners, build: Build, calls: Calls) -> None:
        self._owners = owners
        self._build = build
        self._calls = calls
        self.gone: dict[str, str] = {}

    async def first(self, *candidates: str) -> Teller | Nobody:
        """The first of `candidates` who can be made; an empty one is nobody. Raises StoreFault."""
        why = "no agent is known that could tell memory of it"
        for digest in dict.fromkeys(each for each in candidates if each):
            made = await self._make(digest)
            if isinstance(made, Teller):
                self.gone.pop(digest, None)
                return made
            why = self.gone[digest] = made.detail
        return Nobody(why)

    async def _make(self, digest: str) -> Teller | Nobody:
        owner = await self._owners.find(digest)
        if owner is None:
            return Nobody("the agent that was to tell memory of it is not known any more")

        async def made() -> Teller:
            provider = await self._build(owner)
            takes_key: object = provider.takes_key
            if not isinstance(takes_key, bool):
                # What is told twice is at stake: nothing is made of it that it does not say.
                raise ProviderFailure(detail="it does not say whether it takes a key")
            return Teller(digest, provider, takes_key)

        answer = await self._calls.ask(made, COMMIT_S_MAX)
        if isinstance(answer.value, Teller):
            return answer.value
        return Nobody((answer.failure or Failure("", "")).detail)
