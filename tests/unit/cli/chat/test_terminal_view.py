"""What the terminal shows: narrow screens, failed answers, a lost server, the fold of events."""

import re

import pytest

from holdfast.cli.chat.answers import answer_hint
from holdfast.cli.chat.render import Renderer
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
from holdfast.domain.secrets import SecretMask
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
