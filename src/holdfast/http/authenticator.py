"""Authenticate requests, and end the connections of principals whose credential was revoked.

The credentials are read from the store at most once a second, not for each request. Only an unknown secret
causes another read: another process may have just created it.
"""

import asyncio
import hmac
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from holdfast.auth.credentials import CredentialStore
from holdfast.auth.login_throttle import LoginThrottle
from holdfast.auth.passwords import verify_password
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import RIGHTS, AuthConfig, CredentialSnapshot, Right, secret_digest
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import CREDENTIALS_STALE_MS, PASSWORD_CHECKS_WAITING_MAX
from holdfast.http.asgi import Scope, header
from holdfast.http.errors import NotSignedIn, SignInFailed, TooManyAttempts
from holdfast.http.hosts import HostPolicy
from holdfast.http.routes.files import FILES_PATH

PAGE_HEADER = b"x-holdfast-page"
"""The header in which a page sends its key, beside the cookie."""
_COOKIES_TRIED_MAX = 4
_THROTTLED_KEYS_AGE_S = 0.05
"""The greatest age of the credentials against which a throttled client is checked."""
_SAVE_LAST_USED_EVERY_MS = 60_000


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller. `digest` identifies its credential, if that can be revoked."""

    name: str
    rights: frozenset[Right]
    digest: str = ""
    is_browser: bool = False


_EVERYONE = Principal("everyone", frozenset(RIGHTS))
_LOCAL = Principal("this machine", frozenset(RIGHTS))
_BROWSER = "browser"


class Authenticator:
    """Authenticator of one event loop; it ends revoked connections while `watch_revocations` runs."""

    def __init__(
        self,
        credential_store: CredentialStore,
        auth_config: AuthConfig,
        hosts: HostPolicy,
        now: Callable[[], float],
        wall_ms: Callable[[], Instant],
    ) -> None:
        self._credential_store = credential_store
        self._auth_config = auth_config
        self._hosts = hosts
        self._now = now
        self._wall_ms = wall_ms
        self._credentials, self._read_at = CredentialSnapshot(), float("-inf")
        self._read_lock, self._password_lock = asyncio.Lock(), asyncio.Lock()
        self._pending_password_checks = 0
        self._secret_throttle, self._password_throttle = LoginThrottle(now), LoginThrottle(now)
        self._tracked: dict[str, list[Callable[[], None]]] = {}
        self._last_used: dict[str, Instant] = {}
        self._saved_last_used: dict[str, Instant] = {}

    @property
    def is_auth_disabled(self) -> bool:
        return not self._auth_config.auth

    async def authenticate(self, scope: Scope) -> Principal:
        """Return who sends this request. Raises NotSignedIn; TooManyAttempts after repeated wrong tokens."""
        if self.is_auth_disabled:
            return _EVERYONE
        token = _bearer_token(scope)
        secrets = [token] if token is not None else self._hosts.cookie_secrets(scope)[:_COOKIES_TRIED_MAX]
        digests = [secret_digest(secret) for secret in secrets]
        principal = self._find_principal(await self._load_credentials(CREDENTIALS_STALE_MS / 1000), digests)
        address = client_address(scope)
        if principal is None and digests:
            is_throttled = self._secret_throttle.retry_after_s(address) > 0
            principal = self._find_principal(
                await self._load_credentials(_THROTTLED_KEYS_AGE_S if is_throttled else 0), digests
            )
        if principal is not None and (
            not principal.is_browser or self._has_page_key(scope, principal.digest)
        ):
            return principal
        if token is not None:
            self._record_failure(address)
        raise NotSignedIn(password=self._credentials.password is not None)

    async def redeem_code(self, code: str, address: str) -> None:
        """Use up a sign-in code. Raises SignInFailed or TooManyAttempts if it is not valid.

        A valid code works however often others have failed: nobody can guess it.
        """
        is_throttled = self._secret_throttle.retry_after_s(address) > 0
        keys = await self._load_credentials(_THROTTLED_KEYS_AGE_S if is_throttled else 0)
        if secret_digest(code) not in keys.codes or not await self._credential_store.redeem_code(code):
            self._record_failure(address)
            raise SignInFailed()

    async def check_password(self, password: str, address: str) -> None:
        """Raise SignInFailed or TooManyAttempts unless `password` is right."""
        wait_s = self._password_throttle.retry_after_s(address)
        if wait_s or self._pending_password_checks >= PASSWORD_CHECKS_WAITING_MAX:
            raise TooManyAttempts(seconds=wait_s or 1)
        # Counted before the check: many simultaneous attempts must not all pass the limit above.
        self._password_throttle.record_attempt(address)
        self._pending_password_checks += 1
        try:
            async with self._password_lock:
                stored = (await self._load_credentials(0)).password
                if stored is None or not await asyncio.to_thread(verify_password, stored.hash, password):
                    raise SignInFailed()
        finally:
            self._pending_password_checks -= 1
        self._password_throttle.undo_attempt(address)

    async def refresh(self) -> None:
        """Reload the credentials after a change in this process, and end revoked connections."""
        await self._load_credentials(0)
        self._abort_revoked()

    @contextmanager
    def track(self, principal: Principal, abort: Callable[[], None]) -> Generator[None]:
        """Call `abort` if the principal's credential is revoked while the context is open."""
        if not principal.digest:
            yield
            return
        aborts = self._tracked.setdefault(principal.digest, [])
        aborts.append(abort)
        try:
            yield
        finally:
            aborts.remove(abort)
            if not aborts:
                self._tracked.pop(principal.digest, None)

    async def watch_revocations(self) -> None:
        """End the connections of revoked principals and save when tokens were last used, until cancelled."""
        while True:
            await asyncio.sleep(CREDENTIALS_STALE_MS / 1000)
            try:
                if self._tracked:
                    await self._load_credentials(CREDENTIALS_STALE_MS / 2000)
                    self._abort_revoked()
                await self._save_last_used()
            except HoldfastError:
                continue  # The store is unavailable; the next round checks again.

    def _find_principal(self, keys: CredentialSnapshot, digests: list[str]) -> Principal | None:
        for digest in digests:
            if self._auth_config.local_digest and digest == self._auth_config.local_digest:
                return _LOCAL
            token = keys.tokens.get(digest)
            if token is not None:
                self._last_used[token.id] = self._wall_ms()
                return Principal(token.name, frozenset(token.rights), digest)
            sign_in = keys.sign_ins.get(digest)
            if sign_in is not None and sign_in.expires_at > self._wall_ms():
                return Principal(_BROWSER, frozenset(RIGHTS), digest, is_browser=True)
        return None

    def _has_page_key(self, scope: Scope, digest: str) -> bool:
        """Return whether the request has the page key: other programs on this machine may receive the cookie.

        Files need only the cookie: the browser itself requests images, and nobody can guess their address.
        """
        if scope["method"] in ("GET", "HEAD") and scope["path"].startswith(f"{FILES_PATH}/"):
            return True
        sign_in = self._credentials.sign_ins.get(digest)
        page_digest = secret_digest(header(scope, PAGE_HEADER))
        return sign_in is not None and hmac.compare_digest(sign_in.page_digest, page_digest)

    def _record_failure(self, address: str) -> None:
        wait_s = self._secret_throttle.retry_after_s(address)
        self._secret_throttle.record_attempt(address)
        if wait_s:
            raise TooManyAttempts(seconds=wait_s)

    def _abort_revoked(self) -> None:
        for digest, aborts in tuple(self._tracked.items()):
            if self._find_principal(self._credentials, [digest]) is None:
                for abort in tuple(aborts):
                    abort()

    async def _load_credentials(self, max_age_s: float) -> CredentialSnapshot:
        """Return the credentials, read at most `max_age_s` ago."""
        fresh_since = self._now() - max_age_s
        if self._read_at >= fresh_since:
            return self._credentials
        async with self._read_lock:
            if self._read_at < fresh_since:
                started = self._now()
                self._credentials = await self._credential_store.load_snapshot()
                self._read_at = started
        return self._credentials

    async def _save_last_used(self) -> None:
        for token_id, at in tuple(self._last_used.items()):
            if at - self._saved_last_used.get(token_id, 0) >= _SAVE_LAST_USED_EVERY_MS:
                self._saved_last_used[token_id] = at
                await self._credential_store.record_token_use(token_id, at)
        self._last_used.clear()


def client_address(scope: Scope) -> str:
    """Return the peer's address; all clients behind a proxy share the proxy's."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _bearer_token(scope: Scope) -> str | None:
    """Return the bearer token, if any; a proxy may use other schemes for itself."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
