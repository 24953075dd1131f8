"""Anthropic Messages, as a wire protocol: what is sent is in `messages_request`, what comes back in
`messages_answer`.
"""

from collections.abc import Collection, Sequence

from holdfast.agent.models import messages_request
from holdfast.agent.models.messages_answer import MessagesDecoder
from holdfast.agent.models.wire import EFFORT
from holdfast.agent.ports import ToolSpec
from holdfast.domain.context.request import Profile, Request


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
        (messages_request.LONG_ANSWERS, "maximum allowed number of output tokens"),
        # Thinking of this conversation that the server does not know again: it can go on without.
        (messages_request.THOUGHTS, "thinking` block"),
        (messages_request.THOUGHTS, "thinking block"),
        (messages_request.THOUGHTS, "`redacted_thinking`"),
        (messages_request.THOUGHTS, "signature"),
    )

    def encode(
        self,
        model: str,
        profile: Profile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return messages_request.encode(model, profile, request, tools, without)

    def decoder(self) -> MessagesDecoder:
        return MessagesDecoder()
