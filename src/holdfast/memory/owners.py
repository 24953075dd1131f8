"""Who tells memory, kept so that they can be made again after a restart: one copy each, by digest."""

import hashlib

import msgspec

from holdfast.memory.ports import Ledger, Owner

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
