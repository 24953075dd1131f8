"""Implement `search_files`: search lines or paths of the workspace by a regular expression."""

import asyncio
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.aio.finish import run_to_completion
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import (
    PATH_DEPTH_MAX,
    SEARCH_FILES_BYTES_MAX,
    SEARCH_FILES_CONTEXT_LINES_MAX,
    SEARCH_FILES_FILE_BYTES_MAX,
    SEARCH_FILES_LINE_CHARS_MAX,
    SEARCH_FILES_MAX,
    SEARCH_FILES_MEMORY_BYTES_MAX,
    SEARCH_FILES_PATTERN_CHARS_MAX,
    SEARCH_FILES_S_MAX,
    SEARCH_FILES_SCAN_MAX,
)
from holdfast.tools.arguments import (
    ToolError,
    argument_error,
    done_result,
    failed_result,
    read_arguments,
    tool_spec,
)
from holdfast.tools.files.workspace import open_walk
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import search_program; search_program.main()"
_FOLDER = Path(__file__).parent
_CHUNK_BYTES = 65_536
_REFUSED_EXIT_CODE = 2
_OUT_OF_TIME = f"[stopped after {SEARCH_FILES_S_MAX} s; not everything was looked at]"


class SearchFilesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        str, Meta(description="A regular expression as Python has them, looked for in each line.")
    ]
    path: Annotated[str, Meta(description="Folder or file in the workspace to look in.")] = "."
    glob: Annotated[
        str, Meta(description="Only files whose path fits, such as *.py or src/**/*.{ts,tsx}.")
    ] = ""
    names: Annotated[bool, Meta(description="Look for paths that fit the pattern, not for lines.")] = False
    case_sensitive: Annotated[bool, Meta(description="Tell capitals from small letters.")] = True
    context_lines: Annotated[
        int, Meta(ge=0, le=SEARCH_FILES_CONTEXT_LINES_MAX, description="Lines to show around each.")
    ] = 0
    max_results: Annotated[
        int, Meta(ge=1, le=SEARCH_FILES_MAX, description="Lines or paths to give at most.")
    ] = 100
    ignored: Annotated[bool, Meta(description="Look also at what .gitignore files leave out.")] = False


class SearchFilesTool:
    """Search files in a child process, which can be killed."""

    spec = tool_spec(
        "search_files",
        "Search the files of the workspace: gives `path:line: text` for every line that fits, or with `names`"
        " the paths that do. Passes over .git, binary files and what .gitignore leaves out; takes no links.",
        SearchFilesArguments,
    )
    effect: Effect = "pure"
    needs_approval = False

    def __init__(self, protected_paths: ProtectedPaths, seconds_max: float = SEARCH_FILES_S_MAX) -> None:
        self._protected_paths = protected_paths
        self._seconds_max = seconds_max

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, partial(read_arguments, shape=SearchFilesArguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = read_arguments(call.arguments, SearchFilesArguments)
            for text in (arguments.pattern, arguments.glob):
                if len(text) > SEARCH_FILES_PATTERN_CHARS_MAX:
                    raise ToolError(f"a pattern has at most {SEARCH_FILES_PATTERN_CHARS_MAX:,} characters")
            if not arguments.pattern:
                raise ToolError("pattern is empty")
            root, path_parts = await run_to_completion(asyncio.to_thread(self._open, call, arguments.path))
            try:
                return done_result(await self._search(arguments, root, path_parts))
            finally:
                os.close(root)
        except ToolError as refusal:
            return failed_result(refusal)
        except UnicodeError:
            return failed_result(ToolError("a path must be text"))  # A link's target may not be text.
        except OSError as error:
            return failed_result(ToolError(f"the search could not be started: {error}"))

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The search program ends once nobody reads its output.

    def _open(self, call: ToolRun, path: str) -> tuple[int, list[str]]:
        """Return the open workspace, and the names of the path below it without links."""
        with open_walk(call.workspace, path, self._protected_paths) as walk:
            name = walk.open_parent(path)
            found = walk.path_for(name)
            if name:
                os.stat(name, dir_fd=walk.folder, follow_symlinks=False)
            return os.dup(walk.root), [step for step in found.split("/") if step]

    async def _search(self, arguments: SearchFilesArguments, root: int, path_parts: list[str]) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-W", "ignore", "-c", _PROGRAM, str(_FOLDER),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=(root,),
        )  # fmt: skip
        output, has_exited = bytearray(), False
        try:
            assert process.stdin is not None and process.stdout is not None, "both were asked for"
            async with asyncio.timeout(self._seconds_max):
                process.stdin.write(msgspec.json.encode(self._request(arguments, root, path_parts)))
                process.stdin.close()
                while chunk := await process.stdout.read(_CHUNK_BYTES):
                    output += chunk[: 2 * SEARCH_FILES_BYTES_MAX - len(output)]
                has_exited = await process.wait() >= 0
        except TimeoutError:
            pass
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await run_to_completion(process.wait())
        text = bytes(output).decode("utf-8", "replace")
        if has_exited and process.returncode == _REFUSED_EXIT_CODE:
            raise ToolError(text.strip())
        # A killed search may end in the middle of a line, which must not look complete.
        return text if has_exited else text[: text.rfind("\n") + 1] + _OUT_OF_TIME

    def _request(self, arguments: SearchFilesArguments, root: int, path_parts: list[str]) -> dict[str, Any]:
        return {
            "root": root,
            "trail": path_parts,
            "closed": self._protected_paths.identities(),
            "pattern": arguments.pattern,
            "glob": arguments.glob,
            "names": arguments.names,
            "case": arguments.case_sensitive,
            "context": arguments.context_lines,
            "ignored": arguments.ignored,
            "results_max": arguments.max_results,
            "bytes_max": SEARCH_FILES_BYTES_MAX,
            "line_chars_max": SEARCH_FILES_LINE_CHARS_MAX,
            "file_bytes_max": SEARCH_FILES_FILE_BYTES_MAX,
            "scan_max": SEARCH_FILES_SCAN_MAX,
            "depth_max": PATH_DEPTH_MAX,
            "cpu_s_max": SEARCH_FILES_S_MAX + 1,
            "memory_bytes_max": SEARCH_FILES_MEMORY_BYTES_MAX,
        }
