"""What memory is told of a stretch: the same turns give the same words, cut where they are too long."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import File, Text
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import MessageRow
from holdfast.memory.ports import Owner, SegmentMessage
from holdfast.memory.provider_resolver import owner_digest as name_of
from holdfast.memory.segments import fit_messages, messages_digest, messages_in
from holdfast.store.ports import StoredMessage
from tests.support.sample_conversations import SampleConversation

PICTURE = File("b" * 64, "boat.png", "image/png", 3)


def pages(story: SampleConversation) -> list[StoredMessage]:
    events = [Event(seq, seq, *encode(fact)) for seq, fact in enumerate(story.facts, 1)]
    book = fold(story.id, events)
    rows = [book.messages[place] for place in sorted(book.messages)]
    return [StoredMessage(row, True, _written(events, row)) for row in rows]


def _written(events: list[Event], row: MessageRow) -> list[Event]:
    if row.body_seq:
        return [events[row.body_seq - 1]]
    deltas = [e for e in events if isinstance(e.fact, f.TextAppended) and e.fact.message_id == row.id]
    return [events[row.first_seq - 1], *deltas]


def test_a_segment_has_user_assistant_and_tool_messages_only() -> None:
    story = (
        SampleConversation()
        .user_message("Look at this", PICTURE)
        .tool_call("shell", "{}", "a\nb\n")
        .assistant_message("Two.", thinking="Hm.")
    )
    story.user_message("Not asked for").assistant_message("No.")
    said = messages_in(pages(story), ((1, 1),))
    assert [(each.role, each.name, each.text) for each in said] == [
        ("user", "", "Look at this\n[file: boat.png]"), ("tool", "shell", "a\nb\n"), ("assistant", "", "Two.")
    ]  # fmt: skip


def test_a_partial_answer_is_included_without_notices_or_late_output() -> None:
    story = SampleConversation().user_message("Count").interrupt("one two ")
    run_id = story.facts[-1].run_id  # type: ignore[union-attr]
    late = (Text("far too late"),)
    story.add_fact(f.MessageSettled(
        1, 9, story.ids.message(), "assistant", late, "", run_id, "recovered", late=True
    ))  # fmt: skip
    said = messages_in(pages(story), ((1, 1),))
    assert [(each.role, each.text) for each in said] == [("user", "Count"), ("assistant", "one two ")]


TEXTS = st.lists(st.text(max_size=300), max_size=12)


@given(TEXTS, st.integers(0, 2_000))
def test_what_is_too_long_is_cut_in_the_longest_messages_alone(texts: list[str], room: int) -> None:
    said = [SegmentMessage(str(n), "user", 0, text) for n, text in enumerate(texts)]
    cut = fit_messages(said, room)
    sizes = [len(each.text.encode()) for each in cut]
    assert sum(sizes) <= room
    assert cut == fit_messages(said, room)
    assert [each.id for each in cut] == [each.id for each in said]
    changed = [len(old.text.encode()) for old, new in zip(said, cut, strict=True) if old != new]
    kept = [len(old.text.encode()) for old, new in zip(said, cut, strict=True) if old == new]
    assert not changed or not kept or min(changed) >= max(kept)


def test_a_cut_says_how_much_is_missing_and_keeps_both_ends() -> None:
    (cut,) = fit_messages([SegmentMessage("m", "user", 0, "begin" + "é" * 1000 + "end")], 200)
    assert cut.text.startswith("begin") and cut.text.endswith("end") and "characters left out" in cut.text
    assert len(cut.text.encode()) <= 200


def test_the_segment_digest_covers_id_role_and_text() -> None:
    said = (SegmentMessage("m1", "user", 5, "one"), SegmentMessage("m2", "assistant", 6, "two"))
    others = [
        (SegmentMessage("m1", "user", 5, "onet"), SegmentMessage("m2", "assistant", 6, "wo")),
        (SegmentMessage("m1", "assistant", 5, "one"), SegmentMessage("m2", "assistant", 6, "two")),
        (SegmentMessage("m9", "user", 5, "one"), SegmentMessage("m2", "assistant", 6, "two")),
        said[:1],
    ]
    assert len({messages_digest(each) for each in [said, *others]}) == 5
    assert messages_digest((SegmentMessage("m1", "user", 99, "one"), said[1])) == messages_digest(said)


def test_the_owner_digest_is_stable() -> None:
    assert name_of(Owner("a", options={"x": "1", "y": "2"})) == name_of(
        Owner("a", options={"y": "2", "x": "1"})
    )
    assert len({name_of(Owner("a")), name_of(Owner("b")), name_of(Owner("a", model="m"))}) == 3
