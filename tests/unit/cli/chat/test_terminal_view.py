"""What the terminal shows: text made safe, blocks that are whole, lines of tools, the fold of events."""

import json
import re

import pytest

from holdfast.cli.chat.answers import answer_hint
from holdfast.cli.chat.markdown_blocks import complete_length
from holdfast.cli.chat.render import Renderer, StyledPieces, format_arguments, format_duration, tool_line
from holdfast.cli.chat.response_data import (
    AgentQuestionData,
    EventData,
    FeedUpdate,
    MessageData,
    MessagePageData,
    QuestionData,
    RunData,
    SessionData,
)
from holdfast.cli.chat.safe_text import json_line, one_line, safe
from holdfast.cli.chat.view_model import (
    SERVER_BACK,
    SERVER_GONE,
    ConnectionChange,
    ConversationViewModel,
    FinishedToolCall,
    MarkdownBlock,
    Notice,
    PrintedItem,
    ThinkingText,
    UserMessageItem,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.events.parts import Reasoning, Text
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.secrets import MaskFunction, SecretMask
from holdfast.domain.state.rows import RunStatus

RUN, OTHER = RunId("r_1"), RunId("r_2")
ONE, TWO = MessageId("m_1"), MessageId("m_2")
CALL = CallId("c_1")
SESSION = SessionData("s_1", "A title", "idle", 0, 1)


def plain(text: str) -> str:
    """Without the codes of a terminal, which rich itself writes."""
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def printed_blocks(conversation: ConversationViewModel, *facts: AnyFact) -> list[PrintedItem]:
    """All that is printed for `facts`, as one run of events."""
    return [
        each
        for number, fact in enumerate(facts, 1)
        for each in conversation.apply_event(EventData(number, number, fact))
    ]


def accepted(text: str, run: RunId = RUN, turn: int = 1) -> f.TurnAccepted:
    return f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), (Text(text),), run)


def started(
    message: MessageId = ONE, continues: MessageId | None = None, place: int = 1
) -> f.ModelStepStarted:
    return f.ModelStepStarted(RUN, 1, place, message, "small", continues)


def live_text(conversation: ConversationViewModel) -> str:
    """What stands below all that is printed."""
    return "".join(text for _, text in Renderer(str).render_live(conversation, 80, 30, 0))


def settled(text: str, message: MessageId = ONE, late: bool = False) -> f.MessageSettled:
    return f.MessageSettled(1, 1, message, "assistant", (Text(text),), "", RUN, late=late)


class TestSafeText:
    @pytest.mark.parametrize(
        "steering", ["\x1b[2J", "\x9b31m", "\x07", "\x08", "\r", "\x00", "\x7f", "\u202e", "\u2066"]
    )
    def test_control_characters_are_removed(self, steering: str) -> None:
        assert safe(f"a{steering}b").startswith("a�")
        assert not set(safe(steering)) & {steering[0]}

    @pytest.mark.parametrize("unseen", "\u200b\u200d\u2060\u00ad\u3164\U000e0041\ufeff")
    def test_invisible_characters_are_replaced(self, unseen: str) -> None:
        assert safe(f"rm{unseen}dir") == "rm\ufffddir"

    def test_joiners_that_scripts_and_emoji_need_are_kept(self) -> None:
        family, word = "\U0001f468\u200d\U0001f469", "\u0645\u06cc\u200c\u062e"
        assert safe(f"{family} {word}") == f"{family} {word}"

    def test_markdown_entities_are_sanitised_and_links_show_their_targets(self) -> None:
        text = "turned &#x202e; over &#8203; [bank.example](https://evil.example/x)"
        printed = Renderer(SecretMask().mask).render_items([MarkdownBlock(text)], 100)
        assert not {"\u202e", "\u200b"} & set(printed)
        assert "turned \ufffd over \ufffd bank.example (https://evil.example/x)" in plain(printed)
        assert "\x1b]8" not in printed

    def test_newlines_are_kept_and_tabs_become_spaces(self) -> None:
        assert safe("a\n\tb\r\nc") == "a\n    b\nc"

    def test_one_line_is_truncated_with_an_ellipsis(self) -> None:
        assert one_line("a  b\nc", 10) == "a b c"
        assert one_line("abcdef", 4) == "abc…"

    def test_json_line_escapes_control_characters(self) -> None:
        assert json_line({"a": "\x1b\x9b\x7fé"}) == '{"a":"\\u001b\\u009b\\u007fé"}'


class TestCompleteBlocks:
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
    def test_a_block_ends_at_an_empty_line_outside_code(self, text: str, done: str) -> None:
        assert text[: complete_length(text)] == done

    def test_an_overlong_block_is_shown_in_parts(self) -> None:
        text = "line\n" * 5_000
        assert complete_length(text + "open") == len(text)


class TestToolLines:
    def test_a_shell_command_is_shown_verbatim_and_other_arguments_as_name_and_value(self) -> None:
        assert tool_line("shell", '{"command": "ls -la"}', 60) == "shell  ls -la"
        assert tool_line("list_files", "{}", 60) == "list_files"
        assert (
            format_arguments("write_file", '{"path": "a", "text": "b", "n": 1}') == "path: a\ntext: b\nn: 1"
        )
        assert tool_line("odd", "not json", 60) == "odd  not json"

    def test_a_tool_line_is_short_and_sanitised(self) -> None:
        line = tool_line("shell", '{"command": "echo \\u001b[31m' + "x" * 500 + '"}', 200)
        assert len(line) < 100 and line.endswith("…") and "\x1b" not in line

    def test_a_tool_line_shows_outcome_duration_and_last_output_lines(self) -> None:
        tool = FinishedToolCall(
            "shell", '{"command": "make"}', "failed", 14_200, "1\n2\n3\n4\nError\x1b[31m\n"
        )
        shown = plain(Renderer(str).render_items([tool], 80))
        assert shown.splitlines() == ["  ✗ shell  make · 14 s", "    3", "    4", "    Error�[31m"]

    @pytest.mark.parametrize(("ms", "expected"), [(300, "0.3 s"), (14_200, "14 s"), (125_000, "2 min 5 s")])
    def test_durations(self, ms: int, expected: str) -> None:
        assert format_duration(ms) == expected


def pieces_of(name: str, arguments: dict[str, object], mask: MaskFunction = str) -> StyledPieces:
    """Draw a call that waits to be allowed: its question first, its keys last."""
    conversation = ConversationViewModel(SESSION)
    given = json.dumps(arguments)
    conversation.apply_feed_update(
        FeedUpdate(None, (QuestionData("s_1", RUN, "approval", "", CALL, name, given),))
    )
    return [
        (style, text.strip("\n")[2:]) for style, text in Renderer(mask).render_live(conversation, 80, 24, 0)
    ]


class TestFileDiff:
    def test_write_file_is_shown_as_added_lines(self) -> None:
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

    def test_edit_file_is_shown_as_removed_and_added_lines(self) -> None:
        given = {"path": "a.md", "old_text": "One", "new_text": "Two\nThree", "replace_all": True}
        assert pieces_of("edit_file", given)[:-1] == [
            ("class:question", "Change a.md?"),
            ("class:command", "  replace_all: true"),
            ("class:removed", "  - One"),
            ("class:added", "  + Two"),
            ("class:added", "  + Three"),
        ]

    def test_lines_that_do_not_fit_are_counted(self) -> None:
        drawn = pieces_of("write_file", {"path": "a.md", "content": "line\n" * 52})
        assert len(drawn) == 1 + 12 + 1 + 1
        assert drawn[-2] == ("class:dim", "  … 40 more lines; /status shows all")

    def test_an_approval_shows_the_full_path(self) -> None:
        path = "deep/" * 60 + "a.md"
        shown = "".join(text.strip() for _, text in pieces_of("write_file", {"path": path, "content": "x"}))
        assert path in shown.replace(" ", "").replace("\n", "")

    def test_a_file_diff_masks_secrets_and_control_characters(self) -> None:
        given = {"path": "a.md", "content": "open-sesame-open\x1b[2J"}
        assert ("class:added", "  + [secret]�[2J") in pieces_of(
            "write_file", given, SecretMask(["open-sesame-open"]).mask
        )

    def test_truncated_question_arguments_are_completed_from_the_events(self) -> None:
        conversation, given = (
            ConversationViewModel(SESSION),
            json.dumps({"path": "a.md", "content": "line\n" * 2_000}),
        )
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "write_file", given, "idempotent")
        printed_blocks(conversation, accepted("go"), f.RunStarted(RUN), intended)
        cut = QuestionData("s_1", RUN, "approval", "", CALL, "write_file", given[:100], True)
        conversation.apply_feed_update(FeedUpdate(None, (cut,)))
        assert live_text(conversation).startswith("  Write a.md?\n    + line\n    + line\n")


class TestNarrowScreen:
    def test_a_narrow_screen_shows_every_answer_key(self) -> None:
        conversation = ConversationViewModel(SESSION)
        question = QuestionData(
            "s_1", RUN, "approval", "It works in " + "x" * 50, CALL, "shell", '{"command":"ls"}'
        )
        conversation.apply_feed_update(FeedUpdate(None, (question, question)))
        screen = "".join(text for _, text in Renderer(str).render_live(conversation, 40, 24, 0))
        assert max(len(line) for line in screen.split("\n")) <= 40
        assert " ".join(screen.split()).endswith(" ".join(f"{answer_hint(question)} (1 more)".split()))

    def test_the_toolbar_always_shows_the_status(self) -> None:
        conversation = ConversationViewModel(
            SessionData("s_1", "A title of some length", "idle", 0, 1), "openai:small"
        )
        foot = Renderer(str).render_toolbar
        assert foot(conversation, True, 0, columns=60) == " A title of some length · openai:small · ready"
        assert foot(conversation, True, 0, columns=36) == " A title of… · openai:small · ready"
        assert foot(conversation, True, 0, columns=24) == " A title of so… · ready"
        assert foot(conversation, False, 1, columns=40).startswith(" the server has gone; looking for it")

    def test_wrapped_lines_stay_indented(self) -> None:
        shown = [
            UserMessageItem("one two three four five"),
            Notice("six seven eight nine ten"),
            Notice("  a\n\nb", plain=True),
        ]
        lines = plain(Renderer(str).render_items(shown, 16)).split("\n")
        assert [line.rstrip() for line in lines if line.strip()] == [
            "> one two three", "  four five", "  — six seven", "    eight nine", "    ten —", "    a", "  b",
        ]  # fmt: skip


class TestFailedAnswer:
    @pytest.mark.parametrize(
        ("run", "printed"),
        [
            (
                RunData(RUN, "failed", failure=f.Failure("x", "No key.")),
                [Notice("It failed: No key.", bad=True)],
            ),
            (RunData(RUN, "cancelled"), [Notice("Stopped.")]),
            (RunData(RUN, "completed"), []),
        ],
    )
    def test_a_failed_answer_is_shown_when_the_conversation_is_reopened(
        self, run: RunData, printed: list[PrintedItem]
    ) -> None:
        asked = MessageData("u_1", "user", "settled", True, 1, 0, run_id=RUN, parts=(Text("hi"),))
        cut = MessageData("m_1", "assistant", "interrupted", True, 1, 1, run_id=RUN, parts=(Text("Well"),))
        after = MessageData("u_2", "user", "settled", True, 2, 0, run_id=OTHER, parts=(Text("And?"),))
        page = MessagePageData((asked, cut, after), (run, RunData(OTHER, "running")), 9)
        assert ConversationViewModel(SESSION).load_page(page, 8) == [
            UserMessageItem("hi"),
            MarkdownBlock("Well"),
            *printed,
            UserMessageItem("And?"),
        ]


class TestServerLost:
    def test_text_received_before_a_disconnect_is_printed_once(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation,
            accepted("hi"), f.RunStarted(RUN), started(),
            f.ReasoningAppended(RUN, ONE, "Hm."), f.TextAppended(RUN, ONE, "One.\n\nTwo thr"),
        )  # fmt: skip
        assert conversation.apply_connection_change(ConnectionChange(False)) == [
            MarkdownBlock("Two thr"),
            Notice(SERVER_GONE),
        ]
        assert live_text(conversation) == "", "nothing of it is left below"
        assert conversation.apply_connection_change(ConnectionChange(True)) == [Notice(SERVER_BACK)]
        shown = printed_blocks(conversation, f.TextAppended(RUN, ONE, "ee."), settled("One.\n\nTwo three."))
        assert shown == [MarkdownBlock("ee.")]

    def test_thinking_received_before_a_disconnect_is_printed_once(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation, accepted("hi"), f.RunStarted(RUN), started(), f.ReasoningAppended(RUN, ONE, "Hm.")
        )
        assert conversation.apply_connection_change(ConnectionChange(False)) == [
            ThinkingText("Hm."),
            Notice(SERVER_GONE),
        ]
        assert conversation.apply_connection_change(ConnectionChange(False)) == [Notice(SERVER_GONE)]
        cut = f.MessageSettled(1, 1, ONE, "assistant", (Reasoning("Hm."),), "", RUN, "interrupted")
        assert printed_blocks(conversation, cut) == []


class TestConversationViewModel:
    def test_complete_blocks_are_printed_once_and_the_rest_stays_live(self) -> None:
        conversation = ConversationViewModel(SESSION)
        shown = printed_blocks(
            conversation,
            accepted("hi"), f.RunStarted(RUN), started(),
            f.ReasoningAppended(RUN, ONE, "Hm."),
            f.TextAppended(RUN, ONE, "One.\n\nTw"),
        )  # fmt: skip
        assert shown == [UserMessageItem("hi"), ThinkingText("Hm."), MarkdownBlock("One.\n\n")]
        assert conversation.status == "working" and conversation.run_id == RUN
        assert "Tw" in "".join(text for _, text in Renderer(str).render_live(conversation, 80, 30, 0))
        done = printed_blocks(
            conversation, f.TextAppended(RUN, ONE, "o."), settled("One.\n\nTwo."), f.RunCompleted(RUN)
        )
        assert done == [MarkdownBlock("Two.")]
        assert conversation.status == "idle" and Renderer(str).render_live(conversation, 80, 30, 0) == []

    def test_a_settled_message_adds_only_unstreamed_text(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(conversation, started(), f.TextAppended(RUN, ONE, "One.\n\nTw"))
        assert printed_blocks(conversation, settled("One.\n\nTwo and more.")) == [
            MarkdownBlock("Two and more.")
        ]
        body = f.MessageSettled(1, 2, TWO, "assistant", (Reasoning("Hm"), Text("New")), "", RUN)
        assert printed_blocks(conversation, body) == [ThinkingText("Hm"), MarkdownBlock("New")]

    def test_an_interruption_notice_stays_live_until_the_answer_continues(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation, accepted("go"), f.RunStarted(RUN), started(), f.TextAppended(RUN, ONE, "Half of")
        )
        stopped = printed_blocks(conversation, settled("Half of"), f.RunInterrupted(RUN, 1, 2, TWO))
        assert stopped == [MarkdownBlock("Half of")], "the text before it stays"
        assert live_text(conversation) == "  — Interrupted by a server restart. —\n"
        assert printed_blocks(conversation, f.RunResumed(RUN, "policy", 1)) == []
        assert conversation.status == "working" and "Interrupted by" in live_text(conversation)
        went_on = printed_blocks(
            conversation, started(MessageId("m_3"), ONE, 3), f.TextAppended(RUN, MessageId("m_3"), "it")
        )
        assert went_on == [Notice("Continued after restart", at=1)] and live_text(conversation) == "  it\n"
        assert printed_blocks(conversation, settled("it", MessageId("m_3")), f.RunCompleted(RUN)) == [
            MarkdownBlock("it")
        ]

    def test_an_interruption_is_final_when_the_answer_does_not_continue(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO, asks=True)
        )
        assert live_text(conversation).count("Interrupted by a server restart.") == 1, "the question says it"
        over = printed_blocks(conversation, f.RunCancelled(RUN))
        assert (
            over == [Notice("Interrupted by a server restart."), Notice("Stopped.")]
            and live_text(conversation) == ""
        )

    @pytest.mark.parametrize(
        ("found", "words"), [(True, "Saved text restored"), (False, "No further output found")]
    )
    def test_recovery_status_is_shown_before_and_after_the_answer_continues(
        self, found: bool, words: str
    ) -> None:
        conversation, finished = ConversationViewModel(SESSION), f.RecoveryFinished(RUN, 1, 2, found)
        printed_blocks(conversation, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO))
        printed_blocks(conversation, f.RecoveryPending(RUN, 1, 2))
        assert live_text(conversation) == "  — Looking for the rest… —\n"
        early = printed_blocks(
            conversation, finished, f.RunResumed(RUN, "policy", 1), started(MessageId("m_3"), None, 3)
        )
        assert early == [Notice(f"{words} · Continued after restart", at=3)]
        printed_blocks(
            conversation, f.RunInterrupted(RUN, 1, 4, MessageId("m_4")), f.RecoveryPending(RUN, 1, 4)
        )
        late = printed_blocks(
            conversation, f.RunResumed(RUN, "policy", 2), started(MessageId("m_5"), None, 5),
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
    def test_an_earlier_interruption_reads_as_on_the_page(
        self, status: RunStatus, place: int, shown: list[PrintedItem], live: str
    ) -> None:
        conversation = ConversationViewModel(SESSION)
        notice = MessageData("n", "notice", "interrupted", True, 1, 2, 5, run_id=RUN)
        other = MessageData("m", "assistant", "settled", True, 1, place, 9, run_id=RUN)
        of_next_turn = MessageData("u", "user", "settled", True, 2, 0, 10)
        messages = (notice, other) if place > 2 else (other, notice)
        assert conversation.load_page(
            MessagePageData((*messages, of_next_turn), (RunData(RUN, status),), 7), 8
        ) == [*shown, UserMessageItem("")]
        assert live_text(conversation) == live
        assert bool(printed_blocks(conversation, started(MessageId("m_3"), None, 3))) == bool(live)

    def test_a_queued_message_is_shown_when_it_is_dequeued(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(conversation, accepted("one"), f.RunStarted(RUN))
        assert printed_blocks(conversation, accepted("two", OTHER, 2), f.TurnQueued(2, OTHER)) == []
        assert list(conversation.queued.values()) == [UserMessageItem("two")]
        shown = printed_blocks(
            conversation, f.RunCompleted(RUN), f.TurnDequeued(2, OTHER), f.RunStarted(OTHER)
        )
        assert shown == [UserMessageItem("two")] and conversation.queued == {}

    @pytest.mark.parametrize("end", [f.RunCancelled(RUN), f.RunFailed(RUN, f.Failure("x", "No key."))])
    def test_a_message_queued_behind_a_stopped_answer_waits_for_the_user(self, end: AnyFact) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation,
            accepted("one"),
            f.RunStarted(RUN),
            accepted("two", OTHER, 2),
            f.TurnQueued(2, OTHER),
        )
        assert conversation.status == "working" and conversation.pending_questions == ()
        printed_blocks(conversation, end)
        (question,) = conversation.pending_questions
        assert (conversation.status, question.run_id) == ("needs_you", OTHER)
        assert (
            live_text(conversation)
            == "  One message is not answered yet.\n  [g] answer it now  /stop drops it\n"
        )
        assert (
            Renderer(str)
            .render_toolbar(conversation, True, 0)
            .endswith("needs you: one message is not answered yet")
        )
        shown = printed_blocks(conversation, f.TurnDequeued(2, OTHER), f.RunStarted(OTHER))
        assert shown == [UserMessageItem("two")] and (
            conversation.status,
            conversation.pending_questions,
        ) == ("working", ())

    def test_a_message_waiting_for_the_user_still_waits_after_reopening(self) -> None:
        conversation = ConversationViewModel(SESSION)
        conversation.load_page(
            MessagePageData((), (RunData(RUN, "cancelled"), RunData(OTHER, "queued")), 3), 8
        )
        assert (conversation.status, conversation.unanswered) == ("needs_you", [OTHER])
        conversation = ConversationViewModel(SESSION)
        conversation.load_page(MessagePageData((), (RunData(RUN, "running"), RunData(OTHER, "queued")), 3), 8)
        assert (conversation.status, conversation.unanswered) == ("working", [])

    def test_an_approved_tool_call_becomes_one_line(self) -> None:
        conversation = ConversationViewModel(SESSION)
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "shell", '{"command":"ls"}', "unsafe")
        printed_blocks(
            conversation, accepted("ls"), f.RunStarted(RUN), intended, f.ApprovalRequested(RUN, CALL, "here")
        )
        printed_blocks(conversation, f.RunWaiting(RUN, "approval"))
        conversation.apply_feed_update(
            FeedUpdate(
                None, (QuestionData("s_1", RUN, "approval", "here", CALL, "shell", '{"command":"ls"}'),)
            )
        )
        drawn = "".join(text for _, text in Renderer(str).render_live(conversation, 80, 30, 0))
        assert "Run this command?\n    ls\n    here\n  [a] allow" in drawn
        assert conversation.status == "needs_you"
        shown = printed_blocks(
            conversation, f.ApprovalResolved(RUN, CALL, "approve"), f.RunResumed(RUN, "user", 0)
        )
        assert shown == [Notice("Allowed.")] and conversation.pending_questions == ()
        printed_blocks(conversation, f.ToolStarted(RUN, CALL))
        assert "… shell  ls" in "".join(
            text for _, text in Renderer(str).render_live(conversation, 80, 30, 3_000)
        )
        done = f.ToolSettled(1, 2, ONE, CALL, "shell", "done", (Text("a\n"),), "", RUN, ms=40)
        assert printed_blocks(conversation, done) == [
            FinishedToolCall("shell", '{"command":"ls"}', "done", 40, "a\n")
        ]

    def test_an_agent_question_is_shown_with_its_choices_until_answered(self) -> None:
        conversation = ConversationViewModel(SESSION)
        intended = f.ToolIntended(RUN, 1, 2, ONE, CALL, "ask_user", "{}", "pure")
        asked = f.QuestionAsked(RUN, CALL, "Which?", ("Red", "Green"))
        printed_blocks(
            conversation, accepted("go"), f.RunStarted(RUN), intended, asked, f.RunWaiting(RUN, "question")
        )
        shown = AgentQuestionData("Which?", ("Red", "Green"))
        conversation.apply_feed_update(
            FeedUpdate(None, (QuestionData("s_1", RUN, "question", "", CALL, "ask_user", "{}", asked=shown),))
        )
        drawn = "".join(text for _, text in Renderer(str).render_live(conversation, 80, 30, 0))
        assert "It asks you:\n    Which?\n    1. Red\n    2. Green\n  Type its number" in drawn
        assert conversation.status == "needs_you"
        printed_blocks(
            conversation, f.QuestionAnswered(RUN, CALL, choices=("Red",)), f.RunResumed(RUN, "user", 0)
        )
        assert conversation.pending_questions == () and conversation.status == "working"

    def test_an_interrupted_answer_can_be_resumed(self) -> None:
        conversation = ConversationViewModel(SESSION)
        printed_blocks(
            conversation, accepted("go"), f.RunStarted(RUN), f.RunInterrupted(RUN, 1, 2, TWO, asks=True)
        )
        assert [each.run_id for each in conversation.pending_questions] == [
            RUN
        ] and conversation.status == "needs_you"
        printed_blocks(conversation, f.RunResumed(RUN, "user", 1))
        assert conversation.pending_questions == () and conversation.status == "working"

    def test_the_terminal_view_masks_secrets_everywhere(self) -> None:
        conversation = ConversationViewModel(SessionData("s_1", "open-sesame-open", "idle", 0, 1), "small")
        drawing = Renderer(SecretMask(["open-sesame-open"]).mask)
        printed_blocks(
            conversation,
            started(),
            f.TextAppended(RUN, ONE, "open-sesame"),
            f.TextAppended(RUN, ONE, "-open is it"),
        )
        live = "".join(text for _, text in drawing.render_live(conversation, 80, 30, 0))
        printed = drawing.render_items(printed_blocks(conversation, settled("open-sesame-open is it")), 80)
        for shown in (live, printed, drawing.render_toolbar(conversation, True, 0)):
            assert "sesame" not in shown and "[secret]" in shown

    def test_an_untitled_conversation_is_named_by_its_first_message(self) -> None:
        drawing, conversation = (
            Renderer(SecretMask().mask),
            ConversationViewModel(SessionData("s_1", "", "idle", 0, 0), "small"),
        )
        assert drawing.render_toolbar(conversation, True, 0).startswith(" Untitled · small")
        conversation.apply_feed_update(
            FeedUpdate(SessionData("s_1", "", "idle", 0, 1, opening="What is the weather?"), ())
        )
        assert drawing.render_toolbar(conversation, True, 0).startswith(" What is the weather? · small")
        conversation.apply_feed_update(FeedUpdate(SessionData("s_1", "Weather", "idle", 0, 1), ()))
        assert drawing.render_toolbar(conversation, True, 0).startswith(" Weather · small")

    def test_the_toolbar_names_the_agent_unless_it_is_the_only_default(self) -> None:
        drawing, conversation = (
            Renderer(SecretMask(["open-sesame-open"]).mask),
            ConversationViewModel(SESSION, "small"),
        )
        assert drawing.render_toolbar(conversation, True, 0) == " A title · small · ready"
        assert drawing.render_toolbar(conversation, True, 0, agents=2) == " A title · main · small · ready"
        conversation.apply_feed_update(
            FeedUpdate(SessionData("s_1", "A title", "idle", 0, 1, agent="reader"), ())
        )
        assert drawing.render_toolbar(conversation, True, 0) == " A title · reader · small · ready"
        assert (
            drawing.render_toolbar(conversation, True, 2)
            == " A title · reader · small · ready · 2 to be sent"
        )
        conversation.apply_feed_update(
            FeedUpdate(SessionData("s_1", "A title", "idle", 0, 1, agent="open-sesame-open"), ())
        )
        assert "sesame" not in drawing.render_toolbar(conversation, True, 0)

    def test_an_empty_page_loads_an_empty_conversation(self) -> None:
        conversation = ConversationViewModel(SESSION)
        assert conversation.load_page(MessagePageData((), (), 3), 5) == [] and conversation.cursor == 3
