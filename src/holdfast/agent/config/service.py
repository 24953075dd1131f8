"""List, check, change and preview agents while the server runs."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from holdfast.agent.config.files import AgentFiles, PromptFiles
from holdfast.agent.config.info import (
    AgentInfo,
    AgentListing,
    AgentPrompt,
    AgentText,
    PromptInfo,
    PromptListing,
    ToolInfo,
    agent_info,
)
from holdfast.agent.config.watched_files import NAME_RULE, FileState, text_digest
from holdfast.agent.registry import AgentRegistry
from holdfast.domain import agents
from holdfast.domain.agents import MAIN_AGENT, AgentChanged, AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.context.context import estimate_tokens
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.models.request_text import tools_tokens
from holdfast.settings.edit import replace_file
from holdfast.settings.info import CannotEditSettings

NO_SESSION = SessionId("new")
"""The session id for the preview of a conversation that does not exist yet."""


class AgentReader:
    """Read agents and prompts. `tools` returns the names of all tools at the moment.

    `unavailable_reason` returns why a model cannot be asked, in a sentence; empty if it can.
    """

    def __init__(
        self,
        files: AgentFiles,
        prompts: PromptFiles,
        tools: Callable[[], Iterable[str]],
        unavailable_reason: Callable[[str], str] = lambda model: "",
    ) -> None:
        self._agents = files
        self._files = files.files
        self._prompts = prompts
        self._tools = tools
        self._unavailable_reason = unavailable_reason

    def list_all(self) -> AgentListing:
        """Return every agent, as its file is now."""
        problems = self._files.names()[1]
        found = tuple(self._info(name, self._files.get(name)) for name in self._agents.names())
        return AgentListing(found, tuple(problems), tuple(self._tools()))

    def all(self) -> tuple[AgentInfo, ...]:
        return self.list_all().agents

    def get(self, name: str) -> AgentInfo:
        """Return an agent. Raises NoSuchAgent."""
        return self.get_text(name).agent

    def get_text(self, name: str) -> AgentText:
        """Return an agent and the text of its file. Raises NoSuchAgent."""
        name = name or MAIN_AGENT
        found = self._files.get(name)
        if found is None and name != MAIN_AGENT:
            raise NoSuchAgent(name=name[:80], known=", ".join(self._agents.names()))
        return AgentText(self._info(name, found), found.text if found is not None else "")

    def prompts(self) -> PromptListing:
        """Return every prompt, as its file is now."""
        prompts = tuple(PromptInfo(prompt.name, prompt.about) for prompt in self._prompts.all())
        return PromptListing(prompts, tuple(self._prompts.problems()))

    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the files now, in sentences."""
        return (*self._agents.problems(), *self._prompts.problems(), *self._unavailable_models())

    def _unavailable_models(self) -> list[str]:
        """Return the problems of models that agents name and that cannot be asked."""
        states = [self._files.get(name) for name in self._agents.names()]
        specs = [state.last_good for state in states if state is not None and state.last_good is not None]
        return [
            f"{agents.file_name(spec.name)}: {problem}"
            for spec in specs
            for problem in self._unavailable_models_of(spec)
        ]

    def _unavailable_models_of(self, spec: AgentSpec) -> tuple[str, ...]:
        """Return the same problems for one agent, in sentences."""
        reasons = [
            (model, self._unavailable_reason(model)) for model in (spec.model, *spec.fallbacks) if model
        ]
        return tuple(f"{model} cannot be asked: {reason}" for model, reason in reasons if reason)

    def _info(self, name: str, found: FileState[AgentSpec] | None) -> AgentInfo:
        if found is None:
            return agent_info(AgentSpec(name=name))
        error, digest = str(found.problem or ""), text_digest(found.text)
        if found.last_good is None:
            if name == MAIN_AGENT:
                return agent_info(self._agents.spec(name), error, digest)
            return AgentInfo(name, answers=False, error=error, digest=digest)
        return agent_info(
            found.last_good, error, digest, self._unavailable_models_of(found.last_good), stays=bool(error)
        )


class AgentFileService(AgentReader):
    """Read and change agent files.

    `session` loads a session, and `workspace` returns its folder. `workspace_problem` returns why tools
    cannot work in a folder now, without its name; empty if they can.
    """

    def __init__(
        self,
        files: AgentFiles,
        prompts: PromptFiles,
        registry: AgentRegistry,
        session: Callable[[SessionId], Awaitable[SessionRow]],
        workspace: Callable[[SessionId, str], Path],
        tools: Callable[[], Iterable[str]],
        workspace_problem: Callable[[str], str],
        unavailable_reason: Callable[[str], str] = lambda model: "",
    ) -> None:
        super().__init__(files, prompts, tools, unavailable_reason)
        self._registry = registry
        self._session = session
        self._workspace = workspace
        self._workspace_problem = workspace_problem
        self._write_lock = asyncio.Lock()

    async def write(self, name: str, text: str, expect: str | None) -> AgentText:
        """Replace an agent's file if its digest is `expect`; if `expect` is empty, create it.

        Raises BadAgent, AgentChanged, CannotEditSettings, DiskFull.
        """
        if not agents.is_valid_name(name):
            raise BadAgent(file=agents.file_name(name[:80]), problem=NAME_RULE)
        if len(text.encode("utf-8", "replace")) > AGENT_FILE_BYTES_MAX:
            problem = f"this has more than {AGENT_FILE_BYTES_MAX:,} bytes"
            raise BadAgent(file=agents.file_name(name), problem=problem)
        spec = self._agents.check(name, text)
        if spec.workspace and (why := await asyncio.to_thread(self._workspace_problem, spec.workspace)):
            raise BadAgent(file=agents.file_name(name), problem=f"workspace {why}")
        async with self._write_lock:
            self._check(name, expect)
            await self._change(lambda: self._put(self._files.path(name), text))
        return self.get_text(name)

    async def remove(self, name: str, expect: str | None) -> None:
        """Remove an agent's file; without one, the main agent has the defaults.

        Raises NoSuchAgent, AgentChanged, CannotEditSettings.
        """
        async with self._write_lock:
            if self._files.get(name) is None:
                raise NoSuchAgent(name=name[:80], known=", ".join(self._agents.names()))
            self._check(name, expect)
            await self._change(lambda: self._files.path(name).unlink(missing_ok=True))

    async def check_model(self, name: str) -> None:
        """Raise NoSuchModel, NoModelKey or BadModelUrl if there can be no such model."""
        await self._registry.check_model(name)

    async def window_tokens(self, agent: str, model: str) -> int | None:
        """Return the window of a conversation's model in tokens, or None if it is unknown."""
        try:
            async with self._registry.get_handle(agent, model).acquire() as (_, pooled):
                return pooled.model.profile.window_tokens
        except HoldfastError:
            return None

    def model_name(self, agent: str, model: str) -> str:
        """Return the name of the model that answers in a conversation with these choices."""
        return model or self._registry.model_for(agent)

    async def preview_prompt(self, name: str, session_id: SessionId | None) -> AgentPrompt:
        """Return an agent's prompt. Raises NoSuchAgent, BadAgent, NoSuchSession, NoSuchModel…"""
        spec = self._agents.spec(name)
        session = await self._session(session_id) if session_id is not None else None
        chosen, model = (session.workspace, session.model) if session is not None else (spec.workspace, "")
        workspace = self._workspace(session_id or NO_SESSION, chosen)
        preview = await self._registry.get_handle(spec.stored_name, model).preview(workspace)
        tools = tuple(ToolInfo(tool.name, tool.description, tool.parameters) for tool in preview.tools)
        tokens = estimate_tokens(preview.instructions) + tools_tokens(preview.tools)
        return AgentPrompt(
            spec.name, preview.model, preview.instructions, tools, tokens, preview.window_tokens
        )

    def _check(self, name: str, expect: str | None) -> None:
        found = self._files.get(name)
        if expect is not None and expect != (text_digest(found.text) if found is not None else ""):
            raise AgentChanged(name=name)

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        replace_file(path, text)

    async def _change(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DiskFull(path=self._files.folder) from None
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._files.folder, why=why) from None
