"""Agents and prompts where people write them: `agents/NAME.toml` and `prompts/NAME.md` in the data folder."""

from collections.abc import Callable, Collection
from pathlib import Path

from holdfast.agent.config.watched_files import FileFormat, LastGoodCopies, WatchedFiles
from holdfast.domain import agents, prompts
from holdfast.domain.agents import MAIN_AGENT, AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.clock import Clock
from holdfast.domain.context.request import DEMO
from holdfast.domain.events.facts import ResumeMode
from holdfast.domain.prompts import BadPrompt, Prompt
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.models.local.info import LOCAL
from holdfast.models.ports import NoSuchModel
from holdfast.models.providers import PROVIDERS, is_local_model, parse_model_name

Notify = Callable[[str], None]
FALLBACK_SPEC = AgentSpec(approvals="ask")
"""The agent that every server has, while nobody knows what its file would keep from it."""


class AgentFiles:
    """The agents of this server. `tools` gives the names of those tools that it has of its own.

    `closed` says why none can work in a folder, in words after its name; nothing where they can. `keeps`:
    what a file says while it is right is kept for a server that starts when it is not.
    """

    def __init__(
        self, base: Path, tools: Callable[[], Collection[str]], clock: Clock, notify: Notify,
        mask: MaskFunction = no_mask, workspace_problem: Callable[[str], str] = lambda workspace: "",
        keep_copies: bool = False,
    ) -> None:  # fmt: skip
        self._tools = tools
        self._workspace_problem = workspace_problem
        kind = FileFormat[AgentSpec](
            "agents", ".toml", agents.is_valid_name, self.check,
            lambda file, problem: BadAgent(file=file, problem=problem),
        )  # fmt: skip
        kept = LastGoodCopies(base / kind.folder, kind.suffix, keep_copies)
        self.files = WatchedFiles(base, kind, clock, notify, mask, kept)

    def spec(self, name: str) -> AgentSpec:
        """The agent as it is written now, or as it was last written well. Raises NoSuchAgent, BadAgent.

        The one that every server has answers even if it never was: as without a file, but asking first.
        """
        name = name or MAIN_AGENT
        found = self.files.get(name)
        if found is None:
            if name == MAIN_AGENT:
                return AgentSpec()
            raise NoSuchAgent(name=name, known=", ".join(self.names()))
        if found.last_good is not None:
            return found.last_good
        if name == MAIN_AGENT:
            return FALLBACK_SPEC
        assert found.problem is not None, "what was not read well has a problem"
        raise BadAgent(**found.problem.fields)

    def check(self, name: str, text: str) -> AgentSpec:
        """The agent that a text says. Raises BadAgent."""
        spec = agents.parse(name, text, self._tools())
        for key, model in (("model", spec.model), *(("fallbacks", each) for each in spec.fallbacks)):
            if model and not _is_possible_model(model):
                known = ", ".join(provider.name for provider in PROVIDERS)
                problem = f"{key} must be PROVIDER:MODEL, {LOCAL} or {DEMO}, with a PROVIDER of: {known}"
                raise BadAgent(file=agents.file_name(name), problem=problem)
        if spec.workspace and (why := self._workspace_problem(spec.workspace)):
            raise BadAgent(file=agents.file_name(name), problem=f"workspace {why}")
        return spec

    def names(self) -> list[str]:
        """All there are, the one that every server has first."""
        found, _ = self.files.names()
        return [MAIN_AGENT, *(name for name in found if name != MAIN_AGENT)]

    def read_all(self) -> None:
        """Know all of them, so that what they say of runs from before is known."""
        self.files.read_all()

    def problems(self) -> list[str]:
        """What is wrong with the files that are there now, in sentences."""
        return self.files.problems()

    def resume_policy(self, name: str) -> ResumeMode | None:
        """What an agent says of runs that were cut off, as far as that is known."""
        spec = self.files.get_cached(name or MAIN_AGENT)
        return spec.resume if spec is not None else None

    def workspace(self, name: str) -> str:
        """The folder that an agent's new conversations work in; empty where each gets its own."""
        found = self.files.get(name or MAIN_AGENT)
        return found.last_good.workspace if found is not None and found.last_good is not None else ""


class PromptFiles:
    """The prompts of this server."""

    def __init__(self, base: Path, clock: Clock, notify: Notify, mask: MaskFunction = no_mask) -> None:
        kind = FileFormat[Prompt](
            "prompts", ".md", prompts.is_valid_name, prompts.parse,
            lambda file, problem: BadPrompt(file=file, problem=problem),
        )  # fmt: skip
        self.files = WatchedFiles(base, kind, clock, notify, mask)

    def expand(self, text: str) -> str:
        """What a message says: of one that calls a prompt, what that says. Raises TooLarge."""
        call = prompts.parse_call(text)
        found = self.files.get(call[0]) if call is not None else None
        if call is None or found is None or found.last_good is None:
            return text
        return found.last_good.expand(call[1])

    def all(self) -> list[Prompt]:
        found = [self.files.get(name) for name in self.files.names()[0]]
        return [each.last_good for each in found if each is not None and each.last_good is not None]

    def descriptions(self) -> list[tuple[str, str]]:
        """Their names, and how each begins."""
        return [(each.name, each.about) for each in self.all()]

    def problems(self) -> list[str]:
        """What is wrong with the files that are there now, in sentences."""
        return self.files.problems()


def _is_possible_model(model: str) -> bool:
    """Whether somebody may offer a model of that name."""
    if model == DEMO or is_local_model(model):
        return True
    try:
        parse_model_name(model)
    except NoSuchModel:
        return False
    return True
