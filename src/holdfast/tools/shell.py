"""Implement `shell`: run a command in the workspace, stream its output, and stop all that it started."""

import codecs
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.aio.finish import run_to_completion
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId, is_id
from holdfast.domain.limits import (
    OUTPUT_HEAD_BYTES_MAX,
    OUTPUT_TAIL_BYTES_MAX,
    SHELL_COMMAND_BYTES_MAX,
    SHELL_STOP_S_MAX,
    SHELL_TIMEOUT_S,
    SHELL_TIMEOUT_S_MAX,
)
from holdfast.tools.arguments import ToolError, argument_error, failed_result, read_arguments, tool_spec
from holdfast.tools.ports import Emit, ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths, make_workspace
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.sandbox.supervised import CommandSpec, SupervisedProcess, is_finished

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_ALLOWED_VARIABLES = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ",
    "USER",
})  # fmt: skip
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class ShellArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="What to run, as for `bash -c`.")]
    timeout_s: Annotated[
        int, Meta(ge=1, le=SHELL_TIMEOUT_S_MAX, description="Seconds after which it is stopped.")
    ] = SHELL_TIMEOUT_S


def _read_shell_arguments(text: str) -> ShellArguments:
    arguments = read_arguments(text, ShellArguments)
    if "\0" in arguments.command or len(arguments.command.encode("utf-8")) > SHELL_COMMAND_BYTES_MAX:
        raise ToolError(f"a command holds no NUL and has at most {SHELL_COMMAND_BYTES_MAX:,} bytes")
    return arguments


class ShellTool:
    """Run commands under a supervisor in `sandbox`; `folder` holds a lock file for each running call."""

    spec = tool_spec(
        "shell",
        "Run a shell command in the workspace. It has no input and no terminal, cannot become another user,"
        " and what it leaves in the background is stopped when it ends. Of long output the first"
        f" {OUTPUT_HEAD_BYTES_MAX} and the last {OUTPUT_TAIL_BYTES_MAX} bytes are shown.",
        ShellArguments,
    )
    effect: Effect = "unsafe"
    needs_approval = True

    def __init__(self, folder: Path, environ: Mapping[str, str], sandbox: Sandbox) -> None:
        self._locks = folder / "calls"
        self._protected_paths = ProtectedPaths(folder)
        self._sandbox = sandbox
        self._environ = clean_environment(environ)
        self._shell = next(shell for shell in _SHELLS if Path(shell).exists())

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, _read_shell_arguments)

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            spec = self._command_spec(call, _read_shell_arguments(call.arguments))
            supervised = SupervisedProcess.start(spec)
        except ToolError as refusal:
            return failed_result(refusal)
        except OSError as error:
            return failed_result(ToolError(f"the command could not be started: {error}"))
        decoder, ending, all_stopped = OutputDecoder(call.emit), "", False
        try:
            async for tag, body in supervised.frames():
                if tag == "x":
                    ending = body.decode()
                else:
                    decoder.decode(tag, body)
        finally:
            all_stopped = await run_to_completion(supervised.stop(SHELL_STOP_S_MAX))
        decoder.write_line(
            _ending_text(ending or ("lost" if supervised.has_started else "never begun"), spec.timeout_s)
        )
        if not all_stopped:
            decoder.write_line("some of what it started could not be stopped")
        return ToolResult("done" if ending == "exit 0" and all_stopped else "failed")

    def _command_spec(self, call: ToolRun, arguments: ShellArguments) -> CommandSpec:
        command = arguments.command
        make_workspace(call.workspace)
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._lock_path(call.call_id).absolute()
        workspace = self._protected_paths.resolve_workspace(call.workspace)
        return CommandSpec(
            command, self._shell, workspace, lock, arguments.timeout_s, self._environ, self._sandbox
        )

    async def is_finished(self, call_id: CallId) -> bool:
        return is_finished(self._lock_path(call_id))

    def _lock_path(self, call_id: CallId) -> Path:
        assert is_id(call_id), f"{call_id!r} is not an id"
        return self._locks / f"{call_id}.lock"


class OutputDecoder:
    """Decode each output stream as UTF-8, replacing invalid bytes, and emit the text."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._decoders = {tag: codecs.getincrementaldecoder("utf-8")("replace") for tag in "oe"}
        self._left_out = False
        self._at_line_start = True

    def decode(self, tag: str, body: bytes) -> None:
        if tag == "n":
            self._mark_left_out(int(body))
        elif tag in self._decoders:
            if self._left_out:  # The first bytes may be the rest of a character.
                body, self._left_out = body.lstrip(bytes(range(0x80, 0xC0))), False
            self._emit_text(self._decoders[tag].decode(body), "stdout" if tag == "o" else "stderr")

    def _mark_left_out(self, count: int) -> None:
        for decoder in self._decoders.values():
            decoder.reset()
        self._left_out = True
        self.write_line(f"[{count:,} bytes were not kept]")

    def write_line(self, line: str) -> None:
        """Emit a line of our own after the command's output."""
        for tag, decoder in self._decoders.items():
            self._emit_text(decoder.decode(b"", final=True), "stdout" if tag == "o" else "stderr")
        self._emit_text(("" if self._at_line_start else "\n") + line + "\n", "stdout")

    def _emit_text(self, text: str, stream: Literal["stdout", "stderr"]) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            self._emit(text.replace("\0", "\ufffd"), stream)  # Neither models nor stores accept a NUL.


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command may see: a fixed list, so no key or token."""
    allowed = {
        name: value for name, value in environ.items() if name in _ALLOWED_VARIABLES or name.startswith("LC_")
    }
    return {"PATH": _DEFAULT_PATH, **allowed, "TERM": "dumb"}


def _ending_text(ending: str, timeout_s: int) -> str:
    how, _, number = ending.partition(" ")
    if how == "exit":
        return f"exit code {number}"
    if how == "signal":
        return f"killed by {_signal_name(int(number))}"
    if how == "timeout":
        return f"stopped at its time limit of {timeout_s} s"
    if how == "busy":
        return "not run: an earlier run of this call is still at work"
    if how == "never":
        return "the command could not be started: its supervisor ended first"
    return "stopped from outside; whether it had finished is not known"


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
