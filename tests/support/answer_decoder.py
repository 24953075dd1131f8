"""What an answer of a model comes to, whichever wire it comes over."""

from collections.abc import Sequence

from holdfast.models.http_model import AnswerDecoder
from holdfast.models.ports import ModelDelta, ModelFailure


def decode_answer(
    answer: AnswerDecoder, chunks: Sequence[bytes]
) -> tuple[list[ModelDelta], ModelFailure | None]:
    """What an answer in these chunks says, and how it failed if it did."""
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
