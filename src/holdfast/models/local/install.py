"""Installing the local model with pip: what the lock names and nothing else, whole or not at all."""

import asyncio
import fcntl
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.models.local.info import LocalInstallFailed, LocalInstallRunning
from holdfast.models.local.install_dir import LocalModelDir, dir_size_bytes, missing_file

DOWNLOAD_BYTES = 127_000_000
"""About what comes over the network: it differs a little between machines."""
DISK_BYTES_MIN = 500_000_000
"""What is downloaded, what that becomes, and room to spare."""
PROGRESS_INTERVAL_S = 0.2
"""How often it is looked how far it has come."""
_STOP_S_MAX = 3.0
_OUTPUT_CHARS_MAX = 20_000
_ENVIRON_NAMES = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TMPDIR|XDG_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC"
    r"|(?:https?|all|no)_proxy|PIP_\w+",
    re.IGNORECASE,
)
"""What pip may know of the environment: how to reach packages here, and no other secret."""
_IMPORT_CHECK = "import sys; sys.path.append(sys.argv[1]); import xllamacpp"
Progress = Callable[[int, int], None]
"""Told how many bytes have come, of how many."""


async def install(
    model_dir: LocalModelDir, environ: Mapping[str, str], random_id: str, progress: Progress
) -> None:
    """Have it installed; quick if it is. Raises LocalInstallFailed and LocalInstallRunning: all is as it was.

    Cancelled, it leaves nothing behind either.
    """
    try:
        with _lock(model_dir) as lock:
            if model_dir.is_installed and model_dir.is_current:
                return
            model_dir.remove_parts()
            _check_disk(model_dir)
            part_dir = model_dir.make_part_dir(random_id)
            try:
                await _download(part_dir, model_dir.lock, environ, lock, progress)
                await _check_import(part_dir / "library")
                await asyncio.to_thread(model_dir.activate, part_dir / "library")
            finally:
                # Not to be cut short: what is half there takes room.
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, part_dir, ignore_errors=True))
    except OSError as error:
        raise LocalInstallFailed(why=f"{error.strerror or error} ({model_dir.folder})") from None


def uninstall(model_dir: LocalModelDir) -> bool:
    """Remove it; whether it was there. Raises LocalInstallRunning, OSError."""
    was_there = model_dir.library.exists()
    if model_dir.folder.exists():
        with _lock(model_dir):
            model_dir.remove()
    return was_there


@contextmanager
def _lock(model_dir: LocalModelDir) -> Iterator[int]:
    """Only one process installs or removes at a time; what it has started holds the lock as well."""
    model_dir.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(model_dir.folder / "install.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalInstallRunning() from None
        yield file
    finally:
        os.close(file)


def _check_disk(model_dir: LocalModelDir) -> None:
    free = shutil.disk_usage(model_dir.folder).free
    if free < DISK_BYTES_MIN:
        mb = 1_000_000
        why = f"{DISK_BYTES_MIN // mb} MB of disk are needed, and {free // mb} MB are free"
        raise LocalInstallFailed(why=why)


async def _download(
    part_dir: Path, lock_file: Path, environ: Mapping[str, str], lock: int, progress: Progress
) -> None:
    """Fetch and unpack, into `half`. Raises LocalInstallFailed."""
    download_dir, library = part_dir / "coming", part_dir / "library"
    download_dir.mkdir()
    command = (
        sys.executable, "-I", "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary",
        ":all:", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile",
        "--target", str(library), "-r", str(lock_file),
    )  # fmt: skip
    inherited = {name: value for name, value in environ.items() if _ENVIRON_NAMES.fullmatch(name)}
    # What pip downloads lies in its temporary folder first: there one sees how far it has come.
    process_environ = inherited | {"TMPDIR": str(download_dir), "PIP_USER": "0", "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, cwd=part_dir, env=process_environ,
        pass_fds=(lock,), start_new_session=True,
    )  # fmt: skip
    reporting = asyncio.create_task(_report_progress(download_dir, progress))
    try:
        output = await _read_output(process)
    finally:
        reporting.cancel()
        await _stop_process(process)
    if process.returncode != 0:
        raise LocalInstallFailed(why=failure_reason(output))
    if problem := missing_file(library):
        raise LocalInstallFailed(why=f"what came is not whole: {problem}")


async def _read_output(process: Process) -> str:
    """All that it says, of which the end is kept."""
    assert process.stdout is not None
    output = ""
    while chunk := await process.stdout.read(4_096):
        output = (output + chunk.decode("utf-8", "replace"))[-_OUTPUT_CHARS_MAX:]
    await process.wait()
    return output


async def _report_progress(download_dir: Path, progress: Progress) -> None:
    """Tell how far it is until it is cancelled. What came before stays counted while it is unpacked."""
    most = 0
    while True:
        most = max(most, await asyncio.to_thread(_downloaded_bytes, download_dir))
        progress(min(most, DOWNLOAD_BYTES - 1), DOWNLOAD_BYTES)
        await asyncio.sleep(PROGRESS_INTERVAL_S)


def _downloaded_bytes(download_dir: Path) -> int:
    """Bytes of packages that have come; of what is unpacked, nothing counts."""
    return sum(dir_size_bytes(folder) for folder in download_dir.glob("pip-unpack-*"))


async def _stop_process(process: Process) -> None:
    """See that pip and all that it started are gone."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_S_MAX):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _check_import(library: Path) -> None:
    """Whether it can be loaded here: a machine's processor or C library may be too old. Raises as above."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-c", _IMPORT_CHECK, str(library),
        stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env={}, start_new_session=True,
    )  # fmt: skip
    try:
        output = await _read_output(process)
    finally:
        await _stop_process(process)
    if process.returncode != 0:
        last = output.strip().rpartition("\n")[2] or f"it ends with {process.returncode}"
        raise LocalInstallFailed(why=f"it does not run on this machine: {last}")


def failure_reason(output: str) -> str:
    """Why pip failed, from what it said."""
    kinds = (
        (r"No module named '?pip", "this Python has no pip; `python -m ensurepip` installs it"),
        (r"No space left", "the disk is full"),
        (r"DO NOT MATCH THE HASHES", "what came is not what was expected: its hash is another"),
        (
            r"Retrying|Connection|NewConnection|resolve|[Tt]imed? ?out|Network|ReadTimeout|SSLError",
            "the packages cannot be reached; check the network, and `pip config list`",
        ),
        (r"No matching distribution|from versions: none", "no package for this machine was found"),
    )
    for pattern, why in kinds:
        if re.search(pattern, output):
            return why
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    return (errors or output.strip().splitlines() or ["pip said nothing"])[-1].removeprefix("ERROR: ")
