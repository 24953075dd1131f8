"""What the model is sent: each rule of the context by an example."""

import pytest

from holdfast.domain.context import context
from holdfast.domain.context.context import (
    AssistantMessage,
    ModelProfile,
    Request,
    ToolMessage,
    UserMessage,
    build_request,
    estimate_tokens,
    find_problems,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, File, Reasoning, Text, ToolCall
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.transcript.transcript import fold
from tests.support.in_memory_session import InMemoryJournal

WIDE = ModelProfile("demo", 1_000_000)
PREFILLS = ModelProfile("demo", 1_000_000, prefill=True)


class ContextJournal(InMemoryJournal):
    """A journal told in short words."""

    def ask(self, turn: int, text: str) -> RunId:
        run_id = RunId(f"r_{turn}")
        self.append(f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), (Text(text),), run_id))
        self.append(f.RunStarted(run_id))
        return run_id

    def say(self, turn: int, place: int, *parts: AnyPart, late: bool = False, partial: bool = False) -> None:
        status: f.Settlement = "interrupted" if partial else "settled"
        name, run_id = MessageId(f"m_{turn}_{place}"), RunId(f"r_{turn}")
        self.append(f.MessageSettled(turn, place, name, "assistant", parts, "", run_id, status, None, late))

    def tool(self, turn: int, place: int, call: str, outcome: f.ToolOutcome, *parts: AnyPart) -> None:
        message_id, run_id = MessageId("m"), RunId(f"r_{turn}")
        self.append(f.ToolSettled(turn, place, message_id, CallId(call), "shell", outcome, parts, "", run_id))

    def request(self, profile: ModelProfile = WIDE) -> Request:
        request = build_request(fold(self.events), "Be brief.", profile)
        assert find_problems(request) == []
        return request


def user(*texts: str) -> UserMessage:
    return UserMessage(tuple(Text(text) for text in texts))


def answer(*parts: Text | Reasoning | ToolCall) -> AssistantMessage:
    return AssistantMessage(parts)


def test_live_turns_enter_in_order_and_removed_ones_do_not() -> None:
    journal = ContextJournal()
    for turn in (1, 2, 3):
        journal.ask(turn, f"question {turn}")
        journal.say(turn, 1, Text(f"answer {turn}"))
        if turn == 1:
            journal.append(f.SessionCleared(1))
        if turn == 2:
            journal.append(f.TurnsUndone(2))
    journal.ask(4, "question 4")
    request = journal.request()
    assert request.messages == (user("question 3"), answer(Text("answer 3")), user("question 4"))
    assert (request.system, request.cut_turns) == ("Be brief.", ())


def test_questions_that_were_never_answered_are_joined() -> None:
    journal = ContextJournal()
    journal.ask(1, "first")
    journal.ask(2, "second")
    assert journal.request().messages == (user("first", "second"),)


def test_a_newest_summary_stands_for_its_turns_until_one_of_them_goes() -> None:
    journal = ContextJournal()
    for turn in (1, 2, 3):
        journal.ask(turn, f"question {turn}")
        journal.say(turn, 1, Text(f"answer {turn}"))
    journal.append(f.SessionCompacted(((1, 1),), "one"), f.SessionCompacted(((1, 2),), "one and two"))
    summary = Text(context.SUMMARY + "one and two")
    assert journal.request().messages[0] == UserMessage((summary, Text("question 3")))
    journal.append(f.TurnsUndone(2))
    journal.ask(4, "question 4")
    assert journal.request().messages == (user(context.SUMMARY + "one", "question 4"),)
    journal.append(f.TurnsUndone(1))
    journal.ask(5, "question 5")
    assert journal.request().messages == (user("question 5"),)


def test_a_summary_of_turns_without_end_costs_nothing() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.append(f.SessionCompacted(((1, 10**12),), "of everything"))
    assert journal.request().messages == (user("question"),)


def test_memories_stand_before_their_turn() -> None:
    journal = ContextJournal()
    run_id = journal.ask(1, "question")
    journal.append(f.ContextPrepared(run_id, "digest", ("likes tea", "is in Oslo")))
    notes = f"{context.MEMORIES}\n- likes tea\n- is in Oslo{context.MEMORIES_END}"
    assert journal.request().messages == (user(notes, "question"),)


@pytest.mark.parametrize(
    ("outcome", "parts", "said", "failed"),
    [
        ("done", (Text("42"),), ["42"], False),
        ("done", (), [context.NO_OUTPUT], False),
        ("failed", (Text("no such file"),), ["no such file"], True),
        ("denied", (Text("not today"),), [context.DENIED, "not today"], True),
        ("not_run", (), [context.NOT_RUN], True),
        ("unknown", (Text("so far"),), [context.UNKNOWN, "so far"], True),
    ],
)
def test_a_call_is_answered_by_its_outcome(
    outcome: f.ToolOutcome, parts: tuple[AnyPart, ...], said: list[str], failed: bool
) -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, ToolCall("c", "shell", "{}"))
    journal.tool(1, 2, "c", outcome, *parts)
    assert journal.request().messages[-1] == ToolMessage("c", tuple(Text(text) for text in said), failed)


def test_calls_are_answered_directly_after_their_message_and_steering_comes_after() -> None:
    journal = ContextJournal()
    run_id = journal.ask(1, "question")
    journal.say(1, 1, Text("Looking."), ToolCall("a", "shell", "{}"), ToolCall("b", "shell", "{}"))
    journal.append(f.TurnSteered(run_id, 1, 2, MessageId("s"), (Text("hurry"),)))
    journal.tool(1, 4, "b", "done", Text("B"))
    journal.tool(1, 3, "a", "done", Text("A"))
    assert [type(message) for message in journal.request().messages] == [
        UserMessage, AssistantMessage, ToolMessage, ToolMessage, UserMessage,
    ]  # fmt: skip
    assert [m.call_id for m in journal.request().messages if isinstance(m, ToolMessage)] == ["a", "b"]


def test_an_open_call_says_whether_it_can_have_run() -> None:
    journal = ContextJournal()
    run_id = journal.ask(1, "question")
    journal.say(1, 1, *(ToolCall(name, "shell", "{}") for name in ("never", "intended", "started")))
    for place, name in ((2, "intended"), (3, "started")):
        journal.append(
            f.ToolIntended(run_id, 1, place, MessageId("m"), CallId(name), "shell", "{}", "unsafe")
        )
    journal.append(f.ToolStarted(run_id, CallId("started")))
    journal.append(f.ToolOutputAppended(run_id, CallId("started"), "begun"))
    answers = {m.call_id: m.parts for m in journal.request().messages if isinstance(m, ToolMessage)}
    assert answers == {
        "never": (Text(context.NOT_RUN),),
        "intended": (Text(context.NOT_RUN),),
        "started": (Text(context.UNKNOWN), Text("begun")),
    }


def test_a_call_without_whole_arguments_and_a_result_without_a_call_are_left_out() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Text("Let me"), ToolCall("half", "shell", '{"command": "rm'), partial=True)
    journal.tool(1, 2, "half", "not_run")
    journal.tool(1, 3, "orphan", "done", Text("42"))
    assert journal.request().messages[:2] == (user("question"), answer(Text("Let me")))
    assert not any(isinstance(message, ToolMessage) for message in journal.request().messages)


def test_a_call_that_is_there_in_two_turns_is_made_once() -> None:
    journal = ContextJournal()
    for turn in (1, 2):
        journal.ask(turn, "question")
        journal.say(turn, 1, Text("Looking."), ToolCall("c", "shell", "{}"))
        journal.tool(turn, 2, "c", "done", Text(f"seen in {turn}"))
    said, call = Text("Looking."), ToolCall("c", "shell", "{}")
    assert journal.request().messages == (
        user("question"), answer(said, call), ToolMessage("c", (Text("seen in 1"),)),
        user("question"), answer(said), user(context.CONTINUE_PROMPT),
    )  # fmt: skip


def test_reasoning_goes_back_whole_and_only_to_its_provider() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    mine, theirs = Reasoning("mine", "sig", "demo"), Reasoning("theirs", "sig", "other")
    journal.say(1, 1, mine, theirs, Reasoning("cut off"), Text("answer"))
    journal.ask(2, "next")
    assert journal.request().messages[1] == answer(Reasoning("mine", "sig", "demo"), Text("answer"))
    other = journal.request(ModelProfile("third", 1_000_000))
    assert other.messages[1] == answer(Text("answer"))


def test_thinking_alone_is_no_answer() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Reasoning("mine", "sig", "demo"), Text(" \n"), partial=True)
    assert journal.request().messages == (user("question"),)


def test_a_partial_answer_is_followed_by_a_request_to_continue() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Text("Roses are "), partial=True)
    begun = (user("question"), answer(Text("Roses are ")), user(context.CONTINUE_PROMPT))
    assert journal.request().messages == begun
    journal.say(1, 5, Text("red."))
    journal.ask(2, "thanks")
    # What the model saw when it went on stays a prefix of what it sees later.
    assert journal.request().messages == (*begun, answer(Text("red.")), user("thanks"))


def test_a_model_with_prefill_continues_its_partial_answer() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Text("Roses are "), partial=True)
    assert journal.request(PREFILLS).messages == (user("question"), answer(Text("Roses are")))
    journal.say(1, 5, Reasoning("thought", "sig", "demo"), Text("red."))
    journal.ask(2, "thanks")
    assert journal.request(PREFILLS).messages[1] == answer(Text("Roses are "), Text("red."))


def test_a_message_under_way_is_a_partial_answer() -> None:
    journal = ContextJournal()
    run_id = journal.ask(1, "question")
    journal.append(f.ModelStepStarted(run_id, 1, 1, MessageId("m"), "demo"))
    journal.append(
        f.TextAppended(run_id, MessageId("m"), "Ro"), f.TextAppended(run_id, MessageId("m"), "ses")
    )
    assert journal.request().messages[1:] == (answer(Text("Roses")), user(context.CONTINUE_PROMPT))


def test_late_output_stays_out_and_its_call_is_still_answered() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Text("on time"), ToolCall("c", "shell", "{}"))
    journal.append(
        f.ToolSettled(
            1, 2, MessageId("m"), CallId("c"), "shell", "done", (Text("late"),), "", None, late=True
        )
    )
    journal.say(1, 3, Text("late too"), late=True)
    assert journal.request().messages[2:] == (ToolMessage("c", (Text(context.UNKNOWN),), True),)


def test_whole_turns_are_cut_from_the_front_and_the_last_always_stays() -> None:
    journal = ContextJournal()
    for turn in (1, 2, 3):
        journal.ask(turn, f"question {turn} " + "x" * 300)
        journal.say(turn, 1, Text("answer"))
    room = ModelProfile("demo", window_tokens=360, answer_tokens=100)
    assert journal.request(room).cut_turns == (1,)
    assert "question 2" in journal.request(room).messages[0].parts[0].text  # type: ignore[union-attr]
    tiny = journal.request(ModelProfile("demo", window_tokens=10, answer_tokens=9))
    assert tiny.cut_turns == (1, 2)


def test_a_summary_stays_when_turns_are_cut() -> None:
    journal = ContextJournal()
    for turn in range(1, 6):
        journal.ask(turn, f"question {turn} " + "x" * 150)
        journal.say(turn, 1, Text("answer"))
    journal.append(f.SessionCompacted(((1, 1),), "the first"))
    request = journal.request(ModelProfile("demo", window_tokens=300, answer_tokens=100))
    assert request.cut_turns == (2, 3)
    assert request.messages[0].parts[0] == Text(context.SUMMARY + "the first")


def test_an_empty_conversation_is_a_valid_request() -> None:
    journal = ContextJournal()
    assert journal.request().messages == (user(context.NO_TEXT),)
    journal.append(f.TurnAccepted(TurnId("t"), 1, MessageId("m"), (Text("  "),)))
    assert journal.request().messages == (user(context.NO_TEXT),)


def test_a_file_without_text_is_a_message() -> None:
    journal = ContextJournal()
    picture = File("b" * 8, "a.png", "image/png", 10)
    journal.append(f.TurnAccepted(TurnId("t"), 1, MessageId("m"), (picture,)))
    assert journal.request().messages == (UserMessage((picture,)),)


def test_a_turn_read_in_part_still_begins_with_the_user() -> None:
    journal = ContextJournal()
    journal.ask(1, "question")
    journal.say(1, 1, Text("answer"))
    journal.ask(2, "next")
    turns = fold(journal.events).turns
    cut = [type(turns[0])(1, turns[0].entries[1:], True), turns[1]]
    request = context.assemble(cut, None, {}, "", WIDE)
    assert find_problems(request) == []
    assert request.messages == (user(context.NO_TEXT), answer(Text("answer")), user("next"))


@pytest.mark.parametrize("text", ["", "plain English words", "def f(x): return x", "明天的会议", "🎉🎉"])
def test_tokens_are_estimated_on_the_safe_side(text: str) -> None:
    assert estimate_tokens(text) >= len(text.encode()) / 3
    assert (estimate_tokens(text) == 0) == (text == "")


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ((), "does not begin with a user message"),
        ((answer(Text("hi")),), "does not begin with a user message"),
        ((user("a"), user("b")), "follows one of its own side"),
        ((user(" "),), "is empty"),
        ((UserMessage(()),), "is empty"),
        ((user("a"), ToolMessage("c", (Text("x"),))), "answers no call"),
        ((user("a"), answer(ToolCall("c", "shell", "{}")), user("b")), "is not answered directly"),
        ((user("a"), answer(ToolCall("c", "shell", "{}"))), "is not answered"),
        ((user("a"), answer(ToolCall("c", "shell", "{"))), "has no whole arguments"),
        ((user("a"), answer(Reasoning("x"), Text("y"))), "unsigned thinking"),
    ],
)
def test_what_a_provider_would_refuse_is_named(
    messages: tuple[context.RequestMessage, ...], problem: str
) -> None:
    assert any(problem in found for found in find_problems(Request("", messages)))
