"""Whether an interrupted run continues by itself: by its conversation, its agent or the settings."""

from collections.abc import Callable

import msgspec

from holdfast.domain.events.facts import ResumeMode
from holdfast.domain.state.rows import SessionRow


class AgentDefaults(msgspec.Struct, frozen=True):
    """What agents say, by their names; nothing here raises. `resume` is asked in the middle of transactions.

    `workspace` is the folder that a new conversation works in; empty where it gets one of its own.
    """

    resume: Callable[[str], ResumeMode | None] = lambda agent: None
    workspace: Callable[[str], str] = lambda agent: ""


NO_AGENT_DEFAULTS = AgentDefaults()
"""Where nobody has written any."""


class ResumePolicy:
    """What becomes of a run that was cut off; `usual` is the server's own word, and can be changed."""

    def __init__(self, default: ResumeMode, agent_defaults: AgentDefaults) -> None:
        self.default = default
        self._agent_defaults = agent_defaults

    def policy_for(self, session: SessionRow | None) -> ResumeMode:
        if session is None:
            return self.default
        return session.resume or self._agent_defaults.resume(session.agent) or self.default
