"""The settings service of a running server, backed by the settings file."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.domain.secrets import MaskFunction, mask_value, no_mask
from holdfast.settings.edit import change_file
from holdfast.settings.info import BadSetting, SettingFixed, SettingInfo, SettingNeedsRestart, Value
from holdfast.settings.settings import (
    CHANGEABLE,
    FILE_NAME,
    PREFIX,
    ConfigError,
    Settings,
    settings_help,
    with_changes,
)


class FileSettingsService:
    """Hold the settings in effect. Each change calls `apply` with the new settings.

    `mask` removes secrets from what this saves and lists.
    """

    def __init__(
        self, settings: Settings, apply: Callable[[Settings], None], mask: MaskFunction = no_mask
    ) -> None:
        self.settings = settings
        self._mask = mask
        self._apply = apply
        self._lock = asyncio.Lock()

    def list_settings(self) -> Sequence[SettingInfo]:
        """Return every setting, in the order of declaration."""
        return [
            SettingInfo(
                name, mask_value(_display_value(getattr(self.settings, name)), self._mask),
                setting_help.default, setting_help.help, setting_help.allowed,
                self.settings.origins.get(name, "default"), name in CHANGEABLE and not self._fixed(name),
            )
            for name, setting_help in settings_help().items()
        ]  # fmt: skip

    async def change(self, changes: Mapping[str, object]) -> None:
        """Save settings, then apply them. Raises what its port states."""
        for name in changes:
            if name in settings_help() and name not in CHANGEABLE:
                raise SettingNeedsRestart(name=name)
        await self.write(changes)

    async def write(self, changes: Mapping[str, object]) -> None:
        """Save and apply settings, even those that users may not change at run time."""
        changes = mask_value(dict(changes), self._mask)
        async with self._lock:
            try:
                settings = with_changes(self.settings, changes)
            except ConfigError as error:
                raise BadSetting(problem=error.fields["problem"]) from None
            self.check_not_fixed(*changes)
            values = {name: None if changes[name] is None else getattr(settings, name) for name in changes}
            await asyncio.to_thread(change_file, self.settings.data / FILE_NAME, values)
            self.settings = settings
            self._apply(settings)

    def check_not_fixed(self, *names: str) -> None:
        """Raise SettingFixed if a source that overrides the file sets one of `names`."""
        for name in names:
            if fixed := self._fixed(name):
                raise SettingFixed(name=name, where=fixed)

    def _fixed(self, name: str) -> str:
        match self.settings.origins.get(name):
            case "command line":
                return f"on the command line as --{name.replace('_', '-')}"
            case "environment":
                return f"in the environment as {PREFIX}{name.upper()}"
        return ""


def _display_value(value: object) -> Value:
    if isinstance(value, Path):
        return str(value)
    assert isinstance(value, str | int | float | tuple), value
    return value
