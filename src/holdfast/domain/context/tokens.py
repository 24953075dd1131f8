"""How many tokens something has, as far as one can tell without the provider's own tokenizer: cheap, and
rather too many than too few. What a provider counted for the last request corrects it.
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
"""What a message costs beside its words."""
FACTOR_MIN, FACTOR_MAX = 0.5, 3.0
"""However a provider counts, its tokens are taken for at least so many of ours, and at most."""
BYTES_PER_TOKEN_MAX = 6
"""Three bytes are counted as a token, and at most two of ours are taken for one of the provider's."""
_DAMPING = 1_000
"""Small requests say little: most of what a provider counts in them is its own."""
_MARGIN = 50
"""A fiftieth of the window is left free."""
ROOM_SHARE = 8
"""An eighth of the window at least is for what is said, whatever else there is to send."""
OVERFLOW_MESSAGE = (
    "the tools and instructions take {taken:,} of the {window:,} tokens that it is thought to read at once; "
    "name fewer tools for this agent, choose a model with a larger window, or, if this one reads more, "
    "say so in the setting model_windows"
)
_DENSE = bytes(c for c in range(33, 127) if not chr(c).isalpha())
_WIDE = bytes(range(0xF0, 0xF8))


def estimate_tokens(text: str) -> int:
    """At least a third of its UTF-8 bytes: more for digits, signs and pictures, which are seldom joined."""
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
    """`usage` with our own count where the provider gave none, which it then says: nothing is for nothing."""
    read = usage.input_tokens or asked_tokens
    written = usage.output_tokens or sum(part_tokens(each) for each in answer if not isinstance(each, Change))
    guessed = read - usage.input_tokens + written - usage.output_tokens
    if not guessed:
        return usage
    return replace(usage, input_tokens=read, output_tokens=written, estimated_tokens=guessed)


class TokenBudget(msgspec.Struct, frozen=True):
    """How a request is measured. `tools_tokens` is what the tools' descriptions cost; `factor` how many of
    the provider's tokens one of ours is; `share` how much of the window is used: less after it was too much.
    """

    tools_tokens: int = 0
    factor: float = 1.0
    share: float = 1.0

    def available_tokens(self, profile: ModelProfile, instructions: str) -> int:
        """How many of our tokens the messages may have, so that the answer has its room too.

        Never so few that what was just said is cut though it is short: rather the provider refuses it.
        """
        least = int(profile.window_tokens * self.share) // ROOM_SHARE
        return max(
            _usable_tokens(profile, self.share / self.factor) - self._fixed_tokens(instructions), least
        )

    def overflow_message(self, profile: ModelProfile, instructions: str) -> str:
        """What is wrong where tools and instructions leave too little for anything else; else nothing.

        A provider that once counted more than we do is not believed here: that would be so for ever.
        """
        taken = self._fixed_tokens(instructions)
        if _usable_tokens(profile, 1 / min(self.factor, 1.0)) - taken >= profile.window_tokens // ROOM_SHARE:
            return ""
        return OVERFLOW_MESSAGE.format(taken=taken, window=profile.window_tokens)

    def _fixed_tokens(self, instructions: str) -> int:
        return self.tools_tokens + estimate_tokens(instructions)

    def request_tokens(self, request: Request) -> int:
        """How many of our tokens all of a request has; its messages were counted when it was made."""
        return request.tokens + self.tools_tokens + estimate_tokens(request.system)

    def halved(self, profile: ModelProfile, request_tokens: int) -> "TokenBudget":
        """For a request half as large as one that was too much, whatever its window was thought to be."""
        window = max(profile.window_tokens - profile.answer_tokens, 1)
        return replace(self, share=min(self.share, request_tokens * self.factor / window) / 2)


def _usable_tokens(profile: ModelProfile, share: float) -> int:
    """What the window has beside the answer and what is left free, or a share of that."""
    return int((profile.window_tokens - profile.window_tokens // _MARGIN - profile.answer_tokens) * share)


def token_factor(transcript: Transcript, model: str) -> float:
    """How many tokens `model` counted for one of ours, by the last of its answers that says so."""
    for turn in reversed(transcript.turns):
        for entry in reversed(turn.entries):
            estimated, counted = entry.weight if len(entry.weight) == 2 else (0, 0)
            if estimated > 0 and counted > 0 and entry.model == model:
                factor = (min(counted, COUNT_MAX) + _DAMPING) / (min(estimated, COUNT_MAX) + _DAMPING)
                return min(max(factor, FACTOR_MIN), FACTOR_MAX)
    return 1.0
