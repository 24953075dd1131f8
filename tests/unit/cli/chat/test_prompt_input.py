"""What is typed in a chat: what is proposed, which files go along, how a question is answered."""

from pathlib import Path
from unittest.mock import ANY

import pytest

from holdfast.cli.chat.answers import (
    Answer,
    AskMore,
    GoOn,
    Unclear,
    choices,
    editable,
    edited,
    meaning_of,
    read_answer,
)
from holdfast.cli.chat.completion import Attached, Known, TooMany, attached, proposals
from holdfast.cli.chat.script import Answering
from holdfast.cli.chat.wire import Asked, Question
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, MessageId, RunId

RUN = RunId("r_1")
ONE, TWO = MessageId("m_1"), MessageId("m_2")
COLOURS = Asked("Which?", ("Red", "Green"))
SEVERAL = Asked("Which?", ("Red", "Green"), multiple=True)
APPROVAL = Question("s_1", "r_1", "approval", "", "c_1", "shell", '{"command":"ls","timeout_s":5}')
COMPOUND = Question("s_1", "r_1", "approval", "", "c_1", "shell", '{"command":"ls; rm a"}')
IN_DOUBT = Question("s_1", "r_1", "in_doubt", "", "c_1", "shell", '{"command":"ls"}')
LIMIT = Question("s_1", "r_1", "limit", "50 steps")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("notes.txt", "not here.md", ".hidden"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.txt").write_text("inner")
    return tmp_path


class TestProposals:
    def test_commands_come_with_what_they_take_and_do(self, folder: Path) -> None:
        found = list(proposals("/s", folder))
        assert [each.text for each in found] == ["/stop", "/status", "/sessions", "/switch ", "/summarise"]
        assert (
            found[3].shown == "/switch NUMBER or words" and found[0].meaning == "Stop the answer under way."
        )
        assert list(proposals("/stop now", folder)) == list(proposals("say /s", folder)) == []

    def test_prompts_and_agents_are_proposed_by_their_names(self, folder: Path) -> None:
        prompts = (("summary-of", "Sum it up."), ("greet", "Say hello."))
        known = Known(prompts, (("main", ""), ("reader", "Reads.")))
        found = [(each.text, each.shown, each.meaning) for each in proposals("/su", folder, known)]
        assert found == [("/summarise", "/summarise", ANY), ("/summary-of ", "/summary-of", "Sum it up.")]
        assert [each.text for each in proposals("/summary-", folder, known)] == ["/summary-of "]
        found = [(each.text, each.replaces, each.meaning) for each in proposals("/agent r", folder, known)]
        assert found == [("reader", 1, "Reads.")]
        assert [each.text for each in proposals("/agent ", folder, known)] == ["main", "reader"]
        assert list(proposals("/agents r", folder, known)) == []

    def test_files_come_after_an_at_sign(self, folder: Path) -> None:
        assert [each.text for each in proposals("see @", folder)] == ["sub/", '"not here.md"', "notes.txt"]
        assert [each.text for each in proposals("see @note", folder)] == ["notes.txt"]
        assert [(each.text, each.replaces) for each in proposals("@sub/", folder)] == [("sub/inner.txt", 4)]
        assert [each.text for each in proposals("@.h", folder)] == [".hidden"]
        assert list(proposals("me@not", folder)) == list(proposals("@nowhere/x", folder)) == []
        (found,) = proposals(f"@{folder}/note", folder)
        assert found.text == f"{folder}/notes.txt"

    def test_names_that_are_files_go_along_once_and_others_are_words(self, folder: Path) -> None:
        text = 'see @notes.txt, @"not here.md" and @notes.txt. Ask @alice or me@notes.txt'
        assert attached(text, folder) == [
            Attached("notes.txt", b"notes.txt"), Attached("not here.md", b"not here.md"),
        ]  # fmt: skip
        assert attached("@sub @alice. @types/node @pytest.fixture @app.get('/x') @3.5", folder) == []

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
    def test_a_file_that_is_not_there_is_no_word(self, folder: Path, typed: str, shown: str) -> None:
        with pytest.raises(FileNotFoundError) as caught:
            attached(typed, folder)
        assert (caught.value.filename, caught.value.strerror) == (shown, "there is no such file")

    def test_no_more_than_a_message_may_have(self, folder: Path) -> None:
        for number in range(11):
            (folder / f"f{number}").write_text("x")
        with pytest.raises(TooMany):
            attached(" ".join(f"@f{number}" for number in range(11)), folder)


class TestAnswersToQuestions:
    @pytest.mark.parametrize(
        ("line", "question", "meant"),
        [
            ("a", APPROVAL, Answer("approve")),
            (" C ", APPROVAL, Answer("approve", scope="session")),
            ("w", APPROVAL, Answer("approve", scope="always")),
            ("c", COMPOUND, Unclear()),
            ("w", COMPOUND, Unclear()),
            ("e", APPROVAL, AskMore("edit")),
            ("d", APPROVAL, AskMore("reason")),
            ("d too early", APPROVAL, Answer("deny", reason="too early")),
            ("y", APPROVAL, Unclear()),
            ("a word with more", APPROVAL, None),
            ("and now", APPROVAL, None),
            ("/stop", APPROVAL, None),
            ("r", IN_DOUBT, Answer("rerun")),
            ("i it made the file", IN_DOUBT, Answer("mark_done", result="it made the file")),
            ("s", IN_DOUBT, Answer("skip")),
            ("a", IN_DOUBT, Unclear()),
            ("g", LIMIT, GoOn()),
            ("a", LIMIT, Unclear()),
        ],
    )
    def test_a_letter_means_what_the_question_offers(
        self, line: str, question: Question, meant: object
    ) -> None:
        assert read_answer(line, question) == meant

    @pytest.mark.parametrize(
        ("line", "asked", "meant"),
        [
            ("because it rains", Asked("Why?"), Answer("answer", text="because it rains")),
            ("d", Asked("Why?"), Answer("answer", text="d")),
            ("/usr/bin", Asked("Where?"), Answer("answer", text="/usr/bin")),
            ("/stop", Asked("Why?"), None),
            ("/deny", Asked("Why?"), None),
            ("  ", Asked("Why?"), None),
            ("2", COLOURS, Answer("answer", choices=("Green",))),
            ("green", COLOURS, Answer("answer", choices=("Green",))),
            ("3", COLOURS, Unclear()),
            ("1, 2", COLOURS, Unclear()),
            ("neither of them", COLOURS, None),
            ("1, 2", SEVERAL, Answer("answer", choices=("Red", "Green"))),
        ],
    )
    def test_what_the_agent_asks_is_answered_in_words_or_by_numbers(
        self, line: str, asked: Asked, meant: object
    ) -> None:
        question = Question("s_1", "r_1", "question", "", "c_1", "ask_user", "{}", asked=asked)
        assert read_answer(line, question) == meant

    def test_the_keys_are_shown_and_a_lasting_yes_only_where_it_can_be_given(self) -> None:
        assert choices(APPROVAL) == (
            "[a] allow  [c] allow in this conversation  [w] always allow  [e] edit  [d] deny"
        )
        assert choices(COMPOUND) == "[a] allow  [e] edit  [d] deny"
        assert choices(LIMIT) == "[g] go on"

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("", ""),
            ("/status", ""),
            ("x", ""),
            ("a", "Enter answers: allow"),
            ("d too early", "Enter answers: deny"),
            ("and now", "Enter sends this message and denies this."),
        ],
    )
    def test_a_line_that_was_begun_says_what_enter_does_with_it(self, line: str, told: str) -> None:
        assert meaning_of(line, APPROVAL) == told

    def test_only_what_goes_with_a_decision_is_sent(self) -> None:
        assert Answer("answer", choices=("a",)).body() == {"decision": "answer", "choices": ("a",)}
        assert Answer("answer", text="a").body() == {"decision": "answer", "text": "a"}
        assert Answer("approve").body() == {"decision": "approve"}
        assert Answer("deny", reason="no").body() == {"decision": "deny", "reason": "no"}

    def test_a_command_is_changed_as_it_stands_and_other_arguments_as_json(self) -> None:
        assert editable(APPROVAL) == "ls"
        assert edited(APPROVAL, "ls -l") == '{"command":"ls -l","timeout_s":5}'
        other = Question("s_1", "r_1", "approval", "", "c_1", "write_file", '{"path":"a"}')
        assert editable(other) == '{"path":"a"}'
        assert edited(other, '{"path":"b"}') == '{"path":"b"}' and edited(other, "b") is None


class TestAnAnswerForAScript:
    def test_text_is_told_once_and_goes_on_after_a_restart(self) -> None:
        answering = Answering(RUN)
        told = [
            answering.add(fact)
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
        assert "".join(told) == answering.text == "0 1 2 3"
        assert answering.status == "completed"

    def test_messages_of_one_answer_stand_apart_and_others_runs_are_not_told(self) -> None:
        answering = Answering(RUN)
        answering.add(f.TextAppended(RUN, ONE, "I look.\n"))
        answering.add(f.TextAppended(RunId("r_2"), MessageId("m_9"), "elsewhere"))
        answering.add(f.ToolIntended(RUN, 1, 2, ONE, CallId("c_1"), "look", "{}", "pure"))
        answering.add(f.ToolSettled(1, 2, ONE, CallId("c_1"), "look", "done", (), "", RUN, ms=4))
        assert answering.add(f.TextAppended(RUN, TWO, "There.")) == "\nThere."
        assert answering.text == "I look.\n\nThere."
        assert [(each.name, each.arguments, each.ms) for each in answering.tools] == [("look", "{}", 4)]

    def test_what_waits_for_a_person_is_known(self) -> None:
        for fact in (f.RunWaiting(RUN, "approval"), f.RunInterrupted(RUN, 1, 2, ONE, asks=True)):
            answering = Answering(RUN)
            answering.add(fact)
            assert answering.status == "needs_you"
