"""What runs were told to be, kept by digest: a run that goes on later is told what it was told before."""

from holdfast.domain.context import instructions_digest
from holdfast.store.ports import Store

KIND = "instructions"
"""What they are kept as on the store's shelf."""


class Instructions:
    """Keeps texts and finds them again. The same text is kept once, whichever runs are told it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: set[str] = set()

    async def keep(self, text: str) -> str:
        """Durable on return; returns the digest. Raises StoreFault."""
        digest = instructions_digest(text)
        if digest not in self._kept:
            await self._store.put_item(KIND, digest, text.encode("utf-8", "replace"))
            self._kept.add(digest)
        return digest

    async def find(self, digest: str) -> str | None:
        """The text by that digest; None if it is not there. Raises StoreFault."""
        body = await self._store.item(KIND, digest) if digest else None
        return body.decode("utf-8", "replace") if body is not None else None
