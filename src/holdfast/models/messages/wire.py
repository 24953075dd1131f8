"""Anthropic Messages, as a wire protocol: what is sent is in `request`, what comes back in
`answer`.
"""

from collections.abc import Collection, Sequence

from holdfast.domain.context.request import Profile, Request
from holdfast.models.messages import request as encoding
from holdfast.models.messages.answer import MessagesDecoder
from holdfast.models.ports import ToolSpec
from holdfast.models.wire import EFFORT


class MessagesWire:
    """Anthropic Messages; the base URL ends in `/v1`."""

    path = "messages"
    optional = (
        ("thinking", "thinking.type"),
        ("thinking", "thinking is not supported"),
        ("thinking", "support thinking"),
        ("thinking", "support extended thinking"),
        ("thinking", "budget_tokens"),
        ("thinking", "thinking: "),
        ("thinking.display", "display"),
        ("cache_control", "cache_control"),
        (EFFORT, "effort parameter"),
        (EFFORT, "output_config"),
        ("tools", "does not support tools"),
        (encoding.LONG_ANSWERS, "maximum allowed number of output tokens"),
        # Thinking of this conversation that the server does not know again: it can go on without.
        (encoding.THOUGHTS, "thinking` block"),
        (encoding.THOUGHTS, "thinking block"),
        (encoding.THOUGHTS, "`redacted_thinking`"),
        (encoding.THOUGHTS, "signature"),
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

    def decoder(self) -> MessagesDecoder:
        return MessagesDecoder()
