"""What the slash commands do in the terminal. What there is, and how it is read, is in `domain/slash.py`."""

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import quote

import msgspec

from holdfast.cli.chat.answers import Answer, choices
from holdfast.cli.chat.client import Away, Client, Refused
from holdfast.cli.chat.completion import Known
from holdfast.cli.chat.render import asked, numbered, proposed
from holdfast.cli.chat.view_model import Notice, Scene, Shown
from holdfast.cli.chat.wire import (
    Agent,
    AgentList,
    MemoryList,
    ModelList,
    Prompt,
    PromptList,
    Question,
    Session,
    SessionList,
)
from holdfast.cli.format import age, counted
from holdfast.domain.agents import MAIN
from holdfast.domain.slash import Command, NotACommand, told
from holdfast.domain.transcript.labels import STATUS, title_of

LISTED_MAX = 20
KEYS = (
    "Enter sends, Alt+Enter or a \\ at the end of a line goes on with the next one. @FILE attaches a file, "
    "Tab completes, Up brings back what you wrote. Ctrl+C stops the answer, Ctrl+D leaves."
)
LEAVING = frozenset({"quit", "exit", "bye"})


class Commands:
    """Carries out commands for one chat: `scene` is where it is, `go_to` moves it."""

    def __init__(
        self,
        client: Client,
        scene: Callable[[], Scene],
        go_to: Callable[[Session], Awaitable[None]],
        say: Callable[[Shown], None],
        leave: Callable[[], None],
    ) -> None:
        self._client = client
        self._scene = scene
        self._go_to = go_to
        self._say = say
        self._leave = leave
        self._listed: tuple[Session, ...] = ()
        self.known = Known()
        """What people have written, when it was looked at last."""

    async def carry_out(self, command: Command) -> None:
        """Raises Away or Refused."""
        match command.name:
            case "new":
                await self.begin()
            case "undo" | "restore" | "retry":
                await self._client.ask("POST", f"{self._path}/{command.name}", object)
            case "stop":
                await self.stop()
            case "status":
                await self._status()
            case "sessions":
                await self._list()
            case "switch":
                await self._switch(command.rest)
            case "title":
                await self._rename(command.rest)
            case "model":
                await self._model()
            case "agent":
                await self._agent(command.rest)
            case "agents":
                await self._agents()
            case "approve":
                await self._decide(Answer("approve"))
            case "deny":
                await self._decide(Answer("deny", reason=command.rest))
            case "memory":
                await self._memory(command.rest)
            case "summarise":
                self._say(Notice("Summarising older messages."))
                await self._client.ask("POST", f"{self._path}/compact", object)
                self._say(Notice("Older messages are summarised for the model. All of them stay readable."))
            case "continue":
                self._say(Notice("Summing up, to go on in a new conversation."))
                await self._go_to(await self._client.ask("POST", f"{self._path}/continue", Session))
            case "help":
                listed = [(each.name, each.about) for each in await self.prompts()]
                self._say(Notice(f"{told(listed)}\n{KEYS}", plain=True))

    async def prompts(self) -> tuple[Prompt, ...]:
        """Those that the server has; none where it cannot say."""
        with suppress(Away, Refused, msgspec.ValidationError):
            return (await self._client.get("/api/prompts", PromptList)).prompts
        return ()

    async def look(self) -> None:
        """See which prompts and agents there are, so that their names can be completed."""
        prompts, agents = await self.prompts(), tuple[Agent, ...]()
        with suppress(Away, Refused, msgspec.ValidationError):
            agents = (await self._client.get("/api/agents", AgentList)).agents
        self.known = Known(
            tuple((each.name, each.about) for each in prompts),
            tuple((each.name, each.description) for each in agents if each.answers),
        )

    def unknown(self, typed: NotACommand) -> None:
        """Say that there is no such command, and send nothing."""
        if typed.word in LEAVING:
            self._leave()
            return
        nearest = f" Did you mean /{typed.nearest}?" if typed.nearest else ""
        self._say(
            Notice(
                f"There is no command /{typed.word}.{nearest} /help lists all. Nothing was sent.", bad=True
            )
        )

    async def begin(self) -> None:
        """Another conversation; the one before is over for now."""
        body = {"previous_session_id": self._scene().session_id}
        await self._go_to(await self._client.ask("POST", "/api/sessions", Session, body))

    async def stop(self) -> None:
        run_id = self._scene().run_id
        if run_id is None:
            self._say(Notice("Nothing is under way."))
        else:
            await self._client.ask("POST", f"/api/runs/{run_id}/cancel", object)

    async def answer(self, question: Question, answer: Answer) -> None:
        """Say what is to be done about a call. Raises Away or Refused."""
        path = f"/api/runs/{question.run_id}/tools/{question.call_id}"
        await self._client.ask("POST", path, object, answer.body())

    async def go_on(self, question: Question) -> None:
        await self._client.ask("POST", f"/api/runs/{question.run_id}/resume", object)

    @property
    def _path(self) -> str:
        return f"/api/sessions/{self._scene().session_id}"

    async def _status(self) -> None:
        scene = self._scene()
        lines = [
            f"Conversation  {title_of(scene.title, scene.opening)}",
            f"              {scene.session_id} · {counted(scene.turns, 'message')}",
            f"Agent         {scene.agent or MAIN}",
            f"Model         {scene.model}",
            f"State         {STATUS[scene.status].lower()}",
            f"Used          {scene.usage.input_tokens:,} tokens read, {scene.usage.output_tokens:,} written"
            + (" (partly estimated)" if scene.usage.estimated_tokens else ""),
            f"Server        {self._client.place.url}",
        ]
        for question in scene.asked:
            lines.append(f"It asks       {asked(question, str)}")
            if question.asked is not None:
                told = "\n".join(numbered(question.asked))
                lines += [f"              {line}" for line in told.split("\n")]
            elif question.arguments:
                lines += [f"              {line}" for _, line in proposed(question, str)]
        self._say(Notice("\n".join(lines), plain=True))

    async def _list(self, query: str = "") -> None:
        page = await self._client.get(f"/api/sessions?limit={LISTED_MAX}{query}", SessionList)
        self._listed = page.sessions
        self._say_list()

    def _say_list(self) -> None:
        now, here = time.time_ns() // 1_000_000, self._scene().session_id
        lines = [
            f"{number:>3}{'*' if each.id == here else ' '} {title_of(each.title, each.opening)}"
            f" · {STATUS[each.status].lower()} · {age(now - each.updated_at)}"
            for number, each in enumerate(self._listed, 1)
        ]
        lines.append("/switch NUMBER goes on in one of them.")
        self._say(Notice("\n".join(lines), plain=True))

    async def _switch(self, words: str) -> None:
        if not words:
            await self._list()
            return
        if words.isdecimal():
            if not self._listed:
                page = await self._client.get(f"/api/sessions?limit={LISTED_MAX}", SessionList)
                self._listed = page.sessions
            if not 0 < int(words) <= len(self._listed):
                self._say(Notice(f"There is no number {words} in the list; /sessions shows it.", bad=True))
                return
            await self._go_to(self._listed[int(words) - 1])
            return
        found = await find(self._client, words)
        if len(found) == 1:
            await self._go_to(found[0])
        elif found:
            self._listed = found
            self._say_list()
        else:
            self._say(Notice(f"No conversation is called “{words}”.", bad=True))

    async def _rename(self, title: str) -> None:
        if not title:
            called = title_of(self._scene().title, self._scene().opening)
            self._say(Notice(f"It is called “{called}”. /title WORDS names it."))
            return
        await self._client.ask("PATCH", self._path, object, {"title": title})
        self._say(Notice(f"It is called “{title}” now."))

    async def _model(self) -> None:
        models = (await self._client.get("/api/models", ModelList)).models
        here = (await self._client.get(self._path, Session)).answering
        if here and all(here != each.name for each in models[:1]):
            self._say(Notice(f"{here} answers here."))
        for each in models:
            self._say(Notice(f"{each.name}: {each.why}"))

    async def _agent(self, name: str) -> None:
        if name:
            await self._client.ask("PATCH", self._path, object, {"agent": name})
            self._say(Notice(f"{name} answers here from now on."))
            return
        here = (await self._client.get(self._path, Session)).agent or MAIN
        self._say(Notice(f"{here} answers here. /agents lists all, /agent NAME has another one answer."))

    async def _agents(self) -> None:
        here = (await self._client.get(self._path, Session)).agent or MAIN
        lines = []
        for each in (await self._client.get("/api/agents", AgentList)).agents:
            about = each.description if each.answers else "cannot answer; `holdfast agents check` says why"
            mark = "*" if each.name == here else " "
            lines.append(f"{mark} {each.name}" + (f": {about}" if about else ""))
        self._say(Notice("\n".join([*lines, "/agent NAME has one of them answer here."]), plain=True))

    async def _decide(self, answer: Answer) -> None:
        asked = [each for each in self._scene().questions if each.kind == "approval" or each.asked]
        # What wants words is not answered with yes.
        meant = [each for each in asked if each.asked is None or answer.decision == "deny"]
        question = meant[0] if meant else None
        if question is None and asked:
            self._say(Notice(f"Nothing was sent. {choices(asked[0])}"))
        elif question is None:
            self._say(Notice("Nothing is asked."))
        else:
            await self.answer(question, answer)

    async def _memory(self, words: str) -> None:
        query = f"?q={quote(words)}" if words else ""
        try:
            found = await self._client.get(f"/api/memory{query}", MemoryList)
        except Refused as refused:
            if refused.problem.code != "no_such_page":
                raise
            self._say(Notice("This server has no memory."))
            return
        except msgspec.ValidationError:
            self._say(Notice("This server's memory cannot be shown here.", bad=True))
            return
        lines = [f"· {each.text}" for each in found.memories] or ["Nothing is remembered yet."]
        self._say(Notice("\n".join(lines), plain=True))


async def find(client: Client, words: str) -> tuple[Session, ...]:
    """The conversations whose id begins so, or whose titles hold the words. Raises Away or Refused."""
    if words.startswith("s_"):
        found, cursor = list[Session](), ""
        while True:
            page = await client.get(f"/api/sessions?limit=200{cursor}", SessionList)
            found += [each for each in page.sessions if each.id.startswith(words)]
            if page.cursor is None:
                return tuple(found)
            cursor = f"&cursor={quote(page.cursor)}"
    page = await client.get(f"/api/sessions?limit={LISTED_MAX}&q={quote(words)}", SessionList)
    return page.sessions
