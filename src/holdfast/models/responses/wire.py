"""OpenAI Responses: requests encoded, the events of an answer decoded. No I/O.

Follows OpenAI's reference, and what servers that claim to speak it do otherwise: no `output_index`, other ids
at an item's end than at its beginning, items that end only with the answer, texts that come only at the end.
What a final item holds and no delta brought is told when that item comes, once.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.domain.context.request import Profile, Request
from holdfast.domain.usage import Usage
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.models.responses import request as encoding
from holdfast.models.responses.events import (
    ENDS,
    KINDS,
    PARTS,
    TEXTS,
    Event,
    Item,
    Response,
    event_of,
    holds,
    is_known,
    item_of,
    response_of,
    used_of,
    words_of,
)
from holdfast.models.responses.request import SUMMARY, THINKING, Thought
from holdfast.models.wire import EFFORT, ErrorInStream

GAP = "\n\n"
"""Between two messages of one answer, and between the paragraphs of what it thought."""
_LENGTH = "max_output_tokens"


class ResponsesWire:
    """OpenAI Responses, without anything kept at the server."""

    path = "responses"
    optional = (
        ("include", "encrypted content is not supported"),
        ("include", encoding.ENCRYPTED),
        (SUMMARY, "reasoning.summary"),
        (SUMMARY, "reasoning summaries"),
        (EFFORT, "reasoning.effort"),
        (EFFORT, "reasoning_effort"),
        ("reasoning", "parameter: 'reasoning'"),
        (THINKING, "invalid_encrypted_content"),
        (THINKING, "required following item"),
        (THINKING, "of type 'reasoning'"),
        ("prompt_cache_key", "prompt_cache_key"),
        ("parallel_tool_calls", "parallel_tool_calls"),
        ("max_output_tokens", _LENGTH),
        ("store", "'store'"),
        ("tools", "does not support tools"),
    )

    def encode(
        self,
        model: str,
        profile: Profile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return encoding.encode(model, profile, request, tools, without)

    def decoder(self) -> "ResponsesDecoder":
        return ResponsesDecoder()


_Piece = tuple[str, int]
"""Where in an item a text belongs: its content or its summary, and which piece of it."""
_ARGUMENTS: _Piece = ("arguments", 0)


class _Open(msgspec.Struct, eq=False):
    """An item while it is written: its texts by where they belong, and which of them are whole."""

    kind: str
    id: str = ""
    written: dict[_Piece, list[str]] = msgspec.field(default_factory=dict)
    closed: set[_Piece] = msgspec.field(default_factory=set)
    name: str = ""
    place: int = -1
    is_signed: bool = False
    is_done: bool = False

    @property
    def is_raw(self) -> bool:
        """Whether what it holds is the thinking itself, and not a summary of it."""
        return bool(self.written) and all(where == "content" for where, _ in self.written)

    def text(self, piece: _Piece) -> str:
        return "".join(self.written.get(piece, ()))


class ResponsesDecoder:
    """The data of an answer's events in, deltas out. One decoder reads one answer."""

    def __init__(self) -> None:
        self.is_done = False
        self._reason = ""
        self._usage = Usage()
        self._items = _Items()
        self._last: _Open | None = None
        self._places = 0

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole: its usage comes with its end."""
        return self.is_done

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in one event. Raises ErrorInStream, or ValueError for what is no event."""
        if not data:
            return []
        if data == b"[DONE]":  # No part of the protocol, but a habit of servers.
            self.is_done = True
            return []
        event = event_of(data)
        name = event.type
        if name == "response.output_text.delta":  # Nearly all that comes is this.
            return self._say(
                self._items.of("message", event), ("content", event.index("content")), event.delta
            )
        if (name == "error" or event.object == "error" or holds(event.error)) and event.object != "response":
            raise ErrorInStream(data)
        if not is_known(event):
            return []
        if name in ENDS:
            return list(self._finish(response_of(event.response), name))
        if not name:
            return list(self._whole(data)) if event.object == "response" else []
        return list(self._take(event))

    def end(self) -> list[ModelDelta]:
        """What closes the answer: calls that lack a name or arguments, and its one StepEnd."""
        closing: list[ModelDelta] = []
        calls = self._items.all("function_call")
        for call in calls:
            arguments = call.text(_ARGUMENTS)
            if call.name and not arguments.strip():
                # No arguments at all is how some servers write a call of a tool that takes none.
                closing.append(CallDelta(call.place, call.name, "{}"))
            elif arguments and not call.name:
                closing.append(CallDelta(self._place(call), "", arguments))
        reason = self._reason or ("tool_calls" if calls else "stop")
        return [*closing, StepEnd(reason, self._usage)]

    # One event.

    def _take(self, event: Event) -> Iterator[ModelDelta]:
        name, _, verb = event.type.rpartition(".")
        if name == "response.output_item":
            item = item_of(event.item)
            if item.type not in KINDS:
                return
            if verb == "added":
                yield from self._begin(item, event.output_index)
            else:
                yield from self._complete(self._items.of(item.type, event, item.id or ""), item)
        elif name == "response.function_call_arguments":
            call = self._items.of("function_call", event)
            if verb == "delta":
                yield from self._argue(call, event.delta)
            else:
                yield from self._fill(call, _ARGUMENTS, event.arguments)
        elif event.type in PARTS:
            words = words_of(event.part)
            kind, where = words.place
            yield from self._fill(self._items.of(kind, event), (where, event.index(where)), words.said)
        else:
            kind, where = TEXTS[name]
            item_at, piece = self._items.of(kind, event), (where, event.index(where))
            if verb == "delta":
                yield from self._say(item_at, piece, event.delta)
            else:
                yield from self._fill(item_at, piece, event.text or event.refusal)

    def _begin(self, item: Item, index: int | None) -> Iterator[ModelDelta]:
        """What an item holds when it begins comes again, as deltas or at its end: it is taken then."""
        opened = self._items.begun(item, index)
        yield from self._sign_raw(opened)
        if opened.kind == "function_call":
            yield from self._name(opened, item.name)

    def _complete(self, item: _Open, whole: Item) -> Iterator[ModelDelta]:
        """Whatever `whole` holds of an item that no delta brought."""
        if item.is_done:
            return
        if item.kind == "function_call":
            yield from self._name(item, whole.name)
            yield from self._fill(item, _ARGUMENTS, whole.written)
        else:
            for where, pieces in (("summary", whole.summary), ("content", whole.content)):
                for i, words in enumerate(pieces or ()):
                    yield from self._fill(item, (where, i), words.said)
        if item.kind == "reasoning" and whole.encrypted_content and not item.is_signed:
            summary = tuple(words.said for words in whole.summary or ())
            thought = Thought(whole.id or item.id, whole.encrypted_content, summary, item.is_raw)
            item.is_signed = True
            yield ReasoningDelta("", thought.signature())
        item.is_done = True

    def _finish(self, response: Response, name: str) -> Iterator[ModelDelta]:
        """The answer's last event, which repeats all of it."""
        status = response.status or name.rpartition(".")[2]
        if status in ("failed", "cancelled") or name in ("response.failed", "response.cancelled"):
            error = response.error if holds(response.error) else msgspec.Raw(b"{}")
            raise ErrorInStream(msgspec.json.encode({"error": error}))
        items = [item for raw in response.output or () if (item := item_of(raw)).type in KINDS]
        for opened, item in self._items.matched(items):
            yield from self._complete(opened, item)
        used = used_of(response.usage)
        counts = (used.input_tokens or 0, used.output_tokens or 0, used.cached_tokens)
        self._usage = Usage(*counts, written_tokens=used.written_tokens)
        if status == "incomplete" or name == "response.incomplete":
            self._reason = "length" if response.reason in ("", _LENGTH) else response.reason
        self.is_done = True

    def _whole(self, data: bytes) -> Iterator[ModelDelta]:
        """An answer that did not stream."""
        response = response_of(data)
        if response.status not in ("in_progress", "queued"):
            yield from self._finish(response, f"response.{response.status or 'completed'}")

    # What an item brings. After its end nothing of it is new.

    def _say(self, item: _Open, piece: _Piece, text: str | None) -> list[ModelDelta]:
        """Words of a message or of thinking."""
        if not text or item.is_done or piece in item.closed:
            return []
        before, deltas = self._last, list[ModelDelta]()
        pieces = item.written.get(piece)
        gap = GAP if pieces is None and item.written and item.kind == "reasoning" else ""
        if before is not item:
            deltas += self._sign_raw(item)
            if before is not None and before.kind == item.kind and not (item.written or before.is_signed):
                gap = GAP
            self._last = item
        if pieces is None:
            pieces = item.written[piece] = []
        pieces.append(text)
        deltas.append(TextDelta(gap + text) if item.kind == "message" else ReasoningDelta(gap + text))
        return deltas

    def _argue(self, call: _Open, text: str | None) -> Iterator[ModelDelta]:
        if not text or call.is_done or _ARGUMENTS in call.closed:
            return
        call.written.setdefault(_ARGUMENTS, []).append(text)
        if call.name:
            self._last = call
            yield CallDelta(call.place, call.name, text)

    def _name(self, call: _Open, name: str | None) -> Iterator[ModelDelta]:
        """A call begins for others when its name is known."""
        if name and not call.name:
            call.name = name
            yield from self._sign_raw(call)
            self._last = call
            yield CallDelta(self._place(call), name, call.text(_ARGUMENTS))

    def _fill(self, item: _Open, piece: _Piece, whole: str | None) -> Iterator[ModelDelta]:
        """The rest of a text that is told whole. If it contradicts what came, what came stays."""
        if not whole or piece in item.closed:
            return
        written = item.text(piece)
        if len(whole) > len(written) and whole.startswith(written):
            rest = whole[len(written) :]
            yield from self._argue(item, rest) if piece == _ARGUMENTS else self._say(item, piece, rest)
        item.closed.add(piece)

    def _sign_raw(self, following: _Open) -> Iterator[ModelDelta]:
        """Thinking that is not encrypted is signed when something follows: its own end may come too late."""
        last = self._last
        if last is None or last is following or last.kind != "reasoning" or last.is_signed:
            return
        if last.is_raw:
            last.is_signed = True
            yield ReasoningDelta("", Thought(last.id, is_raw=True).signature())

    def _place(self, call: _Open) -> int:
        """Its number among the calls: given when others first hear of it."""
        if call.place < 0:
            call.place = self._places
            self._places += 1
        return call.place


class _Items:
    """The items of one answer, found however a server names them."""

    def __init__(self) -> None:
        self._all: list[_Open] = []
        self._by_id: dict[str, _Open] = {}
        self._by_index: dict[int, _Open] = {}

    def all(self, kind: str) -> list[_Open]:
        return [item for item in self._all if item.kind == kind]

    def of(self, kind: str, event: Event, item_id: str = "") -> _Open:
        """The item that an event is about: by its id, else by its index, else the newest; else a new one."""
        item_id = item_id or event.item_id or ""
        found = self._by_id.get(item_id)
        if found is not None and found.kind == kind:
            return found
        if event.output_index is not None:
            found = self._by_index.get(event.output_index)
        elif not item_id:
            found = next((item for item in reversed(self._all) if item.kind == kind), None)
        if found is not None and found.kind == kind:
            return found
        return self._opened(kind, item_id, event.output_index)

    def begun(self, item: Item, index: int | None) -> _Open:
        """The item that begins; the same, if it has begun before."""
        found = self._by_id.get(item.id or "")
        if found is None and index is not None:
            at_index = self._by_index.get(index)
            # Some servers give every item the same index: one with an id of its own is another.
            if at_index is not None and at_index.kind == item.type and not (item.id and at_index.id):
                found = at_index
        if found is None or found.kind != item.type:
            found = self._opened(item.type, item.id or "", index)
        return found

    def matched(self, items: Sequence[Item]) -> list[tuple[_Open, Item]]:
        """Each of the final items with what there is of it: by its id, else by its turn among its kind."""
        named = [self._by_id.get(item.id or "") for item in items]
        rest = [each for each in self._all if not any(each is found for found in named)]
        pairs: list[tuple[_Open, Item]] = []
        for found, item in zip(named, items, strict=True):
            if found is None or found.kind != item.type:
                found = next((each for each in rest if each.kind == item.type), None)
                if found is None:
                    found = self._opened(item.type, item.id or "", None)
                else:
                    rest.remove(found)
            pairs.append((found, item))
        return pairs

    def _opened(self, kind: str, item_id: str, index: int | None) -> _Open:
        item = _Open(kind, item_id)
        self._all.append(item)
        if item_id:
            self._by_id[item_id] = item
        if index is not None:
            self._by_index[index] = item
        return item
