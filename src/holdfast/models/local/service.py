"""Install and remove the local model in the background, and report its state."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import MaskFunction
from holdfast.models.local.info import (
    LocalChosen,
    LocalInstallRunning,
    LocalInUse,
    LocalModelInfo,
    LocalState,
)
from holdfast.models.local.install import DOWNLOAD_BYTES, Progress, install, uninstall
from holdfast.models.local.install_dir import LocalModelDir
from holdfast.models.local.model import ABOUT
from holdfast.models.local.server import LlamaServer
from holdfast.models.providers import LOCAL_MODEL, is_local_model
from holdfast.settings.info import CannotEditSettings


class LlamaModelService:
    """Manage the local model, in one event loop. `server` runs it here, if this process may do that.

    `configured_model` is the model that the settings name: a server that starts later needs it.
    `on_installed` is called after an installation, so that others can start to use the model.
    """

    def __init__(
        self,
        data: Path,
        environ: Mapping[str, str],
        mask: MaskFunction,
        random_id: Callable[[], str],
        server: LlamaServer | None = None,
        configured_model: str = "",
        on_installed: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_installed = on_installed
        self._model_dir = LocalModelDir(data)
        self._environ = environ
        self._mask = mask
        self._random_id = random_id
        self._server = server
        self._configured_model = configured_model
        self._installing: asyncio.Task[None] | None = None
        self._done_bytes = 0
        self._problem = ""

    def info(self) -> LocalModelInfo:
        is_installed = self._model_dir.is_installed
        is_installing = self._installing is not None and not self._installing.done()
        state: LocalState = "failed" if self._problem else "absent"
        state = "installing" if is_installing else "installed" if is_installed else state
        server, done = self._server, self._done_bytes if is_installing else 0
        problem = self._problem or (server.problem if server is not None else "")
        return LocalModelInfo(
            LOCAL_MODEL, ABOUT, state, server is not None and server.is_running,
            self._model_dir.is_current or not is_installed, done * 100 // DOWNLOAD_BYTES, done,
            DOWNLOAD_BYTES, self._mask(problem),
        )  # fmt: skip

    async def install(self, progress: Progress) -> None:
        """Install the model, and wait for that. Raises LocalInstallFailed, LocalInstallRunning."""
        await install(self._model_dir, self._environ, self._random_id(), progress)

    def start_install(self) -> None:
        """Start the installation. Raises LocalInstallRunning."""
        if self._installing is not None and not self._installing.done():
            raise LocalInstallRunning()
        self._done_bytes, self._problem = 0, ""
        self._installing = asyncio.create_task(self._install(), name="installing the local model")

    async def cancel_install(self) -> None:
        """Cancel an installation under way; nothing of it stays."""
        if self._installing is not None:
            self._installing.cancel()
            await asyncio.gather(self._installing, return_exceptions=True)

    async def remove(self) -> bool:
        """Remove the model; return whether it was installed.

        Raises LocalInUse, LocalChosen, LocalInstallRunning, CannotEditSettings.
        """
        if self._server is not None and self._server.is_in_use:
            raise LocalInUse()
        if is_local_model(self._configured_model) and self._model_dir.is_installed:
            raise LocalChosen()
        try:
            was_there = await asyncio.to_thread(uninstall, self._model_dir)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._model_dir.folder, why=why) from None
        self._problem = ""
        return was_there

    async def _install(self) -> None:
        def note(done: int, total: int) -> None:
            self._done_bytes = done

        try:
            await self.install(note)
            self._on_installed()
        except HoldfastError as error:
            self._problem = f"{error} {error.advice}".strip()
