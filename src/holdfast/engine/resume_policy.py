"""Decide whether an interrupted run resumes: by its conversation, its agent or the settings."""

from collections.abc import Callable

import msgspec

from holdfast.domain.events.facts import ResumeMode
from holdfast.domain.state.rows import SessionRow


class AgentDefaults(msgspec.Struct, frozen=True):
    """Values from agent files, by agent name. Nothing here raises; transactions call `resume`.

    `workspace` is the folder of an agent's new conversations; empty if each gets its own.
    """

    resume: Callable[[str], ResumeMode | None] = lambda agent: None
    workspace: Callable[[str], str] = lambda agent: ""


NO_AGENT_DEFAULTS = AgentDefaults()
"""The defaults without agent files."""


class ResumePolicy:
    """The resume policy of each session. `default` is the server's own and can change."""

    def __init__(self, default: ResumeMode, agent_defaults: AgentDefaults) -> None:
        self.default = default
        self._agent_defaults = agent_defaults

    def policy_for(self, session: SessionRow | None) -> ResumeMode:
        if session is None:
            return self.default
        return session.resume or self._agent_defaults.resume(session.agent) or self.default
