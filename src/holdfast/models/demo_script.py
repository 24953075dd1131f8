"""Compute the demo's next step from a request alone, without I/O and without chance.

Nothing else may depend on its texts. A step that was cut off is computed again as a whole; the part that was
not sent yet is its rest.
"""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

import msgspec

from holdfast.domain.context.context import (
    CONTINUE_PROMPT,
    AssistantMessage,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import File, Text, message_text
from holdfast.domain.files import file_parts

MESSAGE_CHARS_MAX = 2_000
"""Characters of a message that the script reads."""
OUTPUT_CHARS_MAX = 600
COUNT_MAX = 2_000

DISCLAIMER = "I am a scripted demo, not an AI"
_CONNECT_ADVICE = (
    "For real answers, connect a model under Settings in the page: it answers at once, without a restart. "
    "Or set `OPENAI_API_KEY`, or start a model server such as Ollama on this machine, and start Holdfast "
    "again."
)
_TOUR = f"""\
Hello! {DISCLAIMER}: every word here was written beforehand, so that Holdfast can be tried without a key and \
without a network.

Still, what you see is real:

- **Streaming.** This text comes word by word, and each word is on disk before you see it. \
Stop the server in the middle and start it again: the answer goes on where it stopped.
- **Thinking.** What came before this answer is shown folded away, as a model's thinking is.
- **Tools.** I call the same tools that a model would. Ask me to `list files`, to run `ls`, to \
`write hello to notes.txt` or to `read notes.txt`. Commands wait for your permission first.

Say `count to 300` for an answer that is long enough to interrupt. {_CONNECT_ADVICE}"""

_PATH = r"[`\"'“]?(?P<path>[\w./~-]*[\w-]\.\w+|[\w.~-]*/[\w./-]*\w)[`\"'”]?"
_COMMANDS = (
    "ls|pwd|date|echo|cat|head|tail|wc|uname|whoami|sleep|seq|find|grep|df|du|env|ps|true|false|touch|mkdir"
)
_TOOL_PATTERNS = MappingProxyType(
    {
        "shell": re.compile(
            r"\b(?:run|execute)\b[^`\n]{0,40}`(?P<quoted>[^`\n]+)`|^\s*\$\s+(?P<prompt>[^\n]+)"
            rf"|\b(?:run|execute)\s+(?P<bare>(?:{_COMMANDS})\b(?:(?!,?\s+(?:and|then)\b)[^\n`])*)",
            re.IGNORECASE | re.MULTILINE,
        ),
        "write_file": re.compile(
            r"\b(?:write|save|put)\s+(?P<content>.+?)\s+(?:to|into|in)\s+(?:an? |the )?(?:new )?(?:file )?"
            rf"(?:called |named )?{_PATH}",
            re.IGNORECASE | re.DOTALL,
        ),
        "read_file": re.compile(
            r"\b(?:read|show|open|print)\s+(?:me\s+)?(?:the\s+)?(?:contents?\s+of\s+)?(?:the\s+)?(?:file\s+)?"
            rf"{_PATH}",
            re.IGNORECASE,
        ),
        "list_files": re.compile(
            r"\b(?:list|show|which|what)\b[^.\n`]{0,30}?\b(?:files|folder|directory)\b"
            r"(?:\s+(?:in|of|under)\s+(?!the\b|this\b|my\b|your\b|here\b|it\b|an?\b)[`\"']?(?P<folder>[\w./-]*\w)[`\"']?)?",
            re.IGNORECASE,
        ),
    }
)
_COUNT = re.compile(r"\bcount\b.*?\bto\s+(\d{1,6})\b", re.IGNORECASE)


class PlannedCall(msgspec.Struct, frozen=True):
    """A call that a message asks for."""

    name: str
    arguments: Mapping[str, str]

    @property
    def summary(self) -> str:
        return " ".join(self.arguments.values())[:60]


class Step(msgspec.Struct, frozen=True):
    """One message of the demo: the thinking, the text and the call that are left."""

    thinking: str
    text: str
    call: PlannedCall | None = None


def next_step(request: Request, tools: Collection[str]) -> Step:
    """Return the demo's answer to `request`: all of it, or the rest of one that was cut off."""
    prompt, files, later = _last_turn(request.messages)
    results: list[ToolMessage] = []
    sent_text = ""
    for message in later:
        if isinstance(message, ToolMessage):
            results.append(message)
            sent_text = ""
        elif isinstance(message, AssistantMessage):
            sent_text += "".join(part.text for part in message.parts if isinstance(part, Text))
    full = _full_step(prompt, results, tools)
    if _has_connect_advice(request.messages[: len(request.messages) - len(later)]):
        full = msgspec.structs.replace(full, text=full.text.removesuffix(f" {_CONNECT_ADVICE}"))
    if files and not results:
        full = msgspec.structs.replace(full, text=f"{_files_text(files)}\n\n{full.text}")
    if not sent_text:
        return full
    if full.text.startswith(sent_text):
        return Step("", full.text[len(sent_text) :], full.call)
    # Another model began this answer, so its rest is unknown.
    return Step("", f"\n\n(From here on the scripted demo answers.)\n\n{full.text}", full.call)


def _has_connect_advice(earlier: tuple[RequestMessage, ...]) -> bool:
    """Return whether the conversation has already said how to connect a model."""
    return any(
        _CONNECT_ADVICE in message_text(message.parts)
        for message in earlier
        if isinstance(message, AssistantMessage)
    )


def plan_calls(prompt: str) -> list[PlannedCall]:
    """Return the calls that a message asks for, in its order. No two calls share words."""
    found: list[tuple[int, int, PlannedCall]] = []
    for name, pattern in _TOOL_PATTERNS.items():
        for match in pattern.finditer(prompt[:MESSAGE_CHARS_MAX]):
            overlaps = any(match.start() < end and start < match.end() for start, end, _ in found)
            if not overlaps:
                found.append(
                    (match.start(), match.end(), PlannedCall(name, _arguments(name, match.groupdict())))
                )
    return [plan for _, _, plan in sorted(found, key=lambda match: match[0])]


def _last_turn(
    messages: tuple[RequestMessage, ...],
) -> tuple[str, list[File], tuple[RequestMessage, ...]]:
    """Return the last message of the user, its files, and what followed. A prompt to go on does not count."""
    for i in range(len(messages) - 1, -1, -1):
        message = messages[i]
        if isinstance(message, UserMessage):
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            # Memories and the summary of earlier turns come before the user's own words.
            if texts != [CONTINUE_PROMPT]:
                return (texts[-1] if texts else ""), file_parts(message.parts), messages[i + 1 :]
    return "", [], messages


def _files_text(files: list[File]) -> str:
    named = ", ".join(f"`{file.name}` ({file.size_bytes:,} bytes)" for file in files)
    return f"I was given {named}. A real model would read that; I only see that it is there."


def _arguments(name: str, found: Mapping[str, str | None]) -> Mapping[str, str]:
    match name:
        case "shell":
            command = found["quoted"] or found["prompt"] or (found["bare"] or "").rstrip(" .?!")
            return {"command": command.strip()}
        case "write_file":
            return {"path": found["path"] or "", "content": (found["content"] or "").strip(" `\"'“”")}
        case "read_file":
            return {"path": found["path"] or ""}
    return {"path": found["folder"]} if found["folder"] else {}


def _full_step(prompt: str, results: list[ToolMessage], tools: Collection[str]) -> Step:
    planned_calls = plan_calls(prompt)
    calls = [plan for plan in planned_calls if plan.name in tools]
    missing = [plan.name for plan in planned_calls if plan.name not in tools]
    if len(results) < len(calls):
        call = calls[len(results)]
        progress = f" This is call {len(results) + 1} of {len(calls)}." if len(calls) > 1 else ""
        thinking = f"The message asks for something that `{call.name}` does.{progress} I call it and look."
        summary = f" ({call.summary})" if call.summary else ""
        return Step(thinking, f"I call the tool `{call.name}`{summary}.", call)
    if results:
        return Step("The tools have answered. I show what they said.", _results_text(results, missing))
    if missing:
        return Step(
            "A tool is wanted that I was not given.",
            f"{_missing_text(missing)} {DISCLAIMER}. {_CONNECT_ADVICE}",
        )
    if count := _COUNT.search(prompt[:MESSAGE_CHARS_MAX]):
        return Step("I am asked to count. That needs no tool.", _count_text(int(count[1])))
    return Step("Nothing here asks for a tool, so I give the tour. Real models think in this place.", _TOUR)


def _results_text(results: list[ToolMessage], missing: list[str]) -> str:
    blocks = []
    for result in results:
        output = message_text(result.parts).strip("\n")
        if len(output) > OUTPUT_CHARS_MAX:
            output = output[:OUTPUT_CHARS_MAX] + "\n…"
        opening = "That did not work:" if result.failed else "The tool answered:"
        blocks.append(f"{opening}\n\n````\n{output}\n````")
    missing_text = f"\n\n{_missing_text(missing)}" if missing else ""
    return (
        "\n\n".join(blocks) + f"{missing_text}\n\nThat was a real call, but {DISCLAIMER}. {_CONNECT_ADVICE}"
    )


def _missing_text(missing: list[str]) -> str:
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(missing))
    return f"I was not given {names}, so I cannot do all of that."


def _count_text(last: int) -> str:
    numbers = " ".join(str(number) for number in range(1, min(last, COUNT_MAX) + 1))
    return f"{numbers}\n\nThat is all. {DISCLAIMER}, but I can count."
