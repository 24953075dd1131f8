"""What a run has used: tokens, and money where a price is known."""

import msgspec
from msgspec.structs import force_setattr

COUNT_MAX = 10**12
"""No count is above it, whatever a provider says; nor below 0."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts as the provider reported them; `cost_micros` is millionths of a US dollar.

    None: nobody knows what it costs. A sum is what is known of it. Of the input, `cached_tokens` were read
    from the provider's cache and `written_tokens` put into it. Of input and output, `estimated_tokens` are
    our own count, because the provider gave none; what they cost is not known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_micros: int | None = None
    written_tokens: int = 0
    estimated_tokens: int = 0

    def __post_init__(self) -> None:
        # Here and nowhere else: so that what was kept is read within bounds too.
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
    """US dollars for a million tokens, which are millionths of a dollar for one: for what is estimated."""

    input: float
    output: float

    def with_cost(self, usage: Usage) -> Usage:
        """`usage` with what it costs about: nothing is taken for read from a cache."""
        micros = usage.input_tokens * self.input + usage.output_tokens * self.output
        return msgspec.structs.replace(usage, cost_micros=round(max(0, min(COUNT_MAX, micros))))
