"""What somebody is writing and has not sent: one draft per conversation, the same in every browser."""

from holdfast.domain.errors import TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import TEXT_BYTES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.store.ports import Snapshot, Store

_KIND = "draft"


class Drafts:
    """Kept on the store's shelf: a draft is no fact of a conversation. Like a message, it holds no secret."""

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
        """Put `text` in place of the draft, and return it as it is kept. Raises NoSuchSession, TooLarge."""
        body = self._mask(text).encode()
        if len(body) > TEXT_BYTES_MAX:
            raise TooLarge(what="The draft", size=len(body), limit=TEXT_BYTES_MAX)
        await self._store.session(session_id)
        if body:
            await self._store.put_item(_KIND, session_id, body)
        else:
            await self._store.take_item(_KIND, session_id)
        return body.decode()
