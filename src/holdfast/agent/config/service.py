"""Agents while the server runs: what there is, what is wrong with it, changing one, what a model is sent."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from holdfast.agent.config.files import AgentFiles, PromptFiles
from holdfast.agent.config.info import (
    AgentPrompt,
    AgentsTold,
    AgentText,
    AgentTold,
    PromptsTold,
    PromptTold,
    ToolShown,
    told_of,
)
from holdfast.agent.config.watched_files import NAMED, Reading, digest_of
from holdfast.agent.registry import Switchboard
from holdfast.domain import agents
from holdfast.domain.agents import MAIN, AgentChanged, AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.context.context import estimate_tokens
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.models.request_text import tools_tokens
from holdfast.settings.edit import write_whole
from holdfast.settings.info import CannotEditSettings

NEW = SessionId("new")
"""Stands for a conversation that there is none of yet."""


class AgentReader:
    """What people have written, looked at. `tools` gives the names of all there are at the moment.

    `flaw` says why a model cannot be asked, in a sentence; nothing where it may be.
    """

    def __init__(
        self,
        files: AgentFiles,
        prompts: PromptFiles,
        tools: Callable[[], Iterable[str]],
        flaw: Callable[[str], str] = lambda model: "",
    ) -> None:
        self._agents = files
        self._files = files.files
        self._prompts = prompts
        self._tools = tools
        self._flaw = flaw

    def told(self) -> AgentsTold:
        """Every agent, as its file says now."""
        strays = self._files.names()[1]
        found = tuple(self._told(name, self._files.look(name)) for name in self._agents.names())
        return AgentsTold(found, tuple(strays), tuple(self._tools()))

    def all(self) -> tuple[AgentTold, ...]:
        return self.told().agents

    def one(self, name: str) -> AgentTold:
        """Raises NoSuchAgent."""
        return self.show(name).agent

    def show(self, name: str) -> AgentText:
        """One of them, with what its file says. Raises NoSuchAgent."""
        name = name or MAIN
        found = self._files.look(name)
        if found is None and name != MAIN:
            raise NoSuchAgent(name=name[:80], known=", ".join(self._agents.names()))
        return AgentText(self._told(name, found), found.text if found is not None else "")

    def prompts(self) -> PromptsTold:
        """Every prompt, as its file says now."""
        found = tuple(PromptTold(each.name, each.about) for each in self._prompts.all())
        return PromptsTold(found, tuple(self._prompts.problems()))

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files that are there now, in sentences."""
        return (*self._agents.problems(), *self._prompts.problems(), *self._unasked())

    def _unasked(self) -> list[str]:
        """Models that agents name and that cannot be asked."""
        found = [self._files.look(name) for name in self._agents.names()]
        specs = [each.good for each in found if each is not None and each.good is not None]
        return [f"{agents.file_of(spec.name)}: {told}" for spec in specs for told in self._unasked_of(spec)]

    def _unasked_of(self, spec: AgentSpec) -> tuple[str, ...]:
        """The same of one agent, in sentences."""
        flaws = [(model, self._flaw(model)) for model in (spec.model, *spec.fallbacks) if model]
        return tuple(f"{model} cannot be asked: {flaw}" for model, flaw in flaws if flaw)

    def _told(self, name: str, found: Reading[AgentSpec] | None) -> AgentTold:
        if found is None:
            return told_of(AgentSpec(name=name))
        error, digest = str(found.problem or ""), digest_of(found.text)
        if found.good is None:
            if name == MAIN:
                return told_of(self._agents.spec(name), error, digest)
            return AgentTold(name, answers=False, error=error, digest=digest)
        return told_of(found.good, error, digest, self._unasked_of(found.good), stays=bool(error))


class AgentDesk(AgentReader):
    """What people have written, looked at and changed.

    `session` finds a conversation, and `workspace` the folder of one that has chosen a folder or none.
    `refused` says why none can work in a folder now, in words after its name; nothing where they can.
    """

    def __init__(
        self,
        files: AgentFiles,
        prompts: PromptFiles,
        board: Switchboard,
        session: Callable[[SessionId], Awaitable[SessionRow]],
        workspace: Callable[[SessionId, str], Path],
        tools: Callable[[], Iterable[str]],
        refused: Callable[[str], str],
        flaw: Callable[[str], str] = lambda model: "",
    ) -> None:
        super().__init__(files, prompts, tools, flaw)
        self._board = board
        self._session = session
        self._workspace = workspace
        self._refused = refused
        self._turn = asyncio.Lock()

    async def write(self, name: str, text: str, expect: str | None) -> AgentText:
        """Put a file in place of what was there, if it is as `expect` says; empty: if there is none.

        Raises BadAgent, AgentChanged, CannotEditSettings, DiskFull.
        """
        if not agents.is_name(name):
            raise BadAgent(file=agents.file_of(name[:80]), problem=NAMED)
        if len(text.encode("utf-8", "replace")) > AGENT_FILE_BYTES_MAX:
            problem = f"this has more than {AGENT_FILE_BYTES_MAX:,} bytes"
            raise BadAgent(file=agents.file_of(name), problem=problem)
        spec = self._agents.check(name, text)
        if spec.workspace and (why := await asyncio.to_thread(self._refused, spec.workspace)):
            raise BadAgent(file=agents.file_of(name), problem=f"workspace {why}")
        async with self._turn:
            self._check(name, expect)
            await self._change(lambda: self._put(self._files.path_of(name), text))
        return self.show(name)

    async def remove(self, name: str, expect: str | None) -> None:
        """Take its file away; the agent that every server has is then as it is without one.

        Raises NoSuchAgent, AgentChanged, CannotEditSettings.
        """
        async with self._turn:
            if self._files.look(name) is None:
                raise NoSuchAgent(name=name[:80], known=", ".join(self._agents.names()))
            self._check(name, expect)
            await self._change(lambda: self._files.path_of(name).unlink(missing_ok=True))

    async def check_model(self, name: str) -> None:
        """Be sure that there can be such a model. Raises NoSuchModel, NoModelKey, BadModelUrl."""
        await self._board.check_model(name)

    async def window(self, agent: str, model: str) -> int | None:
        """How many tokens the model of a conversation reads at once; None while it cannot be had."""
        try:
            async with self._board.at(agent, model).in_use() as (_, seat):
                return seat.model.profile.window_tokens
        except HoldfastError:
            return None

    def model(self, agent: str, model: str) -> str:
        """The name of the model that answers in a conversation which has chosen these, or neither."""
        return model or self._board.model_of(agent)

    async def prompt(self, name: str, session_id: SessionId | None) -> AgentPrompt:
        """What its model is sent, word for word. Raises NoSuchAgent, BadAgent, NoSuchSession, NoSuchModel…"""
        spec = self._agents.spec(name)
        session = await self._session(session_id) if session_id is not None else None
        chosen, model = (session.workspace, session.model) if session is not None else (spec.workspace, "")
        workspace = self._workspace(session_id or NEW, chosen)
        shown = await self._board.at(spec.session_name, model).shown(workspace)
        tools = tuple(ToolShown(each.name, each.description, each.parameters) for each in shown.tools)
        tokens = estimate_tokens(shown.instructions) + tools_tokens(shown.tools)
        return AgentPrompt(spec.name, shown.model, shown.instructions, tools, tokens, shown.window_tokens)

    def _check(self, name: str, expect: str | None) -> None:
        found = self._files.look(name)
        if expect is not None and expect != (digest_of(found.text) if found is not None else ""):
            raise AgentChanged(name=name)

    def _put(self, path: Path, text: str) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        write_whole(path, text)

    async def _change(self, change: Callable[[], None]) -> None:
        try:
            await asyncio.to_thread(change)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DiskFull(path=self._files.folder) from None
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._files.folder, why=why) from None
