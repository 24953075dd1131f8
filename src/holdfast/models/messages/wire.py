"""Anthropic Messages, as a wire protocol: what is sent is in `messages_request`, what comes back in
`messages_answer`.
"""

from collections.abc import Collection, Sequence

from holdfast.agent.ports import ToolSpec
from holdfast.domain.context.request import Profile, Request
from holdfast.models.messages import request
from holdfast.models.messages.answer import MessagesDecoder
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
        (request.LONG_ANSWERS, "maximum allowed number of output tokens"),
        # Thinking of this conversation that the server does not know again: it can go on without.
        (request.THOUGHTS, "thinking` block"),
        (request.THOUGHTS, "thinking block"),
        (request.THOUGHTS, "`redacted_thinking`"),
        (request.THOUGHTS, "signature"),
    )

    def encode(
        self,
        model: str,
        profile: Profile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return request.encode(model, profile, request, tools, without)

    def decoder(self) -> MessagesDecoder:
        return MessagesDecoder()
