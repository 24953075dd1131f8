"""Read agents and prompts from `agents/NAME.toml` and `prompts/NAME.md` in the data folder."""

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
"""The main agent while its file is invalid and its last valid text is unknown."""


class AgentFiles:
    """The agents of this server. `tools` returns the names of the server's own tools.

    `workspace_problem` returns why tools cannot work in a folder, without its name; empty if they can. With
    `keep_copies`, the last valid text of a file is stored for a server that starts when it is invalid.
    """

    def __init__(
        self, base: Path, tools: Callable[[], Collection[str]], clock: Clock, notify: Notify,
        mask: MaskFunction = no_mask, workspace_problem: Callable[[str], str] = lambda workspace: "",
        keep_copies: bool = False,
    ) -> None:  # fmt: skip
        self._tools = tools
        self._workspace_problem = workspace_problem
        file_format = FileFormat[AgentSpec](
            "agents", ".toml", agents.is_valid_name, self.check,
            lambda file, problem: BadAgent(file=file, problem=problem),
        )  # fmt: skip
        copies = LastGoodCopies(base / file_format.folder, file_format.suffix, keep_copies)
        self.files = WatchedFiles(base, file_format, clock, notify, mask, copies)

    def spec(self, name: str) -> AgentSpec:
        """Return the agent as in the last valid text of its file. Raises NoSuchAgent, BadAgent.

        The main agent answers even without one: with the defaults, but asking before each call.
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
        """Parse an agent file. Raises BadAgent."""
        spec = agents.parse(name, text, self._tools())
        for key, model in (("model", spec.model), *(("fallbacks", model) for model in spec.fallbacks)):
            if model and not _is_possible_model(model):
                known = ", ".join(provider.name for provider in PROVIDERS)
                problem = f"{key} must be PROVIDER:MODEL, {LOCAL} or {DEMO}, with a PROVIDER of: {known}"
                raise BadAgent(file=agents.file_name(name), problem=problem)
        if spec.workspace and (why := self._workspace_problem(spec.workspace)):
            raise BadAgent(file=agents.file_name(name), problem=f"workspace {why}")
        return spec

    def names(self) -> list[str]:
        """Return the names of all agents, the main agent first."""
        found, _ = self.files.names()
        return [MAIN_AGENT, *(name for name in found if name != MAIN_AGENT)]

    def read_all(self) -> None:
        """Read all files, so that the resume policies of earlier runs are known."""
        self.files.read_all()

    def problems(self) -> list[str]:
        """Return what is wrong with the files now, in sentences."""
        return self.files.problems()

    def resume_policy(self, name: str) -> ResumeMode | None:
        """Return an agent's policy for interrupted runs, as last read; None if it has none."""
        spec = self.files.get_cached(name or MAIN_AGENT)
        return spec.resume if spec is not None else None

    def workspace(self, name: str) -> str:
        """Return the folder of an agent's new conversations; empty if each gets its own."""
        found = self.files.get(name or MAIN_AGENT)
        return found.last_good.workspace if found is not None and found.last_good is not None else ""


class PromptFiles:
    """The prompts of this server."""

    def __init__(self, base: Path, clock: Clock, notify: Notify, mask: MaskFunction = no_mask) -> None:
        file_format = FileFormat[Prompt](
            "prompts", ".md", prompts.is_valid_name, prompts.parse,
            lambda file, problem: BadPrompt(file=file, problem=problem),
        )  # fmt: skip
        self.files = WatchedFiles(base, file_format, clock, notify, mask)

    def expand(self, text: str) -> str:
        """Expand a message that calls a prompt; return any other unchanged. Raises TooLarge."""
        call = prompts.parse_call(text)
        found = self.files.get(call[0]) if call is not None else None
        if call is None or found is None or found.last_good is None:
            return text
        return found.last_good.expand(call[1])

    def all(self) -> list[Prompt]:
        states = [self.files.get(name) for name in self.files.names()[0]]
        return [state.last_good for state in states if state is not None and state.last_good is not None]

    def descriptions(self) -> list[tuple[str, str]]:
        """Return the prompts' names and their first lines."""
        return [(prompt.name, prompt.about) for prompt in self.all()]

    def problems(self) -> list[str]:
        """Return what is wrong with the files now, in sentences."""
        return self.files.problems()


def _is_possible_model(model: str) -> bool:
    """Return whether a provider may offer a model of that name."""
    if model == DEMO or is_local_model(model):
        return True
    try:
        parse_model_name(model)
    except NoSuchModel:
        return False
    return True
