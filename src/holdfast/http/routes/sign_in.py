"""Sign browsers in and out over HTTP, and manage access tokens."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.params import FromPath

from holdfast.auth.credentials import CredentialStore
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import DEFAULT_RIGHTS, RIGHTS, AccessToken, Right
from holdfast.domain.errors import NoSuchToken
from holdfast.domain.limits import PASSWORD_CHARS_MAX, TOKEN_NAME_CHARS_MAX
from holdfast.http.authenticator import Authenticator, Principal, client_address
from holdfast.http.errors import BadRequest, SignInFailed, TooManyAttempts
from holdfast.http.hosts import HostPolicy
from holdfast.http.openapi.responses import request_body, response_specs

_SECRET_CHARS_MAX = 200


class SignInRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets a browser in: the code of a sign-in link, or the password."""

    code: Annotated[str, msgspec.Meta(max_length=_SECRET_CHARS_MAX)] = ""
    password: Annotated[str, msgspec.Meta(max_length=PASSWORD_CHARS_MAX)] = ""


class Me(msgspec.Struct, frozen=True):
    """Who is asking, and what they may do. `browser`: they can sign out."""

    signed_in: bool
    name: str
    rights: tuple[Right, ...]
    browser: bool


class SignInResult(msgspec.Struct, frozen=True):
    """Signed in. A page keeps `page_key` itself and shows it as `X-Holdfast-Page`, beside its cookie."""

    signed_in: bool
    name: str
    rights: tuple[Right, ...]
    browser: bool
    page_key: str


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=TOKEN_NAME_CHARS_MAX)]
    rights: Annotated[tuple[Right, ...], msgspec.Meta(min_length=1, max_length=len(RIGHTS))] = DEFAULT_RIGHTS


class TokenInfo(msgspec.Struct, frozen=True):
    """A token, without its secret. Times are milliseconds since 1970."""

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: Instant
    last_used_at: Instant | None


class TokenWithSecret(msgspec.Struct, frozen=True):
    """A new token; `secret` is not told again."""

    token: TokenInfo
    secret: str


class TokenList(msgspec.Struct, frozen=True):
    tokens: tuple[TokenInfo, ...]


_ME = Me(True, "browser", RIGHTS, True)


def _sign_in_result(page_key: str) -> SignInResult:
    return SignInResult(_ME.signed_in, _ME.name, _ME.rights, _ME.browser, page_key)


_TOKEN = TokenInfo("k_0cw8hjr5600k3m2x", "backup script", DEFAULT_RIGHTS, 1_760_000_000_000, None)


class SignInRoutes:
    """Serve `/api/sign-in`, `/api/sign-out`, `/api/me` and `/api/tokens`."""

    def __init__(
        self, credential_store: CredentialStore, authenticator: Authenticator, hosts: HostPolicy
    ) -> None:
        self._credential_store = credential_store
        self._authenticator = authenticator
        self._hosts = hosts

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        entered = response_specs(
            200, SignInResult, _sign_in_result("hf_…"), SignInFailed, TooManyAttempts, has_body=True
        )
        left = response_specs(204, None, None, has_body=True)
        listed = response_specs(200, TokenList, TokenList((_TOKEN,)))
        made = response_specs(201, TokenWithSecret, TokenWithSecret(_TOKEN, "hf_…"), has_body=True)
        return [
            post("/api/sign-in", status_code=200, responses=entered)(self.sign_in),
            post("/api/sign-out", status_code=204, responses=left)(self.sign_out),
            get("/api/me", responses=response_specs(200, Me, _ME))(self.me),
            get("/api/tokens", responses=listed)(self.tokens),
            post("/api/tokens", status_code=201, responses=made)(self.add_token),
            delete("/api/tokens/{token_id:str}", responses=response_specs(204, None, None, NoSuchToken))(
                self.revoke
            ),
        ]

    async def sign_in(
        self,
        request: Request[Any, Any, Any],
        data: Annotated[SignInRequest, request_body({"code": "hf_…"}, {"password": "correct horse"})],
    ) -> Response[SignInResult]:
        """Sign a browser in; the cookie that is set and `page_key` beside it let it in from then on."""
        if bool(data.code) == bool(data.password):
            raise BadRequest(why="give either a code or a password")
        if self._authenticator.is_auth_disabled:
            return Response(_sign_in_result(""))
        scope = request.scope
        address = client_address(scope)  # type: ignore[arg-type]
        if data.code:
            await self._authenticator.redeem_code(data.code, address)
        else:
            await self._authenticator.check_password(data.password, address)
        sign_in, secret, page_secret = await self._credential_store.create_sign_in()
        cookie = self._hosts.cookie(scope)  # type: ignore[arg-type]
        age_s = (sign_in.expires_at - sign_in.created_at) // 1000
        headers = {"set-cookie": cookie.set_cookie_header(secret, age_s)}
        return Response(_sign_in_result(page_secret), headers=headers)

    async def sign_out(self, request: Request[Principal, Any, Any]) -> Response[None]:
        """Sign this browser out. What it follows ends at once."""
        if request.user.is_browser:
            await self._credential_store.sign_out(request.user.digest)
            await self._authenticator.refresh()
        cookie = self._hosts.cookie(request.scope)  # type: ignore[arg-type]
        return Response(None, status_code=204, headers={"set-cookie": cookie.set_cookie_header("", 0)})

    async def me(self, request: Request[Principal, Any, Any]) -> Me:
        """Who is asking, and what they may do."""
        principal = request.user
        rights = tuple(right for right in RIGHTS if right in principal.rights)
        return Me(True, principal.name, rights, principal.is_browser)

    async def tokens(self) -> TokenList:
        """Every token, without its secret."""
        return TokenList(
            tuple(_token_info(token, used) for token, used in await self._credential_store.tokens())
        )

    async def add_token(
        self, data: Annotated[NewToken, request_body({"name": "backup script", "rights": ["read"]})]
    ) -> TokenWithSecret:
        """Make a token. Its secret is told once, here."""
        rights = tuple(right for right in RIGHTS if right in data.rights)
        token, secret = await self._credential_store.add_token(data.name, rights)
        return TokenWithSecret(_token_info(token, None), secret)

    async def revoke(self, token_id: FromPath[str]) -> None:
        """Revoke a token. Whoever is in by it is cut off at once."""
        await self._credential_store.revoke_token(token_id)
        await self._authenticator.refresh()


def _token_info(token: AccessToken, used: Instant | None) -> TokenInfo:
    return TokenInfo(token.id, token.name, token.rights, token.created_at, used)
