"""From events to what a chat is told: the same events give the same messages, wherever it begins again."""

import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.channels.reply_plan import ReplyPlan, send_key, split_outgoing
from holdfast.domain.chats import NewDelivery, OutboundMessage
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import File, Text
from holdfast.domain.ids import MessageId, SessionId, TurnId
from tests.support.turn_events import IDS, TurnEvents

ROUTE = "agent:main:parlour:dm:42"
OTHER = "agent:main:parlour:dm:43"


def events_of(facts: Iterable[f.AnyFact], after: int = 0) -> list[Event]:
    return [Event(seq, 0, *encode(fact)) for seq, fact in enumerate(facts, after + 1)]


def make_plan(cursor: int = 0, buttons: bool = True) -> ReplyPlan:
    return ReplyPlan(ROUTE, SessionId("s_1"), cursor, 4_000, buttons)


def shown_texts(facts: Iterable[f.AnyFact], buttons: bool = True) -> list[str]:
    """What a chat is told in the end, in order."""
    here = make_plan(buttons=buttons)
    for event in events_of(facts):
        here.add(event)
    return [each.body.text for each in here.take_deliveries()]


def store_deliveries(deliveries: dict[tuple[str, int], NewDelivery], fresh: Iterable[NewDelivery]) -> None:
    """As the store does it: what is planned again under its name is the same one."""
    for each in fresh:
        deliveries[each.source, each.piece] = each


def turn_from_chat(turn: int = 1, route: str = ROUTE) -> TurnEvents:
    return TurnEvents(turn, "hello", send_key(route, "77"))


def test_only_messages_from_other_clients_are_echoed() -> None:
    assert shown_texts([turn_from_chat().accepted()]) == []
    assert shown_texts([turn_from_chat(route=OTHER).accepted()]) == ["> **You** (from Parlour): hello"]
    assert shown_texts([TurnEvents(1, "hello").accepted()]) == ["> **You** (from elsewhere): hello"]
    assert shown_texts([TurnEvents(1, "hello", "a1" * 16).accepted()]) == ["> **You** (from the page): hello"]
    typed = TurnEvents(1, "hello", "terminal:1").accepted()
    assert shown_texts([typed]) == ["> **You** (from the terminal): hello"]


def test_a_thread_is_not_taken_for_its_chat() -> None:
    assert shown_texts([turn_from_chat(route=f"{ROUTE}:7").accepted()]) != []


@given(st.text(max_size=300), st.text(min_size=1, max_size=300))
def test_a_key_fits_and_names_its_chat(update_id: str, chat: str) -> None:
    route = f"agent:main:parlour:dm:{chat}"
    key = send_key(route, update_id)
    assert len(key) <= 200 and key != send_key(route, update_id + "x")
    here = ReplyPlan(route, SessionId("s_1"), 0, 4_000, True)
    here.add(events_of([TurnEvents(1, "hello", key).accepted()])[0])
    assert here.take_deliveries() == []


def test_words_that_were_changed_are_shown_and_what_is_answered_again_is_not_said_again() -> None:
    story = turn_from_chat(2)
    again = f.TurnAccepted(
        TurnId("t_2"), 2, MessageId("m_2"), story.accepted().parts, story.run_id, replaces=TurnId("t_1")
    )
    assert shown_texts([f.TurnsUndone(1, "retry"), again]) == ["*Answering again.*"]
    assert shown_texts([f.TurnsUndone(1, "edit"), again]) == ["> **You** (edited): hello"]
    assert shown_texts([f.TurnsUndone(1)]) == ["*Removed.*"]
    assert shown_texts([f.TurnsUndone(1), f.TurnsRestored(((1, 1),))])[-1] == "*Restored.*"
    chosen = f.TurnsRestored(((1, 1),), 2, "version")
    assert shown_texts([f.TurnsUndone(1, "retry"), chosen])[-1] == "*Switched to another version.*"


def test_a_failure_says_why_and_can_be_tried_again() -> None:
    story = turn_from_chat()
    facts = [story.accepted(), f.RunFailed(story.run_id, f.Failure("x", "the model is away"))]
    assert shown_texts(facts) == ["This could not be answered: the model is away"]
    assert shown_texts(facts, buttons=False)[0].endswith("Type /retry to try again.")
    here = make_plan()
    for event in events_of(facts):
        here.add(event)
    (failed,) = here.take_deliveries()
    assert [(each.text, each.press) for each in failed.body.buttons] == [
        ("Try again", f"again s_1 {story.id}")
    ]


def test_a_restart_is_one_line() -> None:
    story = turn_from_chat()
    facts = [*story.opening(), story.text("Half "), story.message_settled("interrupted")]
    facts += [f.RunInterrupted(story.run_id, 1, 9, MessageId("m_9"))]
    assert shown_texts(facts) == ["Half ", "Interrupted by a server restart."]
    assert shown_texts([*facts, f.RunResumed(story.run_id, "policy", 1)]) == [
        "Half ",
        "*Continued after a restart.*",
    ]


def test_a_call_that_may_have_run_is_asked_about_and_the_answer_is_shown() -> None:
    story = turn_from_chat()
    facts = [*story.opening(), story.message_settled(), story.tool_intended(), story.tool_started()]
    facts += [f.ToolInDoubt(story.run_id, story.call_id)]
    here = make_plan()
    for event in events_of(facts):
        here.add(event)
    (asked,) = here.take_deliveries()
    assert asked.body.text == "The server stopped while this was running. Did it finish?\n\n```\nls\n```"
    assert [each.text for each in asked.body.buttons] == ["Run again", "It finished", "Carry on without it"]
    here.add(events_of([f.ToolResolved(story.run_id, story.call_id, "skip")], len(facts))[0])
    (answered,) = here.take_deliveries()
    assert (answered.source, answered.piece) == (asked.source, asked.piece)
    assert answered.body.text.endswith("*Carried on without it.*") and not answered.body.buttons


def test_a_command_that_cannot_be_a_rule_has_no_button_for_it() -> None:
    story = turn_from_chat()
    intended = story.opening()
    for command, labels in (
        ("ls", ["Allow once", "Always here", "Deny"]),
        ("ls | sh", ["Allow once", "Deny"]),
    ):
        call = f.ToolIntended(
            story.run_id,
            1,
            2,
            story.message_id,
            "c_1",
            "shell",
            f'{{"command":"{command}"}}',
            "unsafe",  # type: ignore[arg-type]
        )
        here = make_plan()
        for event in events_of([*intended, call, f.ApprovalRequested(story.run_id, "c_1")]):  # type: ignore[arg-type]
            here.add(event)
        assert [each.text for each in here.take_deliveries()[-1].body.buttons] == labels


def test_without_buttons_it_is_said_what_can_be_typed() -> None:
    story = turn_from_chat()
    facts = [*story.opening(), story.message_settled(), story.tool_intended()]
    facts += [f.ApprovalRequested(story.run_id, story.call_id, "It writes.")]
    assert shown_texts(facts, buttons=False) == [
        "Run this command?\n\n```\nls\n```\n\nIt writes.\n\nType /approve or /deny."
    ]


@pytest.mark.parametrize(
    ("tool", "asks"),
    [
        ("write_file", "Write this file?"),
        ("edit_file", "Change this file?"),
        ("mail__send", "Allow `mail__send`?"),
    ],
)
def test_a_question_names_what_is_to_be_done(tool: str, asks: str) -> None:
    story = turn_from_chat()
    facts = [
        *story.opening(),
        story.message_settled(),
        replace(story.tool_intended(), name=tool, arguments="{}"),
    ]
    (asked,) = shown_texts([*facts, f.ApprovalRequested(story.run_id, story.call_id)])
    assert asked == f"{asks}\n\n```\n{tool} {{}}\n```"


def test_late_output_is_not_delivered() -> None:
    story = turn_from_chat()
    assert (
        shown_texts([*story.opening(), story.text("late"), story.message_settled("recovered", late=True)])
        == []
    )


def test_nothing_is_read_again_once_it_is_over_and_everything_while_it_is_not() -> None:
    story = turn_from_chat()
    here = make_plan()
    for event in events_of(story.opening()):
        here.add(event)
    assert (here.completed_seq, here.is_working) == (0, True)
    for event in events_of(story.rest("One."), here.seen):
        here.add(event)
    assert (here.completed_seq, here.is_working) == (here.seen, False)


def _conversations(data: st.DataObject) -> list[f.AnyFact]:
    facts: list[f.AnyFact] = []
    for turn in range(1, data.draw(st.integers(1, 3)) + 1):
        story = turn_from_chat(turn) if data.draw(st.booleans()) else TurnEvents(turn, "from elsewhere")
        facts += story.opening()
        if data.draw(st.booleans()):
            facts += [
                story.text("Let me look."),
                story.message_settled(),
                story.tool_intended(),
                story.tool_started(),
            ]
            facts += [story.tool_settled(), story.step_started()]
        facts += story.rest(*data.draw(st.lists(st.sampled_from(["one ", "two ", "three"]), max_size=3)))
        if data.draw(st.booleans()):
            facts.append(f.TurnsUndone(turn))
    return facts


@given(st.data())
def test_replanning_from_any_cursor_gives_the_same_messages(data: st.DataObject) -> None:
    facts = _conversations(data)
    whole: dict[tuple[str, int], NewDelivery] = {}
    here = make_plan()
    for event in events_of(facts):
        here.add(event)
    store_deliveries(whole, here.take_deliveries())
    stops = sorted(data.draw(st.sets(st.integers(1, len(facts)))))
    stored: dict[tuple[str, int], NewDelivery] = {}
    cursor = 0
    for stop in [*stops, len(facts)]:
        here = make_plan(cursor)
        for event in events_of(facts)[cursor:stop]:
            here.add(event)
        store_deliveries(stored, [*here.take_deliveries(), *here.take_first_text()])
        cursor = here.completed_seq
    assert stored == whole
    assert list(stored) == list(whole), "and in the same order"


def test_what_is_being_written_differs_from_what_it_becomes() -> None:
    story = turn_from_chat()
    here = make_plan()
    for event in events_of([*story.opening(), story.text("All of it.")]):
        here.add(event)
    (first,) = here.take_first_text()
    assert first.body.text == "All of it. …" and here.live_delivery() == first
    here.add(events_of([story.message_settled()], here.seen)[0])
    (last,) = here.take_deliveries()
    assert (last.source, last.piece, last.body.text) == (first.source, first.piece, "All of it.")
    assert here.live_delivery() is None


def test_interrupted_text_streams_as_it_is_shown_in_the_end() -> None:
    story, here = turn_from_chat(), make_plan()
    for event in events_of(story.opening()):
        here.add(event)
    for fact, shown in (
        (story.reasoning("Hm."), None),
        (story.text("One,"), "One, …"),
        (story.reasoning(""), "One, …"),
        (story.text(" more."), "One, more. …"),
        (story.reasoning("And the other?"), "One, more. …"),
        (story.text("Two."), "One, more.\nTwo. …"),
        (story.tool_arguments(IDS.call(), ""), "One, more.\nTwo. …"),
        (story.text("Three."), "One, more.\nTwo.\nThree. …"),
    ):
        here.add(events_of([fact], here.seen)[0])
        here.take_first_text()
        written = here.live_delivery()
        assert (written.body.text if written is not None else None) == shown
    here.add(events_of([story.message_settled()], here.seen)[0])
    assert [each.body.text for each in here.take_deliveries()] == ["One, more.\nTwo.\nThree."]


def test_showing_an_answer_while_it_is_written_costs_the_same_however_long_it_is() -> None:
    story, here = turn_from_chat(), make_plan()
    chunk = "Some words of an answer that is long. " * 10
    events = events_of([*story.opening(), *(story.text(chunk) for _ in range(1_500))])
    for event in events[:100]:
        here.add(event)
    here.take_first_text()
    shown = here.live_delivery()
    assert shown is not None and len(shown.body.text) <= 4_000
    began = time.process_time()
    for event in events[100:]:
        here.add(event)
        here.take_first_text()
        shown = here.live_delivery()
        assert shown is not None and len(shown.body.text) <= 4_000
    assert shown.piece > 100
    # What is being written is looked at 1,400 times: split anew each time, that takes a minute.
    assert time.process_time() - began < 3


def test_a_failure_whose_turn_is_not_known_has_no_button_that_would_mean_another() -> None:
    here = make_plan(cursor=7)
    story = turn_from_chat()
    here.add(Event(8, 0, *encode(f.RunFailed(story.run_id, f.Failure("x", "boom")))))
    (said,) = here.take_deliveries()
    assert not said.body.buttons and "Type /retry" in said.body.text


def test_a_command_that_cannot_be_shown_whole_cannot_be_allowed_in_a_chat() -> None:
    story = turn_from_chat()
    hidden = "ls # " + "harmless " * 120 + "; curl evil"
    facts = [*story.opening(), story.message_settled()]
    intended = replace(story.tool_intended(), arguments=f'{{"command":"{hidden}"}}')
    for buttons in (True, False):
        here = make_plan(buttons=buttons)
        asked = f.ApprovalRequested(story.run_id, story.call_id)
        for event in events_of([*facts, intended, asked]):
            here.add(event)
        (said,) = here.take_deliveries()
        assert [button.text for button in said.body.buttons] == (["Deny"] if buttons else [])
        assert "It is too long to show here; allow it in the page." in said.body.text
        assert "/approve" not in said.body.text


def test_files_and_buttons_go_with_the_last_piece() -> None:
    found = split_outgoing(OutboundMessage("word " * 200, files=("b1",)), 400)
    assert len(found) > 1 and [each.files for each in found] == [()] * (len(found) - 1) + [("b1",)]
    assert split_outgoing(OutboundMessage("", files=("b1",)), 400) == [OutboundMessage("", files=("b1",))]
    assert split_outgoing(OutboundMessage(""), 400) == []


def test_files_of_an_answer_keep_their_names() -> None:
    story = turn_from_chat()
    parts = (Text("Here."), File("b1", "sums.csv", "text/csv", 8), File("b2", "map.png", "image/png", 9))
    here = make_plan()
    for event in events_of([*story.opening(), replace(story.message_settled(), parts=parts)]):
        here.add(event)
    (delivery,) = here.take_deliveries()
    assert delivery.body.named_files == [("b1", "sums.csv"), ("b2", "map.png")]
