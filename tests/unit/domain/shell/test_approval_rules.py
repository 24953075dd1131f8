"""Rules allow exactly what a person meant, and nothing that hides behind it."""

import msgspec
import pytest

from holdfast.domain.errors import RuleRefused
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import RULE_CHARS_MAX
from holdfast.domain.shell.rules import Rule, find_rule, pattern_for, validate_pattern

HERE, THERE = SessionId("s_1"), SessionId("s_2")


def call(command: str) -> str:
    return msgspec.json.encode({"command": command}).decode()


def allows(pattern: str, command: str, tool: str = "shell") -> bool:
    rule = Rule("u_1", tool, pattern, None, 0)
    return find_rule([rule], tool, call(command), HERE) is not None


@pytest.mark.parametrize(
    ("pattern", "command", "allowed"),
    [
        ("git status", "git status", True),
        ("git status", "git  'status'", True),
        ("git status", "git status -s", False),
        ("git status", "git statu", False),
        ("git status *", "git status", True),
        ("git status *", "git status -s x", True),
        ("git status *", "git statusx", False),
        ("git status *", "git", False),
        ("git status *", "git status && rm x", False),
        ("git status *", "git status; rm x", False),
        ("git status *", "git status | sh", False),
        ("git status *", "git status $(rm x)", False),
        ("git status *", "git status `rm x`", False),
        ("git status *", "git status > x", False),
        ("git status *", "git status\nrm x", False),
        ("git status *", "git status &", False),
        ("git status *", "A=b git status", False),
        ("git status *", "git status *", False),
        ("git status *", "git status $X", False),
        ("git status *", "/tmp/git status", False),
        ("ls 'a b'", "ls a\\ b", True),
        ("ls 'a b'", "ls a b", False),
        ("ls '*'", "ls '*'", True),
        ("ls '*'", "ls x", False),
        ("ls '*'", "ls *", False),
    ],
)
def test_a_rule_for_commands_compares_words(pattern: str, command: str, allowed: bool) -> None:
    assert allows(validate_pattern("shell", pattern), command) == allowed


def test_a_rule_is_for_its_tool_and_its_conversation() -> None:
    rules = [Rule("u_1", "write_file", "*", HERE, 0), Rule("u_2", "shell", "ls", None, 0)]
    assert find_rule(rules, "write_file", "{}", HERE) == rules[0]
    assert find_rule(rules, "write_file", "{}", THERE) is None
    assert find_rule(rules, "write_file", "{}", None) is None
    assert find_rule(rules, "shell", call("ls"), THERE) == rules[1]
    assert find_rule(rules, "read_file", call("ls"), HERE) is None
    assert (rules[0].scope, rules[1].scope) == ("session", "always")


def test_without_a_pattern_a_rule_is_for_exactly_the_command() -> None:
    pattern = pattern_for("shell", call("ls  'a b' \"*\""), "")
    assert allows(pattern, "ls 'a b' '*'") and not allows(pattern, "ls 'a b' c")
    assert pattern_for("write_file", "{}", "") == "*"


@pytest.mark.parametrize("command", ["a && b", "echo $(b)", "a > b", "ls *", "", "A=b c"])
@pytest.mark.parametrize("wanted", ["", "a *", "ls *"])
def test_no_rule_is_made_from_what_is_not_one_simple_command(command: str, wanted: str) -> None:
    with pytest.raises(RuleRefused, match="only once"):
        pattern_for("shell", call(command), wanted)


@pytest.mark.parametrize("wanted", ["ls", "git *", "git push *", "git status -x", "git statu *", "gi *"])
def test_a_rule_allows_the_command_that_it_is_made_from(wanted: str) -> None:
    with pytest.raises(RuleRefused):
        pattern_for("shell", call("git status -s"), wanted)
    assert pattern_for("shell", call("git status -s"), "git status *") == "git status *"


@pytest.mark.parametrize(
    "pattern", ["*", "* ", " * ", "* *", "", "ls * x", "ls x*", "ls && a", "ls\n*", "'a"]
)
def test_a_pattern_that_means_nothing_or_everything_is_refused(pattern: str) -> None:
    with pytest.raises(RuleRefused):
        validate_pattern("shell", pattern)


@pytest.mark.parametrize(
    "program",
    [
        "sudo", "env", "xargs", "sh", "bash", "/bin/sh", "eval", "command", "exec", "python", "python3",
        "python3.11",
        "/usr/bin/perl5", "SUDO", "nice", "timeout", "ssh", "find", "git", "docker", "awk", "node", ".",
        "source",
        "capsh", "bwrap", "fakeroot", "proot", "firejail", "prlimit", "choom", "dbus-run-session", "xvfb-run",
        "runcon", "sg", "ld.so", "/lib64/ld-linux-x86-64.so.2", "run-parts", "Rscript", "julia", "tsx",
        "ts-node",
        "python3.11-dbg", "view", "vimdiff", "npm", "npm exec", "npx", "uv", "uv run", "uv --offline",
        "poetry run",
        "cargo run", "go run", "pnpm dlx", "bundle exec",
    ],
)  # fmt: skip
def test_no_rule_lets_a_program_run_anything(program: str) -> None:
    with pytest.raises(RuleRefused, match="anything"):
        validate_pattern("shell", f"{program} *")
    assert validate_pattern("shell", f"{program} -x") == f"{program} -x"


@pytest.mark.parametrize(
    "words", ["npm test", "npm run build", "cargo build", "uv sync", "pytest", "go build"]
)
def test_safe_git_subcommands_may_have_any_words(words: str) -> None:
    assert validate_pattern("shell", f"{words} *") == f"{words} *"


def test_a_rule_of_another_tool_is_for_all_its_calls() -> None:
    with pytest.raises(RuleRefused):
        validate_pattern("write_file", "notes.txt")
    assert validate_pattern("write_file", "*") == "*"


def test_a_pattern_has_a_longest_length() -> None:
    with pytest.raises(RuleRefused, match="longer"):
        validate_pattern("shell", "ls " + "x" * RULE_CHARS_MAX)


def test_a_pattern_is_kept_so_that_it_means_the_same_when_it_is_read_again() -> None:
    for text in ("ls 'a b' *", 'ls "it\'s"', "ls '*'", "ls '' *"):
        assert validate_pattern("shell", validate_pattern("shell", text)) == validate_pattern("shell", text)


def page(url: str) -> str:
    return msgspec.json.encode({"url": url}).decode()


@pytest.mark.parametrize(
    ("pattern", "url", "allowed"),
    [
        ("example.org", "https://example.org/a?b", True),
        ("example.org", "http://EXAMPLE.org.:80/", True),
        ("example.org", "https://www.example.org/", False),
        ("example.org", "https://example.org.evil.test/", False),
        ("example.org", "https://evil.test/example.org", False),
        ("example.org", "https://evil.test/?example.org", False),
        ("example.org", "https://evil.test#example.org", False),
        ("example.org", "https://example.org@evil.test/", False),
        ("example.org", "https://example.org:8443/", False),
        ("example.org", "https://evil.test\\@example.org/", False),
        ("example.org", "example.org", False),
        ("example.org:8443", "https://example.org:8443/x", True),
        ("bücher.example", "https://xn--bcher-kva.example/", True),
        ("127.1", "http://0x7f.0.0.1/", True),
        ("*", "https://anywhere.test/", True),
    ],
)
def test_a_rule_for_pages_allows_one_server(pattern: str, url: str, allowed: bool) -> None:
    rule = Rule("u_1", "fetch_url", validate_pattern("fetch_url", pattern), None, 0)
    assert (find_rule([rule], "fetch_url", page(url), HERE) is not None) == allowed


def test_a_rule_made_from_a_page_is_for_its_server() -> None:
    assert pattern_for("fetch_url", page("https://Example.org:443/a?b"), "") == "example.org"
    assert pattern_for("fetch_url", page("https://example.org/"), "EXAMPLE.org") == "example.org"
    assert pattern_for("fetch_url", page("https://example.org/"), "*") == "*"
    for wanted in ("other.test", "*.org", "https://example.org/", "example.org/", "a b", "u@example.org"):
        with pytest.raises(RuleRefused):
            pattern_for("fetch_url", page("https://example.org/"), wanted)
    with pytest.raises(RuleRefused):
        pattern_for("fetch_url", page("no address"), "")


def test_a_call_that_names_two_pages_is_covered_by_no_rule_for_one() -> None:
    rule = Rule("u_1", "fetch_url", "example.org", None, 0)
    twice = '{"url": "https://evil.test/", "url": "https://example.org/"}'
    assert find_rule([rule], "fetch_url", twice, HERE) is None
