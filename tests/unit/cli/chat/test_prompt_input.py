"""What is typed in a chat: what is proposed, which files go along, how a question is answered."""

from pathlib import Path
from unittest.mock import ANY

import pytest

from holdfast.cli.chat.answers import (
    NeedsFollowUp,
    QuestionAnswer,
    ResumeRun,
    UnclearAnswer,
    answer_hint,
    editable_text,
    edited_arguments,
    enter_hint,
    parse_answer,
)
from holdfast.cli.chat.completion import (
    CompletionNames,
    OutgoingFile,
    TooManyFiles,
    find_completions,
    read_attachments,
)
from holdfast.cli.chat.one_shot import StreamedAnswer
from holdfast.cli.chat.response_data import AgentQuestionData, QuestionData
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, MessageId, RunId

RUN = RunId("r_1")
ONE, TWO = MessageId("m_1"), MessageId("m_2")
COLOURS = AgentQuestionData("Which?", ("Red", "Green"))
SEVERAL = AgentQuestionData("Which?", ("Red", "Green"), multiple=True)
APPROVAL = QuestionData("s_1", "r_1", "approval", "", "c_1", "shell", '{"command":"ls","timeout_s":5}')
COMPOUND = QuestionData("s_1", "r_1", "approval", "", "c_1", "shell", '{"command":"ls; rm a"}')
IN_DOUBT = QuestionData("s_1", "r_1", "in_doubt", "", "c_1", "shell", '{"command":"ls"}')
LIMIT = QuestionData("s_1", "r_1", "limit", "50 steps")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("notes.txt", "not here.md", ".hidden"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.txt").write_text("inner")
    return tmp_path


class TestCompletions:
    def test_command_completions_show_parameters_and_descriptions(self, folder: Path) -> None:
        found = list(find_completions("/s", folder))
        assert [each.text for each in found] == ["/stop", "/status", "/sessions", "/switch ", "/summarise"]
        assert (
            found[3].label == "/switch NUMBER or words" and found[0].meaning == "Stop the answer under way."
        )
        assert list(find_completions("/stop now", folder)) == list(find_completions("say /s", folder)) == []

    def test_prompts_and_agents_are_completed_by_name(self, folder: Path) -> None:
        prompts = (("summary-of", "Sum it up."), ("greet", "Say hello."))
        known = CompletionNames(prompts, (("main", ""), ("reader", "Reads.")))
        found = [(each.text, each.label, each.meaning) for each in find_completions("/su", folder, known)]
        assert found == [("/summarise", "/summarise", ANY), ("/summary-of ", "/summary-of", "Sum it up.")]
        assert [each.text for each in find_completions("/summary-", folder, known)] == ["/summary-of "]
        found = [
            (each.text, each.replaces, each.meaning) for each in find_completions("/agent r", folder, known)
        ]
        assert found == [("reader", 1, "Reads.")]
        assert [each.text for each in find_completions("/agent ", folder, known)] == ["main", "reader"]
        assert list(find_completions("/agents r", folder, known)) == []

    def test_files_are_completed_after_an_at_sign(self, folder: Path) -> None:
        assert [each.text for each in find_completions("see @", folder)] == [
            "sub/",
            '"not here.md"',
            "notes.txt",
        ]
        assert [each.text for each in find_completions("see @note", folder)] == ["notes.txt"]
        assert [(each.text, each.replaces) for each in find_completions("@sub/", folder)] == [
            ("sub/inner.txt", 4)
        ]
        assert [each.text for each in find_completions("@.h", folder)] == [".hidden"]
        assert list(find_completions("me@not", folder)) == list(find_completions("@nowhere/x", folder)) == []
        (found,) = find_completions(f"@{folder}/note", folder)
        assert found.text == f"{folder}/notes.txt"

    def test_named_files_are_attached_once_and_other_words_are_ignored(self, folder: Path) -> None:
        text = 'see @notes.txt, @"not here.md" and @notes.txt. Ask @alice or me@notes.txt'
        assert read_attachments(text, folder) == [
            OutgoingFile("notes.txt", b"notes.txt"), OutgoingFile("not here.md", b"not here.md"),
        ]  # fmt: skip
        assert read_attachments("@sub @alice. @types/node @pytest.fixture @app.get('/x') @3.5", folder) == []

    @pytest.mark.parametrize(
        ("typed", "shown"),
        [
            ("see @nosuch.txt", "nosuch.txt"),
            ("see @nosuch.txt, please", "nosuch.txt"),
            ("@./nosuch", "./nosuch"),
            ("@notes.txt @sub/nosuch.md", "sub/nosuch.md"),
            ('@"no such file"', "no such file"),
        ],
    )
    def test_a_missing_file_raises_an_error(self, folder: Path, typed: str, shown: str) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            read_attachments(typed, folder)
        assert (caught.value.filename, caught.value.strerror) == (shown, "there is no such file")

    def test_too_many_attachments_raise_an_error(self, folder: Path) -> None:
        for number in range(11):
            (folder / f"f{number}").write_text("x")
        with pytest.raises(TooManyFiles):
            read_attachments(" ".join(f"@f{number}" for number in range(11)), folder)


class TestParseAnswer:
    @pytest.mark.parametrize(
        ("line", "question", "meant"),
        [
            ("a", APPROVAL, QuestionAnswer("approve")),
            (" C ", APPROVAL, QuestionAnswer("approve", scope="session")),
            ("w", APPROVAL, QuestionAnswer("approve", scope="always")),
            ("c", COMPOUND, UnclearAnswer()),
            ("w", COMPOUND, UnclearAnswer()),
            ("e", APPROVAL, NeedsFollowUp("edit")),
            ("d", APPROVAL, NeedsFollowUp("reason")),
            ("d too early", APPROVAL, QuestionAnswer("deny", reason="too early")),
            ("y", APPROVAL, UnclearAnswer()),
            ("a word with more", APPROVAL, None),
            ("and now", APPROVAL, None),
            ("/stop", APPROVAL, None),
            ("r", IN_DOUBT, QuestionAnswer("rerun")),
            ("i it made the file", IN_DOUBT, QuestionAnswer("mark_done", result="it made the file")),
            ("s", IN_DOUBT, QuestionAnswer("skip")),
            ("a", IN_DOUBT, UnclearAnswer()),
            ("g", LIMIT, ResumeRun()),
            ("a", LIMIT, UnclearAnswer()),
        ],
    )
    def test_a_letter_selects_an_offered_answer(
        self, line: str, question: QuestionData, meant: object
    ) -> None:
        assert parse_answer(line, question) == meant

    @pytest.mark.parametrize(
        ("line", "asked", "meant"),
        [
            (
                "because it rains",
                AgentQuestionData("Why?"),
                QuestionAnswer("answer", text="because it rains"),
            ),
            ("d", AgentQuestionData("Why?"), QuestionAnswer("answer", text="d")),
            ("/usr/bin", AgentQuestionData("Where?"), QuestionAnswer("answer", text="/usr/bin")),
            ("/stop", AgentQuestionData("Why?"), None),
            ("/deny", AgentQuestionData("Why?"), None),
            ("  ", AgentQuestionData("Why?"), None),
            ("2", COLOURS, QuestionAnswer("answer", choices=("Green",))),
            ("green", COLOURS, QuestionAnswer("answer", choices=("Green",))),
            ("3", COLOURS, UnclearAnswer()),
            ("1, 2", COLOURS, UnclearAnswer()),
            ("neither of them", COLOURS, None),
            ("1, 2", SEVERAL, QuestionAnswer("answer", choices=("Red", "Green"))),
        ],
    )
    def test_an_agent_question_accepts_text_or_choice_numbers(
        self, line: str, asked: AgentQuestionData, meant: object
    ) -> None:
        question = QuestionData("s_1", "r_1", "question", "", "c_1", "ask_user", "{}", asked=asked)
        assert parse_answer(line, question) == meant

    def test_the_hint_offers_lasting_approval_only_where_possible(self) -> None:
        assert answer_hint(APPROVAL) == (
            "[a] allow  [c] allow in this conversation  [w] always allow  [e] edit  [d] deny"
        )
        assert answer_hint(COMPOUND) == "[a] allow  [e] edit  [d] deny"
        assert answer_hint(LIMIT) == "[g] go on"

    @pytest.mark.parametrize(
        ("line", "hint"),
        [
            ("", ""),
            ("/status", ""),
            ("x", ""),
            ("a", "Enter answers: allow"),
            ("d too early", "Enter answers: deny"),
            ("and now", "Enter sends this message and denies this."),
        ],
    )
    def test_a_partial_line_shows_what_enter_does(self, line: str, hint: str) -> None:
        assert enter_hint(line, APPROVAL) == hint

    def test_an_answer_body_contains_only_fields_of_its_decision(self) -> None:
        assert QuestionAnswer("answer", choices=("a",)).body() == {"decision": "answer", "choices": ("a",)}
        assert QuestionAnswer("answer", text="a").body() == {"decision": "answer", "text": "a"}
        assert QuestionAnswer("approve").body() == {"decision": "approve"}
        assert QuestionAnswer("deny", reason="no").body() == {"decision": "deny", "reason": "no"}

    def test_shell_commands_are_edited_as_text_and_other_arguments_as_json(self) -> None:
        assert editable_text(APPROVAL) == "ls"
        assert edited_arguments(APPROVAL, "ls -l") == '{"command":"ls -l","timeout_s":5}'
        other = QuestionData("s_1", "r_1", "approval", "", "c_1", "write_file", '{"path":"a"}')
        assert editable_text(other) == '{"path":"a"}'
        assert (
            edited_arguments(other, '{"path":"b"}') == '{"path":"b"}' and edited_arguments(other, "b") is None
        )


class TestStreamedAnswer:
    def test_streamed_text_is_returned_once_and_continues_after_a_restart(self) -> None:
        answering = StreamedAnswer(RUN)
        texts = [
            answering.apply_fact(fact)
            for fact in (
                f.ModelStepStarted(RUN, 1, 1, ONE, "small"),
                f.TextAppended(RUN, ONE, "0 1 "),
                f.RunInterrupted(RUN, 1, 2, MessageId("n_1")),
                f.MessageSettled(1, 1, ONE, "assistant", (Text("0 1 2 "),), "", RUN, "recovered"),
                f.RunResumed(RUN, "policy", 1),
                f.ModelStepStarted(RUN, 1, 3, TWO, "small", ONE),
                f.TextAppended(RUN, TWO, "3"),
                f.MessageSettled(1, 3, TWO, "assistant", (Text("3"),), "", RUN),
                f.RunCompleted(RUN),
            )
        ]
        assert "".join(texts) == answering.text == "0 1 2 3"
        assert answering.status == "completed"

    def test_messages_of_an_answer_are_separated_and_other_runs_ignored(self) -> None:
        answering = StreamedAnswer(RUN)
        answering.apply_fact(f.TextAppended(RUN, ONE, "I look.\n"))
        answering.apply_fact(f.TextAppended(RunId("r_2"), MessageId("m_9"), "elsewhere"))
        answering.apply_fact(f.ToolIntended(RUN, 1, 2, ONE, CallId("c_1"), "look", "{}", "pure"))
        answering.apply_fact(f.ToolSettled(1, 2, ONE, CallId("c_1"), "look", "done", (), "", RUN, ms=4))
        assert answering.apply_fact(f.TextAppended(RUN, TWO, "There.")) == "\nThere."
        assert answering.text == "I look.\n\nThere."
        assert [(each.name, each.arguments, each.ms) for each in answering.tools] == [("look", "{}", 4)]

    def test_a_waiting_run_has_status_needs_you(self) -> None:
        for fact in (f.RunWaiting(RUN, "approval"), f.RunInterrupted(RUN, 1, 2, ONE, asks=True)):
            answering = StreamedAnswer(RUN)
            answering.apply_fact(fact)
            assert answering.status == "needs_you"
