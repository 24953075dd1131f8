"""The settings while the server runs: what they are, where they come from, and changing those that can be."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from holdfast.domain.secrets import Masking, identity, masked
from holdfast.settings.edit import change_file
from holdfast.settings.info import BadSetting, SettingFixed, SettingNeedsRestart, SettingTold, Value
from holdfast.settings.settings import (
    CHANGEABLE,
    FILE_NAME,
    PREFIX,
    ConfigError,
    Settings,
    altered,
    settings_told,
)


class Desk:
    """Holds the settings in force. `apply` is called with those that are to be in force from now on.

    What is written down and what is told goes through `mask`.
    """

    def __init__(
        self, settings: Settings, apply: Callable[[Settings], None], mask: Masking = identity
    ) -> None:
        self.settings = settings
        self._mask = mask
        self._apply = apply
        self._turn = asyncio.Lock()

    def told(self) -> Sequence[SettingTold]:
        """Every setting, in the order of declaration."""
        return [
            SettingTold(
                name, masked(_value(getattr(self.settings, name)), self._mask),
                says.default, says.help, says.allowed,
                self.settings.origins.get(name, "default"), name in CHANGEABLE and not self._fixed(name),
            )
            for name, says in settings_told().items()
        ]  # fmt: skip

    async def change(self, wanted: Mapping[str, object]) -> None:
        """Write settings down, then have them in force. Raises as its port says."""
        for name in wanted:
            if name in settings_told() and name not in CHANGEABLE:
                raise SettingNeedsRestart(name=name)
        await self.write(wanted)

    async def write(self, wanted: Mapping[str, object]) -> None:
        """The same, whether a setting is one of those that people change here or not."""
        wanted = masked(dict(wanted), self._mask)
        async with self._turn:
            try:
                settings = altered(self.settings, wanted)
            except ConfigError as error:
                raise BadSetting(problem=error.fields["problem"]) from None
            self.check_free(*wanted)
            values = {name: None if wanted[name] is None else getattr(settings, name) for name in wanted}
            await asyncio.to_thread(change_file, self.settings.data / FILE_NAME, values)
            self.settings = settings
            self._apply(settings)

    def check_free(self, *names: str) -> None:
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


def _value(value: object) -> Value:
    if isinstance(value, Path):
        return str(value)
    assert isinstance(value, str | int | float | tuple), value
    return value
