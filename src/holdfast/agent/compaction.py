"""Ask a model for a summary of the older part of a conversation."""

from collections.abc import Sequence

from holdfast.agent.request_builder import token_budget
from holdfast.domain.decisions import compaction
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import COMPLETION_TIMEOUT_S_MAX, complete
from holdfast.models.ports import Model, ModelFailure, ToolSpec

_CHARS_PER_TOKEN = 8
"""More than any token has: a longer summary is cut there."""


async def draft_summary(
    model: Model,
    instructions: str,
    specs: Sequence[ToolSpec],
    transcript: Transcript,
    threshold: float,
    keep_turns: int,
) -> DraftSummary | None:
    """Return a summary, or None if none is due. Raises ModelFailure."""
    budget = token_budget(transcript, model, specs)
    plan = compaction.plan_summary(transcript, instructions, model.profile, budget, threshold, keep_turns)
    if plan is None:
        return None
    chars_max = _CHARS_PER_TOKEN * plan.tokens_max
    summary = await complete(model, plan.instructions, plan.text, COMPLETION_TIMEOUT_S_MAX, chars_max)
    if not any(char.isprintable() and not char.isspace() for char in summary):
        raise ModelFailure(detail="it gave no summary", retryable=True)
    return compaction.draft_summary(plan, summary)
