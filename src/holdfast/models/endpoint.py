"""A model's address and key. The key never appears in output by accident."""

import re
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from yarl import URL

_SECRET_PATTERN = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*.\-\u2026]{6,}|\bAIza[\w*.\-]{6,}|(?<=[Bb]earer )\S+"
)
ProtocolName = Literal["chat", "responses", "messages"]
"""OpenAI Chat Completions, OpenAI Responses, Anthropic Messages."""
ANTHROPIC_VERSION = "2023-06-01"
OPENAI_URL = "https://api.openai.com/v1"
MASK = "***"
KEY_CHARS_MIN = 8


class Secret:
    """A key that never appears in a repr, a log or a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret({MASK if self._value else ''})"

    def reveal(self) -> str:
        """Return the key, for the request's header only."""
        return self._value

    def mask(self, text: str) -> str:
        """Return `text` without this key and without anything that looks like a key."""
        # People often set a word as the key of a server that needs none, and words must stay readable.
        if len(self._value) >= KEY_CHARS_MIN:
            text = text.replace(self._value, MASK)
        return _SECRET_PATTERN.sub(MASK, text)


class Endpoint(msgspec.Struct, frozen=True):
    """A model behind a base URL. `key_from` names the variable that the key came from.

    `provider` is the prefix of the model's name.
    """

    base_url: str
    model: str
    key: Secret
    key_from: str = ""
    provider: str = "openai"
    protocol: ProtocolName = "chat"

    @property
    def name(self) -> str:
        """Return the name that people choose the model by: `openai:NAME`."""
        return f"{self.provider}:{self.model}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the authentication headers of its protocol."""
        if self.protocol == "messages":
            key = {"x-api-key": self.key.reveal()} if self.key else {}
            return {"anthropic-version": ANTHROPIC_VERSION, **key}
        return {"Authorization": f"Bearer {self.key.reveal()}"} if self.key else {}

    @property
    def host(self) -> str:
        """Return the server's name for people, without credentials."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def display_url(self) -> str:
        """Return the base URL without its possibly secret parts."""
        try:
            url = URL(self.base_url)
        except ValueError:
            return "(no URL)"
        return str(url.with_user(None).with_query(None).with_fragment(None)) if url.absolute else "(no URL)"

    def url(self, path: str) -> URL:
        """Return `path` below the base URL. The query is kept, because some gateways need one."""
        base = URL(self.base_url)
        # A request carries one credential: the key takes precedence over a user and password in the URL.
        base = base.with_user(None) if self.key else base
        return base.with_path(f"{base.path.rstrip('/')}/{path}").with_query(base.query)
