"""Create, list and download backups over HTTP. Only the command line restores one."""

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromPath
from litestar.response import File

from holdfast.domain.errors import DiskFull
from holdfast.engine.backups import BackupInfo, BackupRunning, BackupService, NoSuchBackup
from holdfast.http.openapi.responses import response_specs

BACKUP_MEDIA_TYPE = "application/vnd.sqlite3"
BACKUPS_PATH = "/api/backups"


class BackupList(msgspec.Struct, frozen=True):
    """The newest first. To go back to one, stop the server and run its `restore`."""

    backups: tuple[BackupInfo, ...]


_BACKUP = BackupInfo(
    "holdfast-20251009T085320.db", 1_204_224, 1_760_000_000_000,
    "holdfast restore ~/.local/share/holdfast/backups/holdfast-20251009T085320.db",
)  # fmt: skip


class BackupRoutes:
    """Serve `/api/backup` and `/api/backups`."""

    def __init__(self, service: BackupService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        made = response_specs(201, BackupInfo, _BACKUP, BackupRunning, DiskFull, has_body=True)
        return [
            post("/api/backup", responses=made)(self.create),
            get(BACKUPS_PATH, responses=response_specs(200, BackupList, BackupList((_BACKUP,))))(self.list_),
            get(f"{BACKUPS_PATH}/{{name:str}}", responses=response_specs(200, None, None, NoSuchBackup))(
                self.download
            ),
        ]

    async def create(self) -> BackupInfo:
        """Copy every conversation into one file in the data folder; answers when that is done."""
        return await self._service.create()

    async def list_(self) -> BackupList:
        """The backups in the data folder."""
        return BackupList(tuple(await self._service.list_()))

    async def download(self, name: FromPath[str]) -> File:
        """A backup, to be saved."""
        path = await self._service.find_path(name)
        return File(
            path, filename=path.name, media_type=BACKUP_MEDIA_TYPE, content_disposition_type="attachment"
        )
