"""By which names a server may be called, from which pages, below which path, and how its cookies are named.

Decides from the request's own head alone: what a proxy adds about where a request came from is not believed.
"""

import re
from urllib.parse import urlsplit

import msgspec

from holdfast.domain.credentials import AuthConfig
from holdfast.http.asgi import Scope, header
from holdfast.http.errors import CrossSite, WrongHost, WrongOrigin

_LOOPBACK = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?")
_WILDCARDS = frozenset({"0.0.0.0", "::"})
_PORTS = {"http": 80, "https": 443}.get
_PAGE_PATH = "/"


class Cookie(msgspec.Struct, frozen=True):
    """How a sign-in is kept by a browser that came this way."""

    name: str
    path: str
    secure: bool

    def set_cookie_header(self, secret: str, age_s: int) -> str:
        """The header that sets it; with no age it goes away."""
        line = f"{self.name}={secret}; Path={self.path}; Max-Age={age_s}; HttpOnly; SameSite=Strict"
        return line + ("; Secure" if self.secure else "")


class HostPolicy:
    """`host` and `port` are what the server listens on."""

    def __init__(self, host: str, port: int, auth_config: AuthConfig) -> None:
        public = urlsplit(auth_config.public_url)
        self.base = public.path.rstrip("/")
        """The path in front of every path, where people come through a proxy."""
        self._port = port
        self._public_host = _authority(public.netloc, public.scheme)
        self._public_origin = f"{public.scheme}://{self._public_host}" if auth_config.public_url else ""
        self._public_port = public.port or _PORTS(public.scheme) or 0
        configured = {entry.lower().rstrip("/") for entry in auth_config.allowed_hosts}
        own = set() if host in _WILDCARDS else {f"[{host}]" if ":" in host else host.lower()}
        self._allowed_hosts = frozenset(
            {self._public_host} - {""}
            | {each for entry in configured | own for each in self._host_variants(entry)}
        )
        self._allowed_origins = frozenset(
            f"{scheme}://{name}" for name in self._allowed_hosts for scheme in ("http", "https")
        )

    def check(self, scope: Scope) -> None:
        """Raises WrongHost, WrongOrigin or CrossSite."""
        hosts = [value for key, value in scope["headers"] if key == b"host"]
        host = hosts[0].decode("latin-1").lower() if len(hosts) == 1 else ""
        if not (_LOOPBACK.fullmatch(host) or host in self._allowed_hosts):
            raise WrongHost(host=host[:200] or "(none)")
        origin = header(scope, b"origin").lower()
        own = (f"http://{host}", f"https://{host}")
        if (
            origin
            and origin not in own
            and origin != self._public_origin
            and origin not in self._allowed_origins
        ):
            raise WrongOrigin(origin=origin[:200])
        # A browser says whose page asks, also where it sends no Origin; a page of another port of this
        # machine is of the same "site", and as foreign as any.
        site = header(scope, b"sec-fetch-site")
        if site in ("cross-site", "same-site") and (scope["path"] != _PAGE_PATH or scope["method"] != "GET"):
            raise CrossSite(site=site)

    def strip_base_path(self, scope: Scope) -> Scope | None:
        """The request without the path in front, whether a proxy passed it on or not.

        None where only the last slash is missing: what the page loads is named relative to it.
        """
        path: str = scope["path"]
        if not self.base or not path.startswith(self.base):
            return scope
        rest = path[len(self.base) :]
        if not rest:
            return None
        if not rest.startswith("/"):
            return scope
        return {**scope, "path": rest, "raw_path": scope["raw_path"].removeprefix(self.base.encode())}

    def cookie(self, scope: Scope) -> Cookie:
        """How a browser that came this way keeps its sign-in.

        Browsers send a cookie to every port of a host name, so the name tells which one it is for.
        """
        is_public = bool(self._public_host) and (
            header(scope, b"host").lower() == self._public_host
            or header(scope, b"origin").lower() == self._public_origin
        )
        if is_public:
            secure = self._public_origin.startswith("https:")
            return Cookie(f"holdfast_{self._public_port}", self.base or "/", secure)
        return Cookie(f"holdfast_{self._port}", "/", False)

    def cookie_secrets(self, scope: Scope) -> list[str]:
        """The secrets that a browser sends. A neighbour on another port may have added its own."""
        names = {f"holdfast_{self._port}", f"holdfast_{self._public_port}"}
        secrets = []
        for key, value in scope["headers"]:
            if key == b"cookie":
                for pair in value.decode("latin-1").split(";"):
                    name, _, secret = pair.strip().partition("=")
                    if name in names:
                        secrets.append(secret)
        return secrets

    def _host_variants(self, entry: str) -> set[str]:
        """A name with a port stands for itself; one without also for it with a usual port, or ours."""
        if re.search(r":\d+$", entry):
            return {entry}
        return {entry, f"{entry}:80", f"{entry}:443", f"{entry}:{self._port}"}


def is_same_origin(scope: Scope) -> bool:
    """Whether a browser says that a page of ours asks. `Hosts.check` has looked at the origin already."""
    return bool(header(scope, b"origin")) or header(scope, b"sec-fetch-site") == "same-origin"


def _authority(netloc: str, scheme: str) -> str:
    """As browsers write it: lower case, without the port that goes without saying."""
    usual = f":{_PORTS(scheme)}"
    return netloc.lower().removesuffix(usual)
