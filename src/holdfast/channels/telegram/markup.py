"""Convert models' Markdown to the HTML that Telegram renders.

Telegram supports a few tags and refuses a message whose tags it cannot parse. So the writer escapes all text,
and closes each tag within its run of text. Elements without a tag become text: headings are bold, lists have
bullets, tables are fixed-width text. No text is lost: what cannot be rendered well stays as written.
"""

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

TEXT_UNITS_MAX = 4_096
"""Telegram's limit for one message, in UTF-16 units without the tags."""
CAPTION_UNITS_MAX = 1_024
"""Telegram's limit for a caption."""
_NESTED_MAX = 40
"""The nesting limit of quotes and lists. The parser drops what is deeper, so such a text stays Markdown."""
_LINKED = re.compile(r"(?:https?://|mailto:)[^\s]+", re.IGNORECASE)
"""The allowed link targets; Telegram's own URLs, which mention people, are not among them."""
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_TAG = re.compile(r"<[^>]*>")
_LINE_END = re.compile(r"\r\n?|\n")
_STYLES = (("s", "s"), ("em", "i"), ("strong", "b"))
"""Our style names and Telegram's tags, the innermost first."""
_ITEM_OPENERS = frozenset({"paragraph", "heading"})


class _Run(NamedTuple):
    text: str
    styles: frozenset[str] = frozenset()
    link: str = ""
    is_code: bool = False


class _Block(NamedTuple):
    html: str
    kind: Literal["text", "quote", "pre"]
    gap: str
    """The separator from the previous block."""


class _BlockContext(NamedTuple):
    """The context of a block: its indent, its bullet, and whether it is in a quote."""

    indent: str = ""
    lead: str = ""
    is_quoted: bool = False
    gap: str = "\n\n"


def telegram_html(markdown: str, *, is_padded: bool = True) -> str | None:
    """Return `markdown` in Telegram's HTML; None if it is better sent as plain text.

    With `is_padded`, table columns are padded, which can make the text longer.
    """
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _NESTED_MAX})
    parser.enable(["table", "strikethrough"]).disable("reference")
    tokens = parser.parse(markdown)
    if any(token.level >= _NESTED_MAX - 1 for token in tokens):
        return None
    writer = _HtmlWriter(_LINE_END.split(markdown), is_padded)
    return _join(writer.blocks(SyntaxTreeNode(tokens), _BlockContext())) or None


def visible_text(markup: str) -> str:
    """Return the visible text of our HTML."""
    return html.unescape(_TAG.sub("", markup))


def utf16_units(text: str) -> int:
    """Return a text's length as Telegram counts it: in UTF-16 units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class _HtmlWriter:
    """Write one document. `lines` is its source, for parts that stay as written."""

    def __init__(self, lines: Sequence[str], is_padded: bool) -> None:
        self._lines = lines
        self._is_padded = is_padded

    def blocks(self, node: SyntaxTreeNode, context: _BlockContext) -> Iterator[_Block]:
        """Yield the blocks inside `node`, in order."""
        for n, child in enumerate(node.children):
            yield from self._block(child, context if n == 0 else context._replace(lead=""))

    def _block(self, node: SyntaxTreeNode, context: _BlockContext) -> Iterator[_Block]:
        match node.type:
            case "paragraph":
                yield _text(_markup(_runs(node)), context)
            case "heading":
                yield _text(_markup(_runs(node, frozenset({"strong"}))), context)
            case "blockquote":
                yield from self.blocks(node, context._replace(is_quoted=True))
            case "bullet_list" | "ordered_list":
                yield from self._items(node, context)
            case "fence":
                yield from _fence(node, context)
            case "code_block":
                yield _Block(f"<pre>{_escaped(node.content)}</pre>", "pre", context.gap)
            case "hr":
                yield _text("———", context)
            case "table":
                yield _Block(f"<pre>{_escaped(self._table(node))}</pre>", "pre", context.gap)
            case _:
                yield _text(_escaped(node.content), context)

    def _items(self, node: SyntaxTreeNode, context: _BlockContext) -> Iterator[_Block]:
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        gap = context.gap
        for n, item in enumerate(node.children):
            bullet = "• " if number is None else f"{number + n}. "
            inner = _BlockContext(
                context.indent + " " * len(bullet), context.indent + bullet, context.is_quoted, gap
            )
            gap = "\n"
            if not item.children or item.children[0].type not in _ITEM_OPENERS:
                yield _text("", inner)
                inner = inner._replace(lead="", gap=gap)
            for m, child in enumerate(item.children):
                at = inner if m == 0 else inner._replace(lead="", gap=gap)
                yield from self._block(child, at)

    def _table(self, node: SyntaxTreeNode) -> str:
        rows = [
            [_plain(_runs(cell)) for cell in row.children] for part in node.children for row in part.children
        ]
        start, end = node.map or (0, 0)
        source = "\n".join(self._lines[start:end])
        # The parser drops cells beyond the header's; then the source is shown, so that no text is lost.
        if _letters(source) > sum(_letters(cell) for row in rows for cell in row):
            return source
        if not self._is_padded:
            return "\n".join(" | ".join(row) for row in rows)
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        shown = [
            " │ ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join(
            line.rstrip() for line in [shown[0], "─┼─".join("─" * w for w in widths), *shown[1:]]
        )


def _fence(node: SyntaxTreeNode, context: _BlockContext) -> Iterator[_Block]:
    language = node.info.strip()
    code = _escaped(node.content.removesuffix("\n"))
    if language and not _LANGUAGE.fullmatch(language):
        yield _text(_escaped(language), context)
        context = context._replace(gap="\n")
    elif language:
        code = f'<code class="language-{_escaped(language)}">{code}</code>'
    yield _Block(f"<pre>{code}</pre>", "pre", context.gap)


def _text(markup: str, context: _BlockContext) -> _Block:
    lead = context.lead or context.indent
    kind: Literal["text", "quote"] = "quote" if context.is_quoted else "text"
    return _Block(lead + markup.replace("\n", f"\n{context.indent}"), kind, context.gap)


def _join(blocks: Iterable[_Block]) -> str:
    """Join blocks to one text, merging adjacent quotes; code is never inside a quote."""
    pieces: list[str] = []
    before = ""
    for block in blocks:
        if before == "quote" and block.kind != "quote":
            pieces.append("</blockquote>")
        if pieces:
            pieces.append(block.gap)
        if block.kind == "quote" and before != "quote":
            pieces.append("<blockquote>")
        pieces.append(block.html)
        before = block.kind
    if before == "quote":
        pieces.append("</blockquote>")
    return "".join(pieces)


def _runs(node: SyntaxTreeNode, styles: frozenset[str] = frozenset(), link: str = "") -> Iterator[_Run]:
    """Yield the text inside `node` as runs of one style."""
    for child in node.children:
        match child.type:
            case "softbreak" | "hardbreak":
                yield _Run("\n", styles, link)
            case "code_inline":
                # Telegram's code tag cannot be bold or a link.
                yield _Run(child.content, styles, link) if link else _Run(child.content, is_code=True)
            case "link":
                yield from _link_runs(child, styles, str(child.attrs.get("href", "")))
                yield from _title_runs(child, styles)
            case "image":
                yield from _image_runs(child, styles, link)
                yield from _title_runs(child, styles)
            case "inline":
                yield from _runs(child, styles, link)
            case "strong" | "em" | "s":
                yield from _runs(child, styles | {child.type}, link)
            case _:
                yield _Run(child.content, styles, link)


def _link_runs(node: SyntaxTreeNode, styles: frozenset[str], address: str) -> Iterator[_Run]:
    is_linkable = _LINKED.fullmatch(address) is not None
    inner = list(_runs(node, styles, address if is_linkable else ""))
    shown = "".join(run.text for run in inner)
    if not shown.strip():
        yield _Run(address, styles, address if is_linkable else "")
        return
    yield from inner
    if not is_linkable and address and address != shown:
        yield _Run(f" ({address})", styles)


def _image_runs(node: SyntaxTreeNode, styles: frozenset[str], link: str) -> Iterator[_Run]:
    address = str(node.attrs.get("src", ""))
    shown = _plain(_runs(node)) or address
    if link or not _LINKED.fullmatch(address):
        yield _Run(shown if shown == address else f"{shown} ({address})", styles, link)
    else:
        yield _Run(shown, styles, address)


def _title_runs(node: SyntaxTreeNode, styles: frozenset[str]) -> Iterator[_Run]:
    """Yield a link's title as text, since Telegram has no tooltips."""
    if title := str(node.attrs.get("title", "")):
        yield _Run(f" ({title})", styles)


def _markup(runs: Iterable[_Run]) -> str:
    return "".join(_tagged(run) for run in _merged(runs))


def _merged(runs: Iterable[_Run]) -> list[_Run]:
    merged: list[_Run] = []
    for run in runs:
        if merged and merged[-1]._replace(text="") == run._replace(text=""):
            merged[-1] = run._replace(text=merged[-1].text + run.text)
        elif run.text:
            merged.append(run)
    return merged


def _tagged(run: _Run) -> str:
    markup = _escaped(run.text)
    if run.is_code:
        return f"<code>{markup}</code>"
    for style, tag in _STYLES:
        if style in run.styles:
            markup = f"<{tag}>{markup}</{tag}>"
    return f'<a href="{html.escape(run.link)}">{markup}</a>' if run.link else markup


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _plain(runs: Iterable[_Run]) -> str:
    return "".join(run.text for run in runs)


def _letters(text: str) -> int:
    return sum(map(str.isalnum, text))


def _width(text: str) -> int:
    """Return the width of a cell in fixed-width columns."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
