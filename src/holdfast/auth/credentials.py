"""Making, using and taking away what lets people in: on the store's shelf, where every process sees it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from holdfast.auth.passwords import hash_password
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.credentials import (
    Code,
    Keys,
    Password,
    Right,
    SignIn,
    Token,
    digest_of,
    new_secret,
)
from holdfast.domain.errors import BadPassword, NoSuchToken, TooLarge
from holdfast.domain.ids import Ids
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
from holdfast.domain.secrets import Masking, identity
from holdfast.store.ports import Shelf

TOKEN, TOKEN_USED, SIGN_IN, CODE, PASSWORD = "token", "token_used", "sign_in", "code", "password"
"""The kinds on the shelf. When a token was last used lies apart: noting it must not bring back one that
was revoked."""
_THE_PASSWORD = "the"

T = TypeVar("T")
_Expiring = TypeVar("_Expiring", SignIn, Code)


class Keyring:
    """Knows no secret longer than it takes to hand it out."""

    def __init__(
        self,
        shelf: Shelf,
        clock: Clock,
        ids: Ids,
        code_ms: int = CODE_MS_MAX,
        sign_in_ms: int = SIGN_IN_MS_MAX,
        mask: Masking = identity,
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._ids = ids
        self._code_ms = code_ms
        self._sign_in_ms = sign_in_ms
        self._mask = mask
        self._raw: Sequence[Mapping[str, bytes]] = ()
        self._keys = Keys()

    async def keys(self) -> Keys:
        """What lets anybody in now."""
        raw = [await self._shelf.items(kind) for kind in (TOKEN, SIGN_IN, CODE, PASSWORD)]
        if raw != self._raw:
            tokens, sign_ins, codes, passwords = raw
            self._keys = Keys(
                {each.digest: each for each in _read(tokens, Token)},
                {each.digest: each for each in _read(sign_ins, SignIn)},
                {each.digest: each for each in _read(codes, Code)},
                next(iter(_read(passwords, Password)), None),
            )
            self._raw = raw
        now = self._clock.now_ms()
        return msgspec.structs.replace(
            self._keys,
            sign_ins=_unexpired(self._keys.sign_ins, now),
            codes=_unexpired(self._keys.codes, now),
        )

    async def add_token(self, name: str, rights: tuple[Right, ...]) -> tuple[Token, str]:
        """A new token and its secret, which is not told again. Raises TooLarge."""
        name = self._mask(name)
        if not 0 < len(name) <= TOKEN_NAME_CHARS_MAX:
            raise TooLarge(what="The token's name", size=len(name), limit=TOKEN_NAME_CHARS_MAX)
        count = len(await self._shelf.items(TOKEN))
        if count >= TOKENS_MAX:
            raise TooLarge(what="The list of tokens", size=count + 1, limit=TOKENS_MAX)
        secret = new_secret()
        token = Token(self._ids.token(), name, digest_of(secret), rights, self._clock.now_ms())
        await self._put(TOKEN, token.id, token)
        return token, secret

    async def tokens(self) -> Sequence[tuple[Token, Instant | None]]:
        """Every token and when it was last used, the oldest first."""
        used = await self._shelf.items(TOKEN_USED)
        found = _read(await self._shelf.items(TOKEN), Token)
        times = {token_id: msgspec.json.decode(body, type=Instant) for token_id, body in used.items()}
        return [(token, times.get(token.id)) for token in sorted(found, key=lambda token: token.id)]

    async def revoke_token(self, token_id: str) -> None:
        """Raises NoSuchToken."""
        if await self._shelf.take_item(TOKEN, token_id) is None:
            raise NoSuchToken(token_id=token_id)
        await self._shelf.take_item(TOKEN_USED, token_id)

    async def note_used(self, token_id: str, at: Instant) -> None:
        await self._put(TOKEN_USED, token_id, at)

    async def set_password(self, password: str, but: str = "") -> None:
        """Raises BadPassword. Whoever came in while there was another one is signed out, `but` one."""
        if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
            raise BadPassword(shortest=PASSWORD_CHARS_MIN, longest=PASSWORD_CHARS_MAX)
        hashed = await asyncio.to_thread(hash_password, password)
        is_change = bool(await self._shelf.items(PASSWORD))
        await self._put(PASSWORD, _THE_PASSWORD, Password(hashed, self._clock.now_ms()))
        if is_change:
            await self.sign_out_all(but)

    async def remove_password(self, but: str = "") -> bool:
        """Whether there was one; every browser is signed out then, `but` one."""
        found = await self._shelf.take_item(PASSWORD, _THE_PASSWORD)
        if found is not None:
            await self.sign_out_all(but)
        return found is not None

    async def new_code(self) -> str:
        """A secret that signs one browser in, once, for a while."""
        secret, now = new_secret(), self._clock.now_ms()
        await self._make_room(CODE, Code, CODES_MAX)
        code = Code(digest_of(secret), now, now + self._code_ms)
        await self._put(CODE, code.digest, code)
        return secret

    async def redeem(self, secret: str) -> bool:
        """Use a code up. Of several who bring the same one, one gets in."""
        body = await self._shelf.take_item(CODE, digest_of(secret))
        return body is not None and _is_open(msgspec.json.decode(body, type=Code), self._clock.now_ms())

    async def sign_in(self) -> tuple[SignIn, str, str]:
        """A signed-in browser, the secret of its cookie, and the one that its page keeps."""
        secret, page_secret, now = new_secret(), new_secret(), self._clock.now_ms()
        await self._make_room(SIGN_IN, SignIn, SIGN_INS_MAX)
        sign_in = SignIn(digest_of(secret), now, now + self._sign_in_ms, digest_of(page_secret))
        await self._put(SIGN_IN, sign_in.digest, sign_in)
        return sign_in, secret, page_secret

    async def sign_out(self, digest: str) -> None:
        await self._shelf.take_item(SIGN_IN, digest)

    async def sign_out_all(self, but: str = "") -> None:
        """Every browser, `but` the one with that digest."""
        for digest in await self._shelf.items(SIGN_IN):
            if digest != but:
                await self.sign_out(digest)

    async def _make_room(self, kind: str, shape: type[_Expiring], most: int) -> None:
        """Take away what has run out, and the oldest of what would be too many."""
        found = sorted(_read(await self._shelf.items(kind), shape), key=_age_of)
        now = self._clock.now_ms()
        lasting = [each for each in found if _is_open(each, now)]
        gone = [each for each in found if not _is_open(each, now)]
        for each in gone + lasting[: max(0, len(lasting) - most + 1)]:
            await self._shelf.take_item(kind, each.digest)

    async def _put(self, kind: str, item_id: str, value: object) -> None:
        await self._shelf.put_item(kind, item_id, msgspec.json.encode(value))


def _read(items: Mapping[str, bytes], shape: type[T]) -> list[T]:
    return [msgspec.json.decode(body, type=shape) for body in items.values()]


def _unexpired(items: Mapping[str, _Expiring], now: Instant) -> Mapping[str, _Expiring]:
    if all(_is_open(each, now) for each in items.values()):
        return items
    return {digest: each for digest, each in items.items() if _is_open(each, now)}


def _is_open(item: SignIn | Code, now: Instant) -> bool:
    return now < item.expires_at


def _age_of(item: SignIn | Code) -> Instant:
    return item.created_at
