"""Resolve an owner to the memory provider that commits its turns, or to the reason why there is none."""

import hashlib

import msgspec

from holdfast.domain.events.facts import Failure
from holdfast.domain.limits import COMMIT_S_MAX
from holdfast.memory.ports import BuildProvider, MemoryQueue, Owner, Provider, ProviderFailure
from holdfast.memory.provider_calls import ProviderCaller

OWNER_KIND = "owner"
"""Their kind in the key-value store."""


def owner_digest(owner: Owner) -> str:
    """Return the digest of an owner; equal configurations have equal digests."""
    return hashlib.blake2b(msgspec.json.encode(owner, order="deterministic"), digest_size=16).hexdigest()


class OwnerStore:
    """Saved owners by digest. A saved owner never changes, so it is written once."""

    def __init__(self, queue: MemoryQueue) -> None:
        self._queue = queue
        self._saved: set[str] = set()

    async def save(self, owner: Owner) -> str:
        """Save an owner durably and return its digest. Raises StoreFault."""
        digest = owner_digest(owner)
        if digest not in self._saved:
            await self._queue.put_item(OWNER_KIND, digest, msgspec.json.encode(owner, order="deterministic"))
            self._saved.add(digest)
        return digest

    async def find(self, digest: str) -> Owner | None:
        """Return the owner with that digest; None if it is missing or unreadable."""
        body = await self._queue.item(OWNER_KIND, digest) if digest else None
        try:
            return msgspec.json.decode(body, type=Owner) if body is not None else None
        except msgspec.DecodeError:
            return None


class ResolvedProvider(msgspec.Struct, frozen=True):
    """An owner's digest and its provider."""

    owner: str
    provider: Provider
    takes_key: bool


class NoProvider(msgspec.Struct, frozen=True):
    """The reason why no provider is available."""

    detail: str


class ProviderResolver:
    """Build the providers of owners. Building one runs third-party code too.

    `unavailable` maps each owner whose provider could not be built the last time to the reason.
    """

    def __init__(self, owners: OwnerStore, build: BuildProvider, caller: ProviderCaller) -> None:
        self._owners = owners
        self._build = build
        self._caller = caller
        self.unavailable: dict[str, str] = {}

    async def resolve_first(self, *candidates: str) -> ResolvedProvider | NoProvider:
        """Return the first of `candidates` that resolves; empty ones are skipped. Raises StoreFault."""
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
                # A wrong guess here would commit a segment twice.
                raise ProviderFailure(detail="it does not say whether it takes a key")
            return ResolvedProvider(digest, provider, takes_key)

        answer = await self._caller.call(build, COMMIT_S_MAX)
        if isinstance(answer.value, ResolvedProvider):
            return answer.value
        return NoProvider((answer.failure or Failure("", "")).detail)
