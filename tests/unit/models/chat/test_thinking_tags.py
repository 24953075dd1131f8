"""Chat Completions: thinking that a model writes into its text, between tags, is told apart from its answer.

The streams are constructed as DeepSeek-R1's distills and Qwen3 write where no server reads their tags.
"""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.models.chat.thinking import BLANK_CHARS_MAX, ThinkTagParser
from holdfast.models.chat.wire import ChatDecoder
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta
from tests.support.model_server import DONE, call, chunk

CALL = CallDelta(0, "shell", "{}")
PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<th", "ink>", "</", "think", ">", "<", " ", "\n", "a", "b <", "`"]
    ),
    max_size=12,
).map("".join)


def decode_pieces(*pieces: bytes, finish: str = "stop") -> list[ModelDelta]:
    decoder = ChatDecoder()
    deltas: list[ModelDelta] = []
    for each in (*pieces, chunk({}, finish), DONE):
        deltas += decoder.feed(each.removeprefix(b"data: ").strip())
    deltas += decoder.end()
    assert isinstance(deltas.pop(), StepEnd)
    return deltas


def thinking_and_text(*texts: str, finish: str = "stop") -> tuple[str, str]:
    """What an answer that comes in those pieces has of thinking and of text, in that order."""
    deltas = decode_pieces(*(chunk({"content": text}) for text in texts), finish=finish)
    kinds = [type(delta) for delta in deltas]
    assert kinds == sorted(kinds, key=[ReasoningDelta, TextDelta].index)
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return thought, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        ("<think>\nHm, 2 < 3.\n</think>\n\nYes.", "Hm, 2 < 3.\n", "Yes."),
        (" \n<think>Hm</think>Yes.", "Hm", "Yes."),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("<think>Hm</think>", "Hm", ""),
        ("<think>It never ends", "It never ends", ""),
        ("<think>It never ends</thin", "It never ends</thin", ""),
        ("<think>A <think> in it</think>Yes <think>no</think>", "A <think> in it", "Yes <think>no</think>"),
        ("`<think>` opens it, </think> closes it.", "", "`<think>` opens it, </think> closes it."),
        ("Yes. <think>no</think>", "", "Yes. <think>no</think>"),
        ("Inside from the start</think>Yes.", "", "Inside from the start</think>Yes."),
        ("<thinking>No tag of theirs</thinking>", "", "<thinking>No tag of theirs</thinking>"),
        ("<think", "", "<think"),
        ("  \n", "", "  \n"),
        ("\n\nYes.", "", "\n\nYes."),
        (" " * BLANK_CHARS_MAX + "<think>Hm</think>Yes.", "Hm", "Yes."),
        (" " * (BLANK_CHARS_MAX + 1) + "<think>", "", " " * (BLANK_CHARS_MAX + 1) + "<think>"),
    ],
)
def test_only_a_leading_tag_starts_thinking(text: str, thought: str, said: str) -> None:
    assert thinking_and_text(text) == (thought, said)
    assert thinking_and_text(*text) == (thought, said), "one character at a time"


@given(PIECES, st.lists(st.integers(0, 100), max_size=12))
@example("<think>a</think>b", [3, 9, 11])
@example(" " * 200 + "<think>a</think>b", [100])
def test_any_split_of_tagged_text_parses_the_same(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    assert thinking_and_text(*(text[a:b] for a, b in pairwise(edges))) == thinking_and_text(text)


@given(PIECES)
def test_text_without_a_leading_tag_is_unchanged(text: str) -> None:
    if not text.lstrip().startswith("<think>"):
        assert thinking_and_text(*text) == ("", text)


def test_tagged_thinking_streams_and_buffers_at_most_one_tag() -> None:
    opening = ThinkTagParser()
    assert opening.feed("<think>") == []
    assert opening.feed("One ") == [ReasoningDelta("One ")]
    assert opening.feed("two <") == [ReasoningDelta("two ")]
    assert opening.feed("b> </think") == [ReasoningDelta("<b> ")]
    assert opening.feed(">") == [] and not opening.is_done
    assert opening.feed("\n\nYes") == [TextDelta("Yes")] and opening.is_done


def test_an_answer_truncated_while_thinking_has_thinking_and_no_text() -> None:
    assert thinking_and_text("<think>Hm, ", "hm, hm", finish="length") == ("Hm, hm, hm", "")


def test_a_call_after_thinking_leaves_no_blank_text() -> None:
    called = chunk(call("{}", index=0, id="t_1", name="shell"))
    thinks = [chunk({"content": text}) for text in ("<think>", "Look.", "</think>\n", "\n")]
    assert decode_pieces(*thinks, called, finish="tool_calls") == [ReasoningDelta("Look."), CALL]


def test_a_call_flushes_buffered_text_and_thinking_continues_until_closed() -> None:
    called = chunk(call("{}", index=0, id="t_1", name="shell"))
    chunks = chunk({"content": "<th"}), called, chunk({"content": "ink>"})
    assert decode_pieces(*chunks, finish="tool_calls") == [
        TextDelta("<th"), CALL, TextDelta("ink>"),
    ]  # fmt: skip
    thinks, more = chunk({"content": "<think>Look, a <"}), chunk({"content": "b.</think>Yes."})
    assert decode_pieces(thinks, called, more, finish="tool_calls") == [
        ReasoningDelta("Look, a "), ReasoningDelta("<"), CALL, ReasoningDelta("b."), TextDelta("Yes."),
    ]  # fmt: skip


def test_text_is_unchanged_if_the_server_parses_thinking_itself() -> None:
    deltas = decode_pieces(chunk({"reasoning_content": "Hm."}), chunk({"content": "<think> is a tag"}))
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "<think> is a tag"
