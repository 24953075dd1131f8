"""Run the slash commands that people type in a chat app."""

import difflib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from holdfast.agent.config.info import AgentInfo
from holdfast.channels import button_action, router
from holdfast.channels.button_action import ButtonAction
from holdfast.channels.chat_actions import ChatActions
from holdfast.channels.outbox import ChannelOutbox
from holdfast.channels.router import ChatLocation, InboundResult, text_reply
from holdfast.domain import slash
from holdfast.domain.agents import MAIN_AGENT
from holdfast.domain.chats import Button, InboundRow, OutboundMessage
from holdfast.domain.clock import Clock
from holdfast.domain.errors import NoSuchSession, SessionExists
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import STATUS_LABELS, display_title
from holdfast.engine.engine import Engine
from holdfast.store.ports import Snapshot, Store
from holdfast.store.session_status import SessionStatus

_LISTED_MAX = 10
_FOUND_MAX = 6
_RECENT_DELIVERIES_MAX = 50
WELCOME = "Hello. Say something to begin, or type /help to see what there is."
NO_CONVERSATION = "There is no conversation here yet. Say something to begin one."


class CommandSources(msgspec.Struct, frozen=True):
    """The data sources of commands: an agent's model, a memory search, saved prompts and agents."""

    model: Callable[[str], str] | None = None
    memory: Callable[[str], Awaitable[str]] | None = None
    prompts: Callable[[], Sequence[tuple[str, str]]] = tuple
    agents: Callable[[], Sequence[AgentInfo]] = tuple


class ChannelCommands:
    """The commands of one channel."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        outbox: ChannelOutbox,
        ids: IdGenerator,
        clock: Clock,
        sources: CommandSources,
    ) -> None:
        self._store = store
        self._engine = engine
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._sources = sources
        self._actions = ChatActions(store, engine)

    async def perform(
        self, row: InboundRow, location: ChatLocation, command: slash.SlashCommand | slash.UnknownCommand
    ) -> InboundResult | None:
        """Run a command; return None if it was finished before."""
        if isinstance(command, slash.UnknownCommand):
            # Some apps send this command first.
            return text_reply(WELCOME if command.word == "start" else _unknown(command))
        match command.name:
            case "new":
                return await self._new(row, location)
            case "undo" | "restore" | "retry":
                return await self._actions.change(row, location.session_id, None, command.name)
            case "stop":
                return await self._actions.stop(row, location)
            case "approve":
                return await self._actions.approve(row, location)
            case "deny":
                return await self._actions.deny(row, location, command.rest)
            case "switch":
                return await self._switch(row, location, command.rest)
            case "title":
                return await self._title(location, command.rest)
            case "sessions":
                return InboundResult((self._session_list("", await self._conversations(location), location),))
            case "status":
                return text_reply(await self._status(location))
            case "model":
                here = await self._store.session(location.session_id) if location.session_id else None
                return text_reply(self._model(location, here))
            case "agent":
                return text_reply(await self._agent(location, command.rest.lower()))
            case "agents":
                return text_reply(await self._agents(location))
            case "memory":
                return text_reply(await self._memory(location, command.rest))
            case "summarise":
                return await self._summarise(location)
            case "continue":
                return await self._continue(row, location)
            case "help":
                return text_reply(slash.help_text(self._sources.prompts()))

    async def switch_to(
        self, row: InboundRow, location: ChatLocation, target_id: SessionId
    ) -> InboundResult | None:
        """Switch the chat to another conversation, to follow it from its current head."""
        if target_id == location.session_id:
            return text_reply("You are there already.")
        if not self._may_see(location, target_id):
            return text_reply("That conversation is not of this group.")
        try:
            head = await self._store.head(target_id)
        except NoSuchSession:
            return text_reply("That conversation is gone.")
        assigned = await self._store.assign(row.no, target_id, head)
        if assigned.state == "done":
            return None
        status = await self._session_status(assigned.session_id)
        text = f"Now in: {_display_title(status)}"
        if status.questions:
            text += "\nSomething is being asked there: see /status."
        await self._outbox.prepare_switch(location.key)
        move = router.moved_route(location, assigned.session_id, assigned.expect, self._clock.now_ms())
        return InboundResult((OutboundMessage(text),), move)

    async def _new(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        if location.session_id and not (await self._store.session(location.session_id)).last_turn:
            return text_reply("This is a new conversation already. Say something.")
        assigned = await self._store.assign(row.no, self._ids.session(), 0)
        if assigned.state == "done":
            return None
        created = f.SessionCreated(agent=location.chat.agent, previous_session_id=location.session_id or None)
        # An earlier attempt may have created it.
        with suppress(SessionExists):
            await self._engine.create(created, assigned.session_id)
        await self._outbox.prepare_switch(location.key)
        move = router.moved_route(location, assigned.session_id, 0, self._clock.now_ms())
        return InboundResult((OutboundMessage("A new conversation. The old one is in /sessions."),), move)

    async def _switch(self, row: InboundRow, location: ChatLocation, rest: str) -> InboundResult | None:
        if not rest:
            head = "Which one? Type /switch and its number, or words of its title."
            return InboundResult((self._session_list(head, await self._conversations(location), location),))
        if rest.isascii() and rest.isdecimal():
            numbered = await self._last_listed(location)
            number = int(rest[:9])
            if not 1 <= number <= len(numbered):
                return text_reply(f"There is no number {number} in the list. Type /sessions to see it.")
            return await self.switch_to(row, location, numbered[number - 1])
        found = await self._store.snapshot(
            lambda snapshot: self._find_by_title(snapshot, location, rest.split())
        )
        exact = [each for each in found if each.row.title.casefold() == rest.casefold()]
        if len(found) == 1 or exact:
            return await self.switch_to(row, location, (exact or found)[0].row.id)
        if not found:
            return text_reply("No conversation is called that. Type /sessions to see the newest.")
        return InboundResult((self._session_list("Which of these?", found, location),))

    async def _title(self, location: ChatLocation, title: str) -> InboundResult:
        if not location.session_id:
            return text_reply(NO_CONVERSATION)
        if not title:
            return text_reply(
                "This conversation is called: "
                f"{_display_title(await self._session_status(location.session_id))}"
            )
        await self._engine.commands.rename(location.session_id, title)
        return text_reply(f"Called: {display_title(title)}")

    async def _summarise(self, location: ChatLocation) -> InboundResult:
        if not location.session_id:
            return text_reply(NO_CONVERSATION)
        await self._engine.summaries.summarise(location.session_id)
        return text_reply("Older messages are summarised.")

    async def _continue(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        if not location.session_id:
            return text_reply(NO_CONVERSATION)
        # A retry must continue the same conversation, not its new successor.
        assigned = await self._store.assign(row.no, location.session_id, 0)
        if assigned.state == "done":
            return None
        await self._engine.continuation.continue_session(assigned.session_id)
        return text_reply("This goes on in a new conversation, which begins with a summary.")

    async def _status(self, location: ChatLocation) -> str:
        if not location.session_id:
            return NO_CONVERSATION
        here = await self._session_status(location.session_id)
        lines = [
            f"**{_display_title(here)}**: {STATUS_LABELS[here.row.status].lower()}.",
            self._model(location, here.row),
        ]
        questions = here.questions
        for question in questions[:1]:
            subject = f"`{question.name}`" if question.name else "whether to go on"
            wanted = f"Your answer is wanted about {subject}: /approve or /deny."
            lines.append(f"It asks: {question.question}" if question.question else wanted)
        if len(questions) > 1:
            lines.append(f"And about {len(questions) - 1} more.")
        return "\n".join(lines)

    def _model(self, location: ChatLocation, session: SessionRow | None) -> str:
        agent = session.agent if session is not None else location.chat.agent
        model = session.model if session is not None else ""
        model = model or (self._sources.model(agent) if self._sources.model is not None else "")
        return f"{model} answers." if model else "Whichever model is connected answers."

    async def _agent(self, location: ChatLocation, name: str) -> str:
        if not location.session_id:
            return NO_CONVERSATION
        if not name:
            here = (await self._store.session(location.session_id)).agent or MAIN_AGENT
            return f"{here} answers here. Type /agents to see all."
        found = next((each for each in self._sources.agents() if each.name == name), None)
        if found is None or not found.answers:
            return "No agent of that name can answer. Type /agents to see all."
        if found.workspace or found.approvals == "allow":
            return f"{name} can be chosen in the page or the terminal only: it may do more than others."
        wanted = f.SessionConfigured(agent="" if name == MAIN_AGENT else name)
        await self._engine.commands.configure(location.session_id, wanted)
        return f"{name} answers here from now on."

    async def _agents(self, location: ChatLocation) -> str:
        here = (
            (await self._store.session(location.session_id)).agent
            if location.session_id
            else location.chat.agent
        )
        lines = []
        for each in self._sources.agents():
            mark = " (here)" if each.name == (here or MAIN_AGENT) else ""
            lines.append(f"{each.name}{mark}" + (f": {each.description}" if each.description else ""))
        return "\n".join(lines) or f"{MAIN_AGENT} answers."

    async def _memory(self, location: ChatLocation, words: str) -> str:
        if location.chat.kind != "dm":
            return "What is remembered is not told in a group. Ask in a chat with me alone."
        if self._sources.memory is None:
            return "There is no memory here."
        return await self._sources.memory(words) or "Nothing is remembered of that."

    async def _session_status(self, session_id: SessionId) -> SessionStatus:
        """Return the status of a conversation. Raises NoSuchSession."""
        status = (await self._store.session_statuses((session_id,))).get(session_id)
        if status is None:
            raise NoSuchSession(session_id=session_id)
        return status

    async def _conversations(self, location: ChatLocation) -> list[SessionStatus]:
        """Return the chat's own conversations, the newest first, then the newest others."""
        had = location.route.sessions if location.route is not None else ()

        def read(snapshot: Snapshot) -> list[SessionStatus]:
            own = snapshot.session_statuses(had[::-1])
            others = snapshot.session_statuses(
                [row.id for row in snapshot.sessions(None, _LISTED_MAX).sessions]
            )
            seen = {key: each for key, each in others.items() if self._may_see(location, key)}
            return list({**own, **seen}.values())[:_LISTED_MAX]

        return await self._store.snapshot(read)

    def _find_by_title(
        self, snapshot: Snapshot, location: ChatLocation, words: Sequence[str]
    ) -> list[SessionStatus]:
        """Return the conversations that the chat may see whose titles contain all of `words`."""
        rows = snapshot.sessions(None, _FOUND_MAX, title_words=words).sessions
        return list(
            snapshot.session_statuses([row.id for row in rows if self._may_see(location, row.id)]).values()
        )

    async def _last_listed(self, location: ChatLocation) -> Sequence[SessionId]:
        """Return the list that the chat saw last, so that typed numbers refer to it."""
        for row in await self._store.deliveries(location.key, _RECENT_DELIVERIES_MAX):
            pressed = [button_action.parse_action(button.press) for button in row.body.buttons]
            listed = [
                SessionId(each.target) for each in pressed if each is not None and each.verb == "switch"
            ]
            if listed:
                return listed
        return [each.row.id for each in await self._conversations(location)]

    def _may_see(self, location: ChatLocation, session_id: SessionId) -> bool:
        """Return whether the chat may see a conversation: a group sees only its own."""
        own = location.route.sessions if location.route is not None else ()
        return location.chat.kind == "dm" or session_id in own

    def _session_list(
        self, head: str, found: Sequence[SessionStatus], location: ChatLocation
    ) -> OutboundMessage:
        if not found:
            return OutboundMessage("There are no conversations yet. Say something to begin one.")
        lines, buttons, now = [head] if head else [], [], self._clock.now_ms()
        for number, status in enumerate(found, 1):
            session = status.row
            here = " (here)" if session.id == location.session_id else ""
            lines.append(f"{number}. {_display_title(status)}{here}, {_ago(now - session.updated_at)}")
            buttons.append(Button(str(number), str(ButtonAction("switch", session.id))))
        return OutboundMessage("\n".join(lines), tuple(buttons))


def _display_title(status: SessionStatus) -> str:
    """Return a conversation's title, or its opening."""
    return display_title(status.row.title, status.opening)


def _ago(ms: int) -> str:
    minutes = ms // 60_000
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days ago"


def _unknown(command: slash.UnknownCommand) -> str:
    near = difflib.get_close_matches(command.word, list(slash.COMMANDS), 1, 0.6)
    nearest = command.nearest or (near[0] if near else None)
    meant = f" Did you mean /{nearest}?" if nearest else ""
    return f"I do not know /{command.word[:40]}.{meant} Type /help to see what there is."
