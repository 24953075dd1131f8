"""The settings while the server runs: what they are, where they come from, and changing those that can be."""

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
    """Holds the settings in force. `apply` is called with those that are to be in force from now on.

    What is written down and what is told goes through `mask`.
    """

    def __init__(
        self, settings: Settings, apply: Callable[[Settings], None], mask: MaskFunction = no_mask
    ) -> None:
        self.settings = settings
        self._mask = mask
        self._apply = apply
        self._lock = asyncio.Lock()

    def list_settings(self) -> Sequence[SettingInfo]:
        """Every setting, in the order of declaration."""
        return [
            SettingInfo(
                name, mask_value(_display_value(getattr(self.settings, name)), self._mask),
                setting_help.default, setting_help.help, setting_help.allowed,
                self.settings.origins.get(name, "default"), name in CHANGEABLE and not self._fixed(name),
            )
            for name, setting_help in settings_help().items()
        ]  # fmt: skip

    async def change(self, changes: Mapping[str, object]) -> None:
        """Write settings down, then have them in force. Raises as its port says."""
        for name in changes:
            if name in settings_help() and name not in CHANGEABLE:
                raise SettingNeedsRestart(name=name)
        await self.write(changes)

    async def write(self, changes: Mapping[str, object]) -> None:
        """The same, whether a setting is one of those that people change here or not."""
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
        """Raises SettingFixed for one that is given where it wins over the file."""
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
