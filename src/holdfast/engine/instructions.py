"""Store the instructions of runs by digest, so that a resumed run gets the same ones.

A sweep marks a text that no open run has, and removes it when it is still unused long after. Saving the text
again removes the mark, so a run that is about to begin loses nothing.
"""

from contextlib import suppress

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.context.context import instructions_digest
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events.facts import ContextPrepared
from holdfast.domain.limits import UNUSED_INSTRUCTIONS_AFTER_MS
from holdfast.store.ports import Store

KIND = "instructions"
"""The kind of these items in the store's key-value table."""
_MARK, _END = b"\0unused since ", b"\0"


class InstructionStore:
    """Save and find instructions. The same text is stored once, for all runs that have it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def save(self, text: str) -> str:
        """Save a text and return its digest. Durable on return. Raises StoreFault."""
        digest, body = instructions_digest(text), text.encode("utf-8", "replace")
        # Read each time: another process, perhaps with a wrong clock, may have marked or removed it.
        if await self._store.item(KIND, digest) != body:
            await self._store.put_item(KIND, digest, body)
        return digest

    async def find(self, digest: str) -> str | None:
        """Return the text with that digest, or None. Raises StoreFault."""
        body = await self._store.item(KIND, digest) if digest else None
        return _parse(digest, body)[0].decode("utf-8", "replace") if body is not None else None

    async def prune(self) -> None:
        """Remove the texts that no open run has had for long; a run that can continue is open.

        If several processes do this at once, only one makes each change, and none does if a run saves the
        text meanwhile. Raises StoreFault.
        """
        stored = await self._store.items(KIND)
        in_use = await self._digests_in_use() if stored else frozenset()
        now = self._clock.now_ms()
        for digest, body in stored.items():
            text, since = _parse(digest, body)
            if digest in in_use and since is not None:
                await self._store.compare_and_swap_item(KIND, digest, body, text)
            elif digest not in in_use and since is None:
                await self._store.compare_and_swap_item(
                    KIND, digest, body, _MARK + str(now).encode() + _END + text
                )
            elif digest not in in_use and since is not None and now - since >= UNUSED_INSTRUCTIONS_AFTER_MS:
                await self._store.compare_and_swap_item(KIND, digest, body, None)

    async def _digests_in_use(self) -> frozenset[str]:
        """Return the digests of open runs, and of later runs in the same conversations."""
        digests: set[str] = set()
        for session_id, run in await self._store.open_runs():
            with suppress(NoSuchSession):  # Deleted just now.
                prepared = await self._store.prepared_contexts(session_id, run.turn)
                facts = [event.fact for event in prepared]
                digests |= {fact.instructions_digest for fact in facts if isinstance(fact, ContextPrepared)}
        return frozenset(digests)


def _parse(digest: str, body: bytes) -> tuple[bytes, Instant | None]:
    """Return the text, and the time since which it is marked as unused, if it is."""
    since, end, text = body.removeprefix(_MARK).partition(_END)
    is_marked = body.startswith(_MARK) and bool(end) and since.isdigit()
    # A text may itself begin like a mark: its digest decides.
    if is_marked and instructions_digest(body.decode("utf-8", "replace")) != digest:
        return text, int(since)
    return body, None
