"""Estimate token counts without the provider's tokenizer: cheaply, and rather too high than too low.

The provider's count of the last request corrects the estimate.
"""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from holdfast.domain.context.request import ModelProfile, Request, RequestMessage
from holdfast.domain.events.parts import AnyPart, Change, File, Reasoning, Text, ToolCall
from holdfast.domain.files import file_tokens
from holdfast.domain.transcript.transcript import Transcript
from holdfast.domain.usage import COUNT_MAX, Usage

MESSAGE_TOKENS = 8
"""The overhead of a message besides its text."""
FACTOR_MIN, FACTOR_MAX = 0.5, 3.0
"""The bounds of the provider's tokens for one of ours, whatever it reports."""
BYTES_PER_TOKEN_MAX = 6
"""Bytes per provider token at most: we count three bytes as a token, and FACTOR_MIN makes that six."""
_DAMPING = 1_000
"""Damps the factor of small requests, where most of the provider's count is overhead."""
_MARGIN_DIVISOR = 50
"""The share of the window that stays free: a fiftieth."""
ROOM_DIVISOR = 8
"""The least share of the window for the conversation, whatever else is sent: an eighth."""
OVERFLOW_MESSAGE = (
    "the tools and instructions take {taken:,} of the {window:,} tokens that it is thought to read at once; "
    "name fewer tools for this agent, choose a model with a larger window, or, if this one reads more, "
    "say so in the setting model_windows"
)
_DENSE = bytes(c for c in range(33, 127) if not chr(c).isalpha())
_WIDE = bytes(range(0xF0, 0xF8))


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: a third of its UTF-8 bytes, more for digits, punctuation and emoji."""
    raw = text.encode("utf-8", "surrogatepass")
    dense, wide = len(raw) - len(raw.translate(None, _DENSE)), 0
    if len(raw) > len(text):
        wide = len(raw) - len(raw.translate(None, _WIDE))
    return -(-(2 * len(raw) + dense + 8 * wide) // 6)


def part_tokens(part: Text | Reasoning | ToolCall | File) -> int:
    if isinstance(part, ToolCall):
        return estimate_tokens(part.name) + estimate_tokens(part.arguments) + MESSAGE_TOKENS
    if isinstance(part, File):
        return estimate_tokens(part.name) + file_tokens(part)
    signature_tokens = estimate_tokens(part.signature) if isinstance(part, Reasoning) else 0
    return estimate_tokens(part.text) + signature_tokens


def messages_tokens(messages: Iterable[RequestMessage]) -> int:
    return sum(MESSAGE_TOKENS + sum(part_tokens(part) for part in message.parts) for message in messages)


def with_estimates(usage: Usage, asked_tokens: int, answer: Iterable[AnyPart]) -> Usage:
    """Return `usage` with our estimates for the counts that the provider left at 0."""
    read = usage.input_tokens or asked_tokens
    written = usage.output_tokens or sum(part_tokens(part) for part in answer if not isinstance(part, Change))
    estimated = read - usage.input_tokens + written - usage.output_tokens
    if not estimated:
        return usage
    return replace(usage, input_tokens=read, output_tokens=written, estimated_tokens=estimated)


class TokenBudget(msgspec.Struct, frozen=True):
    """The token budget of a request.

    `tools_tokens` is the cost of the tool descriptions. `factor` is how many provider tokens equal one of
    ours. `share` is the used share of the window, smaller after a request was refused as too large.
    """

    tools_tokens: int = 0
    factor: float = 1.0
    share: float = 1.0

    def available_tokens(self, profile: ModelProfile, instructions: str) -> int:
        """Return how many of our tokens the messages may have, with room left for the answer.

        There is a minimum, so that a short new message is never cut: rather the provider refuses it.
        """
        least = int(profile.window_tokens * self.share) // ROOM_DIVISOR
        return max(
            _usable_tokens(profile, self.share / self.factor) - self._fixed_tokens(instructions), least
        )

    def overflow_message(self, profile: ModelProfile, instructions: str) -> str:
        """Return an error message if tools and instructions leave too little room, else an empty string.

        This ignores a provider's higher count, which would make the error permanent.
        """
        taken = self._fixed_tokens(instructions)
        if (
            _usable_tokens(profile, 1 / min(self.factor, 1.0)) - taken
            >= profile.window_tokens // ROOM_DIVISOR
        ):
            return ""
        return OVERFLOW_MESSAGE.format(taken=taken, window=profile.window_tokens)

    def _fixed_tokens(self, instructions: str) -> int:
        return self.tools_tokens + estimate_tokens(instructions)

    def request_tokens(self, request: Request) -> int:
        """Return our estimate for the whole request; its messages were counted when it was built."""
        return request.tokens + self.tools_tokens + estimate_tokens(request.system)

    def halved(self, profile: ModelProfile, request_tokens: int) -> "TokenBudget":
        """Return a budget for half the size of a request that was too large, whatever its window was."""
        window = max(profile.window_tokens - profile.answer_tokens, 1)
        return replace(self, share=min(self.share, request_tokens * self.factor / window) / 2)


def _usable_tokens(profile: ModelProfile, share: float) -> int:
    """Return a share of the window without the answer and the margin."""
    return int(
        (profile.window_tokens - profile.window_tokens // _MARGIN_DIVISOR - profile.answer_tokens) * share
    )


def token_factor(transcript: Transcript, model: str) -> float:
    """Return how many tokens `model` counted for one of ours, by its last answer with a count."""
    for turn in reversed(transcript.turns):
        for entry in reversed(turn.entries):
            estimated, counted = entry.weight if len(entry.weight) == 2 else (0, 0)
            if estimated > 0 and counted > 0 and entry.model == model:
                factor = (min(counted, COUNT_MAX) + _DAMPING) / (min(estimated, COUNT_MAX) + _DAMPING)
                return min(max(factor, FACTOR_MIN), FACTOR_MAX)
    return 1.0
