"""Agents and prompts over HTTP: what there is, changing an agent's file, what its model is sent."""

from typing import Annotated, Any

import msgspec
from litestar import delete, get, put
from litestar.params import FromPath, FromQuery, HeaderParameter

from holdfast.agent.config.info import (
    AgentDesk,
    AgentPrompt,
    AgentsTold,
    AgentText,
    AgentTold,
    PromptsTold,
    PromptTold,
    ToolShown,
)
from holdfast.domain.agents import AgentChanged, BadAgent, NoSuchAgent
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX
from holdfast.http.errors import BadRequest
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import Sent
from holdfast.settings.info import CannotEditSettings

NO_FILE = "*"
"""What If-None-Match says: there must be none yet."""
IfMatch = Annotated[
    str | None, HeaderParameter(name="If-Match", description="The digest of the file that is to be changed.")
]
IfNoneMatch = Annotated[
    str | None, HeaderParameter(name="If-None-Match", description="`*`: there must be no such file yet.")
]
_TEXT = 'description = "Reads, and changes nothing."\ntools = ["read_file", "list_files"]\n'
_AGENT = AgentTold(
    "reader", "Reads, and changes nothing.", tools=("read_file", "list_files"),
    digest="5f0c3a5b2d1e4f6079a8b7c6d5e4f302",
)  # fmt: skip
_LIST = AgentsTold((AgentTold("main"), _AGENT), (), ("shell", "read_file", "write_file", "list_files"))
_SHOWN = AgentPrompt(
    "reader", "openai:gpt-5.4-mini", "You are an assistant that works on the user's own machine.",
    (ToolShown("list_files", "List a folder.", {"type": "object"}),), 120, 128_000,
)  # fmt: skip
_PROMPTS = PromptsTold((PromptTold("review", "Look through the changes, and say what is wrong."),))


class NewAgentText(Sent, frozen=True):
    """What an agent's file is to say, in TOML."""

    text: Annotated[str, msgspec.Meta(max_length=AGENT_FILE_BYTES_MAX)]


class AgentRoutes:
    """`/api/agents`, each of them, and `/api/prompts`."""

    def __init__(self, desk: AgentDesk) -> None:
        self._desk = desk

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        named, one = "/api/agents/{name:str}", AgentText(_AGENT, _TEXT)
        written = answers(200, AgentText, one, BadAgent, AgentChanged, CannotEditSettings, sends=True)
        removed = answers(204, None, None, NoSuchAgent, AgentChanged, CannotEditSettings)
        shown = answers(200, AgentPrompt, _SHOWN, NoSuchAgent, BadAgent, NoSuchSession)
        return [
            get("/api/agents", responses=answers(200, AgentsTold, _LIST))(self.list_),
            get(named, responses=answers(200, AgentText, one, NoSuchAgent))(self.show),
            put(named, responses=written)(self.write),
            delete(named, responses=removed)(self.remove),
            get(f"{named}/prompt", responses=shown)(self.prompt),
            get("/api/prompts", responses=answers(200, PromptsTold, _PROMPTS))(self.prompts),
        ]

    async def list_(self) -> AgentsTold:
        """Every agent as it is in force, with what is wrong with its file, and every tool there is."""
        return self._desk.told()

    async def show(self, name: FromPath[str]) -> AgentText:
        """One agent, and what its file says."""
        return self._desk.show(name)

    async def write(
        self,
        name: FromPath[str],
        data: Annotated[NewAgentText, body({"text": _TEXT})],
        if_match: IfMatch = None,
        if_none_match: IfNoneMatch = None,
    ) -> AgentText:
        """Check a text and put it into the agent's file. Runs that begin after this have it."""
        return await self._desk.write(name, data.text, _expected(if_match, if_none_match))

    async def remove(self, name: FromPath[str], if_match: IfMatch = None) -> None:
        """Take the agent's file away. `main` is then as it is without one."""
        await self._desk.remove(name, _expected(if_match, None))

    async def prompt(self, name: FromPath[str], session_id: FromQuery[str | None] = None) -> AgentPrompt:
        """What the agent's model is sent before what is said: in a conversation, or in a new one."""
        return await self._desk.prompt(name, SessionId(session_id) if session_id is not None else None)

    async def prompts(self) -> PromptsTold:
        """Every prompt that can be called by a slash and its name."""
        return self._desk.prompts()


def _expected(if_match: str | None, if_none_match: str | None) -> str | None:
    """The digest of what is to be changed; empty: there is nothing yet. Raises BadRequest."""
    if if_none_match is not None:
        if if_none_match.strip() != NO_FILE or if_match is not None:
            raise BadRequest(why="If-None-Match must be *, and without If-Match")
        return ""
    return if_match.strip().removeprefix('"').removesuffix('"') if if_match is not None else None
