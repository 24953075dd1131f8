"""The one page there is: what is stored here, in the words of the terminal. No scripts, nothing fetched."""

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template

from holdfast.overview import COMMANDS, NOT_YET, READY, Overview
from holdfast.server.asgi import Answer


class Page:
    """Reads its template once, and allows exactly the styles in it."""

    def __init__(self) -> None:
        text = files("holdfast.server").joinpath("page.html").read_text("utf-8")
        style = text.partition("<style>")[2].partition("</style>")[0]
        hashed = b64encode(sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
        self._headers = ((b"content-security-policy", policy.encode()),)
        self._template = Template(text)

    def show(self, overview: Overview) -> Answer:
        facts = "".join(f"<dt>{escape(label)}<dd>{escape(text)}" for label, text in overview.lines)
        commands = "".join(f"<dt><code>{escape(line)}</code><dd>{escape(why)}" for line, why in COMMANDS)
        body = self._template.substitute(
            version=escape(overview.version),
            facts=facts,
            commands=commands,
            ready=_items(READY),
            not_yet=_items(NOT_YET),
        )
        return Answer(body.encode(), "text/html; charset=utf-8", headers=self._headers)


def _items(lines: tuple[str, ...]) -> str:
    return "".join(f"<li>{escape(line)}" for line in lines)
