"""Set-up tells what is missing in one line, before it does anything, and can always be run again."""

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
CANDIDATES = ("python3", "python3.14", "python3.13", "python3.12", "python3.11")
OLD_PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then echo 3.9.2 venv; exit; fi
exec {real} -c 'import runpy, sys
sys.version_info, sys.argv = (3, 9, 2, "final", 0), sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""


@pytest.fixture
def setup() -> ModuleType:
    spec = importlib.util.spec_from_file_location("holdfast_setup", ROOT / "tools" / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What set-up needs of a clone, in a folder with a space in its name."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    shutil.copy(ROOT / "Makefile", clone)
    shutil.copytree(ROOT / "tools", clone / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "requirements", clone / "requirements")
    return clone


def make(clone: Path, target: str, path: Path) -> "subprocess.CompletedProcess[str]":
    """Run make where `path` is the only folder with commands."""
    command = shutil.which("make")
    assert command is not None
    environ = {"PATH": str(path), "HOME": str(clone)}
    return subprocess.run(
        [command, target], cwd=clone, env=environ, capture_output=True, text=True, timeout=60
    )


def first_line(ended: "subprocess.CompletedProcess[str]") -> str:
    """What set-up said; make adds its own line below."""
    return ended.stderr.splitlines()[0]


def test_the_script_parses_on_pythons_that_are_too_old() -> None:
    ast.parse((ROOT / "tools" / "setup.py").read_text(), feature_version=(3, 7))


@pytest.mark.parametrize("target", ["run", "setup", "test", "check", "bench-log"])
def test_an_old_python_is_reported_with_the_command_that_installs_a_newer_one(
    target: str, clone: Path, tmp_path: Path
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in CANDIDATES:
        (commands / name).write_text(OLD_PYTHON.format(real=f"'{sys.executable}'"))
        (commands / name).chmod(0o755)
    ended = make(clone, target, commands)
    assert ended.returncode != 0
    assert first_line(ended).startswith("setup: Python 3.11 or newer is needed, and 3.9.2 is here: ")
    assert not (clone / ".venv").exists()


def test_a_missing_python_is_reported(clone: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    ended = make(clone, "run", tmp_path / "bin")
    assert ended.returncode != 0
    assert first_line(ended).startswith("setup: Python 3.11 or newer is needed: install it")


def test_make_alone_says_what_there_is(clone: Path) -> None:
    said = subprocess.check_output(["make"], cwd=clone, text=True)
    for target in ("setup", "run", "test", "test-core", "check", "crash", "bench", "bench-log"):
        assert f"make {target} " in said


def test_an_old_python_is_passed_over_for_a_newer_one(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, said in (("python3.14", "exit 127"), ("python3.13", "echo 3.13.1 venv")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{said}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = setup.find_python(setup.PythonInterpreter("/old", "3.9.2", True))
    assert (found.command, found.version) == ("python3.13", "3.13.1")


def test_a_missing_venv_module_is_reported_with_the_package_to_install(setup: ModuleType) -> None:
    with pytest.raises(
        setup.SetupError, match=r"Python 3\.12\.3 is here without its venv module: .*3\.12"
    ) as caught:
        setup.find_python(setup.PythonInterpreter("/usr/bin/python3", "3.12.3", False), candidates=())
    assert "\n" not in str(caught.value)


def test_too_little_disk_is_reported_with_both_amounts(setup: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(
        setup.SetupError, match=r"^1000000000000 MB of free disk are needed, and \d+ MB are left"
    ):
        setup.check_disk(tmp_path, bytes_min=10**18)
    setup.check_disk(tmp_path, bytes_min=1)


def test_a_read_only_clone_is_reported_with_the_command_that_repairs_it(
    setup: ModuleType, tmp_path: Path
) -> None:
    closed = tmp_path
    if os.geteuid() == 0:  # Nothing but the kernel's own folders is closed to root.
        closed = Path("/proc")
        if not closed.exists():
            pytest.skip("root may write everywhere here")
    else:
        tmp_path.chmod(0o500)
    with pytest.raises(setup.SetupError, match=r"cannot be written .*: sudo chown -R"):
        setup.check_folder(closed)


def test_an_unreachable_package_index_is_reported(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requirements").mkdir()
    for name in setup.LOCKS["run"]:
        (tmp_path / "requirements" / name).write_text(f"no-such-thing==1 --hash=sha256:{'0' * 64}\n")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(setup.SetupError, match="the packages cannot be reached"):
        setup.fetch(tmp_path, "run")


class TestWhetherAnythingIsToBeDone:
    """The second time is quick because a stamp says that nothing changed."""

    @pytest.fixture
    def ready(self, setup: ModuleType, clone: Path) -> Path:
        """A clone that looks set up for tests."""
        (clone / ".venv" / "bin").mkdir(parents=True)
        (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
        (clone / ".venv" / "holdfast-dev.stamp").write_text(setup.digest(clone, "dev"))
        return clone

    def test_nothing_when_the_stamp_fits(self, setup: ModuleType, ready: Path) -> None:
        assert setup.is_ready(ready, "dev")

    def test_nothing_to_run_when_all_is_ready_for_tests(self, setup: ModuleType, ready: Path) -> None:
        assert setup.is_ready(ready, "run")

    def test_more_when_only_running_was_set_up(self, setup: ModuleType, ready: Path) -> None:
        (ready / ".venv" / "holdfast-dev.stamp").unlink()
        (ready / ".venv" / "holdfast-run.stamp").write_text(setup.digest(ready, "run"))
        assert setup.is_ready(ready, "run") and not setup.is_ready(ready, "dev")

    def test_more_when_a_lock_changed(self, setup: ModuleType, ready: Path) -> None:
        with (ready / "requirements" / "run.txt").open("a") as lock:
            lock.write("# changed\n")
        assert not setup.is_ready(ready, "dev")

    def test_more_when_the_clone_moved(self, setup: ModuleType, ready: Path) -> None:
        assert not setup.is_ready(ready.rename(ready.with_name("moved")), "dev")

    def test_more_when_its_python_was_removed(self, setup: ModuleType, ready: Path) -> None:
        (ready / ".venv" / "bin" / "python").unlink()
        (ready / ".venv" / "bin" / "python").symlink_to("/gone/python3")
        assert not setup.is_ready(ready, "dev")
        assert not setup.usable(ready / ".venv")

    def test_everything_anew_when_it_was_cut_short(self, setup: ModuleType, ready: Path) -> None:
        (ready / ".venv" / setup.UNDERWAY).touch()
        assert not setup.is_ready(ready, "dev")
        assert not setup.usable(ready / ".venv")


class TestABrowserForTheTests:
    """Only `make test` asks for one, before it fetches anything."""

    @pytest.fixture
    def bare(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A machine without a browser: the only folder with commands."""
        commands = tmp_path / "bin"
        commands.mkdir()
        monkeypatch.setenv("PATH", str(commands))
        monkeypatch.delenv("CHROME", raising=False)
        return commands

    @pytest.fixture
    def nowhere_else(self, setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor is one where Macs keep theirs."""
        names = tuple(name for name in setup.BROWSERS if "/" not in name)
        monkeypatch.setattr(setup, "BROWSERS", names)

    @pytest.mark.parametrize("name", ["chromium", "google-chrome", "google-chrome-stable"])
    def test_one_that_is_installed_is_found(self, name: str, setup: ModuleType, bare: Path) -> None:
        command(bare / name)
        setup.provide_browser()
        assert setup.find_browser() == str(bare / name)

    def test_one_that_is_named_is_taken_before_others(
        self, setup: ModuleType, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command(bare / "chromium")
        command(tmp_path / "my browser")
        monkeypatch.setenv("CHROME", str(tmp_path / "my browser"))
        assert setup.find_browser() == str(tmp_path / "my browser")

    def test_a_missing_configured_browser_is_reported(
        self, setup: ModuleType, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command(bare / "chromium")
        monkeypatch.setenv("CHROME", "/gone/chrome")
        with pytest.raises(setup.SetupError, match=r"^CHROME names /gone/chrome, which is no command here"):
            setup.provide_browser()

    @pytest.mark.usefixtures("nowhere_else")
    def test_an_unprivileged_user_is_shown_the_command_that_installs_a_browser(
        self, setup: ModuleType, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(sys, "platform", "linux")
        command(bare / "apt-get", "echo it was called >&2; exit 1")
        with pytest.raises(setup.SetupError) as caught:
            setup.provide_browser()
        assert str(caught.value) == (
            "the tests drive a browser, and none is here: sudo apt-get install chromium"
        )

    @pytest.mark.usefixtures("nowhere_else")
    def test_root_has_it_installed_and_hears_what_comes(
        self,
        setup: ModuleType,
        bare: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        # The first time nothing is known of any package, as in a new image.
        command(
            bare / "apt-get",
            f"""
            echo "$@" "$DEBIAN_FRONTEND" >> '{bare}/asked'
            case "$*" in
            *update) : > '{bare}/lists' ;;
            *install*)
                [ -e '{bare}/lists' ] || {{ echo E: Unable to locate package chromium; exit 100; }}
                echo "Get:1 http://deb.example stable/main amd64 chromium amd64 1.0 [80.5 MB]"
                echo "Setting up chromium (1.0) ..."
                echo '#!/bin/sh' > '{bare}/chromium'; /bin/chmod 755 '{bare}/chromium' ;;
            esac
            """,
        )
        setup.provide_browser()
        assert setup.find_browser() == str(bare / "chromium")
        install = "install -y --no-install-recommends chromium noninteractive"
        asked = [line.partition("=120 ")[2] for line in (bare / "asked").read_text().splitlines()]
        assert asked == [install, "update noninteractive", install]
        assert capfd.readouterr().out.splitlines()[1:] == ["  chromium [80.5 MB]", "  chromium ready"]

    @pytest.mark.usefixtures("nowhere_else")
    def test_root_is_shown_why_the_browser_could_not_be_installed(
        self,
        setup: ModuleType,
        bare: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        command(bare / "apt-get", "case $* in *install*) echo E: No space left; exit 100;; esac")
        with pytest.raises(setup.SetupError, match=r"^chromium could not be installed: apt-get update &&"):
            setup.provide_browser()
        assert capfd.readouterr().err == "E: No space left\n"

    def test_an_unprivileged_user_is_shown_the_command_that_installs_a_terminal(
        self, setup: ModuleType, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        monkeypatch.setattr(sys, "platform", "linux")
        with pytest.raises(setup.SetupError) as caught:
            setup.provide_terminal()
        message = "the tests drive a terminal, and tmux is not here: sudo apt-get install tmux"
        assert str(caught.value) == message
        command(bare / "tmux")
        setup.provide_terminal()

    def test_root_has_the_terminal_installed(
        self, setup: ModuleType, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        command(bare / "apt-get", f"echo \"$@\" > '{bare}/asked'")
        setup.provide_terminal()
        assert (bare / "asked").read_text().endswith(" install -y --no-install-recommends tmux\n")

    def test_it_is_asked_for_before_anything_is_fetched_and_by_tests_alone(
        self, setup: ModuleType, clone: Path, bare: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[str] = []

        def refuse() -> None:
            raise setup.SetupError("none is here")

        monkeypatch.setattr(setup, "provide_browser", refuse)
        monkeypatch.setattr(setup, "make_venv", lambda venv, python: made.append("venv"))
        with pytest.raises(setup.SetupError, match="none is here"):
            setup.install_level(clone, "dev", with_browser=True)
        assert made == [] and not (clone / ".venv").exists()

    def test_what_is_set_up_for_checks_still_lacks_the_browser_for_tests(
        self, setup: ModuleType, clone: Path, bare: Path
    ) -> None:
        (clone / ".venv" / "bin").mkdir(parents=True)
        (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
        (clone / ".venv" / "holdfast-dev.stamp").write_text(digest_in(clone))
        environ = {"PATH": str(bare), "CHROME": "/gone/chrome"}
        for level, code in (("run", 0), ("dev", 0), ("test", 1)):
            script = [sys.executable, clone / "tools" / "setup.py", level]
            ended = subprocess.run(script, env=environ, capture_output=True, text=True, timeout=60)
            assert ended.returncode == code, (level, ended.stderr)
        assert ended.stderr.startswith("setup: CHROME names /gone/chrome")


def command(path: Path, script: str = "") -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def digest_in(clone: Path) -> str:
    """The digest as the clone's own script makes it."""
    spec = importlib.util.spec_from_file_location("clone_setup", clone / "tools" / "setup.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: str = module.digest(clone, "dev")
    return found


def test_the_command_works_from_a_path_with_a_space_and_a_quote(setup: ModuleType, tmp_path: Path) -> None:
    root = tmp_path / "it's a clone"
    (root / ".venv" / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir()
    (root / ".venv" / "bin" / "python").write_text('#!/bin/sh\necho "$@"\n')
    (root / ".venv" / "bin" / "python").chmod(0o755)
    setup.make_command(root)
    said = subprocess.check_output([root / ".venv" / "bin" / "holdfast", "serve", "a b"], text=True)
    assert said == "-P -m holdfast serve a b\n"
