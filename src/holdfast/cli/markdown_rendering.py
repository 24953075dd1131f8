"""Render Markdown for a terminal without losing a word of it."""

import re
from html import unescape
from io import StringIO

from rich.console import Console, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from holdfast.cli.chat.safe_text import safe

_FENCE = re.compile(r"^[ >*+\-\d.)]*(?:`{3,}[^`\n]*|~{3,}.*)$", re.MULTILINE)
"""The first line of a code block. It names the language, which is not shown."""
_WORD = re.compile(r"[^\W_]+")


def render_markdown(text: str, columns: int) -> RenderableType:
    """Return Markdown two columns in, without the empty lines that rich puts around some of it.

    HTML is shown as text. Where rich would leave out a word (a cell too wide for its column, the title of a
    link), the text is shown as it was written.
    """
    columns = max(10, columns - 4)
    lines = _render_lines(text, columns)
    if _is_missing_words("".join(segment.text for line in lines for segment in line), text):
        lines = [[Segment(line.plain)] for line in Text(text).wrap(Console(width=columns), columns)]
    has_text = [any(segment.text.strip() for segment in line) for line in lines]
    first = has_text.index(True) if True in has_text else len(has_text)
    last = len(has_text) - has_text[::-1].index(True) if True in has_text else 0
    segments: list[Segment] = []
    for line in lines[first:last]:
        # Made safe again: Markdown entities (`&#x202e;`) have become characters only now.
        safe_line = [Segment(safe(segment.text), segment.style, segment.control) for segment in line]
        segments += [Segment("  "), *safe_line, Segment.line()]
    return Segments(segments)


def _render_lines(text: str, columns: int) -> list[list[Segment]]:
    from markdown_it import MarkdownIt  # Imported here: commands that draw nothing start faster.
    from rich.markdown import Markdown

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    # A link's address is shown beside its text, which may be misleading; an image becomes a link.
    markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = parser.disable("image").parse(text)
    console = Console(width=columns, file=StringIO(), force_terminal=True, legacy_windows=False)
    return console.render_lines(markdown, pad=False)


def _is_missing_words(rendered_text: str, text: str) -> bool:
    """Return whether a word of `text` is missing from the rendered text, whatever its line breaks."""
    letters = "".join(_WORD.findall(rendered_text)).casefold()
    words = _WORD.findall(unescape(_FENCE.sub("", text)).casefold())
    return any(word not in letters for word in set(words))
