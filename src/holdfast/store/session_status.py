"""The port of a store for the status of sessions: unread, waiting for a person, pinned."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Effect, WaitReason
from holdfast.domain.ids import CallId, RunId, Seq, SessionId
from holdfast.domain.state.rows import SessionRow


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that waits for a person, about a tool call or, without one, about the run itself.

    `may_have_run`: the process that executed the call is gone, and its outcome is unknown. `question` is the
    agent's question. A person answers it with text, or with one of the `choices`, or with several if
    `multiple`.
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
    """A session's status in the list: its unread mark, its open questions, its pin.

    `opening` is the beginning of the first message, for a session without a title.
    """

    row: SessionRow
    unread: bool
    questions: tuple[OpenQuestion, ...]
    pinned: bool = False
    opening: str = ""


class SessionOverview(msgspec.Struct, frozen=True):
    """The newest sessions, the pinned ones and all that are not idle, within limits.

    `has_more`: the store has other sessions too.
    """

    statuses: tuple[SessionStatus, ...]
    questions: tuple[OpenQuestion, ...]
    has_more: bool


class SessionWatch(Protocol):
    """The changed sessions, for a watcher of all sessions."""

    def take_changed(self) -> frozenset[SessionId] | None:
        """Return the sessions that changed since the last call; None if too many changed to list."""


class SessionStatusStore(Protocol):
    """Read and change the status of sessions, and watch it change."""

    async def overview(self) -> SessionOverview:
        """Return what a session list shows first, as of one moment."""

    async def session_statuses(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, SessionStatus]:
        """Return the status of these sessions, as of one moment. Deleted ones are missing."""

    async def questions(self, limit: int) -> Sequence[OpenQuestion]:
        """Return the open questions of all sessions, oldest first."""

    async def unread(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Return those of the sessions with output past the read mark and past the user's last message.

        A session whose last turn is a copy, or is undone, has nothing unread.
        """

    async def mark_read(self, session_id: SessionId, seq: Seq) -> None:
        """Record that the user has read everything up to `seq`. The mark never moves back.

        Raises NoSuchSession, and BadCursor for a seq past the head.
        """

    async def pin(self, session_id: SessionId, pinned: bool) -> None:
        """Pin a session to the top of the list, or unpin it. Raises NoSuchSession and TooLarge."""

    async def pinned(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        """Return those of the sessions that are pinned."""

    async def mark_changes_since(self, number: int) -> tuple[int, frozenset[SessionId] | None]:
        """Return the number of the last mark or pin change, and the sessions changed after change `number`.

        The changes of every process count. The sessions are None if there are too many to list, or if the
        numbers started over.
        """

    def watch(self, notify: Callable[[], None]) -> AbstractContextManager[SessionWatch]:
        """Watch every change that a session list could show, by any process; `notify` announces changes.

        Marks and pins that other processes move do not trigger it: poll `mark_changes_since` for those.
        """
