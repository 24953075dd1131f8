"""Store the unsent text of each conversation: one draft, the same in every browser."""

from holdfast.domain.errors import TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import TEXT_BYTES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.store.ports import Snapshot, Store

_KIND = "draft"


class Drafts:
    """Drafts in the store's key-value table, masked like messages. A draft is no event of a conversation."""

    def __init__(self, store: Store, mask: MaskFunction = no_mask) -> None:
        self._store = store
        self._mask = mask

    async def read(self, session_id: SessionId) -> str:
        """Return the draft; empty if there is none. Raises NoSuchSession."""

        def read(snapshot: Snapshot) -> bytes | None:
            snapshot.session(session_id)
            return snapshot.item(_KIND, session_id)

        return (await self._store.snapshot(read) or b"").decode()

    async def save(self, session_id: SessionId, text: str) -> str:
        """Replace the draft by `text`, and return it as stored. Raises NoSuchSession, TooLarge."""
        body = self._mask(text).encode()
        if len(body) > TEXT_BYTES_MAX:
            raise TooLarge(what="The draft", size=len(body), limit=TEXT_BYTES_MAX)
        await self._store.session(session_id)
        if body:
            await self._store.put_item(_KIND, session_id, body)
        else:
            await self._store.take_item(_KIND, session_id)
        return body.decode()
