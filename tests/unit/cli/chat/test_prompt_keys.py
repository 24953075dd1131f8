"""Keys that answer a question without Enter, and messages that only begin with one of them."""

import asyncio
import os
import pty
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.output import DummyOutput

from holdfast.cli.chat.completion import CompletionNames
from holdfast.cli.chat.prompt import InputPrompt
from tests.support.api_client import wait_until

AT_ONCE, NEVER = 0.0, 3_600.0
PASTED = b"\x1b[200~%s\x1b[201~"


class PromptTypist:
    """Types into prompts that have a terminal of their own."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self.line: Callable[[], str] = str
        """Returns the text of the prompt's line."""

    async def ask(
        self,
        *pieces: bytes,
        pause_s: float = AT_ONCE,
        is_answer: Callable[[str], bool] = lambda letter: letter in "ad",
        label: str = "> ",
    ) -> str | None:
        """Return what the prompt makes of `pieces`; each is typed once the one before is in the line."""
        prompt = InputPrompt(
            lambda c, r: [], lambda c: "", lambda: False, Path(), CompletionNames, is_answer, pause_s
        )
        self.line = lambda: prompt.line
        asking = asyncio.create_task(prompt.ask(label))
        for piece in pieces:
            before = prompt.line
            os.write(self._terminal, piece)

            async def is_taken(before: str = before) -> bool:
                return prompt.line != before or asking.done()

            await wait_until(is_taken)
            for _ in range(20):
                await asyncio.sleep(0)  # What is due at once may happen.
        return await asking


@pytest.fixture
def typist(monkeypatch: pytest.MonkeyPatch) -> Iterator[PromptTypist]:
    terminal, own = pty.openpty()
    with os.fdopen(own, "r") as keyboard, create_app_session(output=DummyOutput()):
        monkeypatch.setattr(sys, "stdin", keyboard)
        yield PromptTypist(terminal)
    os.close(terminal)


async def test_a_key_answers_without_enter(typist: PromptTypist) -> None:
    assert await typist.ask(b"a") == "a"
    assert await typist.ask(b"D", is_answer=lambda letter: letter in "dD") == "D"


async def test_a_message_starting_with_an_answer_letter_is_a_message(typist: PromptTypist) -> None:
    assert await typist.ask(b"and then stop\r") == "and then stop"
    assert await typist.ask(b"a", b"n", b"d\r", pause_s=NEVER) == "and"


async def test_pasted_text_never_answers_a_question(typist: PromptTypist) -> None:
    assert await typist.ask(PASTED % b"a", b"gain\r") == "again"
    assert await typist.ask(PASTED % b"all of it", b"\r") == "all of it"


async def test_an_answer_letter_in_a_started_line_is_text(typist: PromptTypist) -> None:
    assert await typist.ask(b"x", b"a", b"\r") == "xa"


async def test_an_answer_letter_is_ignored_until_the_question_was_read(typist: PromptTypist) -> None:
    assert await typist.ask(b"a", b"nd\r", is_answer=lambda letter: False) == "and"


async def test_a_pending_key_does_not_answer_a_closed_question(typist: PromptTypist) -> None:
    assert await typist.ask(b"a", b"nd\r", is_answer=lambda letter: not typist.line()) == "and"


async def test_letters_in_a_reason_are_text_and_escape_cancels(typist: PromptTypist) -> None:
    assert await typist.ask(b"a", b" good one\r", label="Reason > ") == "a good one"
    assert await typist.ask(b"a", b"\x1b", label="Reason > ") is None
