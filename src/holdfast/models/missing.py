"""A model that cannot be asked, in the place that it would have before those who answer instead."""

from collections.abc import AsyncGenerator, Sequence

from holdfast.domain.context.context import Profile, Request
from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import Takes
from holdfast.models.ports import Model, ModelDelta, ModelFailure, ToolSpec


class Missing:
    """Fails at once, with why it could not be made. Requests are made for `other`, who is asked next."""

    def __init__(self, name: str, why: HoldfastError, other: Model) -> None:
        self.name = name
        self._why = why
        self._other = other

    def __repr__(self) -> str:
        return f"Missing({self.name})"

    @property
    def profile(self) -> Profile:
        return self._other.profile

    async def takes(self) -> Takes:
        return await self._other.takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        raise ModelFailure(detail=str(self._why).rstrip("."), retryable=False)
        yield  # What makes it a stream.

    async def close(self) -> None:
        return
