"""Check the host and origin of requests, strip the base path, and name the cookies.

It decides from the request's own head alone and ignores forwarding headers of a proxy.
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
    """The name and attributes of the cookie that holds a sign-in."""

    name: str
    path: str
    secure: bool

    def set_cookie_header(self, secret: str, age_s: int) -> str:
        """Return the Set-Cookie header; an age of 0 removes the cookie."""
        line = f"{self.name}={secret}; Path={self.path}; Max-Age={age_s}; HttpOnly; SameSite=Strict"
        return line + ("; Secure" if self.secure else "")


class HostPolicy:
    """The hosts, origins and base path that a server on `host` and `port` accepts."""

    def __init__(self, host: str, port: int, auth_config: AuthConfig) -> None:
        public = urlsplit(auth_config.public_url)
        self.base = public.path.rstrip("/")
        """The path prefix of public_url, under which a proxy serves this server."""
        self._port = port
        self._public_host = _authority(public.netloc, public.scheme)
        self._public_origin = f"{public.scheme}://{self._public_host}" if auth_config.public_url else ""
        self._public_port = public.port or _PORTS(public.scheme) or 0
        configured = {entry.lower().rstrip("/") for entry in auth_config.allowed_hosts}
        own = set() if host in _WILDCARDS else {f"[{host}]" if ":" in host else host.lower()}
        self._allowed_hosts = frozenset(
            {self._public_host} - {""}
            | {variant for entry in configured | own for variant in self._host_variants(entry)}
        )
        self._allowed_origins = frozenset(
            f"{scheme}://{name}" for name in self._allowed_hosts for scheme in ("http", "https")
        )

    def check(self, scope: Scope) -> None:
        """Raise WrongHost, WrongOrigin or CrossSite if the request must not reach this server."""
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
        # Browsers send this header also where they send no Origin. A page on another port of this machine
        # is of the same "site", and as foreign as any other.
        site = header(scope, b"sec-fetch-site")
        if site in ("cross-site", "same-site") and (scope["path"] != _PAGE_PATH or scope["method"] != "GET"):
            raise CrossSite(site=site)

    def strip_base_path(self, scope: Scope) -> Scope | None:
        """Return the request without the base path, which a proxy may or may not have removed.

        Return None if only the trailing slash is missing: the page's links are relative to it.
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
        """Return the sign-in cookie for the address that this browser used.

        Browsers send a cookie to every port of a host, so the cookie's name contains the port.
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
        """Return the cookie secrets that a browser sends; a server on another port may have set its own."""
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
        """Return a host with its port; one without a port also with the standard ports and ours."""
        if re.search(r":\d+$", entry):
            return {entry}
        return {entry, f"{entry}:80", f"{entry}:443", f"{entry}:{self._port}"}


def is_same_origin(scope: Scope) -> bool:
    """Return whether the browser says that our own page sends this; `HostPolicy.check` comes first."""
    return bool(header(scope, b"origin")) or header(scope, b"sec-fetch-site") == "same-origin"


def _authority(netloc: str, scheme: str) -> str:
    """Return the authority as browsers write it: in lower case, without the default port."""
    usual = f":{_PORTS(scheme)}"
    return netloc.lower().removesuffix(usual)
