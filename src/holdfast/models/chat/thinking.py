"""Encode and decode thinking in Chat Completions, in fields of its own or between tags. No I/O.

OpenAI's reference has no field for it, so each server has its own: `reasoning_content` (DeepSeek, and most
that follow it), `reasoning` (OpenRouter, Groq, vLLM, Ollama), `reasoning_details` beside it (OpenRouter), and
`extra_content` on a call (Google). The signature of a thinking part keeps what has to be sent back, as a
ThinkingSignature.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.request import AssistantMessage, RequestMessage, UserMessage
from holdfast.domain.events.parts import Reasoning, ToolCall
from holdfast.models.ports import ReasoningDelta, TextDelta

THINKING = "thinking"
"""Left out once a server refuses its own thinking."""
EXTRA = "extra_content"
CALLS_WITHOUT_THINKING = "calls without thinking"
"""Refused by servers that think: such a call then gets an empty thinking field."""
UNSIGNED_CALLS = "calls without a signature"
"""Refused by Google: a call that another model made then gets the documented placeholder."""
SKIP_SIGNATURE = "skip_thought_signature_validator"
_CONTENT = "reasoning_content"
_DETAILS = "reasoning_details"
_TEXT_KEYS = ("text", "summary")
"""Keys of the texts in details; all other values are opaque."""
_OBJECT = msgspec.json.Decoder(dict[str, Any])
_OBJECTS = msgspec.json.Decoder(list[dict[str, Any]])
OPEN_TAG, CLOSE_TAG = "<think>", "</think>"
BLANK_CHARS_MAX = 64
"""Limit of blank space before the opening tag. Text after more of it is no thinking."""


class ThinkingSignature(msgspec.Struct, frozen=True, tag_field="type", tag="chat", omit_defaults=True):
    """The content of a thinking part's signature, as JSON.

    `field` is the field that the part's text came from and is sent back in. `extra` belongs to the next call,
    or with `is_late` to the previous one. `details` are OpenRouter's, for the whole message. A text among
    them that equals the message's thinking is left out; `shown` holds its index and its key. `calls` are the
    ids by which the details name calls, in order.
    """

    field: str = ""
    extra: dict[str, Any] | None = None
    is_late: bool = False
    details: list[dict[str, Any]] | None = None
    shown: tuple[int, str] | None = None
    calls: tuple[str, ...] = ()

    def signature(self) -> str:
        return msgspec.json.encode(self).decode()


_SIGNATURE = msgspec.json.Decoder(ThinkingSignature)


def parse_signature(part: Reasoning) -> ThinkingSignature | None:
    """Return the parsed signature; None if another protocol signed the part."""
    try:
        return _SIGNATURE.decode(part.signature)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None


def parse_object(raw: msgspec.Raw) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(raw) if raw else None
    except msgspec.DecodeError:
        return None  # Malformed, so it could not be sent back.


# Encoding.


def in_tool_turns(messages: Sequence[RequestMessage]) -> list[bool]:
    """Return for each message whether its turn called tools: only there is thinking sent back."""
    turns: list[list[RequestMessage]] = [[]]
    for message in messages:
        if isinstance(message, UserMessage):
            turns.append([])
        turns[-1].append(message)
    found: list[bool] = []
    for turn in turns:
        parts = (part for message in turn if isinstance(message, AssistantMessage) for part in message.parts)
        found += [any(isinstance(part, ToolCall) for part in parts)] * len(turn)
    return found


def thinking_fields(message: AssistantMessage, without: Iterable[str]) -> dict[str, Any]:
    """Return the fields that send a message's thinking back to the server that it came from."""
    without = frozenset(without)
    fields: dict[str, Any] = {}
    texts: dict[str, str] = {}
    calls = [part.call_id for part in message.parts if isinstance(part, ToolCall)]
    if THINKING not in without:
        signatures = [
            (part, signature)
            for part in message.parts
            if isinstance(part, Reasoning) and (signature := parse_signature(part))
        ]
        for part, signature in signatures:
            if signature.field:
                texts[signature.field] = texts.get(signature.field, "") + part.text
        details = next((signature for _, signature in signatures if signature.details), None)
        fields = (
            texts
            if details is None
            else {_DETAILS: _restore_details(details, "".join(texts.values()), calls)}
        )
    if calls and CALLS_WITHOUT_THINKING in without:
        fields.setdefault(_CONTENT, "")
    return fields


def _restore_details(signature: ThinkingSignature, text: str, calls: Sequence[str]) -> list[dict[str, Any]]:
    """Return a message's details as they came, with our ids of the calls."""
    ours = dict(zip(signature.calls, calls, strict=False))
    details = [dict(detail) for detail in signature.details or ()]
    if signature.shown is not None and signature.shown[0] < len(details):
        details[signature.shown[0]][signature.shown[1]] = text
    for detail in details:
        if isinstance(detail.get("id"), str) and detail["id"] in ours:
            detail["id"] = ours[detail["id"]]
    return details


def call_extras(message: AssistantMessage, without: Iterable[str]) -> list[dict[str, Any] | None]:
    """Return for each call of a message, in order, the extra that belongs to it."""
    without = frozenset(without)
    found: list[dict[str, Any] | None] = []
    pending: dict[str, Any] | None = None
    for part in message.parts:
        if isinstance(part, ToolCall):
            found.append(pending)
            pending = None
        elif (
            isinstance(part, Reasoning)
            and (signature := parse_signature(part)) is not None
            and signature.extra
        ):
            if signature.is_late and found:
                found[-1] = found[-1] or signature.extra
            elif not signature.is_late:
                pending = signature.extra
    if EXTRA in without:
        return [None] * len(found)
    # Google signs only the first of parallel calls.
    if found and found[0] is None and UNSIGNED_CALLS in without:
        found[0] = {"google": {"thought_signature": SKIP_SIGNATURE}}
    return found


# Decoding.


class ReasoningDetails:
    """Assemble OpenRouter's details of a message's thinking from their pieces."""

    def __init__(self) -> None:
        self._all: list[dict[str, Any]] = []
        self._texts: list[dict[str, list[str]]] = []

    def add(self, raw: msgspec.Raw) -> str:
        """Add the pieces in one chunk, and return their text."""
        try:
            pieces = _OBJECTS.decode(raw) if raw else []
        except msgspec.DecodeError:
            return ""
        text = ""
        for piece in pieces:
            if not self._all or not _continues(piece, self._all[-1]):
                self._all.append({})
                self._texts.append({})
            for key, value in piece.items():
                if key in _TEXT_KEYS and isinstance(value, str):
                    self._texts[-1].setdefault(key, []).append(value)
                    text += value
                elif value is not None:
                    self._all[-1][key] = value
        return text

    def to_signature(self, thinking: str, calls: Sequence[str]) -> ThinkingSignature | None:
        """Return the signature that keeps the details beside `thinking`, the text that people saw."""
        if not self._all:
            return None
        texts = {
            (i, key): "".join(pieces)
            for i, texts_by_key in enumerate(self._texts)
            for key, pieces in texts_by_key.items()
        }
        shown = next(iter(texts)) if list(texts.values()) == [thinking] else None
        details = [dict(detail) for detail in self._all]
        for (i, key), text in texts.items():
            if (i, key) != shown:
                details[i][key] = text
        names = (
            tuple(calls) if any(detail.get("id") in calls for detail in details if detail.get("id")) else ()
        )
        return ThinkingSignature(details=details, shown=shown, calls=names)


def _continues(piece: dict[str, Any], last: dict[str, Any]) -> bool:
    same = all(piece.get(key) == last.get(key) for key in ("type", "index"))
    other_id = piece.get("id") and last.get("id") and piece["id"] != last["id"]
    return same and not other_id and piece.get("type") != "reasoning.encrypted"


class ThinkTagParser:
    """Separate thinking between tags from the answer, holding back no more than a tag's length.

    Once `is_done`, all further text belongs to the answer and needs no parsing.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._buffer = ""
        self._is_inside = False
        self._is_closed = False
        self._is_blank = True

    def feed(self, text: str) -> list[TextDelta | ReasoningDelta]:
        """Return the deltas that are certain so far. Blank space around the tags is dropped."""
        text, self._buffer = self._buffer + text, ""
        if not self._is_inside and not self._is_closed:
            stripped = text.lstrip()
            blank_chars = len(text) - len(stripped)
            if blank_chars > BLANK_CHARS_MAX or not (
                stripped.startswith(OPEN_TAG) or OPEN_TAG.startswith(stripped)
            ):
                self.is_done = True
                return [TextDelta(text)]
            if len(stripped) < len(OPEN_TAG):
                self._buffer = text
                return []
            self._is_inside, text = True, stripped[len(OPEN_TAG) :]
        return self._feed_thinking(text) if self._is_inside else self._feed_answer(text)

    def flush(self) -> list[TextDelta | ReasoningDelta]:
        """Return the text that was held back, because something else begins or the stream has ended.

        Thinking without a closing tag stays thinking.
        """
        rest, self._buffer = self._buffer, ""
        if self._is_inside:
            return [ReasoningDelta(rest)] if rest else []
        self.is_done = True
        return [TextDelta(rest)] if rest else []

    def _feed_thinking(self, text: str) -> list[TextDelta | ReasoningDelta]:
        thinking, closed, rest = text.partition(CLOSE_TAG)
        if closed:
            self._is_inside, self._is_closed = False, True
        elif partial := _partial_tag_chars(text):
            thinking, self._buffer = text[:-partial], text[-partial:]
        thinking = thinking.lstrip() if self._is_blank else thinking
        self._is_blank = self._is_blank and not thinking
        deltas: list[TextDelta | ReasoningDelta] = [ReasoningDelta(thinking)] if thinking else []
        return deltas + (self._feed_answer(rest) if closed else [])

    def _feed_answer(self, text: str) -> list[TextDelta | ReasoningDelta]:
        stripped = text.lstrip()
        self.is_done = bool(stripped)
        return [TextDelta(stripped)] if stripped else []


def _partial_tag_chars(text: str) -> int:
    """Return the number of characters at the end of `text` that may begin the closing tag."""
    for chars in range(min(len(CLOSE_TAG) - 1, len(text)), 0, -1):
        if text.endswith(CLOSE_TAG[:chars]):
            return chars
    return 0
