"""Create, use and revoke credentials in the key-value store, where every process sees them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.auth.passwords import hash_password
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.credentials import (
    AccessToken,
    CredentialSnapshot,
    Password,
    Right,
    SignIn,
    SignInCode,
    new_secret,
    secret_digest,
)
from holdfast.domain.errors import BadPassword, NoSuchToken, TooLarge
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import (
    CODE_MS_MAX,
    CODES_MAX,
    PASSWORD_CHARS_MAX,
    PASSWORD_CHARS_MIN,
    SIGN_IN_MS_MAX,
    SIGN_INS_MAX,
    TOKEN_NAME_CHARS_MAX,
    TOKENS_MAX,
)
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.store.ports import KeyValueStore

TOKEN, TOKEN_USED, SIGN_IN, CODE, PASSWORD = "token", "token_used", "sign_in", "code", "password"
"""Kinds of items in the key-value store.

The last use of a token is an item of its own: recording it must not restore a revoked token.
"""
_PASSWORD_ID = "the"

T = TypeVar("T")
_Expiring = TypeVar("_Expiring", SignIn, SignInCode)


class CredentialStore:
    """Store tokens, sign-ins, sign-in codes and the password. Secrets themselves are never stored."""

    def __init__(
        self,
        kv: KeyValueStore,
        clock: Clock,
        ids: IdGenerator,
        code_ms: int = CODE_MS_MAX,
        sign_in_ms: int = SIGN_IN_MS_MAX,
        mask: MaskFunction = no_mask,
    ) -> None:
        self._kv = kv
        self._clock = clock
        self._ids = ids
        self._code_ms = code_ms
        self._sign_in_ms = sign_in_ms
        self._mask = mask
        self._raw: Sequence[Mapping[str, bytes]] = ()
        self._keys = CredentialSnapshot()

    async def load_snapshot(self) -> CredentialSnapshot:
        """Return all valid credentials."""
        raw = [await self._kv.items(kind) for kind in (TOKEN, SIGN_IN, CODE, PASSWORD)]
        if raw != self._raw:
            tokens, sign_ins, codes, passwords = raw
            self._keys = CredentialSnapshot(
                {each.digest: each for each in _read(tokens, AccessToken)},
                {each.digest: each for each in _read(sign_ins, SignIn)},
                {each.digest: each for each in _read(codes, SignInCode)},
                next(iter(_read(passwords, Password)), None),
            )
            self._raw = raw
        now = self._clock.now_ms()
        return msgspec.structs.replace(
            self._keys,
            sign_ins=_unexpired(self._keys.sign_ins, now),
            codes=_unexpired(self._keys.codes, now),
        )

    async def add_token(self, name: str, rights: tuple[Right, ...]) -> tuple[AccessToken, str]:
        """Create a token; return it with its secret, which cannot be read again. Raises TooLarge."""
        name = self._mask(name)
        if not 0 < len(name) <= TOKEN_NAME_CHARS_MAX:
            raise TooLarge(what="The token's name", size=len(name), limit=TOKEN_NAME_CHARS_MAX)
        count = len(await self._kv.items(TOKEN))
        if count >= TOKENS_MAX:
            raise TooLarge(what="The list of tokens", size=count + 1, limit=TOKENS_MAX)
        secret = new_secret()
        token = AccessToken(self._ids.token(), name, secret_digest(secret), rights, self._clock.now_ms())
        await self._put(TOKEN, token.id, token)
        return token, secret

    async def tokens(self) -> Sequence[tuple[AccessToken, Instant | None]]:
        """Return every token and when it was last used, oldest first."""
        used = await self._kv.items(TOKEN_USED)
        found = _read(await self._kv.items(TOKEN), AccessToken)
        times = {token_id: msgspec.json.decode(body, type=Instant) for token_id, body in used.items()}
        return [(token, times.get(token.id)) for token in sorted(found, key=lambda token: token.id)]

    async def revoke_token(self, token_id: str) -> None:
        """Delete a token. Raises NoSuchToken."""
        if await self._kv.take_item(TOKEN, token_id) is None:
            raise NoSuchToken(token_id=token_id)
        await self._kv.take_item(TOKEN_USED, token_id)

    async def record_token_use(self, token_id: str, at: Instant) -> None:
        await self._put(TOKEN_USED, token_id, at)

    async def set_password(self, password: str, except_digest: str = "") -> None:
        """Set the password. A change signs out all browsers but `except_digest`. Raises BadPassword."""
        if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
            raise BadPassword(shortest=PASSWORD_CHARS_MIN, longest=PASSWORD_CHARS_MAX)
        hashed = await asyncio.to_thread(hash_password, password)
        is_change = bool(await self._kv.items(PASSWORD))
        await self._put(PASSWORD, _PASSWORD_ID, Password(hashed, self._clock.now_ms()))
        if is_change:
            await self.sign_out_all(except_digest)

    async def remove_password(self, except_digest: str = "") -> bool:
        """Remove the password and sign out all browsers but `except_digest`; return whether there was one."""
        found = await self._kv.take_item(PASSWORD, _PASSWORD_ID)
        if found is not None:
            await self.sign_out_all(except_digest)
        return found is not None

    async def create_code(self) -> str:
        """Create a sign-in code; return the secret that signs one browser in, once, until it expires."""
        secret, now = new_secret(), self._clock.now_ms()
        await self._evict(CODE, SignInCode, CODES_MAX)
        code = SignInCode(secret_digest(secret), now, now + self._code_ms)
        await self._put(CODE, code.digest, code)
        return secret

    async def redeem_code(self, secret: str) -> bool:
        """Use a code up; return whether it was valid. Of several uses of the same code, one succeeds."""
        body = await self._kv.take_item(CODE, secret_digest(secret))
        return body is not None and _is_valid(
            msgspec.json.decode(body, type=SignInCode), self._clock.now_ms()
        )

    async def create_sign_in(self) -> tuple[SignIn, str, str]:
        """Sign a browser in; return the sign-in, the secret of its cookie, and the secret for its page."""
        secret, page_secret, now = new_secret(), new_secret(), self._clock.now_ms()
        await self._evict(SIGN_IN, SignIn, SIGN_INS_MAX)
        sign_in = SignIn(secret_digest(secret), now, now + self._sign_in_ms, secret_digest(page_secret))
        await self._put(SIGN_IN, sign_in.digest, sign_in)
        return sign_in, secret, page_secret

    async def sign_out(self, digest: str) -> None:
        await self._kv.take_item(SIGN_IN, digest)

    async def sign_out_all(self, except_digest: str = "") -> None:
        """Sign out every browser but the one with `except_digest`."""
        for digest in await self._kv.items(SIGN_IN):
            if digest != except_digest:
                await self.sign_out(digest)

    async def _evict(self, kind: str, shape: type[_Expiring], count_max: int) -> None:
        """Delete expired items, and the oldest ones to make room for another."""
        found = sorted(_read(await self._kv.items(kind), shape), key=_created_at)
        now = self._clock.now_ms()
        valid = [each for each in found if _is_valid(each, now)]
        expired = [each for each in found if not _is_valid(each, now)]
        for each in expired + valid[: max(0, len(valid) - count_max + 1)]:
            await self._kv.take_item(kind, each.digest)

    async def _put(self, kind: str, item_id: str, value: object) -> None:
        await self._kv.put_item(kind, item_id, msgspec.json.encode(value))


def _read(items: Mapping[str, bytes], shape: type[T]) -> list[T]:
    return [msgspec.json.decode(body, type=shape) for body in items.values()]


def _unexpired(items: Mapping[str, _Expiring], now: Instant) -> Mapping[str, _Expiring]:
    if all(_is_valid(each, now) for each in items.values()):
        return items
    return {digest: each for digest, each in items.items() if _is_valid(each, now)}


def _is_valid(item: SignIn | SignInCode, now: Instant) -> bool:
    return now < item.expires_at


def _created_at(item: SignIn | SignInCode) -> Instant:
    return item.created_at
