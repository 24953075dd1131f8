"""Scripts of turns. The user message contains the script, so that the model and the checks share it and
nothing else stores it.

Every word is numbered: `a3.1.17` is word 17 of step 1 of turn `a3`. A step says its words, then calls its
tool; the last step calls none. The right answer is all words of all steps, each once, in order.
"""

import random
import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast.domain.context.context import NOT_RUN

MARK = "Act out: "
EFFECTS = "effects.log"
"""The file in a session's workspace to which every unsafe call adds its own line."""
EDITED = "edited.txt"
"""The file that the edit tool changes."""
_SCRIPT = re.compile(re.escape(MARK) + r"(\{.*\})")

ToolName = Literal["", "shell", "write_file", "edit_file", "read_file", "ask_user"]


class ScriptStep(msgspec.Struct, frozen=True):
    word_count: int
    tool: ToolName = ""
    pace_ms: float = 2.0
    thinks: bool = False
    waits_for: str = ""
    """A file in the workspace that the shell command waits for after its effect."""


class Script(msgspec.Struct, frozen=True):
    name: str
    steps: tuple[ScriptStep, ...]

    @property
    def text(self) -> str:
        return MARK + msgspec.json.encode(self).decode()

    def words(self, step: int) -> list[str]:
        return [f"{self.name}.{step}.{number} " for number in range(self.steps[step].word_count)]

    def answer(self) -> str:
        return "".join(word for step in range(len(self.steps)) for word in self.words(step))

    def call(self, step: int) -> tuple[str, dict[str, Any]]:
        """Return the tool of a step and its arguments."""
        tool, name = self.steps[step].tool, f"{self.name}.{step}"
        if tool == "write_file":
            return tool, {"path": f"{name}.txt", "content": f"written by {name}\n"}
        if tool == "edit_file":
            # Twice would show: what is looked for is there again afterwards.
            return tool, {"path": EDITED, "old_text": "start", "new_text": f"start {name}"}
        if tool == "read_file":
            return tool, {"path": EFFECTS}
        if tool == "ask_user":
            return tool, {"question": f"{name}?", "choices": ["yes", "no"]}
        return "shell", {"command": self._command(step)}

    def _command(self, step: int) -> str:
        name, waits_for = f"{self.name}.{step}", self.steps[step].waits_for
        wait = f"until [ -e {waits_for} ]; do sleep 0.02; done; " if waits_for else "sleep 0.02; "
        # One write to a file opened for appending: the line is there whole or not at all.
        return f"echo {name} >> {EFFECTS}; echo {name} begins; {wait}echo {name} ends"


class ScriptCue(msgspec.Struct, frozen=True):
    """The position where an answer continues: the step, and the number of its words so far."""

    script: Script
    step: int
    words_sent: int


def cue_of(messages: Sequence[dict[str, Any]]) -> ScriptCue:
    """Return the next position for a model that receives `messages`."""
    at, script = _last_script(messages)
    step, said = 0, 0
    for message in messages[at + 1 :]:
        content = message.get("content") or ""
        if message["role"] == "tool" and not content.startswith(NOT_RUN):
            step, said = step + 1, 0
        elif message["role"] == "assistant":
            said = max([said, *(number + 1 for number in _numbers(script, step, content))])
    return ScriptCue(script, step, said)


def script_in(text: str) -> Script:
    found = _SCRIPT.findall(text)
    assert found, f"there is no script in {text!r}"
    # Messages that nobody answered are joined to the one after them.
    return msgspec.json.decode(found[-1], type=Script)


def _last_script(messages: Sequence[dict[str, Any]]) -> tuple[int, Script]:
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and MARK in messages[at]["content"]:
            return at, script_in(messages[at]["content"])
    raise AssertionError(f"nobody said what to do: {messages}")


def _numbers(script: Script, step: int, content: str) -> list[int]:
    return [int(number) for number in re.findall(rf"{re.escape(script.name)}\.{step}\.(\d+) ", content)]


def random_script(rng: random.Random, name: str) -> Script:
    """Return a turn of one to three steps, about a second long."""
    tools: list[ToolName] = ["shell", "shell", "shell", "write_file", "read_file"]
    calls: list[ToolName] = [rng.choice(tools) for _ in range(rng.choice((0, 1, 1, 2)))]
    pace_ms = rng.choice((0.0, 3.0, 10.0))
    return Script(
        name,
        tuple(
            ScriptStep(rng.randint(1, 40), tool, pace_ms, rng.random() < 0.2) for tool in [*calls, ""]
        ),
    )  # fmt: skip
