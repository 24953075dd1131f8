"""Agents and prompts as people write them: what is taken, what is told to be wrong, what stays in force."""

import os
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.config.files import AgentFiles, PromptFiles
from holdfast.agent.config.info import AgentInfo
from holdfast.agent.config.service import AgentReader
from holdfast.agent.config.watched_files import SETTLED_MS
from holdfast.domain import agents, prompts
from holdfast.domain.agents import AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX, TEXT_BYTES_MAX
from holdfast.domain.prompts import BadPrompt, Prompt
from holdfast.engine.workspaces import forbidden_reason

TOOLS = ("shell", "read_file", "list_files", "remember")
WHOLE = """\
description = "Reads, and changes nothing."
instructions = '''
You only look.
'''
more_instructions = "Be brief."
model = "openai:small"
fallbacks = ["anthropic:large", "demo"]
tools = ["read_file", "list_files", "time__now", "files__*"]
approvals = "allow"
resume = "never"
memory = "off"
workspace = "/anywhere/reading"
"""


def test_every_agent_key_is_read() -> None:
    spec = agents.parse("reader", WHOLE, TOOLS)
    assert spec == AgentSpec(
        name="reader", description="Reads, and changes nothing.", instructions="You only look.\n",
        more_instructions="Be brief.", model="openai:small", fallbacks=("anthropic:large", "demo"),
        tools=("read_file", "list_files", "time__now", "files__*"), approvals="allow", resume="never",
        memory="off", workspace="/anywhere/reading",
    )  # fmt: skip
    assert agents.parse("plain", "", TOOLS) == AgentSpec(name="plain")


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("modell = 'x'", "'modell'", "model"),
        ("model = 5", "model", "PROVIDER:MODEL"),
        ("model = ' openai:x'", "model", "PROVIDER:MODEL"),
        ("fallbacks = 'demo'", "fallbacks", "a list"),
        ("fallbacks = ['']", "fallbacks", "a list"),
        ("fallbacks = ['demo','demo','demo','demo','demo','demo','demo','demo','demo']", "fallbacks", "8"),
        ("tools = ['shel']", "'shel'", "shell"),
        ("tools = ['*']", "'*'", "read_file"),
        ('tools = ["a\\u0007b"]', "a?b", "read_file"),
        ("tools = 'shell'", "tools", "a list"),
        ("approvals = 'never'", "approvals", "ask or allow"),
        ("resume = true", "resume", "auto, ask or never"),
        ("memory = false", "memory", "on or off"),
        ("workspace = 'here'", "workspace", "whole path"),
        ("instructions = ['a']", "instructions", "text"),
        ("[tools]\nshell = true", "tools", "a list"),
        ("model = ", "TOML", ""),
        ("x = " + "[" * 5_000, "TOML", ""),
        ("description = " + "1" * 5_000, "TOML", "too long"),
        ("description = 0x" + "f" * 5_000, "TOML", "too long"),
    ],
)
def test_an_error_names_the_file_the_key_and_the_allowed_values(text: str, key: str, expected: str) -> None:
    with pytest.raises(BadAgent) as wrong:
        agents.parse("reader", text, TOOLS)
    said = str(wrong.value)
    assert said.startswith("agents/reader.toml: ") and key in said and expected in said, said


@given(st.text(max_size=400))
def test_any_text_is_either_parsed_or_refused(text: str) -> None:
    try:
        agents.parse("reader", text, TOOLS)
    except BadAgent as wrong:
        assert str(wrong).startswith("agents/reader.toml: ")


def test_an_agent_has_the_tools_that_it_names_and_no_others() -> None:
    some = AgentSpec(tools=("read_file", "files__*"))
    assert some.may_use("read_file") and some.may_use("files__read") and not some.may_use("shell")
    assert not some.may_use("filesystem") and not AgentSpec(tools=()).may_use("shell")
    assert AgentSpec().may_use("shell") and AgentSpec().may_use("remember")
    without_memory = AgentSpec(memory="off")
    assert without_memory.may_use("shell") and not without_memory.may_use("remember")


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".", "A", "a b", "x" * 41, "-a", "a\n", "é", "a.b"])
def test_a_name_with_a_path_is_invalid(name: str) -> None:
    assert not agents.is_valid_name(name)
    assert not prompts.is_valid_name(name)


# Files.


class AgentFilesFixture:
    """A folder, what is read there, and what people were told of it."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "deep" / "data"
        self.folder = self.base / "agents"
        self.folder.mkdir(parents=True)
        self.notices: list[str] = []
        self.files = self.started()

    def started(self, tools: tuple[str, ...] = TOOLS, keeps: bool = True) -> AgentFiles:
        """Those of a process that starts now; one that does not keep is a command."""
        files = AgentFiles(self.base, lambda: tools, SystemClock(), self.notices.append, keep_copies=keeps)
        files.read_all()
        return files

    def shown(self, files: AgentFiles, name: str) -> AgentInfo:
        prompts = PromptFiles(self.base, SystemClock(), self.notices.append)
        return AgentReader(files, prompts, lambda: TOOLS).get(name)

    def write(self, name: str, text: str, ago_s: float = 0.0) -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        if ago_s:
            at = path.stat().st_mtime - ago_s
            os.utime(path, (at, at))
        return path


def test_the_agent_that_every_server_has_needs_no_file(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    assert agent_files.files.spec("") == agent_files.files.spec("main") == AgentSpec()
    agent_files.write("main", "more_instructions = 'Be brief.'")
    assert agent_files.files.spec("").more_instructions == "Be brief."
    with pytest.raises(NoSuchAgent, match=r"There is no agent reader; there are: main"):
        agent_files.files.spec("reader")


def test_a_changed_file_is_read_again_at_the_next_look(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    for text in ("one", "two", "six"):
        # The same size, and within the same moment as far as its times can tell.
        agent_files.write("reader", f"description = '{text}'")
        assert agent_files.files.spec("reader").description == text


def test_a_file_that_has_not_changed_for_a_while_is_not_read_again(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    path = agent_files.write("reader", "description = 'one'")

    class Later(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + SETTLED_MS + 1_000

    files = AgentFiles(agent_files.base, lambda: TOOLS, Later(), agent_files.notices.append)
    assert files.spec("reader") is files.spec("reader")
    path.write_text("description = 'another'")
    assert files.spec("reader").description == "another"


def test_a_bad_file_is_reported_once_and_the_last_good_one_stays(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "description = 'good'")
    assert agent_files.files.spec("reader").description == "good"
    agent_files.write("reader", "descripton = 'bad'")
    for _ in range(3):
        assert agent_files.files.spec("reader").description == "good"
    (notice,) = agent_files.notices
    assert "agents/reader.toml: there is no 'descripton'" in notice and notice.endswith("It stays as it was.")
    assert [line for line in agent_files.files.problems() if "descripton" in line]
    agent_files.write("reader", "description = 'better'")
    assert agent_files.files.spec("reader").description == "better" and agent_files.files.problems() == []


def test_the_last_good_one_stays_when_the_server_starts_with_a_bad_file(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "description = 'good'\ntools = ['read_file']")
    agent_files.write("main", "approvals = 'allow'")
    agent_files.started()
    agent_files.write("reader", "descripton = 'bad'")
    agent_files.write("main", "approvals = 'allways'")
    for keeps in (False, True, True):
        files = agent_files.started(keeps=keeps)
        assert files.spec("reader") == AgentSpec(name="reader", description="good", tools=("read_file",))
        assert files.spec("") == AgentSpec(approvals="allow")
        assert len(files.problems()) == 2, "what is wrong is told all the same"
        info = agent_files.shown(files, "reader")
        assert (info.stays, info.answers, info.description) == (True, True, "good")
        assert "'descripton'" in info.error
    agent_files.write("reader", "description = 'better'")
    files = agent_files.started()
    assert files.spec("reader").description == "better" and not agent_files.shown(files, "reader").stays


def test_a_last_good_copy_that_became_invalid_is_not_used(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "tools = ['list_files']")
    agent_files.started()
    agent_files.write("reader", "descripton = 'bad'")
    files = agent_files.started(tools=("shell",))
    with pytest.raises(BadAgent, match="descripton"):
        files.spec("reader")
    info = agent_files.shown(files, "reader")
    assert (info.stays, info.answers) == (False, False)


@pytest.mark.parametrize("runs", [True, False])
def test_removing_a_file_removes_its_last_good_copy(tmp_path: Path, runs: bool) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    path = agent_files.write("reader", "description = 'good'")
    files = agent_files.started()
    path.unlink()
    if runs:
        with pytest.raises(NoSuchAgent):
            files.spec("reader")
    else:
        agent_files.started()
    agent_files.write("reader", "descripton = 'bad'")
    with pytest.raises(BadAgent):
        agent_files.started().spec("reader")


def test_a_read_only_command_writes_no_copies(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "description = 'good'")
    agent_files.started(keeps=False)
    assert sorted(each.name for each in agent_files.folder.iterdir()) == ["reader.toml"]


def test_an_unreadable_or_unwritable_last_good_copy_is_ignored(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "description = 'good'")
    (agent_files.folder / ".last-good").write_text("in the way")
    assert agent_files.started().spec("reader").description == "good"
    (agent_files.folder / ".last-good").unlink()
    agent_files.started()
    (agent_files.folder / ".last-good" / "reader.toml").write_bytes(b"\xff\xfe" * 10)
    agent_files.write("reader", "descripton = 'bad'")
    with pytest.raises(BadAgent):
        agent_files.started().spec("reader")


def test_a_file_that_was_never_valid_gives_no_agent(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "resume = 'maybe'")
    with pytest.raises(BadAgent, match=r"agents/reader\.toml: resume must be auto, ask or never"):
        agent_files.files.spec("reader")


@pytest.mark.parametrize(
    "text", ["resume = 'maybe'", "description = " + "1" * 5_000], ids=["value", "digits"]
)
def test_main_asks_for_every_approval_while_its_file_was_never_valid(tmp_path: Path, text: str) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("main", text)
    agent_files.files.read_all()
    # What the file would have kept from it, nobody knows.
    assert agent_files.files.spec("") == AgentSpec(approvals="ask")
    assert "agents/main.toml: " in agent_files.files.problems()[0] and len(agent_files.files.problems()) == 1
    assert agent_files.notices == [], "whoever reads all of them at the start tells the problems"
    info = AgentReader(
        agent_files.files,
        PromptFiles(agent_files.base, SystemClock(), agent_files.notices.append),
        lambda: TOOLS,
    ).get("main")
    assert info.answers and info.error == agent_files.files.problems()[0]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("model = 'x'", "model"),
        ("model = 'openai:'", "model"),
        ("model = 'nobody:large'", "model"),
        ("fallbacks = ['demo', 'x:y']", "fallbacks"),
    ],
)
def test_a_model_of_an_unknown_provider_is_refused(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(BadAgent, match=rf"{key} must be .*PROVIDER:MODEL.*ollama"):
        AgentFilesFixture(tmp_path).files.check("reader", text)


@pytest.mark.parametrize("model", ["demo", "local", "local:smollm2-135m", "openai:x", "ollama:qwen3:8b"])
def test_a_model_of_a_known_provider_is_accepted(tmp_path: Path, model: str) -> None:
    assert AgentFilesFixture(tmp_path).files.check("reader", f"model = '{model}'").model == model


def test_a_workspace_in_a_forbidden_folder_is_refused(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    files = AgentFiles(
        agent_files.base,
        lambda: TOOLS,
        SystemClock(),
        agent_files.notices.append,
        workspace_problem=partial(forbidden_reason, agent_files.base),
    )
    for folder in ("/proc", "/sys/kernel", str(agent_files.base), str(agent_files.base / "not there yet")):
        with pytest.raises(BadAgent, match=r"agents/reader\.toml: workspace must not lie in"):
            files.check("reader", f"workspace = '{folder}'")
    assert files.check("reader", f"workspace = '{tmp_path.parent}'").workspace


def test_removing_a_file_removes_its_agent(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    path = agent_files.write("reader", "resume = 'never'")
    assert agent_files.files.spec("reader").resume == agent_files.files.resume_policy("reader") == "never"
    path.unlink()
    with pytest.raises(NoSuchAgent):
        agent_files.files.spec("reader")
    assert agent_files.files.resume_policy("reader") is None


def _link(path: Path) -> None:
    outside = path.parent.parent.parent / "outside.toml"
    outside.write_text("description = 'outside'")
    path.symlink_to(outside)


def _huge(path: Path) -> None:
    path.write_bytes(b"#" * (AGENT_FILE_BYTES_MAX + 1))


def _rubbish(path: Path) -> None:
    path.write_bytes(b"description = '\xff\xfe'")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _unreadable(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("made", [_link, _huge, _rubbish, _pipe, _folder, _unreadable])
def test_anything_but_a_small_regular_text_file_is_refused(tmp_path: Path, made: object) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    assert callable(made)
    made(agent_files.folder / "reader.toml")
    with pytest.raises(BadAgent, match=r"agents/reader\.toml: this "):
        agent_files.files.spec("reader")


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    (agent_files.base / "x.toml").write_text("description = 'outside'")
    for name in ("../x", "..%2fx", "/etc/passwd", "\0", "a" * 5_000):
        with pytest.raises(NoSuchAgent):
            agent_files.files.spec(name)


def test_a_file_with_an_invalid_agent_name_is_reported(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    (agent_files.folder / "My Agent.toml").write_text("")
    (agent_files.folder / "notes.txt").write_text("not one of ours")
    assert agent_files.files.names() == ["main"]
    (problem,) = agent_files.files.problems()
    assert problem.startswith("agents/My Agent.toml: a name has only small letters")


# Prompts.


def test_a_prompt_expands_with_its_arguments() -> None:
    review = Prompt("review", "Review $ARGUMENTS, please: $ARGUMENTS.\n")
    assert review.expand("a.py") == "Review a.py, please: a.py."
    assert review.expand("$ARGUMENTS") == "Review $ARGUMENTS, please: $ARGUMENTS."
    plain = Prompt("plain", "# Look\n\nLook around.\n")
    assert plain.expand("") == "# Look\n\nLook around." and plain.about == "Look"
    assert plain.expand("twice\nor more") == "# Look\n\nLook around.\n\ntwice\nor more"


def test_a_prompt_expanding_beyond_the_limit_is_refused() -> None:
    many, rest = Prompt("boom", "$ARGUMENTS " * 600), "y" * 500_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=f"the limit is {TEXT_BYTES_MAX}"):
            many.expand(rest)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(rest)
    finally:
        tracemalloc.stop()
    two = Prompt("two", "\n$ARGUMENTS$ARGUMENTS\n")
    assert len(two.expand("\N{GREEK SMALL LETTER ALPHA}" * (TEXT_BYTES_MAX // 4))) == TEXT_BYTES_MAX // 2
    with pytest.raises(TooLarge):
        two.expand("\N{GREEK SMALL LETTER ALPHA}" * (TEXT_BYTES_MAX // 4 + 1))


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("/review a.py", ("review", "a.py")),
        ("  /Review  a\nb ", ("review", "a\nb")),
        ("/review@some_bot now", ("review", "now")),
        ("/review\nall of it", ("review", "all of it")),
        ("/two-words_2", ("two-words_2", "")),
        ("//review", None),
        ("/usr/bin", None),
        ("review /x", None),
        ("/", None),
    ],
)
def test_a_slash_and_a_name_call_a_prompt(typed: str, found: object) -> None:
    assert prompts.parse_call(typed) == found


def test_a_message_that_calls_no_prompt_is_as_it_was_typed(tmp_path: Path) -> None:
    folder, notices = tmp_path / "prompts", list[str]()
    folder.mkdir()
    files = PromptFiles(tmp_path, SystemClock(), notices.append)
    assert files.expand("/review a.py") == "/review a.py"
    (folder / "review.md").write_text("Review $ARGUMENTS.")
    assert files.expand("/review a.py") == "Review a.py."
    assert files.expand(" /reviews a.py") == " /reviews a.py"
    (folder / "review.md").write_text("Go through $ARGUMENTS.")
    assert files.expand("/review a.py") == "Go through a.py."
    assert [each.name for each in files.all()] == ["review"]


def test_a_prompt_cannot_take_the_name_of_a_command(tmp_path: Path) -> None:
    folder, notices = tmp_path / "prompts", list[str]()
    folder.mkdir()
    (folder / "new.md").write_text("Something else.")
    (folder / "empty.md").write_text(" \n")
    files = PromptFiles(tmp_path, SystemClock(), notices.append)
    assert files.expand("/new") == "/new" and files.all() == []
    assert sorted(files.problems()) == [
        "prompts/empty.md: there is nothing in it.",
        "prompts/new.md: /new is a command already; give it another name.",
    ]
    with pytest.raises(BadPrompt):
        prompts.parse("undo", "x")


def test_known_secrets_in_files_are_masked(tmp_path: Path) -> None:
    agent_files = AgentFilesFixture(tmp_path)
    agent_files.write("reader", "instructions = 'The key is sk-very-secret.'")
    files = AgentFiles(
        agent_files.base,
        lambda: TOOLS,
        SystemClock(),
        agent_files.notices.append,
        lambda text: text.replace("sk-very-secret", "***"),
    )
    assert files.spec("reader").instructions == "The key is ***."


def test_every_error_has_a_code_of_its_own() -> None:
    kinds: tuple[type[HoldfastError], ...] = (BadAgent, NoSuchAgent, agents.AgentChanged, BadPrompt)
    assert len({kind.code for kind in kinds}) == len(kinds)
