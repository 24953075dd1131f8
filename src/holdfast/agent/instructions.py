"""What the agent is told to be, and how a model is asked for a title. The words are here and nowhere else."""

import asyncio
from contextlib import aclosing

from holdfast.agent.ports import Model, ModelFailure, TextDelta
from holdfast.domain.context import Request, UserMessage
from holdfast.domain.parts import Text

INSTRUCTIONS = """\
You are an assistant that works on the user's own machine, through tools. Each conversation has its own
workspace: a folder that your tools start in and that stays between messages. Paths are relative to it.

Use a tool when it gives a better answer than guessing, and look before you change anything. A call may be put
to the user first; if it is not allowed, respect that and say what you would have done. If the outcome of a
call is unknown, find out what happened before you repeat it.

Be brief: answer first, explain only what is needed. Say plainly when something failed or you are not sure."""

TITLE_INSTRUCTIONS = """\
Give the conversation below a title of two to six words, in its own language. \
Answer with the title alone: no quotation marks, no full stop."""
TITLE_S_MAX = 30.0
_CHARS_MAX = 4_000
_TITLE_CHARS_MAX = 300


class TitleAsker:
    """Asks a model for a title; a Holdfast error when it gives none."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def __call__(self, said: str) -> str:
        request = Request(TITLE_INSTRUCTIONS, (UserMessage((Text(said[:_CHARS_MAX]),)),))
        title = ""
        try:
            async with (
                asyncio.timeout(TITLE_S_MAX),
                aclosing(self._model.stream(request, ())) as deltas,
            ):
                async for delta in deltas:
                    if isinstance(delta, TextDelta):
                        title += delta.text
                    if len(title) > _TITLE_CHARS_MAX:
                        break
        except TimeoutError:
            raise ModelFailure(detail="it gave no title in time", retryable=True) from None
        return title
