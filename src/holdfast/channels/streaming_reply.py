"""An answer while it is being written, in the messages that a chat app takes.

Whatever fills a message is cut off as it comes, exactly where the whole answer will be cut: what was shown
stays where it is. Only the last piece is held here, and full ones until somebody has taken them.
"""

from holdfast.channels.splitting import Fence, full_piece, pieces

GOES_ON = " …"
"""Behind the words of an answer that is still being written: it never ends up as it was begun."""
Said = tuple[int, str]
"""A piece, by its place in the answer, and what it says."""


class Writing:
    """One answer. `limit` is how long a piece may be."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = ""
        self._fence: Fence = None
        self._full: list[Said] = []
        self._piece = 0
        self._begun = 0
        self._shown = "", ""
        self._has_text = False
        self._is_parted = False

    @property
    def is_blank(self) -> bool:
        """Whether nothing of it can be read yet."""
        return not self._piece and not self._rest.strip()

    @property
    def was_begun(self) -> bool:
        """Whether a chat has seen any of it."""
        return self._begun > 0

    @property
    def is_unseen(self) -> bool:
        """Whether there is a piece that no chat has seen, or none as it stays."""
        return bool(self._full) or (self._begun <= self._piece and bool(self._rest.strip()))

    def part(self) -> None:
        """Something that no chat is shown comes between its words: the whole answer ends a line there."""
        self._is_parted = self._has_text

    def add(self, text: str) -> None:
        if not text:
            return
        self._rest += f"\n{text}" if self._is_parted else text
        self._has_text, self._is_parted = True, False
        while (found := full_piece(self._rest, self._limit, self._fence)) is not None:
            piece, self._fence = found
            self._rest = self._rest[len(piece.chunk) :]
            if piece.chunk.strip():
                self._full.append((self._piece, piece.text))
                self._piece += 1

    def begin(self) -> list[Said]:
        """What no chat has seen: the pieces that are full, as they stay, and the last as it stands."""
        found, self._full = self._full, []
        self._begun = max(self._begun, self._piece)
        last = self.last
        if last is not None:
            found.append(last)
            self._begun = self._piece + 1
        return found

    def note_begun(self, piece: int) -> None:
        """A chat has been shown this piece before."""
        self._begun = max(self._begun, piece + 1)

    @property
    def under_way(self) -> Said | None:
        """The piece that is being written, if a chat has seen some of it."""
        return self.last if self._begun > self._piece else None

    @property
    def last(self) -> Said | None:
        """The piece that is being written; None while nothing of it can be read."""
        if not self._rest.strip():
            return None
        if self._shown[0] is not self._rest:
            words = next(pieces(self._rest, self._limit, self._fence)).text.rstrip()
            self._shown = self._rest, words + GOES_ON
        return self._piece, self._shown[1]
