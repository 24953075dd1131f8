"""Fit messages into a model's window: cut the middle of long texts, then drop the oldest steps.

A note marks every omission. The start of a turn and its latest steps stay longest. The functions are pure, so
a repeated request is the same request.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.domain.context.request import AssistantMessage, RequestMessage, UserMessage
from holdfast.domain.context.tokens import MESSAGE_TOKENS, estimate_tokens, messages_tokens, part_tokens
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall

LEFT_OUT = "\n[{count:,} characters are left out here: there is no room for them]\n"
FILE_LEFT_OUT = "[The file {name} is left out: there is no room for it]"
CALL_LEFT_OUT = '{"left_out": "These arguments are left out: there is no room for them."}'
STEPS_LEFT_OUT = "[{count:,} earlier steps of the answer to this are left out: there is no room for them]"
SHORT_TOKENS = 200
"""The limit for each text of an older step, once not all steps fit."""
LEAST_TOKENS = 64
"""The smallest budget: with less there is no conversation."""
_CAP_MIN = 16
_HEAD = 0.6
"""The share of a cut text that its beginning gets: it says more than the end."""


def truncate_middle(text: str, tokens: int) -> str:
    """Return `text` in about `tokens` tokens: its beginning and its end, with a note between."""
    cost = estimate_tokens(text)
    if cost <= tokens:
        return text
    room = max(tokens - estimate_tokens(LEFT_OUT) - 4, 0)
    chars = len(text) * room // cost
    head = int(chars * _HEAD)
    tail = text[len(text) - (chars - head) :] if chars > head else ""
    return text[:head] + LEFT_OUT.format(count=len(text) - chars) + tail


def fit_messages(block: list[RequestMessage], room: int) -> list[RequestMessage]:
    """Return one turn's messages in at most `room` tokens, each call still followed by its answer."""
    room = max(room, LEAST_TOKENS)
    if messages_tokens(block) <= room:
        return block
    question, steps = _split_steps(block)
    question = _cap_total(question, room // 2 if steps else room)
    room -= messages_tokens(question)
    short = [_cap_parts(step, SHORT_TOKENS) for step in steps]
    costs = [messages_tokens(step) for step in short]
    older, kept, left_out = sum(costs), list[list[RequestMessage]](), 0
    for n in range(len(steps) - 1, -1, -1):
        older -= costs[n]
        if not kept:
            chosen = _cap_total(steps[n], max(room - older, room // 2))
        elif left_out == 0 and messages_tokens(steps[n]) <= room - older:
            chosen = steps[n]
        elif left_out == 0 and costs[n] <= room:
            chosen = short[n]
        else:
            left_out += 1
            chosen = [message for message in short[n] if isinstance(message, UserMessage)]
        room -= messages_tokens(chosen)
        kept.append(chosen)
    note = [UserMessage((Text(STEPS_LEFT_OUT.format(count=left_out)),))] if left_out else []
    return [*question, *note, *(message for step in reversed(kept) for message in step)]


def _split_steps(block: Sequence[RequestMessage]) -> tuple[list[RequestMessage], list[list[RequestMessage]]]:
    """Split a turn into the question and its steps: each a model message with what answers it."""
    question: list[RequestMessage] = []
    steps: list[list[RequestMessage]] = []
    for message in block:
        if isinstance(message, AssistantMessage):
            steps.append([message])
        else:
            (steps[-1] if steps else question).append(message)
    return question, steps


def _cap_total(messages: list[RequestMessage], room: int) -> list[RequestMessage]:
    """Return `messages` with their longest parts cut, so that together they have `room` tokens."""
    costs = [part_tokens(part) for message in messages for part in message.parts]
    room -= MESSAGE_TOKENS * len(messages)
    cap = max(room, _CAP_MIN)
    while cap > _CAP_MIN and sum(min(cost, cap) for cost in costs) > room:
        cap = cap * 4 // 5
    return _cap_parts(messages, cap)


def _cap_parts(messages: list[RequestMessage], cap: int) -> list[RequestMessage]:
    return [_cap_message(message, cap) for message in messages]


def _cap_message(message: RequestMessage, cap: int) -> RequestMessage:
    if isinstance(message, AssistantMessage):
        parts_that_fit = (part for part in message.parts if not _is_long_reasoning(part, cap))
        parts = tuple(_cap_answer_part(part, cap) for part in parts_that_fit)
        return AssistantMessage(parts or message.parts)
    parts_kept = tuple(_cap_message_part(part, cap) for part in message.parts)
    return replace(message, parts=parts_kept)


def _is_long_reasoning(part: Text | Reasoning | ToolCall, cap: int) -> bool:
    # Signed reasoning goes back whole or not at all.
    return isinstance(part, Reasoning) and part_tokens(part) > cap


def _cap_answer_part(part: Text | Reasoning | ToolCall, cap: int) -> Text | Reasoning | ToolCall:
    match part:
        case Text():
            return Text(truncate_middle(part.text, cap))
        case ToolCall() if part_tokens(part) > max(cap, SHORT_TOKENS):
            # Truncated arguments would not be JSON.
            return replace(part, arguments=CALL_LEFT_OUT)
    return part


def _cap_message_part(part: Text | File, cap: int) -> Text | File:
    if isinstance(part, Text):
        return Text(truncate_middle(part.text, cap))
    return part if part_tokens(part) <= cap else Text(FILE_LEFT_OUT.format(name=part.name))
