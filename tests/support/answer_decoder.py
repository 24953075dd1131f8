"""Decode the answer of a model from any wire protocol."""

from collections.abc import Sequence

from holdfast.models.http_model import AnswerDecoder
from holdfast.models.ports import ModelDelta, ModelFailure


def decode_answer(
    answer: AnswerDecoder, chunks: Sequence[bytes]
) -> tuple[list[ModelDelta], ModelFailure | None]:
    """Return the text of an answer in these chunks, and its failure if it failed."""
    deltas: list[ModelDelta] = []
    try:
        for piece in chunks:
            for delta in answer.feed(piece):
                deltas.append(delta)
        for delta in answer.end():
            deltas.append(delta)
    except ModelFailure as failure:
        return deltas, failure
    return deltas, None
