"""Load providers from installed packages: each is an entry point of the group `holdfast.memory`.

An entry point names a callable that takes a `ProviderContext` and returns a `memory.ports.Provider`, or an
awaitable of one. A package is imported only if its provider is selected.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import cast

import msgspec

from holdfast.domain.limits import PROVIDER_OPEN_S_MAX
from holdfast.memory.ports import AskModel, OwnerGone, Provider
from holdfast.memory.provider_calls import CaughtError, catch_errors, catch_errors_sync

ENTRY_POINT_GROUP = "holdfast.memory"
FOLDER = "memory"
ERROR_CHARS_MAX = 200
"""Longer error texts are cut."""
PROVIDER_METHODS = ("recall", "commit", "retract", "remember", "list_", "edit", "forget", "health", "close")
"""The methods that a provider must have, even if one only raises ProviderCannot."""


class NoSuchMemoryProvider(OwnerGone):
    """There is no memory named {name}: there are {known}."""

    code = "no_such_memory_provider"
    remedy = "Install the package that has it, or set `memory` to one of those."


class BadMemoryProvider(OwnerGone):
    """The installed memory {name} cannot be used: {why}."""

    code = "bad_memory_provider"
    remedy = "Update or reinstall the package that has it, or set `memory` to another."


class MemoryProviderNotReady(BadMemoryProvider):
    """The installed memory {name} cannot be used: {why}."""

    remedy = "It is tried again when it is next needed; what is said waits for it."


class ProviderContext(msgspec.Struct, frozen=True):
    """The arguments of a provider factory: its folder, its options, a function that calls the agent's model.

    The folder is inside the data folder. It exists, private to its owner, before the factory is called.
    """

    folder: Path
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    ask: AskModel | None = None


ProviderFactory = Callable[[ProviderContext], Provider | Awaitable[Provider]]


def installed_names() -> list[str]:
    """Return the names of installed providers. Reads package metadata and imports nothing."""
    return sorted(entry_points(group=ENTRY_POINT_GROUP).names)


async def open_installed_provider(
    name: str,
    folder: Path,
    options: Mapping[str, str],
    ask: AskModel | None,
    built_in: tuple[str, ...] = (),
    timeout_s: float = PROVIDER_OPEN_S_MAX,
) -> Provider:
    """Open the provider `name`.

    `folder` is the data folder, `built_in` names the providers that need no package.
    Raises NoSuchMemoryProvider, BadMemoryProvider, and MemoryProviderNotReady if the fault may pass.
    """
    found = tuple(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        raise NoSuchMemoryProvider(name=name, known=", ".join((*built_in, *installed_names())) or "none")
    if len({entry.value for entry in found}) > 1:
        raise BadMemoryProvider(name=name, why=f"{len(found)} packages have one of that name")
    make = await _load(found[0], timeout_s)
    own = folder / FOLDER / name

    async def build() -> Provider:
        own.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = make(ProviderContext(own, options, ask))
        provider = await made if inspect.isawaitable(made) else made
        if missing := _missing_members(provider):
            raise BadMemoryProvider(name=name, why=f"{type(provider).__name__} has no {', '.join(missing)}")
        return provider

    answer = await _build_in_time(name, build, timeout_s)
    if isinstance(answer, CaughtError):
        if isinstance(answer.error, BadMemoryProvider):
            raise answer.error
        # A TypeError means a wrong signature, which stays wrong; other errors may pass.
        kind = BadMemoryProvider if isinstance(answer.error, TypeError) else MemoryProviderNotReady
        raise kind(name=name, why=_error_text(answer)) from answer.error
    return cast(Provider, answer)


async def _build_in_time(name: str, build: Callable[[], Awaitable[Provider]], timeout_s: float) -> object:
    """Return the provider, or the error of building it. Raises MemoryProviderNotReady on a timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            return await catch_errors(build)
    except TimeoutError:
        raise MemoryProviderNotReady(name=name, why=f"it was not ready within {timeout_s:g} s") from None
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise MemoryProviderNotReady(name=name, why="it gave up") from error


async def _load(entry: EntryPoint, timeout_s: float) -> ProviderFactory:
    """Import the provider's package in a daemon thread, so that an endless import cannot block the exit."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[object] = loop.create_future()

    def hand_over(found: object) -> None:
        if not loaded.done():
            loaded.set_result(found)

    def load() -> None:
        found = catch_errors_sync(entry.load)
        with contextlib.suppress(RuntimeError):  # The loop has closed.
            loop.call_soon_threadsafe(hand_over, found)

    threading.Thread(target=load, name=f"load {entry.name}", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_s):
            found = await loaded
    except TimeoutError:
        raise MemoryProviderNotReady(
            name=entry.name, why=f"it was not loaded within {timeout_s:g} s"
        ) from None
    if isinstance(found, CaughtError):
        raise BadMemoryProvider(name=entry.name, why=_error_text(found)) from found.error
    if not callable(found):
        raise BadMemoryProvider(name=entry.name, why=f"{entry.value} cannot be called")
    return cast(ProviderFactory, found)


def _missing_members(provider: object) -> list[str]:
    """Return the members of the port that an object lacks."""
    methods = [verb for verb in PROVIDER_METHODS if not callable(getattr(provider, verb, None))]
    properties = [name for name in ("name", "takes_key") if not hasattr(provider, name)]
    # Only a real bool counts: a truthy value could cause double commits.
    is_undeclared = "takes_key" not in properties and not isinstance(
        getattr(provider, "takes_key", None), bool
    )
    return methods + properties + (["takes_key that is True or False"] if is_undeclared else [])


def _error_text(caught: CaughtError) -> str:
    """Return an error's text for people: one line, cut, without the last full stop."""
    text = " ".join(caught.text.split())
    if len(text) > ERROR_CHARS_MAX:
        text = text[: ERROR_CHARS_MAX - 1].rstrip() + "…"
    return text.rstrip(".: ")
