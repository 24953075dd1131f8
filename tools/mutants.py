"""Break the product on purpose, one named mutation at a time, and report those that no test notices.

The mutations are in `tests/mutants/*.toml`. Each replaces text in a copy of `src/holdfast` and runs the tests
that must notice: one of them has to fail. The exit code is 1 if a mutation survives, or if it no longer fits
the source.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).resolve().parent.parent
MUTATIONS = ROOT / "tests" / "mutants"
TESTS_S_MAX = 300
"""A mutant whose tests run longer than this hangs, and counts as noticed."""
_PASSED, _FAILED = 0, 1
"""Exit codes of pytest; any other means that it ran no test."""


@dataclass(frozen=True)
class MutantEdit:
    """A replacement of text; `old` occurs in the file exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutation:
    """A named mutation. `promise` is what it breaks: a README.md promise by number, or a contract by id."""

    name: str
    promise: str
    tests: tuple[str, ...]
    edits: tuple[MutantEdit, ...]


@dataclass(frozen=True)
class MutantResult:
    mutation: Mutation
    verdict: str
    seconds: float
    output: str = ""

    @property
    def is_killed(self) -> bool:
        return self.verdict == "caught"


def read_mutations(file: str = "*") -> list[Mutation]:
    """Return the mutations of one file, or of all. Raises TypeError for an unknown field."""
    found = []
    for path in sorted(MUTATIONS.glob(f"{file}.toml")):
        for each in tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]:
            edits = tuple(MutantEdit(**edit) for edit in each.pop("edits"))
            found.append(Mutation(edits=edits, **{**each, "tests": tuple(each["tests"])}))
    return found


def mutate(mutation: Mutation, source: Path) -> dict[Path, str] | None:
    """Return the changed files; None unless the old text of each edit is there exactly once."""
    changed: dict[Path, str] = {}
    for edit in mutation.edits:
        path = source / "holdfast" / edit.file
        text = changed.get(path) or path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            return None
        changed[path] = text.replace(edit.old, edit.new)
    return changed


def run_mutation(mutation: Mutation, source: Path) -> MutantResult:
    """Run the mutation's tests on the copy of `src` in `source`, then restore the copy."""
    started_at = time.monotonic()
    changed = mutate(mutation, source)
    if changed is None:
        return MutantResult(mutation, "stale", 0.0, "an old text is not in its file exactly once")
    before = {path: path.read_text(encoding="utf-8") for path in changed}
    try:
        for path, text in changed.items():
            path.write_text(text, encoding="utf-8")
        code, output = _run_tests(mutation.tests, source)
    finally:
        for path, text in before.items():
            path.write_text(text, encoding="utf-8")
    verdict = {_PASSED: "SURVIVED", _FAILED: "caught"}.get(code, "no test ran")
    return MutantResult(mutation, verdict, time.monotonic() - started_at, output)


def _run_tests(tests: Sequence[str], source: Path) -> tuple[int, str]:
    # In front of the installed package, for pytest and for all processes that tests start.
    path = os.pathsep.join((str(source), str(ROOT)))
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "0", *tests]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=TESTS_S_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return _FAILED, f"no end after {TESTS_S_MAX} s"
    return process.returncode, output


def run_all(mutations: Sequence[Mutation], workers: int) -> Iterator[MutantResult]:
    """Yield each result, in order. Every worker has its own copy of the source."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, ThreadPoolExecutor(workers) as pool:
        folders: Queue[Path] = Queue()
        for number in range(workers):
            folder = Path(place) / str(number)
            shutil.copytree(ROOT / "src", folder, ignore=shutil.ignore_patterns("__pycache__"))
            folders.put(folder)

        def work(mutation: Mutation) -> MutantResult:
            folder = folders.get()
            try:
                return run_mutation(mutation, folder)
            finally:
                folders.put(folder)

        yield from pool.map(work, mutations)


def main() -> None:
    parser = argparse.ArgumentParser(description="Apply mutations and say which survive.")
    parser.add_argument("--workers", type=int, default=2, help="how many at a time")
    parser.add_argument("--file", default="*", help="only the mutations of tests/mutants/FILE.toml")
    parser.add_argument("names", nargs="*", help="only mutations whose names hold one of these")
    options = parser.parse_args()
    wanted = [
        each
        for each in read_mutations(options.file)
        if not options.names or any(name in each.name for name in options.names)
    ]
    width = max((len(each.name) for each in wanted), default=0)
    survivors = []
    for result in run_all(wanted, options.workers):
        named = f"{result.mutation.name:{width}}  {result.mutation.promise:8}"
        print(f"{named}  {result.verdict:8}  {result.seconds:5.1f} s", flush=True)
        if not result.is_killed:
            survivors.append(result)
    for result in survivors:
        print(f"\n{result.mutation.name}: {result.verdict}\n{result.output[-2000:]}", file=sys.stderr)
    print(f"{len(wanted) - len(survivors)} caught, {len(survivors)} not caught")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
