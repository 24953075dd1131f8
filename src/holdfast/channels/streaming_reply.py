"""Split an answer in progress into messages of a chat app.

Each full piece is cut exactly where the finished answer will be cut, so shown text never moves. The reply
holds only the last piece, and full ones until they are taken.
"""

from holdfast.channels.splitting import Fence, full_piece, pieces

CONTINUATION_MARK = " …"
"""The suffix of an unfinished answer, so that an unfinished text never equals the finished one."""
NumberedPiece = tuple[int, str]
"""The index of a piece in the answer, and its text."""


class StreamingReply:
    """One answer in progress. `limit` is the maximum length of a piece."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = ""
        self._fence: Fence = None
        self._full: list[NumberedPiece] = []
        self._piece = 0
        self._shown_count = 0
        self._shown = "", ""
        self._has_text = False
        self._has_break = False

    @property
    def is_blank(self) -> bool:
        """Return whether there is no visible text yet."""
        return not self._piece and not self._rest.strip()

    @property
    def is_shown(self) -> bool:
        """Return whether the chat has seen any piece."""
        return self._shown_count > 0

    @property
    def has_unseen(self) -> bool:
        """Return whether there is a new piece, or a full one that was shown only in part."""
        return bool(self._full) or (self._shown_count <= self._piece and bool(self._rest.strip()))

    def mark_break(self) -> None:
        """Record hidden content such as a tool call, after which the answer starts a new line."""
        self._has_break = self._has_text

    def add(self, text: str) -> None:
        if not text:
            return
        self._rest += f"\n{text}" if self._has_break else text
        self._has_text, self._has_break = True, False
        while (found := full_piece(self._rest, self._limit, self._fence)) is not None:
            piece, self._fence = found
            self._rest = self._rest[len(piece.chunk) :]
            if piece.chunk.strip():
                self._full.append((self._piece, piece.text))
                self._piece += 1

    def take_unseen(self) -> list[NumberedPiece]:
        """Return the full pieces and the current state of the last, and mark them as shown."""
        found, self._full = self._full, []
        self._shown_count = max(self._shown_count, self._piece)
        last = self.last
        if last is not None:
            found.append(last)
            self._shown_count = self._piece + 1
        return found

    def mark_shown(self, piece: int) -> None:
        """Mark a piece as shown."""
        self._shown_count = max(self._shown_count, piece + 1)

    @property
    def shown_piece(self) -> NumberedPiece | None:
        """Return the last piece if the chat has seen some of it."""
        return self.last if self._shown_count > self._piece else None

    @property
    def last(self) -> NumberedPiece | None:
        """Return the last piece; None while it has no visible text."""
        if not self._rest.strip():
            return None
        if self._shown[0] is not self._rest:
            text = next(pieces(self._rest, self._limit, self._fence)).text.rstrip()
            self._shown = self._rest, text + CONTINUATION_MARK
        return self._piece, self._shown[1]
