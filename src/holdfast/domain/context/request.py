"""Requests to a model, and the profile of a model."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.domain.files import FileKind
from holdfast.domain.usage import Rate

Effort = Literal["low", "medium", "high"]
"""The reasoning effort of a model, where the provider supports it."""


class UserMessage(msgspec.Struct, frozen=True, tag_field="role", tag="user"):
    parts: tuple[Text | File, ...]


class AssistantMessage(msgspec.Struct, frozen=True, tag_field="role", tag="assistant"):
    parts: tuple[Text | Reasoning | ToolCall, ...]


class ToolMessage(msgspec.Struct, frozen=True, tag_field="role", tag="tool"):
    """The result of a call."""

    call_id: str
    parts: tuple[Text | File, ...]
    failed: bool = False


RequestMessage = UserMessage | AssistantMessage | ToolMessage


DEMO = "demo"
"""The name of the scripted model, and of its provider, for a server without a model."""


class ModelProfile(msgspec.Struct, frozen=True):
    """The properties of a model: its provider, its window, room for the answer, prefill support.

    `address` is its endpoint without secrets; an in-process model has none. `also_signed` are the providers
    of its fallbacks, whose signed reasoning is sent too. `largest_tokens` is the largest window among those;
    0: no fallbacks. `answer_tokens_max` limits the answer where a protocol leaves that open; 0: no limit.
    `rate` is its price, if known.
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
        """Return whether a request may contain reasoning that `provider` signed."""
        return provider == self.provider or provider in self.also_signed


class FileContent(msgspec.Struct, frozen=True):
    """The content of a file in a request: text as it is, all else in base 64.

    A note replaces a file that cannot be sent.
    """

    kind: FileKind | Literal["note"]
    body: str


class Request(msgspec.Struct, frozen=True):
    """A request to a model. `cut_turns` are the live turns that did not fit.

    `files` holds the content of the messages' files, by blob; it is read after the rest was decided.
    `window_tokens` is the window that it was built for, if that is not the first model's. Without an `effort`
    the provider decides. `tokens` is our estimate for its messages.
    """

    system: str
    messages: tuple[RequestMessage, ...]
    cut_turns: tuple[int, ...] = ()
    files: Mapping[str, FileContent] = msgspec.field(default_factory=dict)
    window_tokens: int = 0
    effort: Effort | None = None
    tokens: int = 0
