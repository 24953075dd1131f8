"""A model server that works on the text it is given: what it knows, it has read in that very request.

It is a `Speaker`: whatever it does not understand it answers as that does. It understands
"My dog is called Rex.", "I live in Lisbon." and "I like tea.", asks about them ("What is my dog called?",
"Where do I live?", "What do I like?"), "Remember that …" and "Look in memory for …", for which it calls the
tools of that name where it is given them; and the request to find facts in a conversation.

    with speaking(Rememberer()) as model, living_in(folder, **environ_of(model)) as command: ...
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from holdfast.domain.context.context import MEMORIES_END
from tests.support.api_client import Speaker, pieces_for, writing
from tests.support.model_server import call, chunk

_WHAT = r"(?P<what>(?:(?!,? and (?:I|my)\b)[^.!?;\n\"])+)"
_TOLD = (
    (r"\b(?:my|(?:the )?user's) (?P<about>[a-z][\w' -]*?) (?P<verb>is|are)(?P<called> called| named)? "
     + _WHAT),
    r"\b(?:I|(?:the )?user) (?P<verb>lives?) in " + _WHAT,
    r"\b(?:I|(?:the )?user) (?P<verb>likes?) " + _WHAT,
)  # fmt: skip
_ASKED = (
    r"\b(?:what|who)(?:'s| is| are) my (?P<about>[\w' -]+?)(?: called| named)?\?",
    r"\bwhere do I (?P<verb>live)\?",
    r"\bwhat do I (?P<verb>like)\?",
)
_KNOWN = re.compile(r"^\[(?P<id>[^\]\n]+)\] (?P<text>.*)$", re.MULTILINE)
_SPEAKERS = re.compile(r"^(User|Assistant|Tool)\b[^:\n]*:", re.MULTILINE)
_HANG_LOOK_S, _HANG_LOOKS_MAX = 0.02, 15_000
_QUESTION = re.compile(r"[^.!?\n]*\?")


class Told(msgspec.Struct, frozen=True):
    """Something that a person said of themselves."""

    about: str
    verb: str
    what: str
    called: str = ""

    @property
    def noted(self) -> str:
        """As it is remembered."""
        if self.verb in ("is", "are"):
            return f"The user's {self.about} {self.verb}{self.called} {self.what}."
        return f"The user {self.verb}s {'in ' if self.verb == 'live' else ''}{self.what}."

    @property
    def repeated(self) -> str:
        """As it is told to the person."""
        if self.verb in ("is", "are"):
            return f"You told me that your {self.about} {self.verb}{self.called} {self.what}."
        return f"You told me that you {self.verb} {'in ' if self.verb == 'live' else ''}{self.what}."

    def replaces(self, other: "Told") -> bool:
        """Whether both cannot be so: one has one dog and lives in one place, but may like many things."""
        return self.about == other.about and (self.verb != "like" or self.what == other.what)


def told_in(text: str) -> list[Told]:
    """What `text` tells of a person, in the order that it stands there; questions tell nothing."""
    text = _QUESTION.sub(lambda found: " " * len(found[0]), text)
    found = [each for pattern in _TOLD for each in re.finditer(pattern, text, re.IGNORECASE)]
    return [_told(each.groupdict()) for each in sorted(found, key=re.Match.start)]


def asked_in(text: str) -> str | None:
    """What `text` asks about, in the words of `Told.about`."""
    for pattern in _ASKED:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return _about(found.groupdict())
    return None


def _told(found: dict[str, str | None]) -> Told:
    verb = (found["verb"] or "").lower()
    return Told(
        _about(found),
        verb if verb in ("is", "are") else verb.rstrip("s"),
        (found["what"] or "").strip(" '*_"),
        (found.get("called") or "").lower(),
    )


def _about(found: dict[str, str | None]) -> str:
    """What it is about: a thing, or else the deed itself."""
    return (found.get("about") or (found["verb"] or "").removesuffix("s")).lower().strip()


@dataclass
class Trouble:
    """What is wrong with the answers to one sort of request: nothing, unless a test says so."""

    delay_s: float = 0.0
    status: int = 0
    """Refuse with this status."""
    hangs: bool = False
    """Take the request and never answer, until this is taken back."""
    rubbish: bool = False
    """Answer with what makes no sense."""

    async def befall(self, request: web.Request) -> web.StreamResponse | None:
        """Wait as long as is wanted; the answer, if it is to be a refusal."""
        for _ in range(_HANG_LOOKS_MAX):
            if not self.hangs:
                break
            await asyncio.sleep(_HANG_LOOK_S)
        await asyncio.sleep(self.delay_s)
        if not self.status:
            return None
        return web.json_response({"error": {"message": "Out of order for a test"}}, status=self.status)


@dataclass
class Rememberer(Speaker):
    """`asked` has every request, `extractions` those that were to find facts, `titles` those for a title."""

    chat: Trouble = field(default_factory=Trouble)
    extraction: Trouble = field(default_factory=Trouble)
    extractions: list[dict[str, Any]] = field(default_factory=list)
    titles: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await super().answer(request)
        body = await request.json()
        if is_extraction(body):
            self.asked.append(body)
            self.extractions.append(body)
            refused = await self.extraction.befall(request)
            return refused or await writing(request, _paced(_pieces_of(self._found(body))))
        if not body.get("tools"):
            self.titles.append(body)
            return await super().answer(request)
        self.asked.append(body)
        refused = await self.chat.befall(request)
        if refused:
            return refused
        pieces = reply(body) if not self.chat.rubbish else _pieces_of("Qwxz.")
        return await writing(request, _paced(pieces) if pieces is not None else pieces_for(_bare(body), self))

    def _found(self, body: dict[str, Any]) -> str:
        if self.extraction.rubbish:
            return "I would rather talk about the weather. {[}"
        return extracted("\n".join(_text(each) for each in body["messages"] if each["role"] == "user"))


def is_extraction(body: dict[str, Any]) -> bool:
    """Whether facts are asked for: in JSON, by one who gives no tools."""
    told = "".join(_text(each) for each in body["messages"] if each["role"] in ("system", "developer"))
    return not body.get("tools") and "JSON" in told


def extracted(given: str) -> str:
    """The facts that a person tells in the conversation `given`, and the known ones that they replace."""
    pieces = _SPEAKERS.split(given)
    known = [(each["id"], fact) for each in _KNOWN.finditer(pieces[0]) for fact in told_in(each["text"])]
    said = [text for who, text in zip(pieces[1::2], pieces[2::2], strict=True) if who == "User"]
    facts: dict[str, Told] = {}
    for told in (each for text in said for each in told_in(text)):
        facts = {text: other for text, other in facts.items() if not told.replaces(other)}
        facts[told.noted] = told
    found = [
        {"text": text, "replaces": [each for each, old in known if told.replaces(old)]}
        for text, told in facts.items()
        if not any(old == told for _, old in known)
    ]
    return msgspec.json.encode({"facts": found}).decode()


def reply(body: dict[str, Any]) -> Iterable[bytes] | None:
    """The answer to the last thing said, from what is in this request; None if it is not understood."""
    messages = body["messages"]
    tools = {each["function"]["name"]: each["function"]["parameters"] for each in body["tools"]}
    if messages[-1]["role"] == "tool":
        return _pieces_of(f"It said: {_text(messages[-1]).strip()}") if _wants_tool(messages) else None
    said = _last_said(messages)
    wanted = re.match(r"(?:please )?remember that (.+)|look in memory for (.+)", said, re.IGNORECASE)
    if wanted:
        name, words = ("remember", wanted[1]) if wanted[1] else ("recall", wanted[2])
        return _calling(name, words, tools[name]) if name in tools else None
    about = asked_in(said)
    if about is not None:
        known = [each for each in _known_to(messages) if each.about == about]
        return _pieces_of(" ".join(_newest(known)) or f"I do not know your {about}.")
    return _pieces_of("I see. Noted.") if told_in(said) else None


def _wants_tool(messages: list[dict[str, Any]]) -> bool:
    return bool(re.match(r"(?:please )?(?:remember that|look in memory for)", _last_said(messages), re.I))


def _newest(known: list[Told]) -> Iterator[str]:
    """What still holds: later words replace earlier ones."""
    for place, each in enumerate(known):
        if not any(later.replaces(each) for later in known[place + 1 :]):
            yield each.repeated


def _known_to(messages: list[dict[str, Any]]) -> list[Told]:
    """What a person, a tool or memory says in this request. The model's own answers are nobody's word."""
    texts = [_text(each) for each in messages if each["role"] != "assistant"]
    return [told for text in texts for told in told_in(text)]


def _last_said(messages: list[dict[str, Any]]) -> str:
    return next((_own(_text(each)) for each in reversed(messages) if each["role"] == "user"), "")


def _own(text: str) -> str:
    """A message without the notes that were put before it."""
    return text.rpartition(MEMORIES_END.strip())[2].strip()


def _bare(body: dict[str, Any]) -> dict[str, Any]:
    """A request without notes, for one who repeats what was said."""
    messages = [
        each | {"content": _own(_text(each))} if each["role"] == "user" else each for each in body["messages"]
    ]
    return body | {"messages": messages}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _calling(name: str, words: str, takes: dict[str, Any]) -> Iterable[bytes]:
    """A call of a tool, with `words` in the field that it asks for first."""
    first = next(iter(takes.get("required") or takes["properties"]))
    arguments = msgspec.json.encode({first: words}).decode()
    yield chunk(call(arguments, index=0, id=f"call_{name}", type="function", name=name))
    yield chunk({}, "tool_calls")


def _pieces_of(text: str) -> list[bytes]:
    """A few words at a time."""
    return [chunk({"content": piece}) for piece in re.findall(r"\S+\s*\S*\s*|\s+", text)] + [
        chunk({}, "stop")
    ]


async def _paced(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
