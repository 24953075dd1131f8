"""Install the local model with pip: exactly what the lock file names, completely or not at all."""

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
"""Approximate size of the download: it differs a little between machines."""
DISK_BYTES_MIN = 500_000_000
"""Space for the download, for the unpacked files, and a reserve."""
PROGRESS_INTERVAL_S = 0.2
"""Interval of progress reports."""
_STOP_S_MAX = 3.0
_OUTPUT_CHARS_MAX = 20_000
_ENVIRON_NAMES = re.compile(
    r"PATH|HOME|USER|LANG|LC_\w+|TMPDIR|XDG_\w+|SSL_CERT_\w+|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC"
    r"|(?:https?|all|no)_proxy|PIP_\w+",
    re.IGNORECASE,
)
"""Environment variables that pip receives: how to reach packages here, and no other secret."""
_IMPORT_CHECK = "import sys; sys.path.append(sys.argv[1]); import xllamacpp"
Progress = Callable[[int, int], None]
"""Receives the downloaded bytes and the total."""


async def install(
    model_dir: LocalModelDir, environ: Mapping[str, str], random_id: str, progress: Progress
) -> None:
    """Install the model, unless it is installed and current. Raises LocalInstallFailed, LocalInstallRunning.

    An installation that fails or is cancelled leaves everything as it was.
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
                # Shielded from cancellation, because a partial download takes disk space.
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, part_dir, ignore_errors=True))
    except OSError as error:
        raise LocalInstallFailed(why=f"{error.strerror or error} ({model_dir.folder})") from None


def uninstall(model_dir: LocalModelDir) -> bool:
    """Remove the model; return whether it was installed. Raises LocalInstallRunning, OSError."""
    was_there = model_dir.library.exists()
    if model_dir.folder.exists():
        with _lock(model_dir):
            model_dir.remove()
    return was_there


@contextmanager
def _lock(model_dir: LocalModelDir) -> Iterator[int]:
    """Let one process at a time install or remove; the processes that it starts hold the lock too."""
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
    """Download and unpack into `part_dir`. Raises LocalInstallFailed."""
    download_dir, library = part_dir / "coming", part_dir / "library"
    download_dir.mkdir()
    command = (
        sys.executable, "-I", "-m", "pip", "install", "--no-deps", "--require-hashes", "--only-binary",
        ":all:", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-compile",
        "--target", str(library), "-r", str(lock_file),
    )  # fmt: skip
    inherited = {name: value for name, value in environ.items() if _ENVIRON_NAMES.fullmatch(name)}
    # pip downloads to its temporary folder first, so the size of that folder shows the progress.
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
    """Read all output, and return the end of it."""
    assert process.stdout is not None
    output = ""
    while chunk := await process.stdout.read(4_096):
        output = (output + chunk.decode("utf-8", "replace"))[-_OUTPUT_CHARS_MAX:]
    await process.wait()
    return output


async def _report_progress(download_dir: Path, progress: Progress) -> None:
    """Report progress until cancelled. It never goes down, although unpacking removes the downloads."""
    most = 0
    while True:
        most = max(most, await asyncio.to_thread(_downloaded_bytes, download_dir))
        progress(min(most, DOWNLOAD_BYTES - 1), DOWNLOAD_BYTES)
        await asyncio.sleep(PROGRESS_INTERVAL_S)


def _downloaded_bytes(download_dir: Path) -> int:
    """Return the bytes of downloaded packages; unpacked files do not count."""
    return sum(dir_size_bytes(folder) for folder in download_dir.glob("pip-unpack-*"))


async def _stop_process(process: Process) -> None:
    """Stop pip and all processes that it started."""
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
    """Raise LocalInstallFailed if the library does not load: the processor or C library may be too old."""
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
    """Return why pip failed, judged by its output."""
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
