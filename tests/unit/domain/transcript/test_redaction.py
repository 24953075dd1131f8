"""A conversation that holds a secret leaves without it, and is still one that adds up."""

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, Unknown, encode
from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.domain.events.stream_fold import digest_of_parts
from holdfast.domain.secrets import MASK, Mask
from holdfast.domain.transcript import exports
from holdfast.domain.transcript.redaction import Redaction
from holdfast.domain.transcript.transcript import fold
from tests.support.sample_conversations import Story

SECRET = "correct horse battery"
"""With spaces: a story streams it in several pieces."""


def events_of(story: Story) -> list[Event]:
    return [Event(n, 1_700_000_000_000 + n, *encode(fact)) for n, fact in enumerate(story.facts, 1)]


def told(events: Sequence[Event], *secrets: str) -> tuple[list[Event], int]:
    redaction = Redaction(Mask(secrets))
    redaction.look(events)
    return [event for each in events if (event := redaction.told(each)) is not None], redaction.changed


@pytest.fixture(scope="module")
def story() -> Story:
    story = Story(f"About {SECRET}").ask(f"It is {SECRET}.").answer(f"So {SECRET} it is.", f"Hm, {SECRET}.")
    story.ask("Print it").call("shell", f'{{"command":"echo {SECRET}"}}', f"{SECRET}\nagain\n")
    story.answer("There it is.").ask("Nothing here").answer("No, nothing.")
    return story.happen(Unknown("dream_dreamt", 7, msgspec.json.encode({"of": [SECRET]})))


def test_no_secret_leaves_and_everything_else_does(story: Story) -> None:
    events = events_of(story)
    kept, changed = told(events, SECRET)
    assert changed > 0
    assert SECRET.encode() not in b"".join(event.body for event in kept)
    assert "correct horse" not in "".join(
        getattr(event.fact, "text", "") for event in kept if event.kind in f.DELTA_KINDS
    )
    parts = [part for turn in fold(kept).turns for entry in turn.entries for part in entry.parts]
    said = [
        part.arguments if isinstance(part, ToolCall) else part.text
        for part in parts
        if isinstance(part, Text | Reasoning | ToolCall)
    ]
    assert said == [
        f"It is {MASK}.", f"Hm, {MASK}.", f"So {MASK} it is.", "Print it", f'{{"command":"echo {MASK}"}}',
        f"{MASK}\nagain\n", "There it is.", "Nothing here", "No, nothing.",
    ]  # fmt: skip


def test_what_is_told_adds_up_and_can_be_imported(story: Story) -> None:
    kept, _ = told(events_of(story), SECRET)
    document = b"".join((
        exports.opening(story.id, "Title"), b",".join(map(exports.event_object, kept)), exports.BETWEEN,
        exports.CLOSING,
    ))  # fmt: skip
    assert exports.parse(document, "a file").events == tuple(kept)
    for event in kept:
        fact = event.fact
        if isinstance(fact, f.MessageSettled | f.ToolSettled):
            assert fact.digest == digest_of_parts(fact.parts)


def test_a_conversation_without_a_secret_is_told_byte_for_byte(story: Story) -> None:
    events = events_of(story)
    assert told(events, "something else entirely") == (events, 0)
    assert told(events) == (events, 0)


def test_text_that_has_no_body_yet_is_told_without_the_secret() -> None:
    story = Story().ask("Go").break_off("It is correct ")
    begun = next(fact for fact in story.facts if isinstance(fact, f.TextAppended))
    for piece in ("horse ", "battery", " indeed"):
        story.happen(f.TextAppended(begun.run_id, begun.message_id, piece))
    kept, _ = told(events_of(story), SECRET)
    texts = [event.fact.text for event in kept if isinstance(event.fact, f.TextAppended)]
    assert texts == [f"It is {MASK} indeed", "", "", ""]
    assert [event.seq for event in kept] == list(range(1, len(story.facts) + 1))


def test_an_event_that_cannot_be_read_is_told_without_the_secret() -> None:
    broken = Event(2, 1, "message_settled", 1, f'{{"parts": "{SECRET}'.encode() + b"\xff")
    (kept,), _ = told([broken], SECRET)
    assert kept.body == f'{{"parts": "{MASK}'.encode() + b"\xff"
