"""List the settings with their sources over HTTP, and change those that can be changed."""

from typing import Annotated, Any

import msgspec
from litestar import get, patch

from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.settings.info import (
    BadSetting,
    CannotEditSettings,
    SettingFixed,
    SettingInfo,
    SettingNeedsRestart,
    SettingsService,
)


class SettingList(msgspec.Struct, frozen=True):
    """Every setting, in the order that people read them in."""

    settings: tuple[SettingInfo, ...]


_LIST = SettingList((
    SettingInfo(
        "approvals", "ask", "ask", "Ask before actions that change something, or never ask.",
        "ask or allow", "default", True,
    ),
))  # fmt: skip


class SettingRoutes:
    """Serve `/api/settings`."""

    def __init__(self, service: SettingsService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        refusals = (BadSetting, SettingFixed, SettingNeedsRestart, CannotEditSettings)
        changed = response_specs(200, SettingList, _LIST, *refusals, has_body=True)
        return [
            get("/api/settings", responses=response_specs(200, SettingList, _LIST))(self.show),
            patch("/api/settings", responses=changed)(self.change),
        ]

    async def show(self) -> SettingList:
        """Every setting: its value, where that comes from, and whether it can be changed here."""
        return SettingList(tuple(self._service.list_settings()))

    async def change(
        self, data: Annotated[dict[str, Any], request_body({"approvals": "allow"}, {"run_steps_max": None})]
    ) -> SettingList:
        """Change settings by their names, for now and for the next start; null is the default."""
        await self._service.change(data)
        return SettingList(tuple(self._service.list_settings()))
