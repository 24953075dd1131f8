"""A conversation that holds a secret leaves without it, and is still one that adds up."""

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.events.parts import Reasoning, Text, ToolCall
from holdfast.domain.events.stream_fold import parts_digest
from holdfast.domain.secrets import MASK, SecretMask
from holdfast.domain.transcript import exports
from holdfast.domain.transcript.redaction import Redactor
from holdfast.domain.transcript.transcript import fold
from tests.support.sample_conversations import SampleConversation

SECRET = "correct horse battery"
"""With spaces: a story streams it in several pieces."""


def events_of(story: SampleConversation) -> list[Event]:
    return [Event(n, 1_700_000_000_000 + n, *encode(fact)) for n, fact in enumerate(story.facts, 1)]


def redacted(events: Sequence[Event], *secrets: str) -> tuple[list[Event], int]:
    redaction = Redactor(SecretMask(secrets))
    redaction.scan(events)
    return [event for each in events if (event := redaction.redact(each)) is not None], redaction.changed


@pytest.fixture(scope="module")
def story() -> SampleConversation:
    story = (
        SampleConversation(f"About {SECRET}")
        .user_message(f"It is {SECRET}.")
        .assistant_message(f"So {SECRET} it is.", f"Hm, {SECRET}.")
    )
    story.user_message("Print it").tool_call("shell", f'{{"command":"echo {SECRET}"}}', f"{SECRET}\nagain\n")
    story.assistant_message("There it is.").user_message("Nothing here").assistant_message("No, nothing.")
    return story.add_fact(UnknownFact("dream_dreamt", 7, msgspec.json.encode({"of": [SECRET]})))


def test_redaction_removes_secrets_and_nothing_else(story: SampleConversation) -> None:
    events = events_of(story)
    kept, changed = redacted(events, SECRET)
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


def test_redacted_events_fold_and_can_be_imported(story: SampleConversation) -> None:
    kept, _ = redacted(events_of(story), SECRET)
    document = b"".join((
        exports.export_head(story.id, "Title"), b",".join(map(exports.export_event, kept)),
        exports.FILES_START,
        exports.EXPORT_END,
    ))  # fmt: skip
    assert exports.parse_export(document, "a file").events == tuple(kept)
    for event in kept:
        fact = event.fact
        if isinstance(fact, f.MessageSettled | f.ToolSettled):
            assert fact.digest == parts_digest(fact.parts)


def test_a_conversation_without_a_secret_is_exported_unchanged(story: SampleConversation) -> None:
    events = events_of(story)
    assert redacted(events, "something else entirely") == (events, 0)
    assert redacted(events) == (events, 0)


def test_unsettled_deltas_are_redacted() -> None:
    story = SampleConversation().user_message("Go").interrupt("It is correct ")
    begun = next(fact for fact in story.facts if isinstance(fact, f.TextAppended))
    for piece in ("horse ", "battery", " indeed"):
        story.add_fact(f.TextAppended(begun.run_id, begun.message_id, piece))
    kept, _ = redacted(events_of(story), SECRET)
    texts = [event.fact.text for event in kept if isinstance(event.fact, f.TextAppended)]
    assert texts == [f"It is {MASK} indeed", "", "", ""]
    assert [event.seq for event in kept] == list(range(1, len(story.facts) + 1))


def test_an_unreadable_event_is_redacted() -> None:
    broken = Event(2, 1, "message_settled", 1, f'{{"parts": "{SECRET}'.encode() + b"\xff")
    (kept,), _ = redacted([broken], SECRET)
    assert kept.body == f'{{"parts": "{MASK}'.encode() + b"\xff"
