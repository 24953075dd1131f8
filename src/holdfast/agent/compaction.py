"""Having a model sum up the older part of a conversation."""

from collections.abc import Sequence

from holdfast.agent.request_builder import make_gauge
from holdfast.domain.decisions import compaction
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import COMPLETION_TIMEOUT_S_MAX, complete
from holdfast.models.ports import Model, ModelFailure, ToolSpec

_CHARS_PER_TOKEN = 8
"""More than any token has: what comes past that is not waited for."""


async def draft_summary(
    model: Model,
    instructions: str,
    specs: Sequence[ToolSpec],
    transcript: Transcript,
    threshold: float,
    keep_turns: int,
) -> DraftSummary | None:
    """A summary, if one is due. Raises ModelFailure."""
    gauge = make_gauge(transcript, model, specs)
    due = compaction.plan_summary(transcript, instructions, model.profile, gauge, threshold, keep_turns)
    if due is None:
        return None
    chars_max = _CHARS_PER_TOKEN * due.tokens_max
    summary = await complete(model, due.instructions, due.text, COMPLETION_TIMEOUT_S_MAX, chars_max)
    if not any(each.isprintable() and not each.isspace() for each in summary):
        raise ModelFailure(detail="it gave no summary", retryable=True)
    return compaction.draft_summary(due, summary)
