"""Commands that people type in a chat app, carried out for one chat. Replies are short, in plain words."""

import difflib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from holdfast.agent.config.info import AgentTold
from holdfast.channels import button_action, router
from holdfast.channels.answering import Answering
from holdfast.channels.button_action import Press
from holdfast.channels.outbox import Outbox
from holdfast.channels.router import Done, Place, said
from holdfast.domain import slash
from holdfast.domain.agents import MAIN
from holdfast.domain.chats import Button, InboundRow, Outgoing
from holdfast.domain.clock import Clock
from holdfast.domain.errors import NoSuchSession, SessionExists
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import STATUS, title_of
from holdfast.engine.engine import Engine
from holdfast.store.ports import Snapshot, Store
from holdfast.store.session_status import Standing

_LISTED_MAX = 10
_FOUND_MAX = 6
_LOOK_BACK = 50
WELCOME = "Hello. Say something to begin, or type /help to see what there is."
NO_CONVERSATION = "There is no conversation here yet. Say something to begin one."


class Asked(msgspec.Struct, frozen=True):
    """What commands ask others: an agent's model, what is remembered of some words, what people wrote."""

    model: Callable[[str], str] | None = None
    memory: Callable[[str], Awaitable[str]] | None = None
    prompts: Callable[[], Sequence[tuple[str, str]]] = tuple
    agents: Callable[[], Sequence[AgentTold]] = tuple


class Commands:
    """Of one channel."""

    def __init__(
        self, store: Store, engine: Engine, outbox: Outbox, ids: Ids, clock: Clock, asked: Asked
    ) -> None:
        self._store = store
        self._engine = engine
        self._outbox = outbox
        self._ids = ids
        self._clock = clock
        self._asked = asked
        self._answering = Answering(store, engine)

    async def perform(
        self, row: InboundRow, place: Place, command: slash.Command | slash.NotACommand
    ) -> Done | None:
        """Carry it out. None: that was done before, to its end."""
        if isinstance(command, slash.NotACommand):
            # Some apps have people press this before anything else.
            return said(WELCOME if command.word == "start" else _unknown(command))
        match command.name:
            case "new":
                return await self._new(row, place)
            case "undo" | "restore" | "retry":
                return await self._answering.change(row, place.session_id, None, command.name)
            case "stop":
                return await self._answering.stop(row, place)
            case "approve":
                return await self._answering.approve(row, place)
            case "deny":
                return await self._answering.deny(row, place, command.rest)
            case "switch":
                return await self._switch(row, place, command.rest)
            case "title":
                return await self._title(place, command.rest)
            case "sessions":
                return Done((self._listed("", await self._conversations(place), place),))
            case "status":
                return said(await self._status(place))
            case "model":
                here = await self._store.session(place.session_id) if place.session_id else None
                return said(self._model(place, here))
            case "agent":
                return said(await self._agent(place, command.rest.lower()))
            case "agents":
                return said(await self._agents(place))
            case "memory":
                return said(await self._memory(place, command.rest))
            case "summarise":
                return await self._summarise(place)
            case "continue":
                return await self._continue(row, place)
            case "help":
                return said(slash.told(self._asked.prompts()))

    async def switch_to(self, row: InboundRow, place: Place, wanted: SessionId) -> Done | None:
        """Go on in another conversation: the chat is told of it from where it stands now on."""
        if wanted == place.session_id:
            return said("You are there already.")
        if not self._may_see(place, wanted):
            return said("That conversation is not of this group.")
        try:
            head = await self._store.head(wanted)
        except NoSuchSession:
            return said("That conversation is gone.")
        assigned = await self._store.assign(row.no, wanted, head)
        if assigned.state == "done":
            return None
        there = await self._standing(assigned.session_id)
        words = f"Now in: {_called(there)}"
        if there.questions:
            words += "\nSomething is being asked there: see /status."
        await self._outbox.leave(place.key)
        move = router.moved(place, assigned.session_id, assigned.expect, self._clock.now_ms())
        return Done((Outgoing(words),), move)

    async def _new(self, row: InboundRow, place: Place) -> Done | None:
        if place.session_id and not (await self._store.session(place.session_id)).last_turn:
            return said("This is a new conversation already. Say something.")
        assigned = await self._store.assign(row.no, self._ids.session(), 0)
        if assigned.state == "done":
            return None
        created = f.SessionCreated(agent=place.chat.agent, previous_session_id=place.session_id or None)
        # It may be there by an earlier try.
        with suppress(SessionExists):
            await self._engine.create(created, assigned.session_id)
        await self._outbox.leave(place.key)
        move = router.moved(place, assigned.session_id, 0, self._clock.now_ms())
        return Done((Outgoing("A new conversation. The old one is in /sessions."),), move)

    async def _switch(self, row: InboundRow, place: Place, rest: str) -> Done | None:
        if not rest:
            head = "Which one? Type /switch and its number, or words of its title."
            return Done((self._listed(head, await self._conversations(place), place),))
        if rest.isascii() and rest.isdecimal():
            numbered = await self._numbered(place)
            number = int(rest[:9])
            if not 1 <= number <= len(numbered):
                return said(f"There is no number {number} in the list. Type /sessions to see it.")
            return await self.switch_to(row, place, numbered[number - 1])
        found = await self._store.snapshot(lambda snapshot: self._titled(snapshot, place, rest.split()))
        exact = [each for each in found if each.row.title.casefold() == rest.casefold()]
        if len(found) == 1 or exact:
            return await self.switch_to(row, place, (exact or found)[0].row.id)
        if not found:
            return said("No conversation is called that. Type /sessions to see the newest.")
        return Done((self._listed("Which of these?", found, place),))

    async def _title(self, place: Place, title: str) -> Done:
        if not place.session_id:
            return said(NO_CONVERSATION)
        if not title:
            return said(f"This conversation is called: {_called(await self._standing(place.session_id))}")
        await self._engine.verbs.rename(place.session_id, title)
        return said(f"Called: {title_of(title)}")

    async def _summarise(self, place: Place) -> Done:
        if not place.session_id:
            return said(NO_CONVERSATION)
        await self._engine.summaries.make(place.session_id)
        return said("Older messages are summarised.")

    async def _continue(self, row: InboundRow, place: Place) -> Done | None:
        if not place.session_id:
            return said(NO_CONVERSATION)
        # Tried again, it is about the same conversation, which has gone on already: not about the new one.
        assigned = await self._store.assign(row.no, place.session_id, 0)
        if assigned.state == "done":
            return None
        await self._engine.moves.move_on(assigned.session_id)
        return said("This goes on in a new conversation, which begins with a summary.")

    async def _status(self, place: Place) -> str:
        if not place.session_id:
            return NO_CONVERSATION
        here = await self._standing(place.session_id)
        lines = [f"**{_called(here)}**: {STATUS[here.row.status].lower()}.", self._model(place, here.row)]
        questions = here.questions
        for question in questions[:1]:
            asked = f"`{question.name}`" if question.name else "whether to go on"
            wanted = f"Your answer is wanted about {asked}: /approve or /deny."
            lines.append(f"It asks: {question.question}" if question.question else wanted)
        if len(questions) > 1:
            lines.append(f"And about {len(questions) - 1} more.")
        return "\n".join(lines)

    def _model(self, place: Place, session: SessionRow | None) -> str:
        agent = session.agent if session is not None else place.chat.agent
        model = session.model if session is not None else ""
        model = model or (self._asked.model(agent) if self._asked.model is not None else "")
        return f"{model} answers." if model else "Whichever model is connected answers."

    async def _agent(self, place: Place, name: str) -> str:
        if not place.session_id:
            return NO_CONVERSATION
        if not name:
            here = (await self._store.session(place.session_id)).agent or MAIN
            return f"{here} answers here. Type /agents to see all."
        found = next((each for each in self._asked.agents() if each.name == name), None)
        if found is None or not found.answers:
            return "No agent of that name can answer. Type /agents to see all."
        if found.workspace or found.approvals == "allow":
            return f"{name} can be chosen in the page or the terminal only: it may do more than others."
        wanted = f.SessionConfigured(agent="" if name == MAIN else name)
        await self._engine.verbs.configure(place.session_id, wanted)
        return f"{name} answers here from now on."

    async def _agents(self, place: Place) -> str:
        here = (await self._store.session(place.session_id)).agent if place.session_id else place.chat.agent
        lines = []
        for each in self._asked.agents():
            mark = " (here)" if each.name == (here or MAIN) else ""
            lines.append(f"{each.name}{mark}" + (f": {each.description}" if each.description else ""))
        return "\n".join(lines) or f"{MAIN} answers."

    async def _memory(self, place: Place, words: str) -> str:
        if place.chat.kind != "dm":
            return "What is remembered is not told in a group. Ask in a chat with me alone."
        if self._asked.memory is None:
            return "There is no memory here."
        return await self._asked.memory(words) or "Nothing is remembered of that."

    async def _standing(self, session_id: SessionId) -> Standing:
        """Return how a conversation stands. Raises NoSuchSession."""
        standing = (await self._store.standings((session_id,))).get(session_id)
        if standing is None:
            raise NoSuchSession(session_id=session_id)
        return standing

    async def _conversations(self, place: Place) -> list[Standing]:
        """Return those that the chat has had, the newest first, then the newest others."""
        had = place.route.sessions if place.route is not None else ()

        def read(snapshot: Snapshot) -> list[Standing]:
            own = snapshot.standings(had[::-1])
            others = snapshot.standings([row.id for row in snapshot.sessions(None, _LISTED_MAX).sessions])
            seen = {key: each for key, each in others.items() if self._may_see(place, key)}
            return list({**own, **seen}.values())[:_LISTED_MAX]

        return await self._store.snapshot(read)

    def _titled(self, snapshot: Snapshot, place: Place, words: Sequence[str]) -> list[Standing]:
        """Return those that the chat may see whose titles hold all of `words`."""
        rows = snapshot.sessions(None, _FOUND_MAX, words=words).sessions
        return list(snapshot.standings([row.id for row in rows if self._may_see(place, row.id)]).values())

    async def _numbered(self, place: Place) -> Sequence[SessionId]:
        """The list that the chat was shown last: numbers mean what they meant there."""
        for row in await self._store.deliveries(place.key, _LOOK_BACK):
            pressed = [button_action.read(button.press) for button in row.body.buttons]
            listed = [SessionId(each.what) for each in pressed if each is not None and each.verb == "switch"]
            if listed:
                return listed
        return [each.row.id for each in await self._conversations(place)]

    def _may_see(self, place: Place, session_id: SessionId) -> bool:
        """In a group nothing is shown of what was said elsewhere: strangers read there too."""
        own = place.route.sessions if place.route is not None else ()
        return place.chat.kind == "dm" or session_id in own

    def _listed(self, head: str, found: Sequence[Standing], place: Place) -> Outgoing:
        if not found:
            return Outgoing("There are no conversations yet. Say something to begin one.")
        lines, buttons, now = [head] if head else [], [], self._clock.now_ms()
        for number, standing in enumerate(found, 1):
            session = standing.row
            here = " (here)" if session.id == place.session_id else ""
            lines.append(f"{number}. {_called(standing)}{here}, {_ago(now - session.updated_at)}")
            buttons.append(Button(str(number), str(Press("switch", session.id))))
        return Outgoing("\n".join(lines), tuple(buttons))


def _called(standing: Standing) -> str:
    """Return what people know a conversation by: its title, or how it begins."""
    return title_of(standing.row.title, standing.opening)


def _ago(ms: int) -> str:
    minutes = ms // 60_000
    if minutes < 1:
        return "now"
    if minutes < 60:
        return f"{minutes} min ago"
    return f"{minutes // 60} h ago" if minutes < 48 * 60 else f"{minutes // (24 * 60)} days ago"


def _unknown(command: slash.NotACommand) -> str:
    near = difflib.get_close_matches(command.word, list(slash.COMMANDS), 1, 0.6)
    nearest = command.nearest or (near[0] if near else None)
    meant = f" Did you mean /{nearest}?" if nearest else ""
    return f"I do not know /{command.word[:40]}.{meant} Type /help to see what there is."
