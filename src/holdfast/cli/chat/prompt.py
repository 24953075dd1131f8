"""Read lines from the terminal and print above the prompt.

Only this module uses prompt_toolkit, and imports it when a prompt is created: other commands start faster.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.chat.answers import ANSWER_LETTERS
from holdfast.cli.chat.completion import CompletionNames, find_completions
from holdfast.cli.chat.render import StyledPieces

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

ANSWER_KEY_DELAY_S = 0.6
"""Longer than the pause between two keys of somebody who types a message."""
_LABEL = "> "
STYLES = (
    ("thinking", "italic #888888"),
    ("dim", "#888888"),
    ("tool", "#888888"),
    ("notice", "ansiyellow"),
    ("question", "bold ansiyellow"),
    ("command", "bold"),
    ("added", "ansigreen"),
    ("removed", "ansired"),
    ("choices", "ansicyan"),
    ("label", "bold ansicyan"),
    ("bottom-toolbar", "noreverse #888888"),
)


class InputPrompt:
    """A prompt at the bottom of the terminal, with `live` drawn above the line and `toolbar` below it.

    At Ctrl+C it calls `on_interrupt`, which returns whether it stopped something; if not, the prompt clears
    the line, or closes if the line is empty. `is_answer` says whether a letter answers a question now. Such a
    letter on an empty line is accepted without Enter if no other key follows within `answer_key_delay_s`: it
    may also be the start of a message.
    """

    def __init__(
        self,
        live: Callable[[int, int], StyledPieces],
        toolbar: Callable[[int], str],
        on_interrupt: Callable[[], bool],
        folder: Path,
        completion_names: Callable[[], CompletionNames],
        is_answer: Callable[[str], bool],
        answer_key_delay_s: float = ANSWER_KEY_DELAY_S,
    ) -> None:
        self._live = live
        self._toolbar = toolbar
        self._on_interrupt = on_interrupt
        self._folder = folder
        self._completion_names = completion_names
        self._is_answer = is_answer
        self._answer_key_delay_s = answer_key_delay_s
        self._label = _LABEL
        self._is_closed = False
        self._pending_answer: asyncio.TimerHandle | None = None
        self._session = self._make_session()
        self._session.app.key_processor.before_key_press += lambda processor: self._cancel_pending_answer()

    @property
    def line(self) -> str:
        """Return the text of the line."""
        return self._session.default_buffer.text

    @property
    def is_side_question(self) -> bool:
        """Return whether the prompt asks for something other than a message."""
        return self._label != _LABEL

    async def ask(self, label: str = _LABEL, text: str = "") -> str | None:
        """Return the next input, with `text` prefilled; None if the user leaves."""
        self._label = label
        if self._is_closed:
            return None
        try:
            typed: str = await self._session.prompt_async(default=text)
        except (EOFError, KeyboardInterrupt):
            return None
        finally:
            self._cancel_pending_answer()
        return typed

    def add_history(self, lines: Iterable[str]) -> None:
        """Add lines to the history that Up recalls."""
        for line in lines:
            self._session.history.append_string(line)

    def redraw(self) -> None:
        self._session.app.invalidate()

    def close(self) -> None:
        """End the prompt, as Ctrl+D does; later calls of `ask` return None."""
        self._is_closed = True
        if self._session.app.is_running:
            self._session.app.exit(exception=EOFError())

    async def print(self, draw: Callable[[int], str]) -> None:
        """Print above the prompt what `draw` returns for the terminal's width."""
        from prompt_toolkit.application import run_in_terminal

        output = self._session.app.output

        def write() -> None:
            output.write_raw(draw(output.get_size().columns))
            output.flush()

        await run_in_terminal(write)

    @contextmanager
    def capture_terminal(self) -> Iterator[None]:
        """Keep the terminal in raw mode, and redirect other output above the prompt."""
        from prompt_toolkit.patch_stdout import patch_stdout

        # Also between two prompts, when the terminal itself would otherwise process a key.
        with self._session.app.input.raw_mode(), patch_stdout(raw=True):
            yield

    def _make_session(self) -> "PromptSession[str]":
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import InMemoryHistory
        from prompt_toolkit.styles import Style

        return PromptSession(
            message=self._message,
            multiline=True,
            erase_when_done=True,
            bottom_toolbar=self._bottom_toolbar,
            style=Style(list(STYLES)),
            key_bindings=self._key_bindings(),
            completer=_make_completer(self._folder, self._completion_names),
            complete_while_typing=True,
            history=InMemoryHistory(),
            input=_make_input(),
            reserve_space_for_menu=4,
            refresh_interval=0.5,
        )

    def _bottom_toolbar(self) -> Any:
        return [("class:bottom-toolbar", self._toolbar(self._session.app.output.get_size().columns))]

    def _message(self) -> Any:
        size = self._session.app.output.get_size()
        return [("", "\n"), *self._live(size.columns, size.rows), ("class:label", self._label)]

    def _key_bindings(self) -> "KeyBindings":
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.key_binding import KeyBindings

        keys = KeyBindings()
        for letter in ANSWER_LETTERS + ANSWER_LETTERS.upper():
            keys.add(letter, filter=Condition(partial(self._is_answer_key, letter)))(self._start_answer)

        @keys.add("escape", filter=Condition(lambda: self.is_side_question))
        def _(event: Any) -> None:
            event.app.exit(exception=EOFError())

        @keys.add("enter")
        def _(event: Any) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _(event: Any) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _(event: Any) -> None:
            if self._on_interrupt():
                return
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=EOFError())

        return keys

    def _is_answer_key(self, letter: str) -> bool:
        return not self.is_side_question and not self.line and self._is_answer(letter)

    def _start_answer(self, event: Any) -> None:
        letter = event.data
        event.current_buffer.insert_text(letter)
        self._pending_answer = asyncio.get_running_loop().call_later(
            self._answer_key_delay_s, self._finish_answer, letter
        )

    def _finish_answer(self, letter: str) -> None:
        """Accept the letter if it is still alone on the line and still answers the question."""
        if self._session.app.is_running and self.line == letter and self._is_answer(letter):
            self._session.app.exit(result=letter)

    def _cancel_pending_answer(self) -> None:
        if self._pending_answer is not None:
            self._pending_answer.cancel()
            self._pending_answer = None


def _make_input() -> Any:
    from prompt_toolkit.input.vt100 import Vt100Input

    class Keyboard(Vt100Input):
        """An input that stays in raw mode while something is printed, so that no key is lost."""

        def cooked_mode(self) -> AbstractContextManager[None]:
            return nullcontext()

    return Keyboard(sys.stdin)


def _make_completer(folder: Path, completion_names: Callable[[], CompletionNames]) -> Any:
    from prompt_toolkit.completion import Completer, Completion

    class PromptCompleter(Completer):
        """A completer that offers the results of `find_completions`."""

        def get_completions(self, document: Any, complete_event: Any) -> Iterable[Completion]:
            for item in find_completions(document.text_before_cursor, folder, completion_names()):
                yield Completion(item.text, -item.replaces, display=item.label, display_meta=item.meaning)

        async def get_completions_async(
            self, document: Any, complete_event: Any
        ) -> AsyncGenerator[Completion]:
            found = await asyncio.to_thread(list, self.get_completions(document, complete_event))
            for completion in found:
                yield completion

    return PromptCompleter()


def is_terminal() -> bool:
    """Return whether standard input and output are a terminal."""
    return sys.stdin.isatty() and os.isatty(1)
