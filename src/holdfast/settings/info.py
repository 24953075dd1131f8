"""The port of the settings service, and its errors."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.domain.errors import HoldfastError

Source = Literal["command line", "environment", "file", "default"]
"""The source of a setting's value."""
Value = str | float | tuple[str, ...]


class SettingFixed(HoldfastError):
    """{name} is given {where}, which wins over what is set here."""

    code, status = "setting_fixed", 409
    remedy = "Leave it out there and start the server again; then it can be changed here."


class SettingNeedsRestart(HoldfastError):
    """{name} cannot be changed while the server runs."""

    code, status = "setting_needs_restart", 409
    remedy = "Write it into holdfast.toml in the data folder, and start the server again."


class BadSetting(HoldfastError):
    """{problem}."""

    code, status = "bad_setting", 400


class CannotEditSettings(HoldfastError):
    """{path} cannot be changed here: {why}."""

    code, status = "cannot_edit_settings", 409
    remedy = "Change it by hand, and start the server again."


class SettingInfo(msgspec.Struct, frozen=True):
    """A setting, what it is now and where that comes from. `changeable`: here and now.

    `default` is in words.
    """

    name: str
    value: Value
    default: str
    help: str
    allowed: str
    source: Source
    changeable: bool


class SettingsService(Protocol):
    """List and change the settings in effect."""

    def list_settings(self) -> Sequence[SettingInfo]:
        """Return every setting, in display order."""

    async def change(self, changes: Mapping[str, object]) -> None:
        """Save settings and apply them at once, all or none; None restores the default.

        Raises BadSetting, SettingFixed, SettingNeedsRestart, CannotEditSettings.
        """
