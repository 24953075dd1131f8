"""What runs were told to be, kept by digest: a run that goes on later is told what it was told before.

A text that no open run was told is let go of after a while: marked when that is first seen, and removed when
it still is so long after. Keeping it again takes the mark away: a run that is about to begin loses nothing.
"""

from contextlib import suppress

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.context.context import instructions_digest
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events.facts import ContextPrepared
from holdfast.domain.limits import UNUSED_INSTRUCTIONS_AFTER_MS
from holdfast.store.ports import Store

KIND = "instructions"
"""What they are kept as on the store's shelf."""
_MARK, _END = b"\0unused since ", b"\0"


class InstructionStore:
    """Keeps texts and finds them again. The same text is kept once, whichever runs are told it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def save(self, text: str) -> str:
        """Durable on return; returns the digest. Raises StoreFault."""
        digest, body = instructions_digest(text), text.encode("utf-8", "replace")
        # Looked at each time: what was there may be marked by now, or gone, whoever's clock was wrong.
        if await self._store.item(KIND, digest) != body:
            await self._store.put_item(KIND, digest, body)
        return digest

    async def find(self, digest: str) -> str | None:
        """The text by that digest; None if it is not there. Raises StoreFault."""
        body = await self._store.item(KIND, digest) if digest else None
        return _parse(digest, body)[0].decode("utf-8", "replace") if body is not None else None

    async def prune(self) -> None:
        """Let go of what no open run was told for so long; a run that can still go on is open.

        Of several processes that do it at once each change is made by one, or by none if the text is kept
        meanwhile. Raises StoreFault.
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
        """The digests of all that open runs were told, and runs after them in the same conversations."""
        found: set[str] = set()
        for session_id, run in await self._store.open_runs():
            with suppress(NoSuchSession):  # Deleted just now.
                prepared = await self._store.prepared_contexts(session_id, run.turn)
                facts = [event.fact for event in prepared]
                found |= {fact.instructions_digest for fact in facts if isinstance(fact, ContextPrepared)}
        return frozenset(found)


def _parse(digest: str, body: bytes) -> tuple[bytes, Instant | None]:
    """The text, and since when nobody was told it, if it is marked so."""
    since, end, text = body.removeprefix(_MARK).partition(_END)
    is_marked = body.startswith(_MARK) and bool(end) and since.isdigit()
    # A text may begin as a mark does: what it is called by tells.
    if is_marked and instructions_digest(body.decode("utf-8", "replace")) != digest:
        return text, int(since)
    return body, None
