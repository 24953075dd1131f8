"""Usage of a run: tokens, and money if a price is known."""

import msgspec
from msgspec.structs import force_setattr

COUNT_MAX = 10**12
"""The largest count, whatever a provider reports; the smallest is 0."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts from the provider; `cost_micros` is in millionths of a US dollar.

    None: the cost is unknown. A sum adds the known costs. Of the input, `cached_tokens` were read from the
    provider's cache and `written_tokens` written to it. Of input and output, `estimated_tokens` are our
    estimate because the provider gave no count; their cost is unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int | None = None
    written_tokens: int = 0
    estimated_tokens: int = 0

    def __post_init__(self) -> None:
        # Clamped here, so that stored values are within bounds too.
        for name in self.__struct_fields__:
            count = getattr(self, name)
            if count is not None and not 0 <= count <= COUNT_MAX:
                force_setattr(self, name, min(max(count, 0), COUNT_MAX))

    def __add__(self, other: "Usage") -> "Usage":
        known = [cost for cost in (self.cost_micros, other.cost_micros) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(known) if known else None,
            self.written_tokens + other.written_tokens,
            self.estimated_tokens + other.estimated_tokens,
        )


class Rate(msgspec.Struct, frozen=True):
    """A price for estimates: US dollars per million tokens, or millionths of a dollar per token."""

    input: float
    output: float

    def with_cost(self, usage: Usage) -> Usage:
        """Return `usage` with an approximate cost, as if nothing came from a cache."""
        micros = usage.input_tokens * self.input + usage.output_tokens * self.output
        return msgspec.structs.replace(usage, cost_micros=round(max(0, min(COUNT_MAX, micros))))
