"""What is never run is found wherever it hides, and what merely looks like it may run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.errors import CommandForbidden
from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX
from holdfast.domain.shell.commands import NEVER_RUN
from holdfast.domain.shell.denylist import (
    STEPS_MAX,
    TOO_COMPLEX,
    UNCLEAR,
    Denylist,
    step_budget,
    verdict_error,
)
from holdfast.tools.arguments import ToolError, read_arguments
from holdfast.tools.shell import ShellArguments

USUAL = Denylist(NEVER_RUN)
HIDINGS = (
    "{}", "sudo {}", "sudo -u root {}", "sudo -uroot -E {}", "A=b {}", "env A=b {}", "nohup {} &", "exec {}",
    "timeout -k 1 5 {}", "nice -n 5 {}", "xargs -n 1 {}", "command {}", "busybox {}", "cd x && {}",
    "false || {}",
    "cd x; {}", "a | {}", "a\n{}", "({})", "{{ {}; }}", "echo $({})", 'echo "a $({}) b"', "echo `{}`",
    "diff <({}) x", 'bash -c "{}"', "sh -lc '{}'", "su - somebody -c '{}'", "eval {}", "eval '{}'",
    "for i in 1 2; do {}; done", "if a; then {}; fi", "while {}; do a; done", "! {}", "f() {{ {}; }}; f",
    "sh <<END\n{}\nEND", "bash <<< '{}'", "echo '{}' | sh", "find . -exec {} \\;", "sudo sh -c 'cd /; {}'",
    "sudo env A=b bash -c \"sh -c '{}'\"", "a # b\n{}", "case x in y) {};; esac",
    "cat <<END | bash\n{}\nEND", "echo '{}' | sudo bash", "printf '{}\\n' | sh", "printf '%s\\n' '{}' | sh",
    "echo '{}' | tee x | sh", "(echo '{}') | sh", 'echo "${{x:-$({})}}"', "echo ${{x:-`{}`}}",
    "echo $(case x in x) {};; esac)", "function x {{ {}; }}; x", "echo $'it\\'s'; {}", "echo $\"a\"; {}",
    "(( x = 1 << 2 ))\n{}", "x=$((1<<2))\n{}", "echo \"$(echo ')')\"; {}", "flock x -c '{}'",
    "watch -n 1 '{}'",
    "script -c '{}' x", "trap '{}' EXIT", "at now <<< '{}'", "env -S '{}'", "nsenter -t 1 -m {}",
    "x=$(cat <<END\nit's\nEND\n); {}", "tee >({})",
)  # fmt: skip
COMMANDS = (
    "reboot", "/sbin/shutdown -h now", "halt", "poweroff -f", "init 0", "systemctl reboot",
    "mkfs -t ext4 /dev/sda1",
    "mkfs.ext4 /dev/sda1", "wipefs -a /dev/sda", "dd if=/dev/zero of=/dev/sda bs=1M", "rm -rf /",
    "rm -r -f /",
    "rm -fr / tmp", "rm -Rf //", "rm --recursive --force /", "rm -rf -- /", "rm -rf /./../", "rm -rf /*",
    "rm -rf ~", "rm -rf ~/", "rm -rf ~/*", "rm -rf $HOME", "rm -rf ${{HOME}}/", "rm -rf --no-preserve-root x",
    "cat x > /dev/sda", "cat x >>/dev/nvme0n1", "tee /dev/sdb", "shred /dev/vda", "r\\eboot",
    "cp x /dev/sda", "dd if=x of=/dev/disk/by-id/x", "find / -delete", "find / -type f -delete",
    "rm -rf /{{bin,etc}}", "rm -rf x /etc", "systemctl isolate reboot.target", "loginctl poweroff",
    "kexec -e",
    "sgdisk -Z /dev/sda", "chmod -R 777 /", "cat x > /dev/sdab1", "cat x 1<> /dev/sda",
)  # fmt: skip
HARMLESS = (
    "ls", "rm -rf build", "rm -rf /tmp/x", "rm -f /", "rm -rf ./*", "rm -rf *", "rm -r ~/x",
    "rm -rf \"$TMP\"",
    "echo reboot", "grep reboot /var/log/syslog", "sudo grep halt x", "man reboot", "xargs grep reboot",
    "git commit -m 'reboot'", "cat > /dev/null", "echo x 2>/dev/null", "dd if=/dev/sda of=image", "# reboot",
    "cat > readme <<END\nreboot\nEND", "systemctl status", "init 3", "echo 'rm -rf /'", "ls /",
    "sudo -u reboot ls",
    "echo x > /dev/sdout", "cd /tmp && rm -rf *", "cd x && rm -rf *", "cd / && rm -rf tmp/x", "cd / && ls *",
    "find . | xargs rm -rf", "find / -name x -type l -maxdepth 2", "find /tmp/x -delete", "(( a > b ))",
    "find / -name '*.pyc' -delete", "echo '$(reboot)'", "echo reboot | tee x", "chmod -R 755 /tmp/x",
    "python -c 'reboot'", "echo \"rm -rf ~\" > notes", "shutdownx", "a --reboot", "cp reboot x",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_denylist_finds_nested_commands(command: str) -> None:
    missed = [text for hiding in HIDINGS if not USUAL.check_command(text := hiding.format(command.format()))]
    # A shell takes one layer of backslashes or quotes away; the second one is a word of another name.
    assert [text for text in missed if "\\e" not in text] == []


@pytest.mark.parametrize(
    "command",
    [
        "cd / && rm -rf *", "cd /; rm -rf ./*", "(cd / && rm -rf .)", "cd ~ && rm -rf *", "cd && rm -rf *",
        "sh -c 'cd /tmp/.. && rm -rf *'", "cd /home; cd ..; rm -r *", "pushd /; rm -rf *", "cd /; rm -rf etc",
        "ls / | xargs rm -rf", "find / | xargs rm -rf", "echo / | xargs -n 1 rm -rf",
    ],
)  # fmt: skip
def test_denylist_considers_the_folder_and_piped_input(command: str) -> None:
    assert USUAL.check_command(command)


@pytest.mark.parametrize("bomb", [":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "x; :(){ :|: & };:"])
def test_a_fork_bomb_is_found_under_any_name(bomb: str) -> None:
    assert USUAL.check_command(bomb)


@pytest.mark.parametrize("command", HARMLESS)
def test_similar_harmless_commands_are_allowed(command: str) -> None:
    assert USUAL.check_command(command) == ""


def test_the_verdict_is_the_matching_pattern() -> None:
    assert USUAL.check_call("shell", '{"command": "sudo reboot now"}') == "reboot *"
    assert USUAL.check_call("write_file", '{"command": "reboot"}') == ""


@pytest.mark.parametrize(
    ("pattern", "found", "not_found"),
    [
        ("git push", ("git push", "git push --force"), ("git push origin", "git pull", "git")),
        (
            "git push *",
            ("git push", "git push origin main", "/usr/bin/git push"),
            ("git", "git status push-x"),
        ),
        ("kill*", ("killall5", "kill"), ("kill 1", "xkill")),
        ("kill* *", ("killall5 x", "kill 1"), ("skill 1",)),
        ("cat /etc/*", ("cat /etc/passwd", "cat //etc/passwd"), ("cat /etc/ssl/x", "cat x")),
        ("cat '/etc/*'", ("cat '/etc/*'", "cat /etc/*"), ("cat /etc/passwd",)),
        ("curl | sh", ("curl|sh",), ("curl x | sh",)),
        ("> /etc/*", ("a > /etc/passwd", "a >| /etc/hosts"), ("a < /etc/passwd", "cat /etc/passwd")),
    ],
)
def test_a_custom_denylist_matches_its_patterns(
    pattern: str, found: tuple[str, ...], not_found: tuple[str, ...]
) -> None:
    mine = Denylist((pattern,))
    assert [text for text in found if not mine.check_command(text)] == []
    assert [text for text in not_found if mine.check_command(text)] == []


def test_an_empty_list_forbids_nothing() -> None:
    assert [text for text in COMMANDS if Denylist(()).check_command(text)] == []


@given(st.text("ab '\"\\$`&;|*~!#{}()<>[]\n=-/", max_size=60))
def test_any_text_can_be_checked(text: str) -> None:
    USUAL.check_command(text)
    assert USUAL.check_command(f"reboot\n{text}") == "reboot *"


SHAPES = (
    "x", "a;", "a|", "$(", "$(a)", "`a`", "a `b ", "env ", "sudo ", "sudo -u ", "f()", "find -exec ",
    "find -exec sh -c 'a b' ; ", "sh -c ", 'sh -c "', "'a' ", '"$(', '"${a:-', "${a}", "<<a\n", "<<a ",
    "<(", "((",
    "> a ", "echo a|sh|", "echo a | xargs ", "printf 'a' | sh;", "case a in a) ", "cat <<a|sh\nb\na\n",
    "{ ", "\\",
    "cd /;rm a;", "rm -r /dev/sda1 ", '"\\a', "watch ", "trap ", "eval ",
)  # fmt: skip


@pytest.mark.parametrize("piece", SHAPES)
@pytest.mark.parametrize("start", ["", "find ", "bash -c '", "dd ", "sh <<a\n", 'echo "'])
def test_checking_the_longest_command_takes_bounded_steps(start: str, piece: str) -> None:
    command = (start + piece * SHELL_COMMAND_BYTES_MAX)[:SHELL_COMMAND_BYTES_MAX]
    steps = step_budget(command)
    verdict = USUAL.check_command(command, steps)
    assert steps.given <= STEPS_MAX
    # Past the last step nothing more is looked at, and then the command does not run.
    assert steps.left >= 0 or verdict == TOO_COMPLEX


@pytest.mark.parametrize(
    "command",
    [
        ("find -exec " * 9000)[:99990] + " reboot", "sudo " * 15000 + "reboot", "$(" * 100 + "reboot",
        "a;" * 49000 + "reboot",
    ],
)  # fmt: skip
def test_a_command_too_complex_to_check_is_refused(command: str) -> None:
    assert USUAL.check_command(command) == TOO_COMPLEX
    assert str(verdict_error(TOO_COMPLEX)) == (
        "This command is too long or too nested to be checked"
        " against the list of commands that are never run."
    )
    assert isinstance(verdict_error(TOO_COMPLEX), CommandForbidden)
    assert str(verdict_error("reboot *")).endswith(": reboot *")


@pytest.mark.parametrize(
    "command",
    [
        "cat > x <<'END'\n" + "a line of 'text' $(that is) \"not\" a; command\n" * 1900 + "END",
        'echo "' + '{\\"a\\": \\"b c d\\"},' * 1500 + '" > x',
        "set -e\n" + "for f in a b c; do\n  cp \"$f\" /tmp/x || exit 1\ndone\n" * 150,
    ],
)  # fmt: skip
def test_long_commands_as_models_write_them_may_run(command: str) -> None:
    assert USUAL.check_command(command) == ""


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "true", "command": "reboot"}', '{"command": "reboot", "command": "true"}',
        '{"comm\\u0061nd": "reboot", "command": "true"}',
        '{"command": "true", "timeout_s": 1, "timeout_s": 2}',
        '{"command": "reboot"', '{"command": "reboot"} {}', '{"command": "reboot", "timeout_s": NaN}',
    ],
)  # fmt: skip
def test_ambiguous_arguments_are_refused(arguments: str) -> None:
    assert USUAL.check_call("shell", arguments) == UNCLEAR
    assert Denylist(()).check_call("shell", arguments) == ""
    with pytest.raises(ToolError):
        read_arguments(arguments, ShellArguments)


@pytest.mark.parametrize("around", ["", " ", "\n", "\u00a0", "\x1c", "\u3000"])
def test_the_checked_command_is_the_one_the_tool_runs(around: str) -> None:
    arguments = around + '{"comm\\u0061nd": "sudo reb\\u006fot"}' + around
    assert read_arguments(arguments, ShellArguments).command == "sudo reboot"
    assert USUAL.check_call("shell", arguments) == "reboot *"
