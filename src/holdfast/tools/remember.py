"""`remember`: one thing that is to be known in later conversations too."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import MEMORY_CHARS_MAX
from holdfast.tools.arguments import Refused, done, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.ports import Memories, ToolResult, ToolRun


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[
        str, Meta(description="One fact in one sentence that makes sense by itself, with names and dates.")
    ]


class Remember:
    """Remembers a sentence. Doing it again with the same call leaves the same memory.

    Nobody is asked first: it stands in the conversation, and can be changed and forgotten on the memory page.
    """

    spec = spec_of(
        "remember",
        "Remember one thing for later conversations, word for word: when the user asks you to, or when it"
        f" will clearly matter again. At most {MEMORY_CHARS_MAX} characters.",
        Arguments,
    )
    effect: Effect = "idempotent"
    asks = False

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, partial(read_arguments, shape=Arguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            text = _checked(read_arguments(call.arguments, Arguments).text)
            kept = await self._memories.remember(text, call.session_id, call.turn, f"call_{call.call_id}")
        except Refused as refusal:
            return failed(refusal)
        except HoldfastError as error:
            return failed(Refused(f"Not remembered. {error}"))
        return done(f"Remembered: {kept}")

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # It lives and dies with its process.


def _checked(text: str) -> str:
    text = text.strip()
    if not text:
        raise Refused("text: there is nothing in it to remember")
    if len(text) > MEMORY_CHARS_MAX:
        raise Refused(f"text: it has {len(text):,} characters; remember takes {MEMORY_CHARS_MAX:,}")
    return text
