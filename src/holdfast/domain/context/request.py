"""What a model is sent: the messages of a request, and what a model takes."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.domain.files import FileKind
from holdfast.domain.usage import Rate

Effort = Literal["low", "medium", "high"]
"""How much a model is to think before it answers, where it can be told."""


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    parts: tuple[Text | File, ...]


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    parts: tuple[Text | Reasoning | ToolCall, ...]


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The one answer to a call."""

    call_id: str
    parts: tuple[Text | File, ...]
    failed: bool = False


RequestMessage = UserMessage | AssistantMessage | ToolMessage


DEMO = "demo"
"""The script that answers where no model is known, by its name and its provider's."""


class ModelProfile(msgspec.Struct, frozen=True):
    """What a model takes: its provider's name, its window, room for the answer, whether it takes prefill.

    `address` is where it is asked, with nothing in it that is secret; a model that is part of us has none.
    `also_signed` are the providers of those who are asked where this one fails: what they signed is kept too.
    `largest_tokens` is the largest window among those; 0: nobody else is asked.
    `answer_tokens_max` is the most it is asked to write where a protocol leaves that open; 0: as it likes.
    `rate` is what it costs, where that is known.
    """

    provider: str
    window_tokens: int
    answer_tokens: int = 4_096
    prefill: bool = False
    address: str = ""
    answer_tokens_max: int = 0
    also_signed: tuple[str, ...] = ()
    largest_tokens: int = 0
    rate: Rate | None = None

    def accepts_reasoning_from(self, provider: str) -> bool:
        """Whether thinking that `provider` signed may be in a request to this one."""
        return provider == self.provider or provider in self.also_signed


class FileContent(msgspec.Struct, frozen=True):
    """A file as a model is sent it: text as it is, all else in base 64. A note says why it is not sent."""

    kind: FileKind | Literal["note"]
    body: str


class Request(msgspec.Struct, frozen=True):
    """What a model is sent. `cut_turns` are the live turns that did not fit.

    `files` holds, by blob, what the messages' files contain; they are read after the rest was decided.
    `window_tokens` is the window that it was made for, where that is not the first model's. Without an
    `effort` the model thinks as much as it likes. `tokens` is what its messages have about, by our own count.
    """

    system: str
    messages: tuple[RequestMessage, ...]
    cut_turns: tuple[int, ...] = ()
    files: Mapping[str, FileContent] = msgspec.field(default_factory=dict)
    window_tokens: int = 0
    effort: Effort | None = None
    tokens: int = 0
