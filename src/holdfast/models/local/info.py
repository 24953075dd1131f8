"""The port of the local model: its state, its errors, and how to install and remove it."""

from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from holdfast.domain.errors import HoldfastError

LOCAL = "local"
"""The prefix of its name; alone it names the model too."""
LocalState = Literal["absent", "installing", "installed", "failed"]


class LocalNotInstalled(HoldfastError):
    """The local model is not installed."""

    code, status = "local_not_installed", 409
    remedy = "Run `holdfast local install`, or install it in the settings of the page."


class LocalInstallFailed(HoldfastError):
    """The local model could not be installed: {why}."""

    code, status = "local_install_failed", 502
    remedy = "Nothing was changed; it can be tried again."


class LocalInstallRunning(HoldfastError):
    """The local model is being installed already."""

    code, status = "local_install_running", 409
    remedy = "Wait until that has ended, or cancel it where it was begun."


class LocalInUse(HoldfastError):
    """The local model answers at the moment."""

    code, status = "local_in_use", 409
    remedy = "Have another model answer first."


class LocalChosen(HoldfastError):
    """The settings name the local model as the one that answers."""

    code, status = "local_chosen", 409
    remedy = "Choose another model in the page, or take `model` out of the settings; then remove it."


class LocalModelInfo(msgspec.Struct, frozen=True):
    """The local model: whether it is there, how far its installation is, whether it runs in this process.

    `failed`: it is not there, and the last try to install it said `problem`. `problem` is also why it does
    not run. `current`: what is installed is what this version would install. `total_bytes` is about what
    comes over the network, `done_bytes` what has come.
    """

    name: str
    about: str
    state: LocalState
    running: bool = False
    current: bool = True
    percent: int = 0
    done_bytes: int = 0
    total_bytes: int = 0
    problem: str = ""


class LocalModelService(Protocol):
    """Install, remove and describe the local model."""

    def info(self) -> LocalModelInfo: ...

    def start_install(self) -> None:
        """Start the installation. Raises LocalInstallRunning."""

    async def cancel_install(self) -> None:
        """Cancel the installation; nothing of it stays."""

    async def install(self, progress: Callable[[int, int], None]) -> None:
        """Install the model, and wait for that. Raises LocalInstallFailed, LocalInstallRunning."""

    async def remove(self) -> bool:
        """Remove the model; return whether it was installed.

        Raises LocalInUse, LocalChosen, LocalInstallRunning.
        """
