"""Installing the local model: whole or not at all, with the real pip and packages that stand in."""

import asyncio
import fcntl
import socket
from pathlib import Path

import pytest

from holdfast.models.local.info import LocalInstallFailed, LocalInstallRunning
from holdfast.models.local.install import DOWNLOAD_BYTES, failure_reason, install, uninstall
from holdfast.models.local.install_dir import LocalModelDir
from holdfast.models.local.service import LlamaModelService
from tests.support.fake_llama_packages import BROKEN_WHEEL, Packages


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path)


@pytest.fixture
def place(tmp_path: Path, packages: Packages) -> LocalModelDir:
    return LocalModelDir(tmp_path / "data", packages.lock)


def leftovers(place: LocalModelDir) -> set[str]:
    return {each.name for each in place.folder.iterdir()} - {"install.lock"}


async def try_install(place: LocalModelDir, packages: Packages, **environ: str) -> str:
    """Why it cannot be installed."""
    with pytest.raises(LocalInstallFailed) as failed:
        await install(place, packages.environ | environ, "try", lambda done, total: None)
    return str(failed.value)


async def test_locked_packages_are_installed_once_and_again_after_the_lock_changes(
    place: LocalModelDir, packages: Packages
) -> None:
    assert not place.is_installed
    progress: list[tuple[int, int]] = []
    await install(place, packages.environ, "a", lambda done, total: progress.append((done, total)))
    assert place.is_installed and place.is_current
    assert leftovers(place) == {"installed"}
    assert progress and all(0 <= done < total == DOWNLOAD_BYTES for done, total in progress)
    # Nothing is fetched for what is there.
    await install(place, {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/nowhere"}, "b", lambda done, total: None)
    packages.write(version="2.0")
    assert place.is_installed and not place.is_current
    await install(place, packages.environ, "c", lambda done, total: None)
    assert place.is_current
    assert (place.library / "xllamacpp-2.0.dist-info").exists()
    assert not (place.library / "xllamacpp-1.0.dist-info").exists()
    assert leftovers(place) == {"installed"}
    assert uninstall(place) and not place.is_installed
    assert leftovers(place) == set()
    assert not uninstall(place)


async def test_packages_with_a_wrong_hash_are_not_installed_and_can_be_retried(
    place: LocalModelDir, packages: Packages
) -> None:
    named = packages.lock.read_text()
    packages.lock.write_text(
        "".join(f"{line[:-8]}00000000\n" for line in named.splitlines())  # Another hash for each.
    )
    assert "its hash is another" in await try_install(place, packages)
    assert not place.is_installed and leftovers(place) == set()
    packages.lock.write_text(named)
    await install(place, packages.environ, "again", lambda done, total: None)
    assert place.is_installed


async def test_an_install_without_a_network_fails_and_leaves_nothing(
    place: LocalModelDir, packages: Packages
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound and not listening: nobody answers here.
        index = f"http://127.0.0.1:{taken.getsockname()[1]}/simple"
        why = await try_install(
            place, packages, PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=index, PIP_RETRIES="1"
        )
    assert "the packages cannot be reached; check the network" in why
    assert leftovers(place) == set()


async def test_a_library_that_does_not_load_here_is_not_installed(
    place: LocalModelDir, packages: Packages
) -> None:
    packages.write(BROKEN_WHEEL)
    assert "it does not run on this machine: ImportError: the C library is too old" in await try_install(
        place, packages
    )
    assert leftovers(place) == set()


async def test_a_cancelled_install_leaves_nothing_behind(place: LocalModelDir, packages: Packages) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as index:
        port = index.sockets[0].getsockname()[1]
        environ = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"http://127.0.0.1:{port}/simple"}
        (packages.wheels / "xllamacpp-1.0-py3-none-any.whl").unlink()
        installing = asyncio.create_task(
            install(place, packages.environ | environ, "a", lambda done, total: None)
        )
        async with asyncio.timeout(60):
            await asked.wait()
        with pytest.raises(LocalInstallRunning):
            await install(place, packages.environ, "b", lambda done, total: None)
        installing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await installing
    assert leftovers(place) == set()
    with (place.folder / "install.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # Nothing of pip is left that holds it.


async def test_partial_installs_of_earlier_processes_are_removed(
    place: LocalModelDir, packages: Packages
) -> None:
    half = place.make_part_dir("earlier")
    (half / "coming").mkdir()
    await install(place, packages.environ, "now", lambda done, total: None)
    assert leftovers(place) == {"installed"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("/usr/bin/python3: No module named pip", "this Python has no pip"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "full"),
        ("ERROR: No matching distribution found for xllamacpp==1", "no package for this machine"),
        ("Collecting x\nERROR: something else\n", "something else"),
        ("", "pip said nothing"),
    ],
)
def test_a_pip_failure_is_explained_in_one_sentence(said: str, why: str) -> None:
    assert why in failure_reason(said)


async def test_the_callback_runs_once_the_local_model_is_installed(tmp_path: Path) -> None:
    calls: list[str] = []
    manager = LlamaModelService(
        tmp_path, {}, lambda text: text, lambda: "a", on_installed=lambda: calls.append("there")
    )
    place = LocalModelDir(tmp_path)
    # As an installation leaves it that has come to its end; then nothing is fetched.
    place.weights.parent.mkdir(parents=True)
    place.weights.write_bytes(b"")
    (place.library / "holdfast-lock.txt").write_bytes(place.lock.read_bytes())
    assert place.is_installed and place.is_current
    manager.start_install()
    async with asyncio.timeout(30):
        while not calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert manager.info().state == "installed"
