"""Thinking that a model writes into its text, between tags: told apart from its answer. No I/O.

DeepSeek-R1's distills, Qwen3 and their like do so, and not every server in front of them reads their tags:
Ollama, llama.cpp and vLLM do where they are told to. Only an answer that begins with `<think>` is read so:
anywhere else the tag is what somebody writes about.
"""

from holdfast.models.ports import ReasoningDelta, TextDelta

OPENS, CLOSES = "<think>", "</think>"
BLANK_CHARS_MAX = 64
"""As much blank space may come before the tag; text that begins with more does not begin with it."""


class Opening:
    """How the text of one answer begins, in whatever pieces it comes; no more is held than a tag is long.

    Once it `is_over`, all that follows is the answer's own, and needs no looking at.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._held = ""
        self._is_inside = False
        self._is_closed = False
        self._is_blank = True

    def feed(self, text: str) -> list[TextDelta | ReasoningDelta]:
        """What can be told of the text so far. Blank space around the tags is left out."""
        text, self._held = self._held + text, ""
        if not self._is_inside and not self._is_closed:
            said = text.lstrip()
            blank_chars = len(text) - len(said)
            if blank_chars > BLANK_CHARS_MAX or not (said.startswith(OPENS) or OPENS.startswith(said)):
                self.is_over = True
                return [TextDelta(text)]
            if len(said) < len(OPENS):
                self._held = text
                return []
            self._is_inside, text = True, said[len(OPENS) :]
        return self._thought(text) if self._is_inside else self._answered(text)

    def let_go(self) -> list[TextDelta | ReasoningDelta]:
        """What was held back: something else begins, or nothing more comes. Thinking under way stays that."""
        held, self._held = self._held, ""
        if self._is_inside:
            return [ReasoningDelta(held)] if held else []
        self.is_over = True
        return [TextDelta(held)] if held else []

    def _thought(self, text: str) -> list[TextDelta | ReasoningDelta]:
        thought, closed, rest = text.partition(CLOSES)
        if closed:
            self._is_inside, self._is_closed = False, True
        elif kept := _begun(text):
            thought, self._held = text[:-kept], text[-kept:]
        thought = thought.lstrip() if self._is_blank else thought
        self._is_blank = self._is_blank and not thought
        deltas: list[TextDelta | ReasoningDelta] = [ReasoningDelta(thought)] if thought else []
        return deltas + (self._answered(rest) if closed else [])

    def _answered(self, text: str) -> list[TextDelta | ReasoningDelta]:
        said = text.lstrip()
        self.is_over = bool(said)
        return [TextDelta(said)] if said else []


def _begun(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of the closing tag."""
    for chars in range(min(len(CLOSES) - 1, len(text)), 0, -1):
        if text.endswith(CLOSES[:chars]):
            return chars
    return 0
