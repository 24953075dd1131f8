"""Implement `ask_user`: a question to the person, who may answer at any time."""

from functools import partial

from holdfast.domain.decisions.questions import ASK_TOOL, Question, validation_error
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import CHOICE_CHARS_MAX, CHOICES_MAX, QUESTIONS_OPEN_MAX
from holdfast.tools.arguments import ToolError, argument_error, failed_result, read_arguments, tool_spec
from holdfast.tools.ports import ToolResult, ToolRun


class AskUserTool:
    """A tool whose result is a person's answer.

    The engine asks the person; `run` only explains why it cannot ask a question.
    """

    spec = tool_spec(
        ASK_TOOL,
        "Ask the user a question and wait for the answer, however long that takes. Offer"
        f" 2 to {CHOICES_MAX} choices of at most {CHOICE_CHARS_MAX} characters where the answers are known;"
        " without choices they answer in their own words. They may also leave it unanswered.",
        Question,
    )
    effect: Effect = "pure"
    needs_approval = False

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, partial(read_arguments, shape=Question))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            problem = validation_error(read_arguments(call.arguments, Question))
        except ToolError as error:
            return failed_result(error)
        return failed_result(
            ToolError(problem or f"At most {QUESTIONS_OPEN_MAX} questions can be asked at once.")
        )

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # A question has no work that could still go on.
