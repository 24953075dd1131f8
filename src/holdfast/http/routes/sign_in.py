"""Signing in and out, and what lets programs in, over HTTP."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Response, delete, get, post
from litestar.params import FromPath

from holdfast.auth.credentials import Keyring
from holdfast.domain.clock import Instant
from holdfast.domain.credentials import RIGHTS, USUAL_RIGHTS, Right, Token
from holdfast.domain.errors import NoSuchToken
from holdfast.domain.limits import PASSWORD_CHARS_MAX, TOKEN_NAME_CHARS_MAX
from holdfast.http.authenticator import Guard, Visitor, address_of
from holdfast.http.errors import BadRequest, SignInFailed, TooManyTries
from holdfast.http.hosts import Hosts
from holdfast.http.openapi.responses import answers, body

_SECRET_CHARS_MAX = 200


class Opening(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets a browser in: the code of a sign-in link, or the password."""

    code: Annotated[str, msgspec.Meta(max_length=_SECRET_CHARS_MAX)] = ""
    password: Annotated[str, msgspec.Meta(max_length=PASSWORD_CHARS_MAX)] = ""


class Me(msgspec.Struct, frozen=True):
    """Who is asking, and what they may do. `browser`: they can sign out."""

    signed_in: bool
    name: str
    rights: tuple[Right, ...]
    browser: bool


class Entered(msgspec.Struct, frozen=True):
    """Signed in. A page keeps `page_key` itself and shows it as `X-Holdfast-Page`, beside its cookie."""

    signed_in: bool
    name: str
    rights: tuple[Right, ...]
    browser: bool
    page_key: str


class NewToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=TOKEN_NAME_CHARS_MAX)]
    rights: Annotated[tuple[Right, ...], msgspec.Meta(min_length=1, max_length=len(RIGHTS))] = USUAL_RIGHTS


class TokenTold(msgspec.Struct, frozen=True):
    """A token, without its secret. Times are milliseconds since 1970."""

    id: str
    name: str
    rights: tuple[Right, ...]
    created_at: Instant
    last_used_at: Instant | None


class TokenMade(msgspec.Struct, frozen=True):
    """A new token; `secret` is not told again."""

    token: TokenTold
    secret: str


class TokenList(msgspec.Struct, frozen=True):
    tokens: tuple[TokenTold, ...]


_ME = Me(True, "browser", RIGHTS, True)


def _entered(page_key: str) -> Entered:
    return Entered(_ME.signed_in, _ME.name, _ME.rights, _ME.browser, page_key)


_TOKEN = TokenTold("k_0cw8hjr5600k3m2x", "backup script", USUAL_RIGHTS, 1_760_000_000_000, None)


class SignInRoutes:
    """`/api/sign-in`, `/api/sign-out`, `/api/me` and `/api/tokens`."""

    def __init__(self, keyring: Keyring, guard: Guard, hosts: Hosts) -> None:
        self._keyring = keyring
        self._guard = guard
        self._hosts = hosts

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        entered = answers(200, Entered, _entered("hf_…"), SignInFailed, TooManyTries, sends=True)
        left = answers(204, None, None, sends=True)
        listed = answers(200, TokenList, TokenList((_TOKEN,)))
        made = answers(201, TokenMade, TokenMade(_TOKEN, "hf_…"), sends=True)
        return [
            post("/api/sign-in", status_code=200, responses=entered)(self.sign_in),
            post("/api/sign-out", status_code=204, responses=left)(self.sign_out),
            get("/api/me", responses=answers(200, Me, _ME))(self.me),
            get("/api/tokens", responses=listed)(self.tokens),
            post("/api/tokens", status_code=201, responses=made)(self.add_token),
            delete("/api/tokens/{token_id:str}", responses=answers(204, None, None, NoSuchToken))(
                self.revoke
            ),
        ]

    async def sign_in(
        self,
        request: Request[Any, Any, Any],
        data: Annotated[Opening, body({"code": "hf_…"}, {"password": "correct horse"})],
    ) -> Response[Entered]:
        """Sign a browser in; the cookie that is set and `page_key` beside it let it in from then on."""
        if bool(data.code) == bool(data.password):
            raise BadRequest(why="give either a code or a password")
        if self._guard.is_open:
            return Response(_entered(""))
        scope = request.scope
        address = address_of(scope)  # type: ignore[arg-type]
        if data.code:
            await self._guard.use_code(data.code, address)
        else:
            await self._guard.use_password(data.password, address)
        sign_in, secret, page_secret = await self._keyring.sign_in()
        cookie = self._hosts.cookie(scope)  # type: ignore[arg-type]
        age_s = (sign_in.expires_at - sign_in.created_at) // 1000
        headers = {"set-cookie": cookie.holding(secret, age_s)}
        return Response(_entered(page_secret), headers=headers)

    async def sign_out(self, request: Request[Visitor, Any, Any]) -> Response[None]:
        """Sign this browser out. What it follows ends at once."""
        if request.user.is_browser:
            await self._keyring.sign_out(request.user.digest)
            await self._guard.look()
        cookie = self._hosts.cookie(request.scope)  # type: ignore[arg-type]
        return Response(None, status_code=204, headers={"set-cookie": cookie.holding("", 0)})

    async def me(self, request: Request[Visitor, Any, Any]) -> Me:
        """Who is asking, and what they may do."""
        who = request.user
        rights = tuple(right for right in RIGHTS if right in who.rights)
        return Me(True, who.name, rights, who.is_browser)

    async def tokens(self) -> TokenList:
        """Every token, without its secret."""
        return TokenList(tuple(_told(token, used) for token, used in await self._keyring.tokens()))

    async def add_token(
        self, data: Annotated[NewToken, body({"name": "backup script", "rights": ["read"]})]
    ) -> TokenMade:
        """Make a token. Its secret is told once, here."""
        rights = tuple(right for right in RIGHTS if right in data.rights)
        token, secret = await self._keyring.add_token(data.name, rights)
        return TokenMade(_told(token, None), secret)

    async def revoke(self, token_id: FromPath[str]) -> None:
        """Revoke a token. Whoever is in by it is cut off at once."""
        await self._keyring.revoke_token(token_id)
        await self._guard.look()


def _told(token: Token, used: Instant | None) -> TokenTold:
    return TokenTold(token.id, token.name, token.rights, token.created_at, used)
