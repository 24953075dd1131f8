"""Commands as rules see them: what is called simple is one program with just these words to a real shell."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX
from holdfast.domain.shell.commands import call_command, parse_simple_command

BASH = next(path for path in ("/bin/bash", "/usr/bin/bash") if Path(path).exists())
PROGRAM = "zz-not-there"
LISTEN = 'command_not_found_handle() { printf "%s\\0" "$#" "$@"; }\n'
"""A shell that is asked for a program which is not there says what it was asked for, each time."""
UNHURRIED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


def as_bash_sees_it(command: str, folder: Path) -> list[list[str]]:
    """The programs that a shell is asked to run, each with its words."""
    ran = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", LISTEN + command],
        cwd=folder, env={"PATH": "/nowhere", "HOME": "/nowhere/at/all", "X": "a value"}, timeout=60,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    said = ran.stdout.decode().split("\0")[:-1]
    found: list[list[str]] = []
    while said:
        count = int(said[0])
        found.append(said[1 : count + 1])
        said = said[count + 1 :]
    return found


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git status", ("git", "status")),
        ("  ls   -la  ", ("ls", "-la")),
        ("ls 'my file' \"and that\" one\\ more", ("ls", "my file", "and that", "one more")),
        ("a'b'\"c\"\\d", ("abcd",)),
        ('echo "\\$HOME \\"x\\" \\\\ \\n"', ("echo", '$HOME "x" \\ \\n')),
        ("echo '$HOME `x` && *'", ("echo", "$HOME `x` && *")),
        ("make A=b", ("make", "A=b")),
        ("cat ''", ("cat", "")),
        ("echo 'grün'", ("echo", "grün")),
        ("/usr/bin/git -c a.b=c log --oneline", ("/usr/bin/git", "-c", "a.b=c", "log", "--oneline")),
    ],
)  # fmt: skip
def test_one_program_with_its_words_is_understood(command: str, words: tuple[str, ...]) -> None:
    assert parse_simple_command(command) == words


@pytest.mark.parametrize(
    "command",
    [
        "", "   ", "''", "a && b", "a || b", "a; b", "a;", "a & b", "a &", "a | b", "a\nb", "a\rb", "a\tb",
        "a\x00b",
        "a\u202eb", "a\u00a0b", "a \ud800", "echo $(b)", "echo `b`", 'echo "$(b)"', 'echo "`b`"', "echo $X",
        "echo ${X}", 'echo "$X"', "echo $'x'", 'echo $"x"', "echo $((1))", "diff <(a) b", "a >(b)", "a > b",
        "a >> b", "a 2>&1", "a < b", "a << b", "a <<< b", "ls *", "ls ?", "ls [ab]", "ls ~", "ls ~root",
        "ls {a,b}", "A=b", "A=b c", "A+=b c", "! a", "if a", "while a", "for a", "time a", "coproc a", "{ a",
        "( a )", "f() a", "[[ a", "a # b", "#a", "a 'b", 'a "b', "a\\", "a \\", "%1", "a ^b", "grün",
        "x" * (SHELL_COMMAND_BYTES_MAX + 1),
    ],
)  # fmt: skip
def test_anything_more_is_not_understood(command: str) -> None:
    assert parse_simple_command(command) is None


LETTERS = st.sampled_from(
    [*"ab-=./:,@%+_ \\'\"$`;&|<>()[]{}*?!#~^\t\n", "é", "if ", "$(", "&&", "A=", "'", '"']
)


@settings(max_examples=400, deadline=None, suppress_health_check=UNHURRIED)
@given(st.lists(LETTERS, max_size=12).map("".join))
def test_a_real_shell_sees_exactly_the_words_that_were_understood(tmp_path: Path, text: str) -> None:
    command = f"{PROGRAM} {text}"
    words = parse_simple_command(command)
    if words is not None:
        assert as_bash_sees_it(command, tmp_path) == [list(words)]
    assert list(tmp_path.iterdir()) == []


PLAIN = st.text("ab '\"\\$`&;|*~!#{}é()<>[]?^=%", max_size=8)


@settings(max_examples=150, deadline=None, suppress_health_check=UNHURRIED)
@given(st.lists(PLAIN, max_size=5))
def test_words_that_are_quoted_are_understood_as_they_were(tmp_path: Path, words: list[str]) -> None:
    command = shlex.join([PROGRAM, *words])
    assert parse_simple_command(command) == (PROGRAM, *words)
    assert as_bash_sees_it(command, tmp_path) == [[PROGRAM, *words]]


def test_the_shell_that_is_asked_does_tell_commands_apart(tmp_path: Path) -> None:
    seen = as_bash_sees_it(f"{PROGRAM} a && {PROGRAM} 'b c'; {PROGRAM} $X", tmp_path)
    assert seen == [[PROGRAM, "a"], [PROGRAM, "b c"], [PROGRAM, "a", "value"]]


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ('{"command": "ls"}', "ls"),
        ('{"timeout_s": 3, "command": "ls"}', "ls"),
        ('{"command": "ls", "command": "rm x"}', None),
        ('{"command": "ls", "timeout_s": 1, "timeout_s": 2}', None),
        ('\u00a0{"command": "ls"} ', "ls"),
        ('{"command": ["ls"]}', None),
        ("[]", None),
        ("{}", None),
        ('{"command": "ls"', None),
        ('[["command", "ls"]]', None),
    ],
)
def test_a_command_is_read_from_a_call_only_without_doubt(arguments: str, command: str | None) -> None:
    assert call_command("shell", arguments) == command
    assert call_command("write_file", arguments) is None
