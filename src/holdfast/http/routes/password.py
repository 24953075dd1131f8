"""The password and the browsers that are signed in, over HTTP."""

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath

from holdfast.auth.credentials import Keyring
from holdfast.domain.clock import Instant
from holdfast.domain.errors import BadPassword, NoSuchSignIn
from holdfast.domain.limits import PASSWORD_CHARS_MAX
from holdfast.http.authenticator import Guard, Visitor, address_of
from holdfast.http.errors import SignInFailed, TooManyTries
from holdfast.http.openapi.responses import answers, body

_ID_CHARS = 16
Text = Annotated[str, msgspec.Meta(max_length=PASSWORD_CHARS_MAX)]


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password to come. If the old one is given, it must be right."""

    password: Text
    old_password: Text | None = None

    def __repr__(self) -> str:
        return "NewPassword(…)"


class PasswordTold(msgspec.Struct, frozen=True):
    """Whether there is a password, and since when. Times are milliseconds since 1970."""

    is_set: bool
    set_at: Instant | None


class SignInTold(msgspec.Struct, frozen=True):
    """A browser that is signed in. `current`: it is the one that asks."""

    id: str
    created_at: Instant
    expires_at: Instant
    current: bool


class SignInList(msgspec.Struct, frozen=True):
    """The newest first."""

    sign_ins: tuple[SignInTold, ...]


_TOLD = PasswordTold(True, 1_760_000_000_000)
_SIGN_IN = SignInTold("9f86d081884c7d65", 1_760_000_000_000, 1_762_592_000_000, True)


class PasswordRoutes:
    """`/api/password` and `/api/sign-ins`."""

    def __init__(self, keyring: Keyring, guard: Guard) -> None:
        self._keyring = keyring
        self._guard = guard

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        wrong = (BadPassword, SignInFailed, TooManyTries)
        one = "/api/sign-ins/{sign_in_id:str}"
        return [
            get("/api/password", responses=answers(200, PasswordTold, _TOLD))(self.show),
            post(
                "/api/password",
                status_code=200,
                responses=answers(200, PasswordTold, _TOLD, *wrong, sends=True),
            )(self.set),
            delete("/api/password", responses=answers(204, None, None, sends=True))(self.remove),
            get("/api/sign-ins", responses=answers(200, SignInList, SignInList((_SIGN_IN,))))(self.sign_ins),
            delete(one, responses=answers(204, None, None, NoSuchSignIn, sends=True))(self.sign_out),
        ]

    async def show(self) -> PasswordTold:
        """Whether there is a password; what it is, nobody knows."""
        return await self._told()

    async def set(
        self,
        request: Request[Visitor, Any, Any],
        data: Annotated[NewPassword, body({"password": "correct horse"})],
    ) -> PasswordTold:
        """Set or change the password. Where there was one, every other browser is signed out."""
        if data.old_password is not None and (await self._keyring.keys()).password is not None:
            await self._guard.use_password(data.old_password, address_of(request.scope))  # type: ignore[arg-type]
        await self._keyring.set_password(data.password, request.user.digest)
        await self._guard.look()
        return await self._told()

    async def remove(self, request: Request[Visitor, Any, Any]) -> None:
        """Have no password any more. Where there was one, every other browser is signed out."""
        await self._keyring.remove_password(request.user.digest)
        await self._guard.look()

    async def sign_ins(self, request: Request[Visitor, Any, Any]) -> SignInList:
        """The browsers that are signed in."""
        found = sorted(
            (await self._keyring.keys()).sign_ins.values(), key=lambda each: each.created_at, reverse=True
        )
        own = request.user.digest
        return SignInList(
            tuple(
                SignInTold(each.digest[:_ID_CHARS], each.created_at, each.expires_at, each.digest == own)
                for each in found
            )
        )

    async def sign_out(self, sign_in_id: FromPath[str]) -> None:
        """Sign a browser out. What it follows ends at once."""
        for digest in (await self._keyring.keys()).sign_ins:
            if digest[:_ID_CHARS] == sign_in_id:
                await self._keyring.sign_out(digest)
                await self._guard.look()
                return
        raise NoSuchSignIn(sign_in_id=sign_in_id[:_ID_CHARS])

    async def _told(self) -> PasswordTold:
        kept = (await self._keyring.keys()).password
        return PasswordTold(kept is not None, kept.set_at if kept is not None else None)
