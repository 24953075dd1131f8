"""Who somebody is, by what they show; and how those are cut off who may no longer be here.

What lets people in is read from the store once a second at most, not for each request. Only a secret that is
not known is looked up anew: it may have just been made by another process.
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
"""What a page shows beside the cookie."""
_COOKIES_TRIED_MAX = 4
_THROTTLED_KEYS_AGE_S = 0.05
"""For whoever has failed too often, what is known may be so old."""
_SAVE_LAST_USED_EVERY_MS = 60_000


class Principal(msgspec.Struct, frozen=True):
    """Somebody who is in. `digest` names what let them in, where it can be taken away."""

    name: str
    rights: frozenset[Right]
    digest: str = ""
    is_browser: bool = False


_EVERYONE = Principal("everyone", frozenset(RIGHTS))
_LOCAL = Principal("this machine", frozenset(RIGHTS))
_BROWSER = "browser"


class Authenticator:
    """Belongs to one event loop. `watch_revocations` must be running for those inside to be cut off."""

    def __init__(
        self,
        keyring: CredentialStore,
        auth_config: AuthConfig,
        hosts: HostPolicy,
        now: Callable[[], float],
        wall_ms: Callable[[], Instant],
    ) -> None:
        self._keyring = keyring
        self._auth_config = auth_config
        self._hosts = hosts
        self._now = now
        self._wall_ms = wall_ms
        self._keys, self._read_at = CredentialSnapshot(), float("-inf")
        self._read_lock, self._password_lock = asyncio.Lock(), asyncio.Lock()
        self._pending_password_checks = 0
        self._secret_throttle, self._password_throttle = LoginThrottle(now), LoginThrottle(now)
        self._tracked: dict[str, list[Callable[[], None]]] = {}
        self._last_used: dict[str, Instant] = {}
        self._saved_last_used: dict[str, Instant] = {}

    @property
    def is_auth_disabled(self) -> bool:
        """Nobody has to sign in."""
        return not self._auth_config.auth

    async def authenticate(self, scope: Scope) -> Principal:
        """Who sends this. Raises NotSignedIn; TooManyAttempts for one wrong token after another."""
        if self.is_auth_disabled:
            return _EVERYONE
        token = _bearer_token(scope)
        secrets = [token] if token is not None else self._hosts.cookie_secrets(scope)[:_COOKIES_TRIED_MAX]
        digests = [secret_digest(secret) for secret in secrets]
        principal = self._find_principal(await self._load_keys(CREDENTIALS_STALE_MS / 1000), digests)
        address = client_address(scope)
        if principal is None and digests:
            is_throttled = self._secret_throttle.retry_after_s(address) > 0
            principal = self._find_principal(
                await self._load_keys(_THROTTLED_KEYS_AGE_S if is_throttled else 0), digests
            )
        if principal is not None and (
            not principal.is_browser or self._has_page_key(scope, principal.digest)
        ):
            return principal
        if token is not None:
            self._record_failure(address)
        raise NotSignedIn(password=self._keys.password is not None)

    async def redeem_code(self, code: str, address: str) -> None:
        """Raises SignInFailed or TooManyAttempts unless the code was good; it is used up then.

        However often others failed, a good code is let in: it cannot be guessed.
        """
        is_throttled = self._secret_throttle.retry_after_s(address) > 0
        keys = await self._load_keys(_THROTTLED_KEYS_AGE_S if is_throttled else 0)
        if secret_digest(code) not in keys.codes or not await self._keyring.redeem_code(code):
            self._record_failure(address)
            raise SignInFailed()

    async def check_password(self, password: str, address: str) -> None:
        """Raises SignInFailed or TooManyAttempts unless it is the password."""
        wait_s = self._password_throttle.retry_after_s(address)
        if wait_s or self._pending_password_checks >= PASSWORD_CHECKS_WAITING_MAX:
            raise TooManyAttempts(seconds=wait_s or 1)
        # Counted first: many at once must not all get past the check above.
        self._password_throttle.record_attempt(address)
        self._pending_password_checks += 1
        try:
            async with self._password_lock:
                stored = (await self._load_keys(0)).password
                if stored is None or not await asyncio.to_thread(verify_password, stored.hash, password):
                    raise SignInFailed()
        finally:
            self._pending_password_checks -= 1
        self._password_throttle.undo_attempt(address)

    async def refresh(self) -> None:
        """Hold to what the store says now: something was made or taken away here."""
        await self._load_keys(0)
        self._abort_revoked()

    @contextmanager
    def track(self, principal: Principal, abort: Callable[[], None]) -> Generator[None]:
        """While somebody stays: `abort` is called when they may no longer be here."""
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
        """Cut off whoever was let in by what is gone, and note which tokens are used."""
        while True:
            await asyncio.sleep(CREDENTIALS_STALE_MS / 1000)
            try:
                if self._tracked:
                    await self._load_keys(CREDENTIALS_STALE_MS / 2000)
                    self._abort_revoked()
                await self._save_last_used()
            except HoldfastError:
                continue  # The store is away: nobody comes in, and who is inside is looked at next time.

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
        """Whether more than the cookie is shown, which other programs of this machine may have been sent.

        A picture is asked for by the browser itself; its address cannot be guessed.
        """
        if scope["method"] in ("GET", "HEAD") and scope["path"].startswith(f"{FILES_PATH}/"):
            return True
        sign_in = self._keys.sign_ins.get(digest)
        page_digest = secret_digest(header(scope, PAGE_HEADER))
        return sign_in is not None and hmac.compare_digest(sign_in.page_digest, page_digest)

    def _record_failure(self, address: str) -> None:
        wait_s = self._secret_throttle.retry_after_s(address)
        self._secret_throttle.record_attempt(address)
        if wait_s:
            raise TooManyAttempts(seconds=wait_s)

    def _abort_revoked(self) -> None:
        for digest, aborts in tuple(self._tracked.items()):
            if self._find_principal(self._keys, [digest]) is None:
                for abort in tuple(aborts):
                    abort()

    async def _load_keys(self, max_age_s: float) -> CredentialSnapshot:
        """What lets people in, read at most so long before this call."""
        fresh_since = self._now() - max_age_s
        if self._read_at >= fresh_since:
            return self._keys
        async with self._read_lock:
            if self._read_at < fresh_since:
                started = self._now()
                self._keys = await self._keyring.current_keys()
                self._read_at = started
        return self._keys

    async def _save_last_used(self) -> None:
        for token_id, at in tuple(self._last_used.items()):
            if at - self._saved_last_used.get(token_id, 0) >= _SAVE_LAST_USED_EVERY_MS:
                self._saved_last_used[token_id] = at
                await self._keyring.record_token_use(token_id, at)
        self._last_used.clear()


def client_address(scope: Scope) -> str:
    """Where a connection comes from; a proxy stands for all who come through it."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _bearer_token(scope: Scope) -> str | None:
    """The token that is shown. Another scheme is a proxy's business."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
