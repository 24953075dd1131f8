"""Prepare `.venv`: check the requirements, then install what the lock files name.

Needs no installed package, and parses on any Python 3, so that an old one prints an error and no traceback.
Run it again after any failure: it skips finished steps and restarts interrupted ones.
"""

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PYTHON_MIN = (3, 11)
CANDIDATES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
LEVELS = {"run": "run", "dev": "dev", "test": "dev"}
"""The environment of each level. `test` is `dev` with a browser and tmux, which pip cannot install."""
LOCKS = {"run": ("run.txt", "page.txt"), "dev": ("run.txt", "page.txt", "dev.txt")}
"""`run` is what users need, the page included; `dev` adds what the tests and checks need."""
DISK_BYTES_MIN = {"run": 700_000_000, "dev": 1_200_000_000}
"""Three times the size of an environment: pip unpacks beside it and keeps a cache."""
BROWSERS = (
    "chromium",
    "google-chrome",
    "google-chrome-stable",
    "chromium-browser",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
"""The paths of an installed Chromium or Chrome, unless CHROME names one."""
UNDERWAY = "holdfast-underway"
PROBE = (
    "import sys, importlib.util as u;"
    "print('%d.%d.%d' % sys.version_info[:3], 'venv' if u.find_spec('ensurepip') else 'bare')"
)
SHOWN = re.compile(r"\s*(?:Downloading|Using cached|Processing) (?P<what>\S+)(?P<size> \([\d.]+ \w+\))?")
REPORTED_PATTERN = re.compile(r"WARNING: Retrying|ERROR|\s+(?:Expected|Got) ")
OFFLINE = re.compile(r"Retrying|[Cc]onnection|resolve|[Tt]imed? ?out|Network")
APT_SHOWN = re.compile(r"Get:\d+ \S+ \S+ \S+ (?P<what>\S+) .*(?P<size>\[.*\])|Setting up (?P<done>\S+)")


class SetupError(Exception):
    """A requirement is missing; the message is one line with the command that installs it."""


class PythonInterpreter:
    """An interpreter on this machine: its command, its version, whether it can create environments."""

    def __init__(self, command: str, version: str, makes_venvs: bool) -> None:
        self.command = command
        self.version = version
        self.number = tuple(int(part) for part in version.split("."))
        self.series = ".".join(version.split(".")[:2])
        self.makes_venvs = makes_venvs


def this_python() -> PythonInterpreter:
    makes_venvs = importlib.util.find_spec("ensurepip") is not None
    return PythonInterpreter(sys.executable, ".".join(map(str, sys.version_info[:3])), makes_venvs)


def probe(command: str) -> "PythonInterpreter | None":
    """Return the description that `command` prints of itself; None if it is missing or broken."""
    if shutil.which(command) is None:
        return None
    try:
        said = subprocess.check_output([command, "-c", PROBE], stderr=subprocess.DEVNULL, timeout=20)
        version, kind = said.decode().split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # A launcher without its Python, as version managers leave behind.
    return PythonInterpreter(command, version, kind == "venv")


def packages_of(version: str) -> str:
    """Return the command that installs this Python with all its parts on this machine."""
    if sys.platform == "darwin":
        return f"brew install python@{version}"
    if shutil.which("apt-get"):
        return f"sudo apt-get install python{version} python{version}-venv"
    if shutil.which("dnf"):
        return f"sudo dnf install python{version}"
    return f"install Python {version} from https://www.python.org/downloads/"


def find_python(first: PythonInterpreter, candidates: "tuple[str, ...]" = CANDIDATES) -> PythonInterpreter:
    """Return the first Python that is new enough and complete. Raises SetupError."""
    found = []
    for command in (None, *candidates):
        python = first if command is None else probe(command)
        if python is None:
            continue
        if python.number >= PYTHON_MIN and python.makes_venvs:
            return python
        found.append(python)
    newest = max(found, key=lambda python: python.number)
    if newest.number < PYTHON_MIN:
        raise SetupError(
            f"Python 3.11 or newer is needed, and {newest.version} is here: {packages_of('3.13')}"
        )
    raise SetupError(f"Python {newest.version} is here without its venv module: {packages_of(newest.series)}")


def find_browser() -> "str | None":
    """Return the command of an installed Chromium or Chrome; None if there is none."""
    named = os.environ.get("CHROME", "")
    return next(filter(None, map(shutil.which, (named,) if named else BROWSERS)), None)


def browser_package() -> str:
    """Return the command that installs a browser on this machine."""
    if sys.platform == "darwin":
        return "brew install --cask google-chrome"
    if shutil.which("apt-get"):
        return "sudo apt-get install chromium"
    if shutil.which("dnf"):
        return "sudo dnf install chromium"
    return "install Chrome from https://www.google.com/chrome/"


def provide_browser() -> None:
    """Ensure that the tests find a browser: install Debian's as root, else ask for one.

    Raises SetupError.
    """
    if find_browser():
        return
    if os.environ.get("CHROME"):
        raise SetupError(f"CHROME names {os.environ['CHROME']}, which is no command here: unset CHROME")
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SetupError(f"the tests drive a browser, and none is here: {browser_package()}")
    install("chromium")
    if not find_browser():
        raise SetupError(f"apt-get's chromium brought no browser: {browser_package()}, or set CHROME to one")


def terminal_package() -> str:
    """Return the command that installs tmux on this machine."""
    if sys.platform == "darwin":
        return "brew install tmux"
    return "sudo dnf install tmux" if shutil.which("dnf") else "sudo apt-get install tmux"


def provide_terminal() -> None:
    """Ensure that the tests find tmux, their terminal, as `provide_browser` does. Raises SetupError."""
    if shutil.which("tmux"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SetupError(f"the tests drive a terminal, and tmux is not here: {terminal_package()}")
    install("tmux")


def install(package: str) -> None:
    """Install a Debian package. Raises SetupError."""
    print(f"Installing {package}, which the tests drive", flush=True)
    words = ("install", "-y", "--no-install-recommends", package)
    # The package lists of a new image are empty, and old ones name packages that are gone.
    if not apt_get(*words) and not (apt_get("update") and apt_get(*words, aloud=True)):
        raise SetupError(f"{package} could not be installed: apt-get update && apt-get install {package}")


def apt_get(*words: str, aloud: bool = False) -> bool:
    """Run apt-get and print what it installs; return whether it succeeded. `aloud` also prints its errors."""
    # A prompt would wait for ever, and so would a lock that another process holds.
    quiet = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=120", *words]
    with subprocess.Popen(
        command,
        env=quiet,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        assert running.stdout is not None
        lines = []
        for line in running.stdout:
            lines.append(line)
            shown = APT_SHOWN.match(line)
            if shown:
                print(f"  {shown['what'] or shown['done']} {shown['size'] or 'ready'}", flush=True)
    if running.returncode != 0 and aloud:
        print("".join(lines[-10:]).rstrip(), file=sys.stderr, flush=True)
    return running.returncode == 0


def check_folder(root: Path) -> None:
    """Raise SetupError if the clone is not writable."""
    try:
        tempfile.TemporaryFile(dir=str(root)).close()
    except OSError as error:
        mend = f'sudo chown -R "$(id -un)" {shlex.quote(str(root))}'
        raise SetupError(f"{root} cannot be written ({error.strerror}): {mend}") from None


def check_disk(root: Path, bytes_min: int) -> None:
    """Raise SetupError if the environment would not fit on the disk."""
    free = shutil.disk_usage(str(root)).free
    if free < bytes_min:
        mb = 1_000_000
        raise SetupError(
            f"{bytes_min // mb} MB of free disk are needed, and {free // mb} MB are left: "
            f"free some, for example with `{sys.executable} -m pip cache purge`"
        )


def digest(root: Path, level: str) -> str:
    """Return a digest that changes with the lock files, the folder of the clone or these rules."""
    whole = hashlib.sha256(str(root).encode("utf-8", "surrogateescape"))
    for part in (Path(__file__), *(root / "requirements" / name for name in LOCKS[level])):
        whole.update(part.read_bytes())
    return whole.hexdigest()


def is_ready(root: Path, level: str) -> bool:
    venv = root / ".venv"
    # A link whose Python was removed or upgraded away does not exist.
    if not (venv / "bin" / "python").exists() or (venv / UNDERWAY).exists():
        return False
    # An environment ready for tests is ready to run, too.
    for name in (level, "dev"):
        stamp = venv / f"holdfast-{name}.stamp"
        if stamp.exists() and stamp.read_text() == digest(root, name):
            return True
    return False


def usable(venv: Path) -> bool:
    """Return whether the environment can be reused: complete, new enough, and not interrupted."""
    if (venv / UNDERWAY).exists():
        return False
    python = probe(str(venv / "bin" / "python"))
    if python is None or python.number < PYTHON_MIN:
        return False
    return subprocess.call([python.command, "-I", "-m", "pip", "--version"], stdout=subprocess.DEVNULL) == 0


def make_venv(venv: Path, python: PythonInterpreter) -> None:
    print(f"Making .venv with Python {python.version}", flush=True)
    if venv.exists():
        shutil.rmtree(str(venv))
    venv.mkdir()
    (venv / UNDERWAY).touch()
    made = subprocess.run(
        [python.command, "-I", "-m", "venv", str(venv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if made.returncode != 0:
        print(made.stdout, file=sys.stderr)
        raise SetupError(f"Python {python.version} could not make .venv: {packages_of(python.series)}")


def fetch(root: Path, level: str) -> None:
    """Install what the lock files name, wheels only, and print progress. Raises SetupError."""
    pip = [str(root / ".venv" / "bin" / "python"), "-I", "-m", "pip", "install", "--require-hashes"]
    pip += ["--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    for name in LOCKS[level]:
        pip += ["-r", str(root / "requirements" / name)]
    # The user's package settings apply, but not "install for the user": this is an environment.
    settings = dict(os.environ, PIP_USER="0")
    offline = False
    with subprocess.Popen(
        pip, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            offline = offline or OFFLINE.search(line) is not None
            print_line(line)
    if running.returncode != 0:
        if offline:
            raise SetupError(
                "the packages cannot be reached: check the network (pip config list), then make setup"
            )
        raise SetupError("pip failed as shown above: rm -rf .venv && make setup PYTHON=python3.13")


def print_line(line: str) -> None:
    """Print a line of pip's output if it reports a package or an error."""
    shown = SHOWN.match(line)
    if shown and not shown["what"].endswith(".metadata"):
        print(f"  {shown['what'].rsplit('/', 1)[-1]}{shown['size'] or ''}", flush=True)
    elif line.startswith("Installing collected packages"):
        print("Installing them", flush=True)
    elif REPORTED_PATTERN.match(line):
        print(line.rstrip(), file=sys.stderr, flush=True)


def make_command(root: Path) -> None:
    """Make the package importable and create its command, without building anything."""
    venv = root / ".venv"
    (site,) = (venv / "lib").glob("python3.*/site-packages")
    # Relative to the file itself, so that no path depends on an encoding.
    (site / "holdfast.pth").write_text("../../../../src\n")
    command = venv / "bin" / "holdfast"
    # A shebang would break at a space in the path, and at 127 characters.
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(venv / "bin" / "python"))} -P -m holdfast "$@"\n')
    command.chmod(0o755)


def install_level(root: Path, level: str, with_browser: bool = False) -> None:
    """Bring `.venv` to `level`. Raises SetupError."""
    check_folder(root)
    check_disk(root, DISK_BYTES_MIN[level])
    lock = os.open(str(root), os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two runs at the same time take turns.
        venv, is_done = root / ".venv", is_ready(root, level)
        python = None if is_done or usable(venv) else find_python(this_python())
        if with_browser:
            provide_browser()
            provide_terminal()
        if is_done:
            return
        if python is not None:
            make_venv(venv, python)
        (venv / UNDERWAY).touch()
        print(f"Fetching what requirements/{' and '.join(LOCKS[level])} name", flush=True)
        fetch(root, level)
        make_command(root)
        (venv / f"holdfast-{level}.stamp").write_text(digest(root, level))
        (venv / UNDERWAY).unlink()
    finally:
        os.close(lock)


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    level = sys.argv[1] if len(sys.argv) > 1 else "dev"
    if level not in LEVELS:
        print(f"setup: `run`, `dev` or `test` is expected, not {level}", file=sys.stderr)
        return 2
    with_browser, level = level == "test", LEVELS[level]
    lacks_driven = with_browser and not (find_browser() and shutil.which("tmux"))
    if is_ready(root, level) and not lacks_driven:
        return 0
    try:
        install_level(root, level, with_browser)
    except SetupError as missing:
        print(f"setup: {missing}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("setup: stopped; make setup goes on", file=sys.stderr)
        return 130
    print("Set up.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
