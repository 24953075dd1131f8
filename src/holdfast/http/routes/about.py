"""What this server is and stands on, over HTTP."""

from typing import Any

import msgspec
from litestar import get

from holdfast.domain.clock import Instant, SystemClock
from holdfast.http.openapi.responses import answers
from holdfast.status import Look


class About(msgspec.Struct, frozen=True):
    """`confinement` is what keeps commands apart from the rest; `unprotected` what of it is missing here."""

    version: str
    data: str
    durability: str
    sessions: int
    events: int
    store_bytes: int
    model: str
    why: str
    confinement: str
    unprotected: tuple[str, ...]
    addresses: tuple[str, ...]
    started_at: Instant
    uptime_s: int


_ABOUT = About(
    "0.1.0", "~/.local/share/holdfast", "full", 12, 4_021, 1_204_224, "demo",
    "The scripted demo answers, as HOLDFAST_MODEL asks.", "mounts, landlock 7", (),
    ("http://127.0.0.1:8787/",), 1_760_000_000_000, 3_600,
)  # fmt: skip


class AboutRoutes:
    """`/api/about`."""

    def __init__(self, look: Look, addresses: tuple[str, ...], started_at: Instant) -> None:
        self._look = look
        self._addresses = addresses
        self._started_at = started_at
        self._clock = SystemClock()

    def table(self) -> list[Any]:
        """The route with what it is said to answer."""
        return [get("/api/about", responses=answers(200, About, _ABOUT))(self.about)]

    async def about(self) -> About:
        """The version, where everything is kept, what protects it, and since when this server runs."""
        seen = await self._look()
        return About(
            seen.version, str(seen.data), seen.durability, seen.sessions, seen.events, seen.store_bytes,
            seen.model, seen.why, seen.confinement, seen.unprotected, self._addresses, self._started_at,
            max(0, (self._clock.now_ms() - self._started_at) // 1000),
        )  # fmt: skip
