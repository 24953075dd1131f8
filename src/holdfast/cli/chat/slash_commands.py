"""Run slash commands in the terminal; `domain/slash.py` defines and parses them."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import quote

import msgspec

from holdfast.cli.chat.answers import QuestionAnswer, answer_hint
from holdfast.cli.chat.client import Client, RequestRefused, ServerUnavailable
from holdfast.cli.chat.completion import CompletionNames
from holdfast.cli.chat.render import format_proposed_call, numbered_choices, question_text
from holdfast.cli.chat.response_data import (
    AgentData,
    AgentListData,
    MemoryListData,
    ModelListData,
    PromptData,
    PromptListData,
    QuestionData,
    SessionData,
    SessionListData,
)
from holdfast.cli.chat.view_model import ConversationViewModel, Notice, PrintedItem
from holdfast.cli.format import format_age, format_count
from holdfast.domain.agents import MAIN_AGENT
from holdfast.domain.slash import SlashCommand, UnknownCommand, help_text
from holdfast.domain.transcript.labels import STATUS_LABELS, display_title

SESSIONS_LISTED_MAX = 20
KEYS_HELP = (
    "Enter sends, Alt+Enter or a \\ at the end of a line goes on with the next one. @FILE attaches a file, "
    "Tab completes, Up brings back what you wrote. Ctrl+C stops the answer, Ctrl+D leaves."
)
EXIT_WORDS = frozenset({"quit", "exit", "bye"})


class SlashCommandRunner:
    """A runner of commands for one chat; `conversation` returns the current one, `open_session` switches."""

    def __init__(
        self,
        client: Client,
        conversation: Callable[[], ConversationViewModel],
        open_session: Callable[[SessionData], Awaitable[None]],
        show: Callable[[PrintedItem], None],
        close: Callable[[], None],
    ) -> None:
        self._client = client
        self._conversation = conversation
        self._open_session = open_session
        self._show = show
        self._close = close
        self._listed_sessions: tuple[SessionData, ...] = ()
        self.completion_names = CompletionNames()
        """The names that completion offers, as of the last refresh."""

    async def run(self, command: SlashCommand) -> None:
        """Run a command. Raises ServerUnavailable or RequestRefused."""
        match command.name:
            case "new":
                await self.start_session()
            case "undo" | "restore" | "retry":
                await self._client.request("POST", f"{self._path}/{command.name}", object)
            case "stop":
                await self.stop()
            case "status":
                await self._show_status()
            case "sessions":
                await self._list_sessions()
            case "switch":
                await self._switch_session(command.rest)
            case "title":
                await self._rename(command.rest)
            case "model":
                await self._show_models()
            case "agent":
                await self._choose_agent(command.rest)
            case "agents":
                await self._show_agents()
            case "approve":
                await self._answer_approval(QuestionAnswer("approve"))
            case "deny":
                await self._answer_approval(QuestionAnswer("deny", reason=command.rest))
            case "memory":
                await self._show_memory(command.rest)
            case "summarise":
                self._show(Notice("Summarising older messages."))
                await self._client.request("POST", f"{self._path}/compact", object)
                self._show(Notice("Older messages are summarised for the model. All of them stay readable."))
            case "continue":
                self._show(Notice("Summing up, to go on in a new conversation."))
                await self._open_session(
                    await self._client.request("POST", f"{self._path}/continue", SessionData)
                )
            case "help":
                prompts_listed = [(each.name, each.about) for each in await self.prompts()]
                self._show(Notice(f"{help_text(prompts_listed)}\n{KEYS_HELP}", plain=True))

    async def prompts(self) -> tuple[PromptData, ...]:
        """Return the server's prompts; none if the request fails."""
        with suppress(ServerUnavailable, RequestRefused, msgspec.ValidationError):
            return (await self._client.get("/api/prompts", PromptListData)).prompts
        return ()

    async def refresh_completion_names(self) -> None:
        """Load the names of prompts and agents for completion."""
        prompts, agents = await self.prompts(), tuple[AgentData, ...]()
        with suppress(ServerUnavailable, RequestRefused, msgspec.ValidationError):
            agents = (await self._client.get("/api/agents", AgentListData)).agents
        self.completion_names = CompletionNames(
            tuple((each.name, each.about) for each in prompts),
            tuple((each.name, each.description) for each in agents if each.answers),
        )

    def report_unknown(self, typed: UnknownCommand) -> None:
        """Show that there is no such command; leave the chat on a word such as /quit."""
        if typed.word in EXIT_WORDS:
            self._close()
            return
        nearest = f" Did you mean /{typed.nearest}?" if typed.nearest else ""
        self._show(
            Notice(
                f"There is no command /{typed.word}.{nearest} /help lists all. Nothing was sent.", bad=True
            )
        )

    async def start_session(self) -> None:
        """Start a session that follows the current one, and switch to it."""
        body = {"previous_session_id": self._conversation().session_id}
        await self._open_session(await self._client.request("POST", "/api/sessions", SessionData, body))

    async def stop(self) -> None:
        run_id = self._conversation().run_id
        if run_id is None:
            self._show(Notice("Nothing is under way."))
        else:
            await self._client.request("POST", f"/api/runs/{run_id}/cancel", object)

    async def answer(self, question: QuestionData, answer: QuestionAnswer) -> None:
        """Send a decision about a call. Raises ServerUnavailable or RequestRefused."""
        path = f"/api/runs/{question.run_id}/tools/{question.call_id}"
        await self._client.request("POST", path, object, answer.body())

    async def resume_run(self, question: QuestionData) -> None:
        await self._client.request("POST", f"/api/runs/{question.run_id}/resume", object)

    @property
    def _path(self) -> str:
        return f"/api/sessions/{self._conversation().session_id}"

    async def _show_status(self) -> None:
        conversation = self._conversation()
        usage = conversation.usage
        lines = [
            f"Conversation  {display_title(conversation.title, conversation.opening)}",
            f"              {conversation.session_id} · {format_count(conversation.turns, 'message')}",
            f"Agent         {conversation.agent or MAIN_AGENT}",
            f"Model         {conversation.model}",
            f"State         {STATUS_LABELS[conversation.status].lower()}",
            f"Used          {usage.input_tokens:,} tokens read, {usage.output_tokens:,} written"
            + (" (partly estimated)" if usage.estimated_tokens else ""),
            f"Server        {self._client.endpoint.url}",
        ]
        for question in conversation.pending_questions:
            lines.append(f"It asks       {question_text(question, str)}")
            if question.asked is not None:
                question_lines = "\n".join(numbered_choices(question.asked))
                lines += [f"              {line}" for line in question_lines.split("\n")]
            elif question.arguments:
                lines += [f"              {line}" for _, line in format_proposed_call(question, str)]
        self._show(Notice("\n".join(lines), plain=True))

    async def _list_sessions(self, query: str = "") -> None:
        page = await self._client.get(f"/api/sessions?limit={SESSIONS_LISTED_MAX}{query}", SessionListData)
        self._listed_sessions = page.sessions
        self._show_sessions()

    def _show_sessions(self) -> None:
        now, here = time.time_ns() // 1_000_000, self._conversation().session_id
        lines = [
            f"{number:>3}{'*' if each.id == here else ' '} {display_title(each.title, each.opening)}"
            f" · {STATUS_LABELS[each.status].lower()} · {format_age(now - each.updated_at)}"
            for number, each in enumerate(self._listed_sessions, 1)
        ]
        lines.append("/switch NUMBER goes on in one of them.")
        self._show(Notice("\n".join(lines), plain=True))

    async def _switch_session(self, text: str) -> None:
        if not text:
            await self._list_sessions()
            return
        if text.isdecimal():
            if not self._listed_sessions:
                page = await self._client.get(f"/api/sessions?limit={SESSIONS_LISTED_MAX}", SessionListData)
                self._listed_sessions = page.sessions
            if not 0 < int(text) <= len(self._listed_sessions):
                self._show(Notice(f"There is no number {text} in the list; /sessions shows it.", bad=True))
                return
            await self._open_session(self._listed_sessions[int(text) - 1])
            return
        found = await find_sessions(self._client, text)
        if len(found) == 1:
            await self._open_session(found[0])
        elif found:
            self._listed_sessions = found
            self._show_sessions()
        else:
            self._show(Notice(f"No conversation is called “{text}”.", bad=True))

    async def _rename(self, title: str) -> None:
        if not title:
            current_title = display_title(self._conversation().title, self._conversation().opening)
            self._show(Notice(f"It is called “{current_title}”. /title WORDS names it."))
            return
        await self._client.request("PATCH", self._path, object, {"title": title})
        self._show(Notice(f"It is called “{title}” now."))

    async def _show_models(self) -> None:
        models = (await self._client.get("/api/models", ModelListData)).models
        here = (await self._client.get(self._path, SessionData)).answering
        if here and all(here != model.name for model in models[:1]):
            self._show(Notice(f"{here} answers here."))
        for model in models:
            self._show(Notice(f"{model.name}: {model.why}"))

    async def _choose_agent(self, name: str) -> None:
        if name:
            await self._client.request("PATCH", self._path, object, {"agent": name})
            self._show(Notice(f"{name} answers here from now on."))
            return
        here = (await self._client.get(self._path, SessionData)).agent or MAIN_AGENT
        self._show(Notice(f"{here} answers here. /agents lists all, /agent NAME has another one answer."))

    async def _show_agents(self) -> None:
        here = (await self._client.get(self._path, SessionData)).agent or MAIN_AGENT
        lines = []
        for agent in (await self._client.get("/api/agents", AgentListData)).agents:
            about = agent.description if agent.answers else "cannot answer; `holdfast agents check` says why"
            mark = "*" if agent.name == here else " "
            lines.append(f"{mark} {agent.name}" + (f": {about}" if about else ""))
        self._show(Notice("\n".join([*lines, "/agent NAME has one of them answer here."]), plain=True))

    async def _answer_approval(self, answer: QuestionAnswer) -> None:
        answerable = [
            each for each in self._conversation().questions if each.kind == "approval" or each.asked
        ]
        # /approve cannot answer a question that needs text.
        candidates = [each for each in answerable if each.asked is None or answer.decision == "deny"]
        question = candidates[0] if candidates else None
        if question is None and answerable:
            self._show(Notice(f"Nothing was sent. {answer_hint(answerable[0])}"))
        elif question is None:
            self._show(Notice("Nothing is asked."))
        else:
            await self.answer(question, answer)

    async def _show_memory(self, text: str) -> None:
        query = f"?q={quote(text)}" if text else ""
        try:
            found = await self._client.get(f"/api/memory{query}", MemoryListData)
        except RequestRefused as refused:
            if refused.problem.code != "no_such_page":
                raise
            self._show(Notice("This server has no memory."))
            return
        except msgspec.ValidationError:
            self._show(Notice("This server's memory cannot be shown here.", bad=True))
            return
        lines = [f"· {each.text}" for each in found.memories] or ["Nothing is remembered yet."]
        self._show(Notice("\n".join(lines), plain=True))


async def find_sessions(client: Client, text: str) -> tuple[SessionData, ...]:
    """Return the sessions with that id prefix, or with those words in their title.

    Raises ServerUnavailable or RequestRefused.
    """
    if text.startswith("s_"):
        found, cursor = list[SessionData](), ""
        while True:
            page = await client.get(f"/api/sessions?limit=200{cursor}", SessionListData)
            found += [each for each in page.sessions if each.id.startswith(text)]
            if page.cursor is None:
                return tuple(found)
            cursor = f"&cursor={quote(page.cursor)}"
    page = await client.get(f"/api/sessions?limit={SESSIONS_LISTED_MAX}&q={quote(text)}", SessionListData)
    return page.sessions
