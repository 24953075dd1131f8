"""What a run has used: tokens, and money where a price is known."""

import msgspec


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the provider reported them; `cost_micros` is millionths of a US dollar."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost_micros + other.cost_micros,
        )
