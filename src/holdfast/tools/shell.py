"""`shell`: a command in the workspace, streamed, bounded, and gone when the call is."""

import codecs
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.aio.finish import see_through
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
from holdfast.tools.arguments import Refused, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.ports import Emit, ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import Vault, make_workspace
from holdfast.tools.sandbox.sandbox import Walls
from holdfast.tools.sandbox.supervised import Order, Supervised, is_over

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_PASSED_ON = frozenset({
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ",
    "USER",
})  # fmt: skip
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="What to run, as for `bash -c`.")]
    timeout_s: Annotated[
        int, Meta(ge=1, le=SHELL_TIMEOUT_S_MAX, description="Seconds after which it is stopped.")
    ] = SHELL_TIMEOUT_S


def _read(text: str) -> Arguments:
    """Raises Refused."""
    arguments = read_arguments(text, Arguments)
    if "\0" in arguments.command or len(arguments.command.encode("utf-8")) > SHELL_COMMAND_BYTES_MAX:
        raise Refused(f"a command holds no NUL and has at most {SHELL_COMMAND_BYTES_MAX:,} bytes")
    return arguments


class Shell:
    """Runs a command under a supervisor, behind `walls`. `folder` holds a lock for each call at work."""

    spec = spec_of(
        "shell",
        "Run a shell command in the workspace. It has no input and no terminal, cannot become another user,"
        " and what it leaves in the background is stopped when it ends. Of long output the first"
        f" {OUTPUT_HEAD_BYTES_MAX} and the last {OUTPUT_TAIL_BYTES_MAX} bytes are shown.",
        Arguments,
    )
    effect: Effect = "unsafe"
    asks = True

    def __init__(self, folder: Path, environ: Mapping[str, str], walls: Walls) -> None:
        self._locks = folder / "calls"
        self._vault = Vault(folder)
        self._walls = walls
        self._environ = clean_environment(environ)
        self._shell = next(shell for shell in _SHELLS if Path(shell).exists())

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, _read)

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            order = self._order(call, _read(call.arguments))
            supervised = Supervised.start(order)
        except Refused as refusal:
            return failed(refusal)
        except OSError as error:
            return failed(Refused(f"the command could not be started: {error}"))
        relay, ending, is_over = Relay(call.emit), "", False
        try:
            async for tag, body in supervised.frames():
                if tag == "x":
                    ending = body.decode()
                else:
                    relay.take(tag, body)
        finally:
            is_over = await see_through(supervised.end(SHELL_STOP_S_MAX))
        relay.say(_told(ending or ("lost" if supervised.has_begun else "never begun"), order.timeout_s))
        if not is_over:
            relay.say("some of what it started could not be stopped")
        return ToolResult("done" if ending == "exit 0" and is_over else "failed")

    def _order(self, call: ToolRun, arguments: Arguments) -> Order:
        command = arguments.command
        make_workspace(call.workspace)
        self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._lock(call.call_id).absolute()
        workspace = self._vault.admitted(call.workspace)
        return Order(command, self._shell, workspace, lock, arguments.timeout_s, self._environ, self._walls)

    async def is_gone(self, call_id: CallId) -> bool:
        return is_over(self._lock(call_id))

    def _lock(self, call_id: CallId) -> Path:
        assert is_id(call_id), f"{call_id!r} is not an id"
        return self._locks / f"{call_id}.lock"


class Relay:
    """Hands output on as text: each stream decoded on its own, what is not UTF-8 replaced."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._decoders = {tag: codecs.getincrementaldecoder("utf-8")("replace") for tag in "oe"}
        self._left_out = False
        self._at_line_start = True

    def take(self, tag: str, body: bytes) -> None:
        if tag == "n":
            self._skip(int(body))
        elif tag in self._decoders:
            if self._left_out:  # The first bytes may be the rest of a character.
                body, self._left_out = body.lstrip(bytes(range(0x80, 0xC0))), False
            self._say(self._decoders[tag].decode(body), "stdout" if tag == "o" else "stderr")

    def _skip(self, count: int) -> None:
        for decoder in self._decoders.values():
            decoder.reset()
        self._left_out = True
        self.say(f"[{count:,} bytes were not kept]")

    def say(self, line: str) -> None:
        """A line of our own, apart from what the command wrote."""
        for tag, decoder in self._decoders.items():
            self._say(decoder.decode(b"", final=True), "stdout" if tag == "o" else "stderr")
        self._say(("" if self._at_line_start else "\n") + line + "\n", "stdout")

    def _say(self, text: str, stream: Literal["stdout", "stderr"]) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            self._emit(text.replace("\0", "\ufffd"), stream)  # Neither models nor stores take a NUL.


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command may know of the server's environment: named variables only, so no key or token."""
    kept = {name: value for name, value in environ.items() if name in _PASSED_ON or name.startswith("LC_")}
    return {"PATH": _DEFAULT_PATH, **kept, "TERM": "dumb"}


def _told(ending: str, timeout_s: int) -> str:
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
