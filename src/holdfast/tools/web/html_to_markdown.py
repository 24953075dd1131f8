"""Convert a web page to Markdown with headings, lists, links and tables, its main part first."""

import re
from urllib.parse import urljoin

import msgspec

from holdfast.domain.limits import FETCH_URL_PIECES_MAX, FETCH_URL_TEXT_CHARS_MAX
from holdfast.tools.web.html_tokenizer import HtmlToken, tokenize

REST_HEADING = "--- the rest of the page ---"
_SKIPPED_ELEMENTS = frozenset({"svg", "math", "template", "object", "canvas", "select", "datalist"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "header", "hgroup",
    "legend",
    "main", "menu", "nav", "noscript", "ol", "p", "section", "summary", "table", "tbody", "tfoot", "thead",
    "title", "tr", "ul", "video", "audio",
})  # fmt: skip
_SPACED_BLOCKS = frozenset(
    {"article", "blockquote", "dl", "figure", "main", "ol", "p", "section", "table", "ul"}
)
"""Blocks with an empty line around them."""
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MAIN = frozenset({"main", "article"})
_MAIN_CHARS_MIN = 200
_LINK_CHARS_MAX = 1_000
_NEST_MAX = 8
_LINKS = ("http://", "https://", "mailto:")
_INVISIBLE = re.compile(
    "[\0-\x08\x0b-\x1f\x7f-\x9f\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Invisible characters, which could tell a model something that no person sees."""


class MarkdownPage(msgspec.Struct, frozen=True):
    """A page's title and text; `is_cut` if the page has more."""

    title: str
    text: str
    is_cut: bool


def html_to_markdown(page: str, address: str) -> MarkdownPage:
    """Convert a page from `address`, the base of its links. Accepts any text."""
    writer, is_cut = _MarkdownWriter(address), False
    for count, token in enumerate(tokenize(page)):
        if count >= FETCH_URL_PIECES_MAX or writer.is_full:
            is_cut = True
            break
        writer.write(token)
    text = writer.finish()
    return MarkdownPage(writer.title, text, is_cut or writer.is_full)


def strip_invisible(text: str) -> str:
    """Remove invisible characters except line ends and tabs."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


class _MarkdownWriter:
    """Write tokens as lines of Markdown, up to a limit."""

    def __init__(self, address: str) -> None:
        self.title = ""
        self._room = FETCH_URL_TEXT_CHARS_MAX
        self._base = address
        self._has_base = False
        self._lines: list[tuple[bool, str]] = []
        self._line: list[str] = []
        self._line_prefix = ""
        """The prefix of the current line, such as a bullet or heading mark."""
        self._link: tuple[int, str] | None = None
        self._lists: list[int | None] = []
        """The enclosing lists, each with its last item's number, or None if it is not numbered."""
        self._quotes = self._mains = self._verbatim = 0
        self._skipping: tuple[str, int] | None = None
        self._in_title = False
        self._cells = 0

    @property
    def is_full(self) -> bool:
        return self._room < 0

    def write(self, token: HtmlToken) -> None:
        if self._skipping is not None:
            self._skip(token)
        elif token.kind == "text":
            self._write_text(token.value)
        elif token.kind == "open":
            self._open(token)
        else:
            self._close(token.value)

    def finish(self) -> str:
        """Return the text, with the main part first if the page marks it."""
        self._end_line()
        main = [line for is_main, line in self._lines if is_main]
        rest = [line for is_main, line in self._lines if not is_main]
        parts = [_join_lines(main), _join_lines(rest)]
        if sum(map(len, main)) < _MAIN_CHARS_MIN:
            parts = [_join_lines([line for _, line in self._lines])]
        return strip_invisible(f"\n\n{REST_HEADING}\n\n".join(part for part in parts if part))

    def _skip(self, token: HtmlToken) -> None:
        assert self._skipping is not None
        name, depth = self._skipping
        if token.value == name and token.kind != "text":
            depth += 1 if token.kind == "open" else -1
            self._skipping = (name, depth) if depth else None

    def _write_text(self, text: str) -> None:
        if self._in_title:
            self.title = self.title or " ".join(strip_invisible(text).split())[:300]
            return
        text, self._room = text[: max(0, self._room)], self._room - len(text)
        if not self._verbatim:
            self._line.append(text)
            return
        *whole, rest = text.split("\n")
        for line in whole:
            self._line.append(line)
            self._end_line()
        self._line.append(rest)

    def _open(self, token: HtmlToken) -> None:
        name = token.value
        match name:
            case "title":
                self._in_title = True
            case "a":
                self._end_link()
                self._link = (len(self._line), token.attributes.get("href", ""))
            case "base" if not self._has_base and token.attributes.get("href"):
                self._base = self._absolute_url(token.attributes["href"]) or self._base
                self._has_base = True
            case "br":
                self._end_line()
            case "hr":
                self._start_block(apart=True)
                self._line.append("---")
                self._start_block(apart=True)
            case "img":
                alt = " ".join(token.attributes.get("alt", "").split())
                self._write_text(f"[image: {alt[:300]}]" if alt else "")
            case "pre" if not self._verbatim:
                self._start_block(apart=True)
                self._add_line("```")
                self._verbatim += 1
            case "code" | "kbd" | "samp" if not self._verbatim:
                self._line.append("`")
            case "td" | "th":
                self._line.append(" | " if self._cells else "")
                self._cells += 1
            case "li":
                self._start_item()
            case _ if name in _HEADINGS:
                self._start_block(apart=True)
                self._line_prefix = f"{'#' * int(name[1])} "
            case _ if name in _SKIPPED_ELEMENTS:
                self._skipping = (name, 1)
            case _ if name in _BLOCKS:
                self._open_block(token)

    def _open_block(self, token: HtmlToken) -> None:
        name = token.value
        is_inner = name in ("ol", "ul") and bool(self._lists)
        self._start_block(apart=name in _SPACED_BLOCKS and not is_inner)
        self._cells = 0
        self._mains += name in _MAIN
        self._quotes += name == "blockquote"
        if name == "ol":
            start = token.attributes.get("start", "")
            is_number = start.isascii() and start.isdigit() and len(start) < 10
            self._lists.append(int(start) - 1 if is_number else 0)
        elif name in ("ul", "menu", "dir"):
            self._lists.append(None)

    def _close(self, name: str) -> None:
        match name:
            case "title":
                self._in_title = False
            case "a":
                self._end_link()
            case "pre" if self._verbatim:
                self._end_line()
                self._verbatim = 0
                self._add_line("```")
                self._add_line("")
            case "code" | "kbd" | "samp" if not self._verbatim:
                self._line.append("`")
            case "p" | "li":
                self._start_block(apart=name == "p" and not self._lists)
            case _ if name in _HEADINGS:
                self._start_block(apart=True)
            case _ if name in _BLOCKS:
                self._close_block(name)

    def _close_block(self, name: str) -> None:
        self._start_block(apart=False)
        self._mains -= name in _MAIN and self._mains > 0
        self._quotes -= name == "blockquote" and self._quotes > 0
        if name in ("ol", "ul", "menu", "dir") and self._lists:
            self._lists.pop()
        if name in _SPACED_BLOCKS and not self._lists:
            self._add_line("")

    def _start_item(self) -> None:
        self._start_block(apart=False)
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        indent = "  " * min(len(self._lists) - 1, _NEST_MAX)
        self._line_prefix = f"{indent}- " if number is None else f"{indent}{number + 1}. "

    def _start_block(self, apart: bool) -> None:
        self._end_line()
        if apart:
            self._add_line("")

    def _end_link(self) -> None:
        if self._link is None:
            return
        (at, href), self._link = self._link, None
        address = self._absolute_url(href)
        text = " ".join("".join(self._line[at:]).split())
        if address and text:
            spaced = " " if at < len(self._line) and self._line[at][:1].isspace() else ""
            del self._line[at:]
            self._line.append(f"{spaced}[{text}]({address})")
            self._room -= len(address)

    def _end_line(self) -> None:
        """End the current line; a link that continues becomes a link in each of its lines."""
        href = self._link[1] if self._link is not None else None
        self._end_link()
        text = "".join(self._line)
        self._line.clear()
        if href is not None:
            self._link = (0, href)
        text = text.rstrip() if self._verbatim else " ".join(text.split())
        if text.strip("`| ") or (self._verbatim and not self._line_prefix):
            self._room -= len(self._line_prefix)
            self._add_line(self._line_prefix + text)
            self._line_prefix = ""

    def _add_line(self, line: str) -> None:
        if not line and not self._verbatim and (not self._lines or not self._lines[-1][1]):
            return
        marks = "> " * min(self._quotes, _NEST_MAX) if line else ""
        self._room -= len(marks) + 1
        self._lines.append((self._mains > 0, marks + line))

    def _absolute_url(self, href: str) -> str:
        """Return a link's absolute address, or an empty text if nobody can follow it."""
        href = href.strip()
        if not href or href.startswith("#") or len(href) > _LINK_CHARS_MAX:
            return ""
        try:
            address = urljoin(self._base, href)
        except ValueError:
            return ""
        is_link = address.startswith(_LINKS) and len(address) <= _LINK_CHARS_MAX
        return re.sub(r"\s", "%20", address).replace(")", "%29") if is_link else ""


def _join_lines(lines: list[str]) -> str:
    """Join lines with at most one empty line between any two."""
    result: list[str] = []
    is_verbatim = False
    for line in lines:
        is_verbatim ^= line.lstrip("> ") == "```"
        if line or is_verbatim or (result and result[-1]):
            result.append(line)
    return "\n".join(result).strip("\n")
