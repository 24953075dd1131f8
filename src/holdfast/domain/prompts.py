"""Parse prompt files and expand calls of them by a slash and a name.

`/name and more` expands to the file's text, with `and more` in place of `$ARGUMENTS`, or else after it.
"""

import re

import msgspec

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.limits import TEXT_BYTES_MAX
from holdfast.domain.slash import COMMANDS

ARGUMENTS_PLACEHOLDER = "$ARGUMENTS"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_CALL = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,39})(?:@\S+)?(?:\s+(.*))?", re.DOTALL)
_ABOUT_CHARS_MAX = 100


class BadPrompt(HoldfastError):
    """{file}: {problem}."""

    code, status = "bad_prompt", 400


class Prompt(msgspec.Struct, frozen=True):
    """A named prompt; `about` is its first line, for lists."""

    name: str
    text: str

    @property
    def about(self) -> str:
        line = next((line.strip(" #") for line in self.text.splitlines() if line.strip(" #")), "")
        return line if len(line) <= _ABOUT_CHARS_MAX else line[: _ABOUT_CHARS_MAX - 1] + "…"

    def expand(self, arguments: str) -> str:
        """Return the message of a call. Raises TooLarge, before it builds the text."""
        text = self.text.strip()
        places = text.count(ARGUMENTS_PLACEHOLDER)
        size = len(text.encode("utf-8", "surrogatepass"))
        size += places * (len(arguments.encode("utf-8", "surrogatepass")) - len(ARGUMENTS_PLACEHOLDER))
        if size > TEXT_BYTES_MAX:
            raise TooLarge(what="the message", size=size, limit=TEXT_BYTES_MAX)
        return (
            text.replace(ARGUMENTS_PLACEHOLDER, arguments) if places else f"{text}\n\n{arguments}"
        ).strip()


def is_valid_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def file_name(name: str) -> str:
    """Return the name of a prompt's file, as people see it."""
    return f"prompts/{name}.md"


def parse(name: str, text: str) -> Prompt:
    """Parse a prompt file. Raises BadPrompt."""
    if name in COMMANDS:
        raise BadPrompt(file=file_name(name), problem=f"/{name} is a command already; give it another name")
    if not text.strip():
        raise BadPrompt(file=file_name(name), problem="there is nothing in it")
    return Prompt(name, text)


def parse_call(text: str) -> tuple[str, str] | None:
    """Return the prompt that a message calls and its arguments; None if it calls none."""
    match = _CALL.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match is not None else None
