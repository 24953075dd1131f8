"""Parse shell commands for rules, so that similar text is not taken for the same command.

A rule allows one simple command: a program and its words. The parser deliberately rejects anything that could
make a shell do more; then a person is asked. `domain.shell.denylist` works the other way round, for commands
that must never run.
"""

import json
import string
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX

SHELL_TOOL = "shell"
"""The tool whose calls are commands."""

_DISKS = (
    "sd[a-z]", "sd[a-z][0-9]*", "sd[a-z][a-z]", "sd[a-z][a-z][0-9]*", "hd*", "vd*", "xvd*", "nvme*",
    "mmcblk*",
    "disk*", "disk/*/*", "rdisk*", "md*", "dm-*", "mapper/*",
)  # fmt: skip
_SYSTEM = ("bin", "boot", "dev", "etc", "home", "lib", "lib64", "proc", "root", "sbin", "sys", "usr", "var")
_STOPS = ("poweroff", "reboot", "halt")
NEVER_RUN = (
    "shutdown *", "poweroff *", "reboot *", "halt *", "init 0", "init 6", "telinit 0", "telinit 6",
    *(f"{control} {stop} *" for control in ("systemctl", "loginctl") for stop in _STOPS),
    *(f"systemctl isolate {stop}.target *" for stop in _STOPS), "systemctl kexec *",
    "systemctl soft-reboot *",
    "kexec -e *", "kexec --exec *", "> /proc/sysrq-trigger",
    "mkfs* *", "mke2fs *", "mkswap *", "wipefs *", "blkdiscard *", "sgdisk -Z *", "sgdisk --zap-all *",
    "sfdisk --delete *", "cryptsetup luksFormat *", "zpool destroy *", "nvme format *",
    "rm -r / *", "rm -r '/*' *", "rm -r /{* *", "rm -r ~ *", "rm -r ~/'*' *", "rm --no-preserve-root *",
    *(f"rm -r /{folder} *" for folder in _SYSTEM),
    "find / -delete", "find / -type f -delete", "find ~ -delete", "chmod -R / *", "chown -R / *",
    *(f"{writes}/dev/{disk} *" for disk in _DISKS for writes in ("dd of=", "shred ", "tee ", "cp ", "> ")),
    ":(){ :|:& };:",
)  # fmt: skip
"""The default of the setting `never_run`: commands that neither a rule nor a person can allow."""

RUNS_ANYTHING = frozenset({
    # These run the program that further words name.
    "sudo", "doas", "su", "runuser", "pkexec", "env", "xargs", "parallel", "nice", "ionice", "nohup",
    "setsid", "stdbuf", "timeout", "time", "watch", "command", "builtin", "exec", "chroot", "unshare",
    "nsenter", "systemd-run", "script", "strace", "ltrace", "gdb", "flock", "busybox", "toybox", "find", "fd",
    "entr", "start-stop-daemon", "chrt", "taskset", "numactl", "setpriv", "expect", "screen", "tmux", "at",
    "batch", "capsh", "bwrap", "fakeroot", "fakechroot", "proot", "firejail", "prlimit", "choom",
    "dbus-run-session", "dbus-launch", "xvfb-run", "runcon", "sg", "newgrp", "run-parts", "ld.so",
    "ld-linux.so",
    "ld-linux-x86-64.so", "ld-linux-aarch64.so", "ld-musl-x86_64.so", "ld-musl-aarch64.so", "valgrind",
    "perf",
    "systemd-inhibit", "caffeinate", "cgexec", "uclampset", "setarch", "linux64", "catchsegv", "torsocks",
    "proxychains", "hyperfine", "chpst", "softlimit", "direnv", "mise", "asdf", "with-contenv", "dtach",
    "abduco",
    "unbuffer", "rlwrap", "tsp", "crontab", "socat", "ncat", "nc",
    # These run the code that further words contain, or the file that they name.
    "sh", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "rbash", "eval", "source", ".", "trap",
    "alias", "python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit",
    "tclsh", "awk", "gawk", "mawk", "nawk", "sed", "ed", "ex", "vi", "vim", "nvim", "emacs", "osascript",
    "pwsh", "groovy", "jshell", "ghci", "guile", "java", "npx", "bunx", "pnpx", "uvx", "pipx", "m4", "dc",
    "bc",
    "rscript", "r", "julia", "tsx", "ts-node", "view", "vimdiff", "rview", "rvim", "gvim", "ipython",
    "bpython",
    "kotlin", "scala", "elixir", "erl", "iex", "irb", "octave", "swift", "racket", "sbcl", "clojure", "raku",
    "wish", "sqlite3",
    # These run something on another machine, or in a container.
    "ssh", "docker", "podman", "nerdctl", "lxc", "kubectl", "machinectl", "rsync", "scp", "sftp",
    # Their options can name a program to run, before any word that says what they are to do.
    "git", "tar", "make", "gmake", "curl", "wget",
})  # fmt: skip
"""Programs that a rule ending in `*` would let do anything; `rules` refuses it."""
RUNNERS: Mapping[str, frozenset[str]] = MappingProxyType({
    "npm": frozenset({"exec", "x", "explore"}), "pnpm": frozenset({"exec", "dlx"}),
    "yarn": frozenset({"exec", "dlx", "node"}), "uv": frozenset({"run", "tool", "x"}),
    "poetry": frozenset({"run", "shell"}), "pipenv": frozenset({"run", "shell"}), "pdm": frozenset({"run"}),
    "hatch": frozenset({"run", "shell"}), "rye": frozenset({"run"}), "conda": frozenset({"run"}),
    "cargo": frozenset({"run", "r"}), "rustup": frozenset({"run"}),
    "go": frozenset({"run", "tool", "test", "vet"}),
    "bundle": frozenset({"exec"}), "dotnet": frozenset({"run", "exec"}),
    "nix": frozenset({"run", "shell", "develop"}),
})  # fmt: skip
"""The same for programs with such subcommands: refused with one of those, or with none."""
GIT_VERBS = frozenset({
    "add", "blame", "branch", "checkout", "commit", "diff", "log", "restore", "show", "stash", "status",
    "switch", "tag",
})  # fmt: skip
"""The `git` subcommands that a rule may allow with any further words: none runs another program."""

_PLAIN = frozenset(string.ascii_letters + string.digits + "_@%+=:,./-")
"""Characters that are literal outside quotes, at any place."""
_KEYWORDS = frozenset({
    "!", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for", "function", "if", "in",
    "select", "then", "until", "while", "{", "}", "time", "[[", "]]",
})  # fmt: skip


class _NotSimple(Exception):
    """A command contains something that this parser does not support."""


class UnreadableArguments(Exception):
    """Arguments are ambiguous or invalid; the message says why to their author."""


def validate_arguments(arguments: str) -> str:
    """Return a call's arguments as JSON that every reader reads alike. Raises UnreadableArguments.

    Both the tools and the checks of a call read through this function, so what is checked is what runs.
    """
    text = arguments.strip() or "{}"
    try:
        json.loads(text, object_pairs_hook=_reject_duplicate_keys)
    except RecursionError:
        raise UnreadableArguments("nested too deeply") from None
    except ValueError as error:
        raise UnreadableArguments(f"not valid JSON ({error})") from None
    return text


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise UnreadableArguments(f"`{name}` is there twice")
        fields[name] = value
    return fields


def command_from_arguments(arguments: str) -> str | None:
    """Return the command in a shell call's arguments, or None. Raises UnreadableArguments."""
    try:
        fields = msgspec.json.decode(validate_arguments(arguments))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UnreadableArguments(f"not valid JSON ({error})") from None
    found = fields.get("command") if isinstance(fields, dict) else None
    return found if isinstance(found, str) else None


def call_command(tool: str, arguments: str) -> str | None:
    """Return the command that a call runs; None if it is no shell call or is ambiguous."""
    try:
        return command_from_arguments(arguments) if tool == SHELL_TOOL else None
    except UnreadableArguments:
        return None


def parse_simple_command(command: str) -> tuple[str, ...] | None:
    """Return the words of a command that runs one program and nothing else; None for any other.

    It has no operators, substitutions, variables, redirections, wildcards, assignments or keywords, and no
    line ends or invisible characters. A shell sees exactly these words.
    """
    if not command.isprintable() or len(command) > SHELL_COMMAND_BYTES_MAX:
        return None
    try:
        words = _WordReader(command).read()
    except _NotSimple:
        return None
    first = words[0] if words else ""
    if not first or first in _KEYWORDS or "=" in first or first.startswith("%"):
        return None
    return tuple(words)


class _WordReader:
    """Read words from left to right; raise _NotSimple at the first unsupported character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self) -> list[str]:
        words: list[str] = []
        while self._skip_spaces():
            words.append(self._word())
        return words

    def _skip_spaces(self) -> bool:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1
        return self._at < len(self._text)

    def _word(self) -> str:
        pieces: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != " ":
            pieces.append(self._reader()())
        return "".join(pieces)

    def _reader(self) -> Callable[[], str]:
        match self._text[self._at]:
            case "'":
                return self._single_quoted
            case '"':
                return self._double_quoted
            case "\\":
                return self._escaped
            case char if char in _PLAIN:
                return self._next
        raise _NotSimple

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise _NotSimple
        self._at += 1
        return self._text[self._at - 1]

    def _single_quoted(self) -> str:
        end = self._text.find("'", self._at + 1)
        if end < 0:
            raise _NotSimple
        inside, self._at = self._text[self._at + 1 : end], end + 1
        return inside

    def _double_quoted(self) -> str:
        self._next()
        pieces: list[str] = []
        while (char := self._next()) != '"':
            if char in "$`":
                raise _NotSimple
            if char == "\\":
                after = self._next()
                # A backslash in double quotes escapes only these.
                char = after if after in '$`"\\' else char + after
            pieces.append(char)
        return "".join(pieces)

    def _escaped(self) -> str:
        self._next()
        char = self._next()
        if not char.isascii():
            raise _NotSimple
        return char
