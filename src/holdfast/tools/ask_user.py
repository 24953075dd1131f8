"""`ask_user`: a question to the person, who answers whenever they like."""

from functools import partial

from holdfast.domain.decisions.questions import TOOL, Question, flaw
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTIONS_OPEN_MAX
from holdfast.tools.arguments import Refused, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.ports import ToolResult, ToolRun


class AskUser:
    """A call that a person carries out: it is put to them, and their answer is its result.

    So it is never run here, except to say what is wrong with one that cannot be asked.
    """

    spec = spec_of(
        TOOL,
        "Ask the user a question and wait for the answer, however long that takes. Offer"
        f" 2 to {CHOICES_MAX} choices of at most {CHOICE_CHARS_MAX} characters where the answers are known;"
        " without choices they answer in their own words. They may also leave it unanswered.",
        Question,
    )
    effect: Effect = "pure"
    asks = False

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, partial(read_arguments, shape=Question))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            why = flaw(read_arguments(call.arguments, Question))
        except Refused as refusal:
            return failed(refusal)
        return failed(Refused(why or f"At most {QUESTIONS_OPEN_MAX} questions can be asked at once."))

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # There is never anything of it at work.
