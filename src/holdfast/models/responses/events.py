"""The events of OpenAI Responses, with the fields that matter to an answer. No I/O."""

from types import MappingProxyType
from typing import Any

import msgspec


class ResponsesEvent(msgspec.Struct):
    """Any event; or an answer that came whole, which has no type."""

    type: str = ""
    delta: str | None = None
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    part: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    object: str | None = None

    def index(self, where: str) -> int:
        """Return the index of the piece that the event is about, in an item's content or summary."""
        return (self.summary_index if where == "summary" else self.content_index) or 0


class _TypeOnly(msgspec.Struct):
    type: str = ""


class ContentPart(msgspec.Struct):
    """A piece of a message, of a summary or of thinking."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None

    @property
    def value(self) -> str:
        return self.text or self.refusal or ""

    @property
    def location(self) -> tuple[str, str]:
        """Return the kind of item that holds it, and the list in that item."""
        kind = "reasoning" if self.type in ("reasoning_text", "summary_text") else "message"
        return kind, "summary" if self.type == "summary_text" else "content"


class Item(msgspec.Struct):
    """A complete item."""

    type: str = ""
    id: str | None = None
    content: list[ContentPart] | None = None
    summary: list[ContentPart] | None = None
    encrypted_content: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def arguments_text(self) -> str:
        """Return the arguments of a call as text; some servers send them as an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments or ""
        return msgspec.json.encode(self.arguments).decode()


class _IncompleteDetails(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    """A whole answer, as its last event repeats it."""

    status: str | None = None
    output: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    incomplete_details: _IncompleteDetails | None = None

    @property
    def reason(self) -> str:
        """Return the reason that the answer is incomplete; empty if it states none."""
        return (self.incomplete_details.reason if self.incomplete_details else None) or ""


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class ResponsesUsage(msgspec.Struct):
    """Counts of tokens. Those of the output include thinking."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _CachedTokens | None = None

    @property
    def cached_tokens(self) -> int:
        return (self.input_tokens_details.cached_tokens if self.input_tokens_details else None) or 0

    @property
    def written_tokens(self) -> int:
        return (self.input_tokens_details.cache_write_tokens if self.input_tokens_details else None) or 0


TEXT_EVENTS = MappingProxyType(
    {
        "response.output_text": ("message", "content"),
        "response.refusal": ("message", "content"),
        "response.reasoning_summary_text": ("reasoning", "summary"),
        "response.reasoning_text": ("reasoning", "content"),
    }
)
"""Events that carry text, each with the kind of item and the list in it that the text belongs to."""
PART_EVENTS = frozenset({"response.content_part.done", "response.reasoning_summary_part.done"})
ITEM_TYPES = frozenset({"message", "reasoning", "function_call"})
"""The items that matter; a server's own tools do not."""
END_EVENTS = frozenset(
    f"response.{status}" for status in ("completed", "incomplete", "failed", "cancelled", "done")
)
_KNOWN_EVENTS = frozenset(
    {
        "",
        "error",
        *(f"response.{name}" for name in ("output_item.added", "output_item.done")),
        *(f"response.function_call_arguments.{verb}" for verb in ("delta", "done")),
        *(f"{name}.{verb}" for name in TEXT_EVENTS for verb in ("delta", "done")),
        *PART_EVENTS,
        *END_EVENTS,
    }
)
_EVENT = msgspec.json.Decoder(ResponsesEvent)
_TYPE_ONLY = msgspec.json.Decoder(_TypeOnly)
_CONTENT_PART = msgspec.json.Decoder(ContentPart)
_ITEM = msgspec.json.Decoder(Item)
_RESPONSE = msgspec.json.Decoder(Response)
_USAGE = msgspec.json.Decoder(ResponsesUsage)


def decode_event(data: bytes) -> ResponsesEvent:
    """Return the event; one of an unknown type is empty but for that. Raises DecodeError."""
    try:
        return _EVENT.decode(data)
    except msgspec.ValidationError:
        # An unknown event may have any shape, but a known one must match its own.
        name = _TYPE_ONLY.decode(data).type
        if name in _KNOWN_EVENTS:
            raise
        return ResponsesEvent(name)


def is_known(event: ResponsesEvent) -> bool:
    return event.type in _KNOWN_EVENTS


def decode_content_part(raw: msgspec.Raw) -> ContentPart:
    return _CONTENT_PART.decode(_or_empty(raw))


def decode_item(raw: msgspec.Raw) -> Item:
    """Return the item; one of an unknown type is empty but for that. Raises DecodeError."""
    try:
        return _ITEM.decode(_or_empty(raw))
    except msgspec.ValidationError:
        kind = _TYPE_ONLY.decode(_or_empty(raw)).type
        if kind in ITEM_TYPES:
            raise
        return Item(kind)


def decode_response(raw: msgspec.Raw | bytes) -> Response:
    return _RESPONSE.decode(_or_empty(raw))


def decode_usage(raw: msgspec.Raw) -> ResponsesUsage:
    """Return the counts; empty if they are malformed, since that must not cost the answer."""
    try:
        return _USAGE.decode(_or_empty(raw))
    except msgspec.DecodeError:
        return ResponsesUsage()


def has_value(raw: msgspec.Raw | bytes) -> bool:
    """Return whether `raw` is neither empty nor null."""
    return bytes(raw) not in (b"", b"null")


def _or_empty(raw: msgspec.Raw | bytes) -> msgspec.Raw | bytes:
    return raw if has_value(raw) else b"{}"
