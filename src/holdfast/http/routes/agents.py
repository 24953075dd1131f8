"""List agents and prompts over HTTP, change an agent's file, and preview its prompt."""

from typing import Annotated, Any

import msgspec
from litestar import delete, get, put
from litestar.params import FromPath, FromQuery, HeaderParameter

from holdfast.agent.config.info import (
    AgentInfo,
    AgentListing,
    AgentPrompt,
    AgentService,
    AgentText,
    PromptInfo,
    PromptListing,
    ToolInfo,
)
from holdfast.domain.agents import AgentChanged, BadAgent, NoSuchAgent
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX
from holdfast.http.errors import BadRequest
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import RequestBody
from holdfast.settings.info import CannotEditSettings

NO_FILE = "*"
"""The If-None-Match value for: the file must not exist yet."""
IfMatch = Annotated[
    str | None, HeaderParameter(name="If-Match", description="The digest of the file that is to be changed.")
]
IfNoneMatch = Annotated[
    str | None, HeaderParameter(name="If-None-Match", description="`*`: there must be no such file yet.")
]
_TEXT = 'description = "Reads, and changes nothing."\ntools = ["read_file", "list_files"]\n'
_AGENT = AgentInfo(
    "reader", "Reads, and changes nothing.", tools=("read_file", "list_files"),
    digest="5f0c3a5b2d1e4f6079a8b7c6d5e4f302",
)  # fmt: skip
_LIST = AgentListing((AgentInfo("main"), _AGENT), (), ("shell", "read_file", "write_file", "list_files"))
_PROMPT = AgentPrompt(
    "reader", "openai:gpt-5.4-mini", "You are an assistant that works on the user's own machine.",
    (ToolInfo("list_files", "List a folder.", {"type": "object"}),), 120, 128_000,
)  # fmt: skip
_PROMPTS = PromptListing((PromptInfo("review", "Look through the changes, and say what is wrong."),))


class NewAgentText(RequestBody, frozen=True):
    """What an agent's file is to say, in TOML."""

    text: Annotated[str, msgspec.Meta(max_length=AGENT_FILE_BYTES_MAX)]


class AgentRoutes:
    """Serve `/api/agents`, each agent, and `/api/prompts`."""

    def __init__(self, service: AgentService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        named, one = "/api/agents/{name:str}", AgentText(_AGENT, _TEXT)
        written = response_specs(
            200, AgentText, one, BadAgent, AgentChanged, CannotEditSettings, has_body=True
        )
        removed = response_specs(204, None, None, NoSuchAgent, AgentChanged, CannotEditSettings)
        shown = response_specs(200, AgentPrompt, _PROMPT, NoSuchAgent, BadAgent, NoSuchSession)
        return [
            get("/api/agents", responses=response_specs(200, AgentListing, _LIST))(self.list_),
            get(named, responses=response_specs(200, AgentText, one, NoSuchAgent))(self.show),
            put(named, responses=written)(self.write),
            delete(named, responses=removed)(self.remove),
            get(f"{named}/prompt", responses=shown)(self.prompt),
            get("/api/prompts", responses=response_specs(200, PromptListing, _PROMPTS))(self.prompts),
        ]

    async def list_(self) -> AgentListing:
        """Every agent as it is in force, with what is wrong with its file, and every tool there is."""
        return self._service.list_all()

    async def show(self, name: FromPath[str]) -> AgentText:
        """One agent, and what its file says."""
        return self._service.get_text(name)

    async def write(
        self,
        name: FromPath[str],
        data: Annotated[NewAgentText, request_body({"text": _TEXT})],
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
    ) -> AgentText:
        """Check a text and put it into the agent's file. Runs that begin after this have it."""
        return await self._service.write(name, data.text, _expected_digest(if_match, if_none_match))

    async def remove(self, name: FromPath[str], if_match: IfMatch = None) -> None:
        """Take the agent's file away. `main` is then as it is without one."""
        await self._service.remove(name, _expected_digest(if_match, None))

    async def prompt(self, name: FromPath[str], session_id: FromQuery[str | None] = None) -> AgentPrompt:
        """What the agent's model is sent before what is said: in a conversation, or in a new one."""
        return await self._service.preview_prompt(
            name, SessionId(session_id) if session_id is not None else None
        )

    async def prompts(self) -> PromptListing:
        """Every prompt that can be called by a slash and its name."""
        return self._service.prompts()


def _expected_digest(if_match: str | None, if_none_match: str | None) -> str | None:
    """Return the expected digest of the file; empty: there must be no file yet. Raises BadRequest."""
    if if_none_match is not None:
        if if_none_match.strip() != NO_FILE or if_match is not None:
            raise BadRequest(why="If-None-Match must be *, and without If-Match")
        return ""
    return if_match.strip().removeprefix('"').removesuffix('"') if if_match is not None else None
