"""From an owner to the memory provider that commits its turns, or to the reason why there is none."""

import hashlib

import msgspec

from holdfast.domain.events.facts import Failure
from holdfast.domain.limits import COMMIT_S_MAX
from holdfast.memory.ports import BuildProvider, MemoryQueue, Owner, Provider, ProviderFailure
from holdfast.memory.provider_calls import ProviderCaller

OWNER_KIND = "owner"
"""What they are kept as, beside the sessions."""


def owner_digest(owner: Owner) -> str:
    """The name of an owner: the same configuration has the same one, whenever it is asked for."""
    return hashlib.blake2b(msgspec.json.encode(owner, order="deterministic"), digest_size=16).hexdigest()


class OwnerStore:
    """Keeps owners and finds them again. What is kept is never changed, so it is written once."""

    def __init__(self, queue: MemoryQueue) -> None:
        self._queue = queue
        self._saved: set[str] = set()

    async def save(self, owner: Owner) -> str:
        """Durable on return; returns the digest. Raises StoreFault."""
        digest = owner_digest(owner)
        if digest not in self._saved:
            await self._queue.put_item(OWNER_KIND, digest, msgspec.json.encode(owner, order="deterministic"))
            self._saved.add(digest)
        return digest

    async def find(self, digest: str) -> Owner | None:
        """The owner by that digest; None if it is not there, or cannot be read."""
        body = await self._queue.item(OWNER_KIND, digest) if digest else None
        try:
            return msgspec.json.decode(body, type=Owner) if body is not None else None
        except msgspec.DecodeError:
            return None


class ResolvedProvider(msgspec.Struct, frozen=True):
    """Someone who can tell memory: an owner by its digest, and its provider."""

    owner: str
    provider: Provider
    takes_key: bool


class NoProvider(msgspec.Struct, frozen=True):
    """Nobody can tell it, and why."""

    detail: str


class ProviderResolver:
    """Makes providers of owners. Making one is somebody else's code too.

    `gone` are the owners that could not be made when they were last needed, and why.
    """

    def __init__(self, owners: OwnerStore, build: BuildProvider, caller: ProviderCaller) -> None:
        self._owners = owners
        self._build = build
        self._caller = caller
        self.unavailable: dict[str, str] = {}

    async def resolve_first(self, *candidates: str) -> ResolvedProvider | NoProvider:
        """The first of `candidates` who can be made; an empty one is nobody. Raises StoreFault."""
        reason = "no agent is known that could tell memory of it"
        for digest in dict.fromkeys(each for each in candidates if each):
            resolved = await self._resolve(digest)
            if isinstance(resolved, ResolvedProvider):
                self.unavailable.pop(digest, None)
                return resolved
            reason = self.unavailable[digest] = resolved.detail
        return NoProvider(reason)

    async def _resolve(self, digest: str) -> ResolvedProvider | NoProvider:
        owner = await self._owners.find(digest)
        if owner is None:
            return NoProvider("the agent that was to tell memory of it is not known any more")

        async def build() -> ResolvedProvider:
            provider = await self._build(owner)
            takes_key: object = provider.takes_key
            if not isinstance(takes_key, bool):
                # What is told twice is at stake: nothing is made of it that it does not say.
                raise ProviderFailure(detail="it does not say whether it takes a key")
            return ResolvedProvider(digest, provider, takes_key)

        answer = await self._caller.call(build, COMMIT_S_MAX)
        if isinstance(answer.value, ResolvedProvider):
            return answer.value
        return NoProvider((answer.failure or Failure("", "")).detail)
