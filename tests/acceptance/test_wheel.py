"""`pip install .` gives a server with its page."""

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
START_LINES_MAX = 200
NOT_TRACKED = shutil.ignore_patterns(
    ".git", ".venv", ".cache", "built", "__pycache__", "tests", "bench", "docs", ".*_cache", ".hypothesis"
)


def test_a_server_that_pip_installed_serves_its_page(tmp_path: Path) -> None:
    clone, installed = tmp_path / "clone", tmp_path / "installed"
    # With npm's packages: the page is built here as it is by set-up, and only pip's own are fetched.
    shutil.copytree(ROOT, clone, ignore=NOT_TRACKED, symlinks=True)
    assert not (clone / "src" / "holdfast" / "http" / "built").exists()
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(installed), str(clone)], check=True, cwd=tmp_path, timeout=300)
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOLDFAST_")}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "serve", "--port", "0", "--data", str(tmp_path / "data")],
        env={**kept, "PYTHONPATH": str(installed)}, cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            said = (server.stdout.readline() for _ in range(START_LINES_MAX))
            link = next(line for line in said if line.startswith("http://"))
            with urllib.request.urlopen(link.strip(), timeout=30) as response:
                page = response.read().decode()
            assert response.status == 200 and 'type="module"' in page
        finally:
            server.terminate()
