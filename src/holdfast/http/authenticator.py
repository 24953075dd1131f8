"""Who somebody is, by what they show; and how those are cut off who may no longer be here.

What lets people in is read from the store once a second at most, not for each request. Only a secret that is
not known is looked up anew: it may have just been made by another process.
"""

import asyncio
import hmac
from collections.abc import Callable, Generator
from contextlib import contextmanager

import msgspec

from holdfast.auth.credentials import Keyring
from holdfast.auth.login_throttle import Tries
from holdfast.auth.passwords import is_password
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import RIGHTS, Entrance, Keys, Right, digest_of
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import KEYS_STALE_MS, PASSWORD_CHECKS_WAITING_MAX
from holdfast.http.asgi import Scope, header
from holdfast.http.errors import NotSignedIn, SignInFailed, TooManyTries
from holdfast.http.hosts import Hosts
from holdfast.http.routes.files import FILES_PATH

PAGE_HEADER = b"x-holdfast-page"
"""What a page shows beside the cookie."""
_COOKIES_TRIED_MAX = 4
_FLOOD_AGE_S = 0.05
"""For whoever has failed too often, what is known may be so old."""
_NOTE_USE_EVERY_MS = 60_000


class Visitor(msgspec.Struct, frozen=True):
    """Somebody who is in. `digest` names what let them in, where it can be taken away."""

    name: str
    rights: frozenset[Right]
    digest: str = ""
    is_browser: bool = False


_EVERYONE = Visitor("everyone", frozenset(RIGHTS))
_LOCAL = Visitor("this machine", frozenset(RIGHTS))
_BROWSER = "browser"


class Guard:
    """Belongs to one event loop. `watch_for_ever` must be running for those inside to be cut off."""

    def __init__(
        self,
        keyring: Keyring,
        entrance: Entrance,
        hosts: Hosts,
        now: Callable[[], float],
        wall_ms: Callable[[], Instant],
    ) -> None:
        self._keyring = keyring
        self._entrance = entrance
        self._hosts = hosts
        self._now = now
        self._wall_ms = wall_ms
        self._keys, self._read_at = Keys(), float("-inf")
        self._reading, self._checking = asyncio.Lock(), asyncio.Lock()
        self._checks = 0
        self._secret_tries, self._password_tries = Tries(now), Tries(now)
        self._inside: dict[str, list[Callable[[], None]]] = {}
        self._used: dict[str, Instant] = {}
        self._noted: dict[str, Instant] = {}

    @property
    def is_open(self) -> bool:
        """Nobody has to sign in."""
        return not self._entrance.auth

    async def visitor(self, scope: Scope) -> Visitor:
        """Who sends this. Raises NotSignedIn; TooManyTries for one wrong token after another."""
        if self.is_open:
            return _EVERYONE
        token = _bearer(scope)
        shown = [token] if token is not None else self._hosts.cookies_in(scope)[:_COOKIES_TRIED_MAX]
        digests = [digest_of(secret) for secret in shown]
        found = self._find(await self._known(KEYS_STALE_MS / 1000), digests)
        address = address_of(scope)
        if found is None and digests:
            is_flood = self._secret_tries.wait_s(address) > 0
            found = self._find(await self._known(_FLOOD_AGE_S if is_flood else 0), digests)
        if found is not None and (not found.is_browser or self._is_shown_by_page(scope, found.digest)):
            return found
        if token is not None:
            self._fail(address)
        raise NotSignedIn(password=self._keys.password is not None)

    async def use_code(self, code: str, address: str) -> None:
        """Raises SignInFailed or TooManyTries unless the code was good; it is used up then.

        However often others failed, a good code is let in: it cannot be guessed.
        """
        is_flood = self._secret_tries.wait_s(address) > 0
        keys = await self._known(_FLOOD_AGE_S if is_flood else 0)
        if digest_of(code) not in keys.codes or not await self._keyring.redeem(code):
            self._fail(address)
            raise SignInFailed()

    async def use_password(self, password: str, address: str) -> None:
        """Raises SignInFailed or TooManyTries unless it is the password."""
        wait_s = self._password_tries.wait_s(address)
        if wait_s or self._checks >= PASSWORD_CHECKS_WAITING_MAX:
            raise TooManyTries(seconds=wait_s or 1)
        # Counted first: many at once must not all get past the check above.
        self._password_tries.count(address)
        self._checks += 1
        try:
            async with self._checking:
                kept = (await self._known(0)).password
                if kept is None or not await asyncio.to_thread(is_password, kept.hash, password):
                    raise SignInFailed()
        finally:
            self._checks -= 1
        self._password_tries.take_back(address)

    async def look(self) -> None:
        """Hold to what the store says now: something was made or taken away here."""
        await self._known(0)
        self._cut_off()

    @contextmanager
    def inside(self, visitor: Visitor, abort: Callable[[], None]) -> Generator[None]:
        """While somebody stays: `abort` is called when they may no longer be here."""
        if not visitor.digest:
            yield
            return
        staying = self._inside.setdefault(visitor.digest, [])
        staying.append(abort)
        try:
            yield
        finally:
            staying.remove(abort)
            if not staying:
                self._inside.pop(visitor.digest, None)

    async def watch_for_ever(self) -> None:
        """Cut off whoever was let in by what is gone, and note which tokens are used."""
        while True:
            await asyncio.sleep(KEYS_STALE_MS / 1000)
            try:
                if self._inside:
                    await self._known(KEYS_STALE_MS / 2000)
                    self._cut_off()
                await self._note_used()
            except HoldfastError:
                continue  # The store is away: nobody comes in, and who is inside is looked at next time.

    def _find(self, keys: Keys, digests: list[str]) -> Visitor | None:
        for digest in digests:
            if self._entrance.local_digest and digest == self._entrance.local_digest:
                return _LOCAL
            token = keys.tokens.get(digest)
            if token is not None:
                self._used[token.id] = self._wall_ms()
                return Visitor(token.name, frozenset(token.rights), digest)
            sign_in = keys.sign_ins.get(digest)
            if sign_in is not None and sign_in.expires_at > self._wall_ms():
                return Visitor(_BROWSER, frozenset(RIGHTS), digest, is_browser=True)
        return None

    def _is_shown_by_page(self, scope: Scope, digest: str) -> bool:
        """Whether more than the cookie is shown, which other programs of this machine may have been sent.

        A picture is asked for by the browser itself; its address cannot be guessed.
        """
        if scope["method"] in ("GET", "HEAD") and scope["path"].startswith(f"{FILES_PATH}/"):
            return True
        sign_in = self._keys.sign_ins.get(digest)
        shown = digest_of(header(scope, PAGE_HEADER))
        return sign_in is not None and hmac.compare_digest(sign_in.page_digest, shown)

    def _fail(self, address: str) -> None:
        wait_s = self._secret_tries.wait_s(address)
        self._secret_tries.count(address)
        if wait_s:
            raise TooManyTries(seconds=wait_s)

    def _cut_off(self) -> None:
        for digest, staying in tuple(self._inside.items()):
            if self._find(self._keys, [digest]) is None:
                for abort in tuple(staying):
                    abort()

    async def _known(self, age_s: float) -> Keys:
        """What lets people in, read at most so long before this call."""
        since = self._now() - age_s
        if self._read_at >= since:
            return self._keys
        async with self._reading:
            if self._read_at < since:
                began = self._now()
                self._keys = await self._keyring.keys()
                self._read_at = began
        return self._keys

    async def _note_used(self) -> None:
        for token_id, at in tuple(self._used.items()):
            if at - self._noted.get(token_id, 0) >= _NOTE_USE_EVERY_MS:
                self._noted[token_id] = at
                await self._keyring.note_used(token_id, at)
        self._used.clear()


def address_of(scope: Scope) -> str:
    """Where a connection comes from; a proxy stands for all who come through it."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _bearer(scope: Scope) -> str | None:
    """The token that is shown. Another scheme is a proxy's business."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None
