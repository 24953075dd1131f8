"""Where a model is asked and with which key. The one place that knows a key keeps it from being shown."""

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
    """A key that does not show in a repr, a log or a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Secret({MASK if self._value else ''})"

    def reveal(self) -> str:
        """The key itself: for the request's header and nothing else."""
        return self._value

    def mask(self, text: str) -> str:
        """`text` without this key, nor anything that looks like one."""
        # A server that needs no key is often given a word instead, and words must stay readable.
        if len(self._value) >= KEY_CHARS_MIN:
            text = text.replace(self._value, MASK)
        return _SECRET_PATTERN.sub(MASK, text)


class Endpoint(msgspec.Struct, frozen=True):
    """A model behind a base URL. `key_from` names the variable that the key came from.

    `provider` is the word before the colon where people name the model.
    """

    base_url: str
    model: str
    key: Secret
    key_from: str = ""
    provider: str = "openai"
    protocol: ProtocolName = "chat"

    @property
    def name(self) -> str:
        """The model as people choose it: `openai:NAME`."""
        return f"{self.provider}:{self.model}"

    @property
    def headers(self) -> dict[str, str]:
        """What says who asks, as its protocol has it."""
        if self.protocol == "messages":
            key = {"x-api-key": self.key.reveal()} if self.key else {}
            return {"anthropic-version": ANTHROPIC_VERSION, **key}
        return {"Authorization": f"Bearer {self.key.reveal()}"} if self.key else {}

    @property
    def host(self) -> str:
        """The server as people are told of it."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2]

    @property
    def display_url(self) -> str:
        """The base URL without what may be secret in it."""
        try:
            url = URL(self.base_url)
        except ValueError:
            return "(no URL)"
        return str(url.with_user(None).with_query(None).with_fragment(None)) if url.absolute else "(no URL)"

    def url(self, path: str) -> URL:
        """`path` below the base URL, whose query is kept: some gateways want one."""
        base = URL(self.base_url)
        # A request says who it is from in one way; the key goes before a name and password in the address.
        base = base.with_user(None) if self.key else base
        return base.with_path(f"{base.path.rstrip('/')}/{path}").with_query(base.query)
