"""What the terminal shows: text made safe, blocks that are whole, lines of tools, the fold of events."""

import json
import re

import pytest

from holdfast.cli.chat.answers import choices
from holdfast.cli.chat.markdown_blocks import whole
from holdfast.cli.chat.render import Drawing, Pieces, duration, readable, tool_line
from holdfast.cli.chat.safe_text import json_line, one_line, safe
from holdfast.cli.chat.view_model import BACK, GONE, Block, Contact, Notice, Said, Scene, Shown, Thought, Tool
from holdfast.cli.chat.wire import Asked, Happened, Listed, Message, Page, Question, Run, Session
from holdfast.domain.events import facts as f
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.events.parts import Reasoning, Text
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.secrets import Mask, Masking
from holdfast.domain.state.rows import RunStatus

RUN, OTHER = RunId("r_1"), RunId("r_2")
ONE, TWO = MessageId("m_1"), MessageId("m_2")
CALL = CallId("c_1")
SESSION = Session("s_1", "A title", "idle", 0, 1)


def plain(text: str) -> str:
    """Without the codes of a terminal, which rich itself writes."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def played(scene: Scene, *facts: AnyFact) -> list[Shown]:
    """All that is printed for `facts`, as one run of events."""
    return [
        each for number, fact in enumerate(facts, 1) for each in scene.add(Happened(number, number, fact))
    ]


def accepted(text: str, run: RunId = RUN, turn: int = 1) -> f.TurnAccepted:
    return f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), (Text(text),), run)


def started(
    message: MessageId = ONE, continues: MessageId | None = None, place: int = 1
) -> f.ModelStepStarted:
    return f.ModelStepStarted(RUN, 1, place, message, "small", continues)


def drawn(scene: Scene) -> str:
    """What stands below all that is printed."""
    return "".join(text for _, text in Drawing(str).live(scene, 80, 30, 0))


def settled(text: str, message: MessageId = ONE, late: bool = False) -> f.MessageSettled:
    return f.MessageSettled(1, 1, message, "assistant", (Text(text),), "", RUN, late=late)


class TestSafeText:
    @pytest.mark.parametrize(
        "steering", ["\x1b[2J", "\x9b31m", "\x07", "\x08", "\r", "\x00", "\x7f", "\u202e", "\u2066"]
    )
    def test_nothing_steers(self, steering: str) -> None:
        assert safe(f"a{steering}b").startswith("a�")
        assert not set(safe(steering)) & {steering[0]}

    @pytest.mark.parametrize("unseen", "\u200b\u200d\u2060\u00ad\u3164\U000e0041\ufeff")
    def test_nothing_hides(self, unseen: str) -> None:
        assert safe(f"rm{unseen}dir") == "rm\ufffddir"

    def test_pictures_and_scripts_that_need_joining_stay(self) -> None:
        family, word = "\U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e"
        assert safe(f"{family} {word}") == f"{family} {word}"

    def test_what_markdown_names_is_safe_too_and_links_say_where_they_lead(self) -> None:
        text = "turned &#x202e; over &#8203; [bank.example](https://evil.example/x)"
        printed = Drawing(Mask().whole).printed([Block(text)], 100)
        assert not {"\u202e", "\u200b"} & set(printed)
        assert "turned \ufffd over \ufffd bank.example (https://evil.example/x)" in plain(printed)
        assert "\x1b]8" not in printed

    def test_lines_stay_and_tabs_have_a_width(self) -> None:
        assert safe("a\n\tb\r\nc") == "a\n    b\nc"

    def test_one_line_is_cut_with_a_mark(self) -> None:
        assert one_line("a  b\nc", 10) == "a b c"
        assert one_line("abcdef", 4) == "abc…"

    def test_json_is_whole_and_still_steers_nothing(self) -> None:
        assert json_line({"a": "\x1b\x9b\x7fé"}) == '{"a":"\\u001b\\u009b\\u007fé"}'


class TestWholeBlocks:
    @pytest.mark.parametrize(
        ("text", "done"),
        [
            ("one para", ""),
            ("one para\n", ""),
            ("one para\n\ntwo", "one para\n\n"),
            ("one\n\ntwo\n\n", "one\n\ntwo\n\n"),
            ("see\n\n```py\na = 1\n\nb = 2\n", "see\n\n"),
            ("```py\na = 1\n\nb = 2\n```\nmore", "```py\na = 1\n\nb = 2\n```\n"),
            ("````\n```\n\ninner\n```\n", ""),
        ],
    )
    def test_they_end_at_an_empty_line_outside_of_code(self, text: str, done: str) -> None:
        assert text[: whole(text)] == done

    def test_one_that_does_not_end_is_shown_in_parts(self) -> None:
        text = "line\n" * 5_000
        assert whole(text + "open") == len(text)


class TestToolLines:
    def test_a_command_stands_as_it_is_and_others_by_name_and_value(self) -> None:
        assert tool_line("shell", '{"command": "ls -la"}', 60) == "shell  ls -la"
        assert tool_line("list_files", "{}", 60) == "list_files"
        assert readable("write_file", '{"path": "a", "text": "b", "n": 1}') == "path: a\ntext: b\nn: 1"
        assert tool_line("odd", "not json", 60) == "odd  not json"

    def test_it_is_short_and_steers_nothing(self) -> None:
        line = tool_line("shell", '{"command": "echo \\u001b[31m' + "x" * 500 + '"}', 200)
        assert len(line) < 100 and line.endswith("…") and "\x1b" not in line

    def test_the_outcome_the_duration_and_the_end_of_the_output_are_told(self) -> None:
        tool = Tool("shell", '{"command": "make"}', "failed", 14_200, "1\n2\n3\n4\nError\x1b[31m\n")
        shown = plain(Drawing(str).printed([tool], 80))
        assert shown.splitlines() == ["  ✗ shell  make · 14 s", "    3", "    4", "    Error�[31m"]

    @pytest.mark.parametrize(("ms", "told"), [(300, "0.3 s"), (14_200, "14 s"), (125_000, "2 min 5 s")])
    def test_durations(self, ms: int, told: str) -> None:
        assert duration(ms) == told


def pieces_of(name: str, arguments: dict[str, object], mask: Masking = str) -> Pieces:
    """Draw a call that waits to be allowed: its question first, its keys last."""
    scene = Scene(SESSION)
    given = json.dumps(arguments)
    scene.listed(Listed(None, (Question("s_1", RUN, "approval", "", CALL, name, given),)))
    return [(style, text.strip("\n")[2:]) for style, text in Drawing(mask).live(scene, 80, 24, 0)]


class TestAChangeOfAFile:
    def test_a_file_that_is_written_reads_as_lines_that_come(self) -> None:
        assert pieces_of("write_file", {"path": "a.md", "content": "One\n\nTwo\n"})[:-1] == [
            ("class:question", "Write a.md?"),
            ("class:added", "  + One"),
            ("class:added", "  + "),
            ("class:added", "  + Two"),
        ]
        assert pieces_of("write_file", {"path": "a.md", "content": ""})[1] == (
            "class:dim",
            "  (an empty file)",
        )

    def test_a_file_that_is_edited_reads_as_lines_that_go_and_come(self) -> None:
        given = {"path": "a.md", "old_text": "One", "new_text": "Two\nThree", "replace_all": True}
        assert pieces_of("edit_file", given)[:-1] == [
            ("class:question", "Change a.md?"),
            ("class:command", "  replace_all: true"),
            ("class:removed", "  - One"),
            ("class:added", "  + Two"),
            ("class:added", "  + Three"),
        ]

    def test_what_has_no_room_is_counted(self) -> None:
        drawn = pieces_of("write_file", {"path": "a.md", "content": "line\n" * 52})
        assert len(drawn) == 1 + 12 + 1 + 1
        assert drawn[-2] == ("class:dim", "  … 40 more lines; /status shows all")

    def test_a_path_is_shown_whole_before_it_is_allowed(self) -> None:
        path = "deep/" * 60 + "a.md"
        shown = "".join(text.strip() for _, text in pieces_of("write_file", {"path": path, "content": "x"}))
        assert path in shown.replace(" ", "").replace("\n", "")

    def test_secrets_and_steering_are_kept_out_of_it(self) -> None:
        given = {"path": "a.md", "content": "open-sesame-open\x1b[2J"}
        assert ("class:added", "  + [secret]�[2J") in pieces_of(
            "write_file", given, Mask(["open-sesame-open"]).whole
        )

    def test_a_call_whose_arguments_the_list_cuts_is_shown_from_the_conversation(self) -> None:
        scene, given = Scene(SESSION), json.dumps({"path": "a.md", "content": "line\n" * 2_000})
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "write_file", given, "idempotent")
        played(scene, accepted("go"), f.RunStarted(RUN), intended)
        cut = Question("s_1", RUN, "approval", "", CALL, "write_file", given[:100], True)
        scene.listed(Listed(None, (cut,)))
        assert drawn(scene).startswith("  Write a.md?\n    + line\n    + line\n")


class TestANarrowScreen:
    def test_all_that_may_be_answered_is_on_it(self) -> None:
        scene = Scene(SESSION)
        question = Question(
            "s_1", RUN, "approval", "It works in " + "x" * 50, CALL, "shell", '{"command":"ls"}'
        )
        scene.listed(Listed(None, (question, question)))
        told = "".join(text for _, text in Drawing(str).live(scene, 40, 24, 0))
        assert max(len(line) for line in told.split("\n")) <= 40
        assert " ".join(told.split()).endswith(" ".join(f"{choices(question)} (1 more)".split()))

    def test_the_foot_says_the_state_whatever_has_no_room(self) -> None:
        scene = Scene(Session("s_1", "A title of some length", "idle", 0, 1), "openai:small")
        foot = Drawing(str).toolbar
        assert foot(scene, True, 0, columns=60) == " A title of some length · openai:small · ready"
        assert foot(scene, True, 0, columns=36) == " A title of… · openai:small · ready"
        assert foot(scene, True, 0, columns=24) == " A title of so… · ready"
        assert foot(scene, False, 1, columns=40).startswith(" the server has gone; looking for it")

    def test_what_wraps_stays_set_in(self) -> None:
        shown = [
            Said("one two three four five"),
            Notice("six seven eight nine ten"),
            Notice("  a\n\nb", plain=True),
        ]
        lines = plain(Drawing(str).printed(shown, 16)).split("\n")
        assert [line.rstrip() for line in lines if line.strip()] == [
            "> one two three", "  four five", "  — six seven", "    eight nine", "    ten —", "    a", "  b",
        ]  # fmt: skip


class TestAnAnswerThatEndedBadly:
    @pytest.mark.parametrize(
        ("run", "told"),
        [
            (Run(RUN, "failed", failure=f.Failure("x", "No key.")), [Notice("It failed: No key.", bad=True)]),
            (Run(RUN, "cancelled"), [Notice("Stopped.")]),
            (Run(RUN, "completed"), []),
        ],
    )
    def test_it_says_so_also_when_the_conversation_is_opened_anew(self, run: Run, told: list[Shown]) -> None:
        asked = Message("u_1", "user", "settled", True, 1, 0, run_id=RUN, parts=(Text("hi"),))
        cut = Message("m_1", "assistant", "interrupted", True, 1, 1, run_id=RUN, parts=(Text("Well"),))
        after = Message("u_2", "user", "settled", True, 2, 0, run_id=OTHER, parts=(Text("And?"),))
        page = Page((asked, cut, after), (run, Run(OTHER, "running")), 9)
        assert Scene(SESSION).begin(page, 8) == [Said("hi"), Block("Well"), *told, Said("And?")]


class TestTheServerGone:
    def test_what_came_before_stands_above_it_and_comes_once(self) -> None:
        scene = Scene(SESSION)
        played(
            scene,
            accepted("hi"), f.RunStarted(RUN), started(),
            f.ReasoningAppended(RUN, ONE, "Hm."), f.TextAppended(RUN, ONE, "One.\n\nTwo thr"),
        )  # fmt: skip
        assert scene.contacted(Contact(False)) == [Block("Two thr"), Notice(GONE)]
        assert drawn(scene) == "", "nothing of it is left below"
        assert scene.contacted(Contact(True)) == [Notice(BACK)]
        shown = played(scene, f.TextAppended(RUN, ONE, "ee."), settled("One.\n\nTwo three."))
        assert shown == [Block("ee.")]

    def test_thinking_that_was_under_way_is_printed_once_too(self) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("hi"), f.RunStarted(RUN), started(), f.ReasoningAppended(RUN, ONE, "Hm."))
        assert scene.contacted(Contact(False)) == [Thought("Hm."), Notice(GONE)]
        assert scene.contacted(Contact(False)) == [Notice(GONE)]
        cut = f.MessageSettled(1, 1, ONE, "assistant", (Reasoning("Hm."),), "", RUN, "interrupted")
        assert played(scene, cut) == []


class TestTheScene:
    def test_blocks_are_printed_once_as_they_become_whole_and_the_rest_is_live(self) -> None:
        scene = Scene(SESSION)
        shown = played(
            scene,
            accepted("hi"), f.RunStarted(RUN), started(),
            f.ReasoningAppended(RUN, ONE, "Hm."),
            f.TextAppended(RUN, ONE, "One.\n\nTw"),
        )  # fmt: skip
        assert shown == [Said("hi"), Thought("Hm."), Block("One.\n\n")]
        assert scene.status == "working" and scene.run_id == RUN
        assert "Tw" in "".join(text for _, text in Drawing(str).live(scene, 80, 30, 0))
        done = played(scene, f.TextAppended(RUN, ONE, "o."), settled("One.\n\nTwo."), f.RunCompleted(RUN))
        assert done == [Block("Two.")]
        assert scene.status == "idle" and Drawing(str).live(scene, 80, 30, 0) == []

    def test_a_body_brings_what_was_not_streamed_and_nothing_twice(self) -> None:
        scene = Scene(SESSION)
        played(scene, started(), f.TextAppended(RUN, ONE, "One.\n\nTw"))
        assert played(scene, settled("One.\n\nTwo and more.")) == [Block("Two and more.")]
        body = f.MessageSettled(1, 2, TWO, "assistant", (Reasoning("Hm"), Text("New")), "", RUN)
        assert played(scene, body) == [Thought("Hm"), Block("New")]

    def test_a_stop_stands_below_until_the_answer_goes_on_and_is_then_one_line_as_on_the_page(self) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("go"), f.RunStarted(RUN), started(), f.TextAppended(RUN, ONE, "Half of"))
        stopped = played(scene, settled("Half of"), f.RunInterrupted(RUN, 1, 2, TWO))
        assert stopped == [Block("Half of")], "the text before it stays"
        assert drawn(scene) == "  — Interrupted by a server restart. —\n"
        assert played(scene, f.RunResumed(RUN, "policy", 1)) == []
        assert scene.status == "working" and "Interrupted by" in drawn(scene)
        went_on = played(
            scene, started(MessageId("m_3"), ONE, 3), f.TextAppended(RUN, MessageId("m_3"), "it")
        )
        assert went_on == [Notice("Continued after restart", at=1)] and drawn(scene) == "  it\n"
        assert played(scene, settled("it", MessageId("m_3")), f.RunCompleted(RUN)) == [Block("it")]

    def test_an_answer_that_does_not_go_on_has_stopped_for_good(self) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO, asks=True))
        assert drawn(scene).count("Interrupted by a server restart.") == 1, "the question says it"
        over = played(scene, f.RunCancelled(RUN))
        assert over == [Notice("Interrupted by a server restart."), Notice("Stopped.")] and drawn(scene) == ""

    @pytest.mark.parametrize(
        ("found", "words"), [(True, "Saved text restored"), (False, "No further output found")]
    )
    def test_what_is_looked_for_after_a_stop_is_said_before_and_after_the_answer_goes_on(
        self, found: bool, words: str
    ) -> None:
        scene, finished = Scene(SESSION), f.RecoveryFinished(RUN, 1, 2, found)
        played(scene, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO))
        played(scene, f.RecoveryPending(RUN, 1, 2))
        assert drawn(scene) == "  — Looking for the rest… —\n"
        early = played(scene, finished, f.RunResumed(RUN, "policy", 1), started(MessageId("m_3"), None, 3))
        assert early == [Notice(f"{words} · Continued after restart", at=3)]
        played(scene, f.RunInterrupted(RUN, 1, 4, MessageId("m_4")), f.RecoveryPending(RUN, 1, 4))
        late = played(
            scene, f.RunResumed(RUN, "policy", 2), started(MessageId("m_5"), None, 5),
            f.RecoveryPending(RUN, 1, 4, reads=1), f.RecoveryFinished(RUN, 1, 4, found),
        )  # fmt: skip
        assert late == [Notice("Looking for the rest… · Continued after restart", at=2), Notice(words)]

    @pytest.mark.parametrize(
        ("status", "place", "shown", "live"),
        [
            ("running", 3, [Notice("Continued after restart", at=9)], ""),
            ("completed", 3, [Notice("Continued after restart", at=9)], ""),
            ("cancelled", 1, [Notice("Interrupted by a server restart.")], ""),
            ("running", 1, [], "  — Interrupted by a server restart. —\n"),
        ],
    )
    def test_a_stop_of_before_reads_as_it_does_on_the_page(
        self, status: RunStatus, place: int, shown: list[Shown], live: str
    ) -> None:
        scene = Scene(SESSION)
        notice = Message("n", "notice", "interrupted", True, 1, 2, 5, run_id=RUN)
        other = Message("m", "assistant", "settled", True, 1, place, 9, run_id=RUN)
        of_next_turn = Message("u", "user", "settled", True, 2, 0, 10)
        messages = (notice, other) if place > 2 else (other, notice)
        assert scene.begin(Page((*messages, of_next_turn), (Run(RUN, status),), 7), 8) == [*shown, Said("")]
        assert drawn(scene) == live
        assert bool(played(scene, started(MessageId("m_3"), None, 3))) == bool(live)

    def test_a_queued_message_is_shown_when_it_is_its_turn(self) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("one"), f.RunStarted(RUN))
        assert played(scene, accepted("two", OTHER, 2), f.TurnQueued(2, OTHER)) == []
        assert list(scene.queued.values()) == [Said("two")]
        shown = played(scene, f.RunCompleted(RUN), f.TurnDequeued(2, OTHER), f.RunStarted(OTHER))
        assert shown == [Said("two")] and scene.queued == {}

    @pytest.mark.parametrize("end", [f.RunCancelled(RUN), f.RunFailed(RUN, f.Failure("x", "No key."))])
    def test_a_message_behind_an_answer_that_was_stopped_waits_for_the_person(self, end: AnyFact) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("one"), f.RunStarted(RUN), accepted("two", OTHER, 2), f.TurnQueued(2, OTHER))
        assert scene.status == "working" and scene.asked == ()
        played(scene, end)
        (question,) = scene.asked
        assert (scene.status, question.run_id) == ("needs_you", OTHER)
        assert drawn(scene) == "  One message is not answered yet.\n  [g] answer it now  /stop drops it\n"
        assert Drawing(str).toolbar(scene, True, 0).endswith("needs you: one message is not answered yet")
        shown = played(scene, f.TurnDequeued(2, OTHER), f.RunStarted(OTHER))
        assert shown == [Said("two")] and (scene.status, scene.asked) == ("working", ())

    def test_a_message_that_waits_for_the_person_does_so_when_it_is_opened_anew(self) -> None:
        scene = Scene(SESSION)
        scene.begin(Page((), (Run(RUN, "cancelled"), Run(OTHER, "queued")), 3), 8)
        assert (scene.status, scene.unanswered) == ("needs_you", [OTHER])
        scene = Scene(SESSION)
        scene.begin(Page((), (Run(RUN, "running"), Run(OTHER, "queued")), 3), 8)
        assert (scene.status, scene.unanswered) == ("working", [])

    def test_a_call_goes_from_a_question_to_a_line(self) -> None:
        scene = Scene(SESSION)
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "shell", '{"command":"ls"}', "unsafe")
        played(scene, accepted("ls"), f.RunStarted(RUN), intended, f.ApprovalRequested(RUN, CALL, "here"))
        played(scene, f.RunWaiting(RUN, "approval"))
        scene.listed(
            Listed(None, (Question("s_1", RUN, "approval", "here", CALL, "shell", '{"command":"ls"}'),))
        )
        drawn = "".join(text for _, text in Drawing(str).live(scene, 80, 30, 0))
        assert "Run this command?\n    ls\n    here\n  [a] allow" in drawn
        assert scene.status == "needs_you"
        shown = played(scene, f.ApprovalResolved(RUN, CALL, "approve"), f.RunResumed(RUN, "user", 0))
        assert shown == [Notice("Allowed.")] and scene.asked == ()
        played(scene, f.ToolStarted(RUN, CALL))
        assert "… shell  ls" in "".join(text for _, text in Drawing(str).live(scene, 80, 30, 3_000))
        done = f.ToolSettled(1, 2, ONE, CALL, "shell", "done", (Text("a\n"),), "", RUN, ms=40)
        assert played(scene, done) == [Tool("shell", '{"command":"ls"}', "done", 40, "a\n")]

    def test_what_the_agent_asks_is_shown_with_its_choices_until_it_is_answered(self) -> None:
        scene = Scene(SESSION)
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "ask_user", "{}", "pure")
        asked = f.QuestionAsked(RUN, CALL, "Which?", ("Red", "Green"))
        played(scene, accepted("go"), f.RunStarted(RUN), intended, asked, f.RunWaiting(RUN, "question"))
        shown = Asked("Which?", ("Red", "Green"))
        scene.listed(
            Listed(None, (Question("s_1", RUN, "question", "", CALL, "ask_user", "{}", asked=shown),))
        )
        drawn = "".join(text for _, text in Drawing(str).live(scene, 80, 30, 0))
        assert "It asks you:\n    Which?\n    1. Red\n    2. Green\n  Type its number" in drawn
        assert scene.status == "needs_you"
        played(scene, f.QuestionAnswered(RUN, CALL, choices=("Red",)), f.RunResumed(RUN, "user", 0))
        assert scene.asked == () and scene.status == "working"

    def test_an_answer_that_stays_stopped_can_be_let_go_on(self) -> None:
        scene = Scene(SESSION)
        played(scene, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO, asks=True))
        assert [each.run_id for each in scene.asked] == [RUN] and scene.status == "needs_you"
        played(scene, f.RunResumed(RUN, "user", 1))
        assert scene.asked == () and scene.status == "working"

    def test_secrets_are_masked_wherever_they_turn_up(self) -> None:
        scene = Scene(Session("s_1", "open-sesame-open", "idle", 0, 1), "small")
        drawing = Drawing(Mask(["open-sesame-open"]).whole)
        played(
            scene, started(), f.TextAppended(RUN, ONE, "open-sesame"), f.TextAppended(RUN, ONE, "-open is it")
        )
        live = "".join(text for _, text in drawing.live(scene, 80, 30, 0))
        printed = drawing.printed(played(scene, settled("open-sesame-open is it")), 80)
        for shown in (live, printed, drawing.toolbar(scene, True, 0)):
            assert "sesame" not in shown and "[secret]" in shown

    def test_what_has_no_title_is_known_by_its_first_words(self) -> None:
        drawing, scene = Drawing(Mask().whole), Scene(Session("s_1", "", "idle", 0, 0), "small")
        assert drawing.toolbar(scene, True, 0).startswith(" Untitled · small")
        scene.listed(Listed(Session("s_1", "", "idle", 0, 1, opening="What is the weather?"), ()))
        assert drawing.toolbar(scene, True, 0).startswith(" What is the weather? · small")
        scene.listed(Listed(Session("s_1", "Weather", "idle", 0, 1), ()))
        assert drawing.toolbar(scene, True, 0).startswith(" Weather · small")

    def test_the_agent_is_named_where_it_is_not_the_usual_one_or_not_the_only_one(self) -> None:
        drawing, scene = Drawing(Mask(["open-sesame-open"]).whole), Scene(SESSION, "small")
        assert drawing.toolbar(scene, True, 0) == " A title · small · ready"
        assert drawing.toolbar(scene, True, 0, agents=2) == " A title · main · small · ready"
        scene.listed(Listed(Session("s_1", "A title", "idle", 0, 1, agent="reader"), ()))
        assert drawing.toolbar(scene, True, 0) == " A title · reader · small · ready"
        assert drawing.toolbar(scene, True, 2) == " A title · reader · small · ready · 2 to be sent"
        scene.listed(Listed(Session("s_1", "A title", "idle", 0, 1, agent="open-sesame-open"), ()))
        assert "sesame" not in drawing.toolbar(scene, True, 0)

    def test_an_empty_page_begins_an_empty_scene(self) -> None:
        scene = Scene(SESSION)
        assert scene.begin(Page((), (), 3), 5) == [] and scene.cursor == 3
