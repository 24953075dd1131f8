"""The port of a store for what a person should look at: what is unread, what waits, what is pinned."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Effect, WaitReason
from holdfast.domain.ids import CallId, RunId, Seq, SessionId
from holdfast.domain.state.rows import SessionRow


class OpenQuestion(msgspec.Struct, frozen=True):
    """Something that waits for a person. With a call it is about that call, else about the run itself.

    `may_have_run`: the process that was to carry the call out is gone, and nobody knows how far it came.
    `question` is what the agent asks: it is answered in words, or where there are `choices` by one of them,
    or by several where `multiple`.
    """

    session_id: SessionId
    title: str
    workspace: str
    run_id: RunId
    kind: WaitReason
    asked_at: Instant
    reason: str = ""
    call_id: CallId | None = None
    name: str = ""
    arguments: str = ""
    arguments_cut: bool = False
    effect: Effect | None = None
    may_have_run: bool = False
    question: str = ""
    choices: tuple[str, ...] = ()
    multiple: bool = False


class SessionStatus(msgspec.Struct, frozen=True):
    """A session as the list shows it now: is there something in it that nobody has read, what does it ask.

    `opening`: how the first message in it begins, where it has no title.
    """

    row: SessionRow
    unread: bool
    questions: tuple[OpenQuestion, ...]
    pinned: bool = False
    opening: str = ""


class SessionOverview(msgspec.Struct, frozen=True):
    """The newest sessions, the pinned ones and all that are not idle, within limits.

    `more`: there are others beside them.
    """

    statuses: tuple[SessionStatus, ...]
    questions: tuple[OpenQuestion, ...]
    has_more: bool


class SessionWatch(Protocol):
    """Which sessions have changed, for one who has all of them in view."""

    def take_changed(self) -> frozenset[SessionId] | None:
        """Those that changed since the last time; None: too many to tell, look at everything."""


class SessionStatusStore(Protocol):
    """What a person should look at: what is unread, what waits for an answer, and that it has changed."""

    async def overview(self) -> SessionOverview:
        """Everything that a list begins with, as of one moment."""

    async def session_statuses(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, SessionStatus]:
        """How these stand, as of one moment. One that is deleted is left out."""

    async def questions(self, limit: int) -> Sequence[OpenQuestion]:
        """What waits for a person in any session, the oldest first."""

    async def unread(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Those of them in which something was said that is past the mark and past what a person sent last.

        Nothing is unread in a session whose last turn is a copy, or was taken back.
        """

    async def mark_read(self, session_id: SessionId, seq: Seq) -> None:
        """Remember that everything up to `seq` was read. The mark never moves back.

        Raises NoSuchSession, and BadCursor for a number that was not given out yet.
        """

    async def pin(self, session_id: SessionId, pinned: bool) -> None:
        """Keep a session at the top of the list, or no longer. Raises NoSuchSession, and TooLarge."""

    async def pinned(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Those of them that are pinned."""

    async def marks_moved_since(self, number: int) -> tuple[int, frozenset[SessionId] | None]:
        """Whose mark or pin was moved after the `number`th move, by any process, and the last one's number.

        None: too many to tell, or the numbers have begun anew.
        """

    def watch(self, notify: Callable[[], None]) -> AbstractContextManager[SessionWatch]:
        """Every change to a session that a list could show, by any process: `ring` says when to take.

        Marks and pins that other processes move are not among them: ask `marks_moved_since`.
        """
