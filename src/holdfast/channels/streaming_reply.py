"""An answer while it is being written, in the messages that a chat app takes.

Whatever fills a message is cut off as it comes, exactly where the whole answer will be cut: what was shown
stays where it is. Only the last piece is held here, and full ones until somebody has taken them.
"""

from holdfast.channels.splitting import Fence, full_piece, pieces

CONTINUATION_MARK = " …"
"""Behind the words of an answer that is still being written: it never ends up as it was begun."""
NumberedPiece = tuple[int, str]
"""A piece, by its place in the answer, and what it says."""


class StreamingReply:
    """One answer. `limit` is how long a piece may be."""

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
        """Whether nothing of it can be read yet."""
        return not self._piece and not self._rest.strip()

    @property
    def is_shown(self) -> bool:
        """Whether a chat has seen any of it."""
        return self._shown_count > 0

    @property
    def has_unseen(self) -> bool:
        """Whether there is a piece that no chat has seen, or none as it stays."""
        return bool(self._full) or (self._shown_count <= self._piece and bool(self._rest.strip()))

    def mark_break(self) -> None:
        """Something that no chat is shown comes between its words: the whole answer ends a line there."""
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
        """What no chat has seen: the pieces that are full, as they stay, and the last as it stands."""
        found, self._full = self._full, []
        self._shown_count = max(self._shown_count, self._piece)
        last = self.last
        if last is not None:
            found.append(last)
            self._shown_count = self._piece + 1
        return found

    def mark_shown(self, piece: int) -> None:
        """A chat has been shown this piece before."""
        self._shown_count = max(self._shown_count, piece + 1)

    @property
    def shown_piece(self) -> NumberedPiece | None:
        """The piece that is being written, if a chat has seen some of it."""
        return self.last if self._shown_count > self._piece else None

    @property
    def last(self) -> NumberedPiece | None:
        """The piece that is being written; None while nothing of it can be read."""
        if not self._rest.strip():
            return None
        if self._shown[0] is not self._rest:
            text = next(pieces(self._rest, self._limit, self._fence)).text.rstrip()
            self._shown = self._rest, text + CONTINUATION_MARK
        return self._piece, self._shown[1]
