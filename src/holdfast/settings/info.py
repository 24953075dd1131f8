"""The settings of a running server, and why one cannot be changed: the port of who keeps them."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.domain.errors import HoldfastError

Source = Literal["command line", "environment", "file", "default"]
"""Where a setting's value comes from."""
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
    """The settings in force."""

    def list_settings(self) -> Sequence[SettingInfo]:
        """Every setting, in the order that people read them in."""

    async def change(self, changes: Mapping[str, object]) -> None:
        """Write settings down and have them in force at once; None: back to the default. All, or none.

        Raises BadSetting, SettingFixed, SettingNeedsRestart, CannotEditSettings.
        """
