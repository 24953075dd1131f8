"""Having a model sum up the older part of a conversation."""

from collections.abc import Sequence

from holdfast.agent.request_builder import gauge_of
from holdfast.domain.decisions import compaction
from holdfast.domain.decisions.compaction import Drafted
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import ASKED_S_MAX, answer_of
from holdfast.models.ports import Model, ModelFailure, ToolSpec

_CHARS_PER_TOKEN = 8
"""More than any token has: what comes past that is not waited for."""


async def draft(
    model: Model,
    told: str,
    specs: Sequence[ToolSpec],
    transcript: Transcript,
    above: float,
    kept_turns: int,
) -> Drafted | None:
    """A summary, if one is due. Raises ModelFailure."""
    gauge = gauge_of(transcript, model, specs)
    due = compaction.due(transcript, told, model.profile, gauge, above, kept_turns)
    if due is None:
        return None
    chars_max = _CHARS_PER_TOKEN * due.tokens_max
    said = await answer_of(model, due.instructions, due.text, ASKED_S_MAX, chars_max)
    if not any(each.isprintable() and not each.isspace() for each in said):
        raise ModelFailure(detail="it gave no summary", retryable=True)
    return compaction.drafted(due, said)
