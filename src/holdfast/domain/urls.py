"""Parse the URLs of web pages in one way, so that a rule is matched with what is requested.

The many spellings of a host become one: numbers as dotted quads, other scripts as in DNS, no final dot. URLs
that programs read differently are refused. This module resolves no names.
"""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

import idna
import msgspec

from holdfast.domain.limits import FETCH_URL_CHARS_MAX
from holdfast.domain.shell.commands import UnreadableArguments, validate_arguments

FETCH_TOOL = "fetch_url"
"""The tool whose calls request web pages."""
_SHAPE = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<slashes>//)?"
    r"(?P<authority>[^/?#]*)(?P<path>[^?#]*)(?P<query>\?[^#]*)?(?:#.*)?"
)
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>[0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_HOST_CHARS_MAX = 253
_DEFAULT_PORTS = (("http", 80), ("https", 443))
_SAFE_CHARS = "!$%&'()*+,-./:;=?@_~"
"""Characters that stay unquoted in a path or a query, besides letters and digits."""


class InvalidUrl(ValueError):
    """A text is not the URL of a page; the message says why."""


class Url(msgspec.Struct, frozen=True):
    """The URL of a page. `target` is the request target, without anything that breaks a line."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """The host, with the port if it is unusual: the pattern of a rule."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return shown if self.port in (80, 443) else f"{shown}:{self.port}"

    @property
    def ip_address(self) -> IPv4Address | IPv6Address | None:
        """The IP address that the host is, or None for a name."""
        if ":" in self.host:
            return IPv6Address(self.host)
        return IPv4Address(self.host) if _NUMBER.fullmatch(self.host.rpartition(".")[2]) else None

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if (self.scheme, self.port) in _DEFAULT_PORTS else f":{self.port}"
        return f"{self.scheme}://{shown}{port}{self.target}"


def parse_url(text: str) -> Url:
    """Parse a URL. Raises InvalidUrl."""
    text = text.strip(" \t\r\n")
    if len(text) > FETCH_URL_CHARS_MAX:
        raise InvalidUrl(f"an address has at most {FETCH_URL_CHARS_MAX:,} characters")
    if not text.isprintable() or " " in text or "\\" in text:
        raise InvalidUrl("an address holds no spaces, backslashes or characters that do not show")
    found = _SHAPE.fullmatch(text)
    if found is None or not found["slashes"]:
        raise InvalidUrl("an address begins with http:// or https://")
    scheme = found["scheme"].lower()
    if scheme not in ("http", "https"):
        raise InvalidUrl(f"only http and https can be asked for, not {scheme}")
    if "@" in found["authority"]:
        raise InvalidUrl("an address with a name or a password in it is not asked for")
    authority = _AUTHORITY.fullmatch(found["authority"])
    if authority is None:
        raise InvalidUrl("the host in the address cannot be read")
    port = int(authority["port"] or dict(_DEFAULT_PORTS)[scheme])
    if not 0 < port < 65_536:
        raise InvalidUrl(f"there is no port {port}")
    target = quote((found["path"] or "/") + (found["query"] or ""), safe=_SAFE_CHARS)
    return Url(scheme, parse_host(authority["host"]), port, target)


def check_base_url(text: str) -> None:
    """Check the base URL of a server, which may contain a name and a password. Raises InvalidUrl."""
    if text != text.strip():
        raise InvalidUrl("an address holds no spaces")
    scheme, slashes, rest = text.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    user_info, at, _ = authority.rpartition("@")
    if not user_info.isprintable() or re.search(r"[\s\\]", user_info):
        raise InvalidUrl("an address holds no spaces, backslashes or characters that do not show")
    parse_url(f"{scheme}{slashes}{rest.removeprefix(f'{user_info}{at}')}")


def resolve_url(base: Url, location: str) -> Url:
    """Resolve `location` relative to `base`. Raises InvalidUrl."""
    try:
        return parse_url(urljoin(str(base), location))
    except InvalidUrl:
        raise
    except ValueError as error:
        raise InvalidUrl(str(error)) from None


def parse_host(text: str) -> str:
    """Return a host in its canonical spelling. Raises InvalidUrl."""
    if text.startswith("["):
        return _ipv6(text[1:-1])
    if not text or len(text) > _HOST_CHARS_MAX + 1:
        raise InvalidUrl("the address has no host, or one that is too long")
    host = text.lower() if text.isascii() else _ascii(text)
    host = host.removesuffix(".")
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels)
    if len(host) > _HOST_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidUrl("the host in the address is no name that can be looked up")
    return host


def requested_authority(arguments: str) -> str | None:
    """Return the authority that a `fetch_url` call requests; None if it cannot be read reliably."""
    try:
        fields = msgspec.json.decode(validate_arguments(arguments))
    except (UnreadableArguments, msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    text = fields.get("url") if isinstance(fields, dict) else None
    try:
        return parse_url(text).authority if isinstance(text, str) else None
    except InvalidUrl:
        return None


def parse_authority(text: str) -> str:
    """Return a rule's pattern in its stored form: a host, with its port if unusual. Raises InvalidUrl."""
    if re.search(r"[/?#@]", text):
        raise InvalidUrl("a place is a host alone, or a host with a port")
    return parse_url(f"http://{text}/").authority


def _ascii(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except (idna.IDNAError, UnicodeError, ValueError, IndexError):
        raise InvalidUrl("the host in the address is no name that can be looked up") from None


def _ipv6(text: str) -> str:
    if "%" in text:
        raise InvalidUrl("an address with a zone belongs to this machine's own network")
    try:
        return str(IPv6Address(text))
    except AddressValueError:
        raise InvalidUrl("the host in the address is no IPv6 address") from None


def _ipv4(labels: list[str]) -> str:
    """Parse one to four numbers, decimal, octal or hexadecimal; the last one fills the rest."""
    invalid = InvalidUrl("the host in the address is no IPv4 address")
    if len(labels) > 4 or not all(_NUMBER.fullmatch(label) and len(label) <= 20 for label in labels):
        raise invalid
    try:
        *first, last = (_number(label) for label in labels)
    except ValueError:
        raise invalid from None
    if any(number > 255 for number in first) or last >= 256 ** (5 - len(labels)):
        raise invalid
    whole = sum(number << 8 * (3 - at) for at, number in enumerate(first)) + last
    return str(IPv4Address(whole))


def _number(text: str) -> int:
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    return int(text, 8) if len(text) > 1 and text.startswith("0") else int(text)
