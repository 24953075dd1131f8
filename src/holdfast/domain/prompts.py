"""Prompts that people keep in files and call by a slash and a name: what one is, and what calling it says.

`/name and more` is the file's text, with `and more` where it says `$ARGUMENTS`, or else after it.
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
    """A prompt by its name; `about` is how it begins, for lists."""

    name: str
    text: str

    @property
    def about(self) -> str:
        line = next((line.strip(" #") for line in self.text.splitlines() if line.strip(" #")), "")
        return line if len(line) <= _ABOUT_CHARS_MAX else line[: _ABOUT_CHARS_MAX - 1] + "…"

    def expand(self, arguments: str) -> str:
        """What calling it says. Raises TooLarge, before that is made."""
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
    """What a prompt's file is called, as people are told of it."""
    return f"prompts/{name}.md"


def parse(name: str, text: str) -> Prompt:
    """The prompt that a file holds. Raises BadPrompt."""
    if name in COMMANDS:
        raise BadPrompt(file=file_name(name), problem=f"/{name} is a command already; give it another name")
    if not text.strip():
        raise BadPrompt(file=file_name(name), problem="there is nothing in it")
    return Prompt(name, text)


def parse_call(text: str) -> tuple[str, str] | None:
    """The name that a message calls, and what it says beside it; None for a message that calls nothing."""
    match = _CALL.fullmatch(text.strip())
    return (match[1].lower(), (match[2] or "").strip()) if match is not None else None
