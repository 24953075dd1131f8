"""The local model over HTTP: whether it is here, installing it, leaving off, removing it."""

from typing import Any

from litestar import delete, get, post

from holdfast.http.openapi.responses import answers
from holdfast.models.local.info import LocalDesk, LocalInstallRunning, LocalInUse, LocalTold
from holdfast.settings.info import CannotEditSettings

_COMING = LocalTold(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installing",
    percent=40, done_bytes=50_800_000, total_bytes=127_000_000,
)  # fmt: skip
_THERE = LocalTold(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installed",
    running=True, total_bytes=127_000_000,
)  # fmt: skip


class LocalRoutes:
    """`/api/models/local`."""

    def __init__(self, desk: LocalDesk) -> None:
        self._desk = desk

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        told = answers(200, LocalTold, _THERE)
        begun = answers(202, LocalTold, _COMING, LocalInstallRunning, sends=True)
        left = answers(200, LocalTold, _THERE, sends=True)
        removed = answers(
            200, LocalTold, _THERE, LocalInUse, LocalInstallRunning, CannotEditSettings, sends=True
        )
        return [
            get("/api/models/local", responses=told)(self.look),
            delete("/api/models/local", status_code=200, responses=removed)(self.remove),
            post("/api/models/local/install", status_code=202, responses=begun)(self.install),
            delete("/api/models/local/install", status_code=200, responses=left)(self.cancel),
        ]

    async def look(self) -> LocalTold:
        """Whether the local model is here, how far its installation is, and whether it runs."""
        return self._desk.told()

    async def install(self) -> LocalTold:
        """Begin to install it; look again for how far that is. To have it answer, connect `local`."""
        self._desk.begin()
        return self._desk.told()

    async def cancel(self) -> LocalTold:
        """Leave off installing it. Nothing of that stays."""
        await self._desk.cancel()
        return self._desk.told()

    async def remove(self) -> LocalTold:
        """Remove it from this machine."""
        await self._desk.remove()
        return self._desk.told()
