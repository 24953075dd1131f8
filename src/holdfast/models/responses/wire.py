"""OpenAI Responses: encode requests, decode the events of an answer. No I/O.

The decoder follows OpenAI's reference, and accepts what other servers do differently: no `output_index`,
other ids at an item's end than at its beginning, items that end only with the answer, texts that come only at
the end. If a final item holds text that no delta brought, the decoder returns it with that item, once.
"""

from collections.abc import Collection, Iterator, Sequence

import msgspec

from holdfast.domain.context.request import ModelProfile, Request
from holdfast.domain.usage import Usage
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.models.responses import request as encoding
from holdfast.models.responses.events import (
    END_EVENTS,
    ITEM_TYPES,
    PART_EVENTS,
    TEXT_EVENTS,
    Item,
    Response,
    ResponsesEvent,
    decode_content_part,
    decode_event,
    decode_item,
    decode_response,
    decode_usage,
    has_value,
    is_known,
)
from holdfast.models.responses.request import SUMMARY, THINKING, ReasoningItemSignature
from holdfast.models.wire import EFFORT, ErrorInStream

GAP = "\n\n"
"""Separates two messages of one answer, and the paragraphs of its thinking."""
_LENGTH = "max_output_tokens"


class ResponsesWire:
    """OpenAI Responses, with nothing stored at the server."""

    path = "responses"
    optional_fields = (
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
        profile: ModelProfile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return encoding.encode(model, profile, request, tools, without)

    def decoder(self) -> "ResponsesDecoder":
        return ResponsesDecoder()


_Piece = tuple[str, int]
"""The location of a text in an item: its list (content or summary) and its index there."""
_ARGUMENTS: _Piece = ("arguments", 0)


class _OpenItem(msgspec.Struct, eq=False):
    """An item that is being received: its texts by location, and which of them are complete."""

    kind: str
    id: str = ""
    pieces: dict[_Piece, list[str]] = msgspec.field(default_factory=dict)
    closed: set[_Piece] = msgspec.field(default_factory=set)
    name: str = ""
    call_index: int = -1
    is_signed: bool = False
    is_done: bool = False

    @property
    def is_raw(self) -> bool:
        """Return whether it holds the thinking itself, and not a summary of it."""
        return bool(self.pieces) and all(where == "content" for where, _ in self.pieces)

    def text(self, piece: _Piece) -> str:
        return "".join(self.pieces.get(piece, ()))


class ResponsesDecoder:
    """Decode one answer: the data of events in, deltas out."""

    def __init__(self) -> None:
        self.has_stream_ended = False
        self._reason = ""
        self._usage = Usage()
        self._items = _Items()
        self._last: _OpenItem | None = None
        self._calls_started = 0

    @property
    def is_answer_complete(self) -> bool:
        """Return whether the answer is complete: its usage comes with its end."""
        return self.has_stream_ended

    def feed(self, data: bytes) -> list[ModelDelta]:
        """Return the deltas in one event. Raises ErrorInStream, or ValueError for data that is no event."""
        if not data:
            return []
        if data == b"[DONE]":  # Not part of the protocol, but servers often send it.
            self.has_stream_ended = True
            return []
        event = decode_event(data)
        name = event.type
        if name == "response.output_text.delta":  # Nearly every event is this one.
            return self._add_text(
                self._items.find_or_open("message", event), ("content", event.index("content")), event.delta
            )
        if (
            name == "error" or event.object == "error" or has_value(event.error)
        ) and event.object != "response":
            raise ErrorInStream(data)
        if not is_known(event):
            return []
        if name in END_EVENTS:
            return list(self._finish(decode_response(event.response), name))
        if not name:
            return list(self._decode_whole(data)) if event.object == "response" else []
        return list(self._handle(event))

    def end(self) -> list[ModelDelta]:
        """Return the last deltas: calls that lack a name or arguments, and the one StepEnd."""
        closing: list[ModelDelta] = []
        calls = self._items.of_kind("function_call")
        for call in calls:
            arguments = call.text(_ARGUMENTS)
            if call.name and not arguments.strip():
                # Some servers send no arguments at all for a tool that takes none.
                closing.append(CallDelta(call.call_index, call.name, "{}"))
            elif arguments and not call.name:
                closing.append(CallDelta(self._call_index(call), "", arguments))
        reason = self._reason or ("tool_calls" if calls else "stop")
        return [*closing, StepEnd(reason, self._usage)]

    # One event.

    def _handle(self, event: ResponsesEvent) -> Iterator[ModelDelta]:
        name, _, verb = event.type.rpartition(".")
        if name == "response.output_item":
            item = decode_item(event.item)
            if item.type not in ITEM_TYPES:
                return
            if verb == "added":
                yield from self._start_item(item, event.output_index)
            else:
                yield from self._complete_item(
                    self._items.find_or_open(item.type, event, item.id or ""), item
                )
        elif name == "response.function_call_arguments":
            call = self._items.find_or_open("function_call", event)
            if verb == "delta":
                yield from self._add_arguments(call, event.delta)
            else:
                yield from self._complete_text(call, _ARGUMENTS, event.arguments)
        elif event.type in PART_EVENTS:
            part = decode_content_part(event.part)
            kind, where = part.location
            yield from self._complete_text(
                self._items.find_or_open(kind, event), (where, event.index(where)), part.value
            )
        else:
            kind, where = TEXT_EVENTS[name]
            open_item, piece = self._items.find_or_open(kind, event), (where, event.index(where))
            if verb == "delta":
                yield from self._add_text(open_item, piece, event.delta)
            else:
                yield from self._complete_text(open_item, piece, event.text or event.refusal)

    def _start_item(self, item: Item, index: int | None) -> Iterator[ModelDelta]:
        """Start an item, ignoring its content: deltas or its end repeat that."""
        opened = self._items.start(item, index)
        yield from self._sign_raw_thinking(opened)
        if opened.kind == "function_call":
            yield from self._set_call_name(opened, item.name)

    def _complete_item(self, item: _OpenItem, whole: Item) -> Iterator[ModelDelta]:
        """Yield the content of `whole` that no delta brought."""
        if item.is_done:
            return
        if item.kind == "function_call":
            yield from self._set_call_name(item, whole.name)
            yield from self._complete_text(item, _ARGUMENTS, whole.arguments_text)
        else:
            for where, pieces in (("summary", whole.summary), ("content", whole.content)):
                for i, part in enumerate(pieces or ()):
                    yield from self._complete_text(item, (where, i), part.value)
        if item.kind == "reasoning" and whole.encrypted_content and not item.is_signed:
            summary = tuple(part.value for part in whole.summary or ())
            signature = ReasoningItemSignature(
                whole.id or item.id, whole.encrypted_content, summary, item.is_raw
            )
            item.is_signed = True
            yield ReasoningDelta("", signature.signature())
        item.is_done = True

    def _finish(self, response: Response, name: str) -> Iterator[ModelDelta]:
        """Yield the deltas of the last event, which repeats the whole answer."""
        status = response.status or name.rpartition(".")[2]
        if status in ("failed", "cancelled") or name in ("response.failed", "response.cancelled"):
            error = response.error if has_value(response.error) else msgspec.Raw(b"{}")
            raise ErrorInStream(msgspec.json.encode({"error": error}))
        items = [item for raw in response.output or () if (item := decode_item(raw)).type in ITEM_TYPES]
        for opened, item in self._items.match(items):
            yield from self._complete_item(opened, item)
        usage = decode_usage(response.usage)
        counts = (usage.input_tokens or 0, usage.output_tokens or 0, usage.cached_tokens)
        self._usage = Usage(*counts, written_tokens=usage.written_tokens)
        if status == "incomplete" or name == "response.incomplete":
            self._reason = "length" if response.reason in ("", _LENGTH) else response.reason
        self.has_stream_ended = True

    def _decode_whole(self, data: bytes) -> Iterator[ModelDelta]:
        """Yield the deltas of an answer that did not stream."""
        response = decode_response(data)
        if response.status not in ("in_progress", "queued"):
            yield from self._finish(response, f"response.{response.status or 'completed'}")

    # Content of an item. After the item's end, nothing of it is new.

    def _add_text(self, item: _OpenItem, piece: _Piece, text: str | None) -> list[ModelDelta]:
        """Return the deltas for text of a message or of thinking."""
        if not text or item.is_done or piece in item.closed:
            return []
        previous, deltas = self._last, list[ModelDelta]()
        pieces = item.pieces.get(piece)
        gap = GAP if pieces is None and item.pieces and item.kind == "reasoning" else ""
        if previous is not item:
            deltas += self._sign_raw_thinking(item)
            if (
                previous is not None
                and previous.kind == item.kind
                and not (item.pieces or previous.is_signed)
            ):
                gap = GAP
            self._last = item
        if pieces is None:
            pieces = item.pieces[piece] = []
        pieces.append(text)
        deltas.append(TextDelta(gap + text) if item.kind == "message" else ReasoningDelta(gap + text))
        return deltas

    def _add_arguments(self, call: _OpenItem, text: str | None) -> Iterator[ModelDelta]:
        if not text or call.is_done or _ARGUMENTS in call.closed:
            return
        call.pieces.setdefault(_ARGUMENTS, []).append(text)
        if call.name:
            self._last = call
            yield CallDelta(call.call_index, call.name, text)

    def _set_call_name(self, call: _OpenItem, name: str | None) -> Iterator[ModelDelta]:
        """Yield the beginning of a call, once its name is known."""
        if name and not call.name:
            call.name = name
            yield from self._sign_raw_thinking(call)
            self._last = call
            yield CallDelta(self._call_index(call), name, call.text(_ARGUMENTS))

    def _complete_text(self, item: _OpenItem, piece: _Piece, whole: str | None) -> Iterator[ModelDelta]:
        """Yield the rest of a text that comes whole. If it contradicts the deltas, the deltas stand."""
        if not whole or piece in item.closed:
            return
        written = item.text(piece)
        if len(whole) > len(written) and whole.startswith(written):
            rest = whole[len(written) :]
            yield from (
                self._add_arguments(item, rest) if piece == _ARGUMENTS else self._add_text(item, piece, rest)
            )
        item.closed.add(piece)

    def _sign_raw_thinking(self, following: _OpenItem) -> Iterator[ModelDelta]:
        """Sign unencrypted thinking once something follows, because its own end may come too late."""
        last = self._last
        if last is None or last is following or last.kind != "reasoning" or last.is_signed:
            return
        if last.is_raw:
            last.is_signed = True
            yield ReasoningDelta("", ReasoningItemSignature(last.id, is_raw=True).signature())

    def _call_index(self, call: _OpenItem) -> int:
        """Return the call's number, which is assigned when its first delta is made."""
        if call.call_index < 0:
            call.call_index = self._calls_started
            self._calls_started += 1
        return call.call_index


class _Items:
    """The items of one answer, found by whichever of id, index and order a server provides."""

    def __init__(self) -> None:
        self._all: list[_OpenItem] = []
        self._by_id: dict[str, _OpenItem] = {}
        self._by_index: dict[int, _OpenItem] = {}

    def of_kind(self, kind: str) -> list[_OpenItem]:
        return [item for item in self._all if item.kind == kind]

    def find_or_open(self, kind: str, event: ResponsesEvent, item_id: str = "") -> _OpenItem:
        """Return the item of an event: by its id, else by its index, else the newest; else a new one."""
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
        return self._open(kind, item_id, event.output_index)

    def start(self, item: Item, index: int | None) -> _OpenItem:
        """Return the item that begins; the same one, if it has begun before."""
        found = self._by_id.get(item.id or "")
        if found is None and index is not None:
            at_index = self._by_index.get(index)
            # Some servers give every item the same index, so one with an id of its own is another item.
            if at_index is not None and at_index.kind == item.type and not (item.id and at_index.id):
                found = at_index
        if found is None or found.kind != item.type:
            found = self._open(item.type, item.id or "", index)
        return found

    def match(self, items: Sequence[Item]) -> list[tuple[_OpenItem, Item]]:
        """Pair each final item with the open one: by its id, else by its order among its kind."""
        named = [self._by_id.get(item.id or "") for item in items]
        rest = [item for item in self._all if not any(item is found for found in named)]
        pairs: list[tuple[_OpenItem, Item]] = []
        for found, item in zip(named, items, strict=True):
            if found is None or found.kind != item.type:
                found = next((other for other in rest if other.kind == item.type), None)
                if found is None:
                    found = self._open(item.type, item.id or "", None)
                else:
                    rest.remove(found)
            pairs.append((found, item))
        return pairs

    def _open(self, kind: str, item_id: str, index: int | None) -> _OpenItem:
        item = _OpenItem(kind, item_id)
        self._all.append(item)
        if item_id:
            self._by_id[item_id] = item
        if index is not None:
            self._by_index[index] = item
        return item
