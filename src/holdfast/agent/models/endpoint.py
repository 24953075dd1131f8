"""Where a model is asked and with which key. The one place that knows a key keeps it from being shown."""

import re

import msgspec
from yarl import URL

_LOOKS_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf|key)[-_][\w*.\-\u2026]{6,}|\bAIza[\w*.\-]{6,}|(?<=[Bb]earer )\S+"
)
MASK = "***"


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
        if self._value:
            text = text.replace(self._value, MASK)
        return _LOOKS_SECRET.sub(MASK, text)


class Endpoint(msgspec.Struct, frozen=True):
    """A model behind a base URL. `key_from` names the variable that the key came from."""

    base_url: str
    model: str
    key: Secret
    key_from: str = ""

    @property
    def host(self) -> str:
        """The server as people are told of it."""
        return URL(self.base_url).authority.rpartition("@")[2]

    @property
    def shown_url(self) -> str:
        """The base URL without what may be secret in it."""
        url = URL(self.base_url)
        return str(url.with_user(None).with_query(None).with_fragment(None)) if url.absolute else "(no URL)"

    def url(self, path: str) -> URL:
        """`path` below the base URL, whose query is kept: some gateways want one."""
        base = URL(self.base_url)
        return base.with_path(f"{base.path.rstrip('/')}/{path}").with_query(base.query)
