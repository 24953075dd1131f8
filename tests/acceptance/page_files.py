"""The page as it was built: what it names, read from itself. The names hold hashes, so no test knows them."""

import re
from html.parser import HTMLParser

from tests.support.api_client import ApiClient

_ADDRESSES = frozenset({"src", "href", "srcset", "poster", "action", "formaction"})
_BUILT = re.compile(r"[\"'`](?:\./)?(?:page/)?([\w-]+-[\w-]{8}\.(?:js|css))[\"'`]")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in _ADDRESSES]
        own = tag == "style" or (tag == "script" and "src" not in dict(attrs))
        self.inline += [tag] * own + [name for name, _ in attrs if name == "style" or name.startswith("on")]


def files_named_in(page: str) -> list[str]:
    """Every address in the markup, as it is written there. Fails for scripts and styles within it."""
    parsed = _Page()
    parsed.feed(page)
    assert parsed.inline == [], "the content policy would forbid them"
    assert parsed.addresses, "a page without scripts is none"
    return parsed.addresses


async def loaded_by_page(
    api: ApiClient, base: str = "", **headers: str
) -> list[tuple[str, str, dict[str, str]]]:
    """Name, text and headers of every file that the page names, and of those that its files name."""
    page = (await api.get(f"{base}/", headers=headers)).decode()
    assert api.status == 200, page
    left, found = [address.rpartition("/")[2] for address in files_named_in(page)], []
    seen = set(left)
    while left:
        name = left.pop()
        text = (await api.get(f"{base}/page/{name}", headers=headers)).decode()
        assert api.status == 200, name
        found.append((name, text, api.headers))
        further = set(_BUILT.findall(text)) - seen
        seen |= further
        left += further
    return found
