"""Whether an interrupted run continues by itself: by its conversation, its agent or the settings."""

from collections.abc import Callable

import msgspec

from holdfast.domain.events.facts import Resume
from holdfast.domain.state.rows import SessionRow


class OfAgents(msgspec.Struct, frozen=True):
    """What agents say, by their names; nothing here raises. `resume` is asked in the middle of transactions.

    `workspace` is the folder that a new conversation works in; empty where it gets one of its own.
    """

    resume: Callable[[str], Resume | None] = lambda agent: None
    workspace: Callable[[str], str] = lambda agent: ""


NO_AGENTS = OfAgents()
"""Where nobody has written any."""


class ResumePolicy:
    """What becomes of a run that was cut off; `usual` is the server's own word, and can be changed."""

    def __init__(self, usual: Resume, of_agents: OfAgents) -> None:
        self.usual = usual
        self._of_agents = of_agents

    def of(self, session: SessionRow | None) -> Resume:
        if session is None:
            return self.usual
        return session.resume or self._of_agents.resume(session.agent) or self.usual
