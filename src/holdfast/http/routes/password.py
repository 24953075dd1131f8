"""Change the password over HTTP, and list and sign out browsers."""

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath

from holdfast.auth.credentials import CredentialStore
from holdfast.domain.clock import Instant
from holdfast.domain.errors import BadPassword, NoSuchSignIn
from holdfast.domain.limits import PASSWORD_CHARS_MAX
from holdfast.http.authenticator import Authenticator, Principal, client_address
from holdfast.http.errors import SignInFailed, TooManyAttempts
from holdfast.http.openapi.responses import request_body, response_specs

_ID_CHARS = 16
Text = Annotated[str, msgspec.Meta(max_length=PASSWORD_CHARS_MAX)]


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The password to come. If the old one is given, it must be right."""

    password: Text
    old_password: Text | None = None

    def __repr__(self) -> str:
        return "NewPassword(…)"


class PasswordInfo(msgspec.Struct, frozen=True):
    """Whether there is a password, and since when. Times are milliseconds since 1970."""

    is_set: bool
    set_at: Instant | None


class SignInInfo(msgspec.Struct, frozen=True):
    """A browser that is signed in. `current`: it is the one that asks."""

    id: str
    created_at: Instant
    expires_at: Instant
    current: bool


class SignInList(msgspec.Struct, frozen=True):
    """The newest first."""

    sign_ins: tuple[SignInInfo, ...]


_PASSWORD_INFO = PasswordInfo(True, 1_760_000_000_000)
_SIGN_IN = SignInInfo("9f86d081884c7d65", 1_760_000_000_000, 1_762_592_000_000, True)


class PasswordRoutes:
    """Serve `/api/password` and `/api/sign-ins`."""

    def __init__(self, credential_store: CredentialStore, authenticator: Authenticator) -> None:
        self._credential_store = credential_store
        self._authenticator = authenticator

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        wrong = (BadPassword, SignInFailed, TooManyAttempts)
        one = "/api/sign-ins/{sign_in_id:str}"
        return [
            get("/api/password", responses=response_specs(200, PasswordInfo, _PASSWORD_INFO))(self.show),
            post(
                "/api/password",
                status_code=200,
                responses=response_specs(200, PasswordInfo, _PASSWORD_INFO, *wrong, has_body=True),
            )(self.set),
            delete("/api/password", responses=response_specs(204, None, None, has_body=True))(self.remove),
            get("/api/sign-ins", responses=response_specs(200, SignInList, SignInList((_SIGN_IN,))))(
                self.sign_ins
            ),
            delete(one, responses=response_specs(204, None, None, NoSuchSignIn, has_body=True))(
                self.sign_out
            ),
        ]

    async def show(self) -> PasswordInfo:
        """Whether there is a password; what it is, nobody knows."""
        return await self._password_info()

    async def set(
        self,
        request: Request[Principal, Any, Any],
        data: Annotated[NewPassword, request_body({"password": "correct horse"})],
    ) -> PasswordInfo:
        """Set or change the password. Where there was one, every other browser is signed out."""
        if (
            data.old_password is not None
            and (await self._credential_store.load_snapshot()).password is not None
        ):
            await self._authenticator.check_password(data.old_password, client_address(request.scope))  # type: ignore[arg-type]
        await self._credential_store.set_password(data.password, request.user.digest)
        await self._authenticator.refresh()
        return await self._password_info()

    async def remove(self, request: Request[Principal, Any, Any]) -> None:
        """Have no password any more. Where there was one, every other browser is signed out."""
        await self._credential_store.remove_password(request.user.digest)
        await self._authenticator.refresh()

    async def sign_ins(self, request: Request[Principal, Any, Any]) -> SignInList:
        """The browsers that are signed in."""
        found = sorted(
            (await self._credential_store.load_snapshot()).sign_ins.values(),
            key=lambda sign_in: sign_in.created_at,
            reverse=True,
        )
        own = request.user.digest
        return SignInList(
            tuple(
                SignInInfo(
                    sign_in.digest[:_ID_CHARS], sign_in.created_at, sign_in.expires_at, sign_in.digest == own
                )
                for sign_in in found
            )
        )

    async def sign_out(self, sign_in_id: FromPath[str]) -> None:
        """Sign a browser out. What it follows ends at once."""
        for digest in (await self._credential_store.load_snapshot()).sign_ins:
            if digest[:_ID_CHARS] == sign_in_id:
                await self._credential_store.sign_out(digest)
                await self._authenticator.refresh()
                return
        raise NoSuchSignIn(sign_in_id=sign_in_id[:_ID_CHARS])

    async def _password_info(self) -> PasswordInfo:
        password = (await self._credential_store.load_snapshot()).password
        return PasswordInfo(password is not None, password.set_at if password is not None else None)
