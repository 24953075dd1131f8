"""A model server that answers from the text of the request: facts that the user stated in it.

It is a `ScriptedModelServer` and answers other messages as that does. It understands
"My dog is called Rex.", "I live in Lisbon." and "I like tea.", questions about them ("What is my dog
called?", "Where do I live?", "What do I like?"), "Remember that …" and "Look in memory for …", for which it
calls the tools of that name if the request has them; and the request to extract facts from a conversation.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from holdfast.domain.context.context import MEMORIES_END
from tests.support.api_client import ScriptedModelServer, answer_chunks, stream_response
from tests.support.model_server import call, chunk

_OBJECT_PATTERN = r"(?P<what>(?:(?!,? and (?:I|my)\b)[^.!?;\n\"])+)"
_STATEMENT_PATTERNS = (
    (r"\b(?:my|(?:the )?user's) (?P<about>[a-z][\w' -]*?) (?P<verb>is|are)(?P<called> called| named)? "
     + _OBJECT_PATTERN),
    r"\b(?:I|(?:the )?user) (?P<verb>lives?) in " + _OBJECT_PATTERN,
    r"\b(?:I|(?:the )?user) (?P<verb>likes?) " + _OBJECT_PATTERN,
)  # fmt: skip
_QUESTION_PATTERNS = (
    r"\b(?:what|who)(?:'s| is| are) my (?P<about>[\w' -]+?)(?: called| named)?\?",
    r"\bwhere do I (?P<verb>live)\?",
    r"\bwhat do I (?P<verb>like)\?",
)
_KNOWN_FACT = re.compile(r"^\[(?P<id>[^\]\n]+)\] (?P<text>.*)$", re.MULTILINE)
_ROLE_LABEL = re.compile(r"^(User|Assistant|Tool)\b[^:\n]*:", re.MULTILINE)
_HANG_POLL_S, _HANG_POLLS_MAX = 0.02, 15_000
_QUESTION = re.compile(r"[^.!?\n]*\?")


class PersonalFact(msgspec.Struct, frozen=True):
    """A fact that a person stated about themselves."""

    about: str
    verb: str
    what: str
    called: str = ""

    @property
    def as_memory(self) -> str:
        """Return the fact as memory stores it."""
        if self.verb in ("is", "are"):
            return f"The user's {self.about} {self.verb}{self.called} {self.what}."
        return f"The user {self.verb}s {'in ' if self.verb == 'live' else ''}{self.what}."

    @property
    def as_answer(self) -> str:
        """Return the fact as the answer to the person."""
        if self.verb in ("is", "are"):
            return f"You told me that your {self.about} {self.verb}{self.called} {self.what}."
        return f"You told me that you {self.verb} {'in ' if self.verb == 'live' else ''}{self.what}."

    def replaces(self, other: "PersonalFact") -> bool:
        """Return whether both cannot hold: one has one dog and one home, but may like many things."""
        return self.about == other.about and (self.verb != "like" or self.what == other.what)


def facts_in(text: str) -> list[PersonalFact]:
    """Return the facts that `text` states, in order; questions state none."""
    text = _QUESTION.sub(lambda found: " " * len(found[0]), text)
    found = [each for pattern in _STATEMENT_PATTERNS for each in re.finditer(pattern, text, re.IGNORECASE)]
    return [_fact_from(each.groupdict()) for each in sorted(found, key=re.Match.start)]


def question_subject(text: str) -> str | None:
    """Return the subject of the question in `text`, as in `PersonalFact.about`."""
    for pattern in _QUESTION_PATTERNS:
        found = re.search(pattern, text, re.IGNORECASE)
        if found:
            return _subject(found.groupdict())
    return None


def _fact_from(found: dict[str, str | None]) -> PersonalFact:
    verb = (found["verb"] or "").lower()
    return PersonalFact(
        _subject(found),
        verb if verb in ("is", "are") else verb.rstrip("s"),
        (found["what"] or "").strip(" '*_"),
        (found.get("called") or "").lower(),
    )


def _subject(found: dict[str, str | None]) -> str:
    """Return the subject of a fact: a thing, or the verb itself."""
    return (found.get("about") or (found["verb"] or "").removesuffix("s")).lower().strip()


@dataclass
class InjectedFault:
    """The fault of the answers to one kind of request; none by default."""

    delay_s: float = 0.0
    status: int = 0
    """Refuse with this status."""
    hangs: bool = False
    """Accept the request and never answer, until the test resets this."""
    garbled: bool = False
    """Answer nonsense."""

    async def apply(self, request: web.Request) -> web.StreamResponse | None:
        """Wait as long as configured; return the answer if it is a refusal."""
        for _ in range(_HANG_POLLS_MAX):
            if not self.hangs:
                break
            await asyncio.sleep(_HANG_POLL_S)
        await asyncio.sleep(self.delay_s)
        if not self.status:
            return None
        return web.json_response({"error": {"message": "Out of order for a test"}}, status=self.status)


@dataclass
class MemoryModelServer(ScriptedModelServer):
    """`asked` has every request, `extractions` those for facts, `titles` those for a title."""

    chat: InjectedFault = field(default_factory=InjectedFault)
    extraction: InjectedFault = field(default_factory=InjectedFault)
    extractions: list[dict[str, Any]] = field(default_factory=list)
    titles: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return await super().answer(request)
        body = await request.json()
        if is_extraction(body):
            self.requests.append(body)
            self.extractions.append(body)
            refusal = await self.extraction.apply(request)
            return refusal or await stream_response(
                request, _yielding(_text_chunks(self._extraction_text(body)))
            )
        if not body.get("tools"):
            self.titles.append(body)
            return await super().answer(request)
        self.requests.append(body)
        refusal = await self.chat.apply(request)
        if refusal:
            return refusal
        chunks = answer_from_facts(body) if not self.chat.garbled else _text_chunks("Qwxz.")
        return await stream_response(
            request,
            _yielding(chunks) if chunks is not None else answer_chunks(_request_without_notes(body), self),
        )

    def _extraction_text(self, body: dict[str, Any]) -> str:
        if self.extraction.garbled:
            return "I would rather talk about the weather. {[}"
        return extract_facts("\n".join(_text(each) for each in body["messages"] if each["role"] == "user"))


def is_extraction(body: dict[str, Any]) -> bool:
    """Return whether a request asks for facts: in JSON, without tools."""
    instructions = "".join(
        _text(each) for each in body["messages"] if each["role"] in ("system", "developer")
    )
    return not body.get("tools") and "JSON" in instructions


def extract_facts(conversation: str) -> str:
    """Return the facts that a person states in the conversation `given`, with the ones they replace."""
    pieces = _ROLE_LABEL.split(conversation)
    known = [
        (each["id"], fact) for each in _KNOWN_FACT.finditer(pieces[0]) for fact in facts_in(each["text"])
    ]
    user_texts = [text for who, text in zip(pieces[1::2], pieces[2::2], strict=True) if who == "User"]
    facts: dict[str, PersonalFact] = {}
    for personal_fact in (each for text in user_texts for each in facts_in(text)):
        facts = {text: other for text, other in facts.items() if not personal_fact.replaces(other)}
        facts[personal_fact.as_memory] = personal_fact
    found = [
        {"text": text, "replaces": [each for each, old in known if new_fact.replaces(old)]}
        for text, new_fact in facts.items()
        if not any(old == new_fact for _, old in known)
    ]
    return msgspec.json.encode({"facts": found}).decode()


def answer_from_facts(body: dict[str, Any]) -> Iterable[bytes] | None:
    """Return the answer to the last message from the facts in this request, or None."""
    messages = body["messages"]
    tools = {each["function"]["name"]: each["function"]["parameters"] for each in body["tools"]}
    if messages[-1]["role"] == "tool":
        return _text_chunks(f"It said: {_text(messages[-1]).strip()}") if _is_tool_request(messages) else None
    prompt = _last_user_text(messages)
    tool_request = re.match(r"(?:please )?remember that (.+)|look in memory for (.+)", prompt, re.IGNORECASE)
    if tool_request:
        name, words = ("remember", tool_request[1]) if tool_request[1] else ("recall", tool_request[2])
        return _tool_call_chunks(name, words, tools[name]) if name in tools else None
    about = question_subject(prompt)
    if about is not None:
        known = [each for each in _facts_in_request(messages) if each.about == about]
        return _text_chunks(" ".join(_current_answers(known)) or f"I do not know your {about}.")
    return _text_chunks("I see. Noted.") if facts_in(prompt) else None


def _is_tool_request(messages: list[dict[str, Any]]) -> bool:
    return bool(
        re.match(r"(?:please )?(?:remember that|look in memory for)", _last_user_text(messages), re.I)
    )


def _current_answers(known: list[PersonalFact]) -> Iterator[str]:
    """Return the facts that still hold: later statements replace earlier ones."""
    for place, each in enumerate(known):
        if not any(later.replaces(each) for later in known[place + 1 :]):
            yield each.as_answer


def _facts_in_request(messages: list[dict[str, Any]]) -> list[PersonalFact]:
    """Return the facts from users, tools and memory in this request. Answers of the model do not count."""
    texts = [_text(each) for each in messages if each["role"] != "assistant"]
    return [fact for text in texts for fact in facts_in(text)]


def _last_user_text(messages: list[dict[str, Any]]) -> str:
    return next((_without_notes(_text(each)) for each in reversed(messages) if each["role"] == "user"), "")


def _without_notes(text: str) -> str:
    """Return a message without the recalled notes before it."""
    return text.rpartition(MEMORIES_END.strip())[2].strip()


def _request_without_notes(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request without recalled notes, for the server that repeats messages."""
    messages = [
        each | {"content": _without_notes(_text(each))} if each["role"] == "user" else each
        for each in body["messages"]
    ]
    return body | {"messages": messages}


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def _tool_call_chunks(name: str, text: str, schema: dict[str, Any]) -> Iterable[bytes]:
    """Return a call of a tool, with `words` in its first required field."""
    first = next(iter(schema.get("required") or schema["properties"]))
    arguments = msgspec.json.encode({first: text}).decode()
    yield chunk(call(arguments, index=0, id=f"call_{name}", type="function", name=name))
    yield chunk({}, "tool_calls")


def _text_chunks(text: str) -> list[bytes]:
    """Yield a few words at a time."""
    return [chunk({"content": piece}) for piece in re.findall(r"\S+\s*\S*\s*|\s+", text)] + [
        chunk({}, "stop")
    ]


async def _yielding(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
