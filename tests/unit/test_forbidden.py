"""What is never run is found wherever it hides, and what merely looks like it may run."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.commands import NEVER_RUN
from holdfast.domain.forbidden import Forbidden
from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX

USUAL = Forbidden(NEVER_RUN)
HIDINGS = (
    "{}", "sudo {}", "sudo -u root {}", "sudo -uroot -E {}", "A=b {}", "env A=b {}", "nohup {} &", "exec {}",
    "timeout -k 1 5 {}", "nice -n 5 {}", "xargs -n 1 {}", "command {}", "busybox {}", "cd x && {}",
    "false || {}",
    "cd x; {}", "a | {}", "a\n{}", "({})", "{{ {}; }}", "echo $({})", 'echo "a $({}) b"', "echo `{}`",
    "diff <({}) x", 'bash -c "{}"', "sh -lc '{}'", "su - somebody -c '{}'", "eval {}", "eval '{}'",
    "for i in 1 2; do {}; done", "if a; then {}; fi", "while {}; do a; done", "! {}", "f() {{ {}; }}; f",
    "sh <<END\n{}\nEND", "bash <<< '{}'", "echo '{}' | sh", "find . -exec {} \\;", "sudo sh -c 'cd /; {}'",
    "sudo env A=b bash -c \"sh -c '{}'\"", "a # b\n{}", "case x in y) {};; esac",
)  # fmt: skip
COMMANDS = (
    "reboot", "/sbin/shutdown -h now", "halt", "poweroff -f", "init 0", "systemctl reboot",
    "mkfs -t ext4 /dev/sda1",
    "mkfs.ext4 /dev/sda1", "wipefs -a /dev/sda", "dd if=/dev/zero of=/dev/sda bs=1M", "rm -rf /",
    "rm -r -f /",
    "rm -fr / tmp", "rm -Rf //", "rm --recursive --force /", "rm -rf -- /", "rm -rf /./../", "rm -rf /*",
    "rm -rf ~", "rm -rf ~/", "rm -rf ~/*", "rm -rf $HOME", "rm -rf ${{HOME}}/", "rm -rf --no-preserve-root x",
    "cat x > /dev/sda", "cat x >>/dev/nvme0n1", "tee /dev/sdb", "shred /dev/vda", "r\\eboot",
)  # fmt: skip
HARMLESS = (
    "ls", "rm -rf build", "rm -rf /tmp/x", "rm -f /", "rm -rf ./*", "rm -rf *", "rm -r ~/x",
    "rm -rf \"$TMP\"",
    "echo reboot", "grep reboot /var/log/syslog", "sudo grep halt x", "man reboot", "xargs grep reboot",
    "git commit -m 'reboot'", "cat > /dev/null", "echo x 2>/dev/null", "dd if=/dev/sda of=image", "# reboot",
    "cat > readme <<END\nreboot\nEND", "systemctl status", "init 3", "echo 'rm -rf /'", "ls /",
    "sudo -u reboot ls",
    "python -c 'reboot'", "echo \"rm -rf ~\" > notes", "shutdownx", "a --reboot", "cp reboot x",
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_found_wherever_it_hides(command: str) -> None:
    missed = [text for hiding in HIDINGS if not USUAL.in_command(text := hiding.format(command.format()))]
    # A shell takes one layer of backslashes or quotes away; the second one is a word of another name.
    assert [text for text in missed if "\\e" not in text] == []


@pytest.mark.parametrize("bomb", [":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "x; :(){ :|: & };:"])
def test_a_bomb_of_processes_is_found_under_any_name(bomb: str) -> None:
    assert USUAL.in_command(bomb)


@pytest.mark.parametrize("command", HARMLESS)
def test_what_only_looks_like_it_may_run(command: str) -> None:
    assert USUAL.in_command(command) == ""


def test_the_pattern_that_was_found_is_told() -> None:
    assert USUAL.in_call("shell", '{"command": "sudo reboot now"}') == "reboot *"
    assert USUAL.in_call("write_file", '{"command": "reboot"}') == ""


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
def test_a_list_of_one_s_own_means_what_it_says(
    pattern: str, found: tuple[str, ...], not_found: tuple[str, ...]
) -> None:
    mine = Forbidden((pattern,))
    assert [text for text in found if not mine.in_command(text)] == []
    assert [text for text in not_found if mine.in_command(text)] == []


def test_an_empty_list_forbids_nothing() -> None:
    assert [text for text in COMMANDS if Forbidden(()).in_command(text)] == []


@given(st.text("ab '\"\\$`&;|*~!#{}()<>[]\n=-/", max_size=60))
def test_no_text_is_too_strange_to_be_looked_at(text: str) -> None:
    USUAL.in_command(text)
    assert USUAL.in_command(f"reboot\n{text}") == "reboot *"


@pytest.mark.parametrize(
    "piece", ["x", "a;", "$(", "a `b ", "env ", "f()", "-exec ", "sh -c ", "'a' ", '"$(', "<<a\n", "{ ",
    "sudo -u "]
)  # fmt: skip
def test_the_longest_command_is_looked_at_in_time(piece: str) -> None:
    for start in ("", "find ", "bash -c '"):
        command = (start + piece * SHELL_COMMAND_BYTES_MAX)[:SHELL_COMMAND_BYTES_MAX]
        began = time.process_time()
        USUAL.in_command(command)
        # What grew with the square of the length would take minutes.
        assert time.process_time() - began < 10, piece
