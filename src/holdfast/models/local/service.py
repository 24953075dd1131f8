"""Installing and removing the local model while people watch, and saying how it fares."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Masking
from holdfast.models.local.info import (
    LocalChosen,
    LocalInstallRunning,
    LocalInUse,
    LocalState,
    LocalTold,
)
from holdfast.models.local.install import DOWNLOAD_BYTES, Progress, install, uninstall
from holdfast.models.local.model import ABOUT
from holdfast.models.local.place import Place
from holdfast.models.local.server import Llama
from holdfast.models.providers import LOCAL_MODEL, is_local_model
from holdfast.settings.info import CannotEditSettings


class LocalDesk:
    """Belongs to one event loop. `llama` is the server that runs it here, where one may.

    `named` is the model that the settings name: a server that starts after this needs it. `installed` is told
    when it has come to be there: whoever did without it need not any longer.
    """

    def __init__(
        self,
        data: Path,
        environ: Mapping[str, str],
        mask: Masking,
        chance: Callable[[], str],
        llama: Llama | None = None,
        named: str = "",
        installed: Callable[[], None] = lambda: None,
    ) -> None:
        self._installed = installed
        self._place = Place(data)
        self._environ = environ
        self._mask = mask
        self._chance = chance
        self._llama = llama
        self._named = named
        self._installing: asyncio.Task[None] | None = None
        self._done_bytes = 0
        self._problem = ""

    def told(self) -> LocalTold:
        is_there = self._place.is_installed
        is_coming = self._installing is not None and not self._installing.done()
        state: LocalState = "failed" if self._problem else "absent"
        state = "installing" if is_coming else "installed" if is_there else state
        llama, done = self._llama, self._done_bytes if is_coming else 0
        problem = self._problem or (llama.problem if llama is not None else "")
        return LocalTold(
            LOCAL_MODEL, ABOUT, state, llama is not None and llama.is_running,
            self._place.is_current or not is_there, done * 100 // DOWNLOAD_BYTES, done, DOWNLOAD_BYTES,
            self._mask(problem),
        )  # fmt: skip

    async def install(self, progress: Progress) -> None:
        """Have it installed, and wait for that. Raises LocalInstallFailed, LocalInstallRunning."""
        await install(self._place, self._environ, self._chance(), progress)

    def begin(self) -> None:
        """Begin to install it. Raises LocalInstallRunning."""
        if self._installing is not None and not self._installing.done():
            raise LocalInstallRunning()
        self._done_bytes, self._problem = 0, ""
        self._installing = asyncio.create_task(self._install(), name="installing the local model")

    async def cancel(self) -> None:
        """Leave off installing it, if that goes on; nothing of it stays."""
        if self._installing is not None:
            self._installing.cancel()
            await asyncio.gather(self._installing, return_exceptions=True)

    async def remove(self) -> bool:
        """Remove it; whether it was there.

        Raises LocalInUse, LocalChosen, LocalInstallRunning, CannotEditSettings.
        """
        if self._llama is not None and self._llama.is_held:
            raise LocalInUse()
        if is_local_model(self._named) and self._place.is_installed:
            raise LocalChosen()
        try:
            was_there = await asyncio.to_thread(uninstall, self._place)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._place.folder, why=why) from None
        self._problem = ""
        return was_there

    async def _install(self) -> None:
        def note(done: int, total: int) -> None:
            self._done_bytes = done

        try:
            await self.install(note)
            self._installed()
        except HoldfastError as error:
            self._problem = f"{error} {error.advice}".strip()
